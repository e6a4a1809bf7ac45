"""Says of new runs that nothing but their code differs from the newest run of their name: perhaps nobody meant that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from launcher.spec.code import Overlay, Packed
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import ResolvedJob
from launcher.spec.resolve import Group
from launcher.store.base import Store
from launcher.userdata.newest import newest
from launcher.verbs.overlays import changed_files

_NAMED: Final = 5  # files in a line, at most


def only_code_differs(
    store: Store, group: Group, new: Iterable[ResolvedJob], overlays: Mapping[str, Packed]
) -> Iterator[str]:
    """A line for each such run. Costs one request for each overlay of before that differs, usually one."""
    known: dict[tuple[str, str], list[str]] = {}
    for job in new:
        run = run_id(job)
        before = newest(store.url, group.names.get(run, job.name))
        if before is None or before.code is None or job.code is None or before.code == job.code:
            continue
        if run_hash(msgspec.structs.replace(before, code=job.code)) != run_hash(job):
            continue
        digests = before.code.digest, job.code.digest
        overlay = overlays.get(job.code.digest)
        if digests not in known:
            found = changed_files(store, before.code.digest, overlay) if isinstance(overlay, Overlay) else []
            known[digests] = found
        files = known[digests]
        more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
        named = f": {', '.join(files[:_NAMED])}{more}" if files else ""
        yield f"{run} is a new run: nothing but the files of `code` differs from {run_id(before)}{named}"
