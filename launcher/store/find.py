"""Lists runs and groups by the beginning of their names. `launcher.selection.naming` parses the names users type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from launcher.decoding import decode_record
from launcher.store.base import Meta, Store
from launcher.store.layout import GROUPS, RUNS, group

ONE_BY_ONE: Final = 8  # runs of one name, listed with a request each; for more, a listing of all runs is cheaper


class GroupRecord(msgspec.Struct, frozen=True):
    """groups/<group>.json, written by submit: the runs in topological order, their names and edges."""

    id: str
    runs: tuple[str, ...]
    names: dict[str, str] = {}
    edges: dict[str, tuple[str, ...]] = {}
    nonce: str = ""

    def members(self, name: str) -> tuple[str, ...]:
        """The runs of a job, all of a matrix, or of one `job[label]`, in the group's order."""
        called = {run: self.names.get(run, run) for run in self.runs}
        return tuple(run for run in self.runs if name in (called[run], called[run].partition("[")[0], run))


def read_group(store: Store, group_id: str) -> GroupRecord | None:
    """The group with this id; None if there is none. Raises SlipwayError if its record cannot be read."""
    record = store.read(group(group_id))
    return decode_record(record[1].key, record[0], GroupRecord) if record is not None else None


def groups_by_age(store: Store) -> list[Meta]:
    """The groups' objects, the oldest first, by the store's own times."""
    return sorted(store.scan(GROUPS), key=lambda meta: (meta.modified, meta.key))


def runs_of_job(store: Store, name: str) -> list[str]:
    """The runs of the job with this name, by id."""
    known = re.compile(re.escape(name) + r"-[0-9a-f]{12}")
    few = list(islice(runs_from(store, f"{name}-"), ONE_BY_ONE))
    if len(few) == ONE_BY_ONE:
        few = store.folders(RUNS)
    return [run for run in few if known.fullmatch(run)]


def runs_from(store: Store, prefix: str) -> Iterator[str]:
    """The run ids that start with `prefix`. Costs one request for each: every listing starts after the last run."""
    after = ""
    while (meta := next(iter(store.scan(RUNS + prefix, after)), None)) is not None:
        run = meta.key.removeprefix(RUNS).partition("/")[0]
        yield run
        after = f"{RUNS}{run}0"  # `0` follows `/`


def groups_from(store: Store, prefix: str) -> Iterator[str]:
    """The group ids that start with `prefix`."""
    return (group_of(meta) for meta in store.scan(GROUPS + prefix))


def group_of(meta: Meta) -> str:
    """The id of the group of an object in `groups/`."""
    return meta.key.removeprefix(GROUPS).removesuffix(".json")
