"""From what a user types to run ids: a run, a group, a job's name in a group (`GROUP/NAME`), or a unique beginning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.protocol.records import GroupRecord
from launcher.store import layout
from launcher.store.base import Store


def read_group(store: Store, group: str) -> GroupRecord | None:
    """The runs of a group; None when there is no such group."""
    if not group or "/" in group:
        return None
    found = store.read(layout.group(group))
    if found is None:
        return None
    try:
        return msgspec.json.decode(found[0], type=GroupRecord)
    except msgspec.MsgspecError as error:
        raise SlipwayError(f"{store.url}: {layout.group(group)} is damaged: {error}") from None


def find_runs(store: Store, names: Sequence[str]) -> list[str]:
    """The runs meant, in the order given, each once. Raises NotFound (nothing fits) or BadInput (several do)."""
    return list(dict.fromkeys(run for name in names for run in find(store, name)))


def find(store: Store, name: str) -> tuple[str, ...]:
    """The runs of one name. An exact run or group costs two requests; a beginning costs two listings."""
    if "/" in name:
        group, _, member = name.partition("/")
        return _member(store, group, member)
    if name and store.head(layout.RunKeys(name).job) is not None:
        return (name,)
    record = read_group(store, name)
    if record is not None:
        return record.runs
    runs = [run for run in store.folders(layout.RUNS) if name and run.startswith(name)]
    groups = [group for group in list_groups(store) if name and group.startswith(name)]
    if len(runs) + len(groups) == 1:
        return find(store, (runs + groups)[0])
    if not runs and not groups:
        raise NotFound(f"no run or group `{name}` in {store.url}; `launcher status` lists what is there")
    raise BadInput(f"`{name}` may be any of {_some(sorted(runs) + sorted(groups))}; write more of it")


def find_group(store: Store, name: str) -> tuple[str, GroupRecord] | None:
    """The group of that name or unique beginning, when it means one; None when it means a run or nothing."""
    record = read_group(store, name)
    if record is not None:
        return name, record
    if not name or "/" in name or store.head(layout.RunKeys(name).job) is not None:
        return None
    groups = [group for group in list_groups(store) if group.startswith(name)]
    record = read_group(store, groups[0]) if len(groups) == 1 else None
    return (groups[0], record) if record is not None else None


def list_groups(store: Store) -> list[str]:
    return [
        meta.key.removeprefix(layout.GROUPS).removesuffix(".json")
        for meta in store.scan(layout.GROUPS)
        if meta.key.endswith(".json")
    ]


def _member(store: Store, group: str, member: str) -> tuple[str, ...]:
    found = find_group(store, group)
    if found is None:
        raise NotFound(f"no group `{group}` in {store.url}")
    _, record = found
    runs = tuple(run for run in record.runs if record.names.get(run) == member)
    if not runs:
        raise NotFound(f"group {group} has no job `{member}`; it has {_some(sorted(record.names.values()))}")
    return runs


def _some(names: Iterable[str], limit: int = 6) -> str:
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
