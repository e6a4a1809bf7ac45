"""The block of a backend in a job, over the one in slipway.yaml."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from launcher.errors import BadInput
from launcher.spec.backends import backends, traits
from launcher.spec.model import ResolvedJob


def merged(backend: str, general: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The profile's options (`general`) with the job's over them. Of options that exclude each other (Traits.choices)
    the job's one takes the place of the profile's."""
    choices = traits(backend).choices
    others = {option: belonging for option, belonging in choices.items() if option not in own}
    if len(others) < len(choices):
        dropped = {*others, *(name for belonging in others.values() for name in belonging)}
        general = {name: value for name, value in general.items() if name not in dropped}
    return {**general, **own}


def without_defaults(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A backend's block without options at their defaults, so that a written default changes no hash."""
    defaults = traits(backend).defaults
    return {key: value for key, value in options.items() if key not in defaults or value != defaults[key]}


def of_machine(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a backend's block that means something on this machine only."""
    own = traits(backend).machine
    return {key: value for key, value in options.items() if key in own}


def portable(backend: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a backend's block that job.json holds."""
    own = traits(backend).machine
    return {key: value for key, value in options.items() if key not in own}


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
