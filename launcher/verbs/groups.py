"""Lists the groups of a store: which runs were submitted together, when, and their states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from launcher.decoding import decode_record
from launcher.errors import SlipwayError, Unreachable
from launcher.parallel import Threads
from launcher.selection.naming import PARALLEL, group_of_run
from launcher.store.base import Meta, Store
from launcher.store.find import GroupRecord, groups_by_age
from launcher.store.layout import GROUPS
from launcher.store.proof import check_empty
from launcher.userdata.record_cache import Memory
from launcher.verbs.status import STATES, Line


class SubmittedGroup(NamedTuple):
    """A group and the time of its first submit, by the store's clock, in seconds since the epoch."""

    record: GroupRecord
    when: float


def read_groups(store: Store, memory: Memory, last: int | None = None) -> tuple[list[SubmittedGroup], int]:
    """(the groups, oldest first; how many older ones were left out because of `last`). A group that cannot be read is
    left out. Each group is read once and then cached."""
    metas = groups_by_age(store)
    if not metas:
        check_empty(store, GROUPS)
    chosen = metas if last is None else metas[max(0, len(metas) - last) :]
    memory.load("groups/")

    def read(meta: Meta) -> SubmittedGroup | None:
        try:
            stored = memory.read(meta.key, meta)
            return SubmittedGroup(decode_record(meta.key, stored[0], GroupRecord), meta.modified) if stored else None
        except Unreachable:
            raise
        except SlipwayError:
            return None

    with Threads(PARALLEL) as pool:
        groups = [group for group in pool.map(read, chosen) if group is not None]
    return groups, len(metas) - len(chosen)


def groups_of_all(groups: Iterable[SubmittedGroup]) -> dict[str, str]:
    """run -> the first group that contains it."""
    group_of: dict[str, str] = {}
    for group in groups:
        for run in group.record.runs:
            group_of.setdefault(run, group.record.id)
    return group_of


def groups_of_some(store: Store, lines: Sequence[Line]) -> dict[str, str]:
    """run -> the group that submitted it, for a few runs: about two requests each."""
    created = {line.run: line.created for line in lines if line.created is not None}
    groups = {run: group_of_run(store, run, when) for run, when in created.items()}
    return {run: group.id for run, group in groups.items() if group is not None}


def jobs_of(record: GroupRecord) -> dict[str, int]:
    """job -> how many of its runs are in the group, in the group's order."""
    return dict(Counter(record.names.get(run, run.rpartition("-")[0]).partition("[")[0] for run in record.runs))


def states_of(record: GroupRecord, lines: Mapping[str, Line]) -> dict[str, int]:
    """state -> how many runs are in it, in the order of a run's life; `missing`: not in the store."""
    counts = Counter(lines[run].state if run in lines else "missing" for run in record.runs)
    return {state: counts[state] for state in (*STATES, "missing") if state in counts}
