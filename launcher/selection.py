"""What a user named on the command line: runs, with the names and edges of the groups they were named by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from launcher.errors import NotFound, SlipwayError
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.find import GroupRecord, find


@dataclass(frozen=True)
class Selection:
    """Runs, each once, in the order named. `groups` are the groups among the names."""

    runs: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)  # run -> its name in the group
    edges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    groups: tuple[str, ...] = ()


def select(store: Store, wanted: Sequence[str]) -> Selection:
    """The runs of every name: a run, a group, a unique beginning of either, or `GROUP/NAME` for a job of a group.

    Raises NotFound or BadInput.
    """
    runs: list[str] = []
    names: dict[str, str] = {}
    edges: dict[str, tuple[str, ...]] = {}
    groups: list[str] = []
    for name in wanted:
        head, _, member = name.partition("/")
        found = find(store, head)
        group = None if found == [head] else read_group(store, head)
        if group is not None:
            names |= group.names
            edges |= group.edges
            groups.append(group.id)
        if member:
            found = _members(head, member, found, names if group is not None else {})
        runs += found
    return Selection(tuple(dict.fromkeys(runs)), names, edges, tuple(dict.fromkeys(groups)))


def read_group(store: Store, name: str) -> GroupRecord | None:
    """The group of that id, or the only one that begins so."""
    key = layout.group(name)
    found = store.read(key)
    if found is None:
        metas = [meta for meta, _ in zip(store.scan(layout.GROUPS + name), range(2), strict=False)]
        if len(metas) != 1:
            return None
        key = metas[0].key
        found = store.read(key)
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[0], type=GroupRecord)
    except msgspec.MsgspecError as error:
        raise SlipwayError(f"store {store.url}: {key}: unreadable: {error}") from None


def _members(group: str, member: str, runs: Sequence[str], names: Mapping[str, str]) -> list[str]:
    found = [run for run in runs if names.get(run, run) == member or run == member]
    if not found:
        known = ", ".join(sorted(names.get(run, run) for run in runs))
        raise NotFound(f"{group} has no job `{member}`; it has {known}")
    return found
