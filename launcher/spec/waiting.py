"""How long a submit waits for a free machine, where its caller says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from launcher.errors import BadInput
from launcher.spec.backends import backends, traits
from launcher.spec.model import ResolvedJob

FIELD: Final = "wait_for_capacity"  # of the blocks of backends that wait


def check_wait(runs: Iterable[ResolvedJob], seconds: float) -> float:
    """`seconds`. Raises BadInput where a run's backend does not wait, or where its first machine would be billed while
    it waits for the others: only what the job itself says is known to who ends such a machine (`launcher reap`)."""
    for job in runs:
        if FIELD not in traits(job.backend).block.fields:
            able = ", ".join(name for name, each in backends().items() if FIELD in each.block.fields)
            raise BadInput(f"{job.name}: {job.backend} does not wait for capacity; allowed: {able}")
        if len(job.members()) > 1:
            raise BadInput(
                f"{job.name} needs {len(job.members())} machines, and reap must know how long the first may wait for "
                f"the others; allowed: `{job.backend}: {{{FIELD}: 6h}}` in the job"
            )
    return seconds
