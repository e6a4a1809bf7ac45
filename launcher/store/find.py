"""What a user calls runs: a run's id, a group's id, or the beginning of one that is not ambiguous."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.store.base import Meta, Store
from launcher.store.layout import GROUPS, RUNS, RunKeys, group

SHOWN: Final = 8  # candidates named in an error


class GroupRecord(msgspec.Struct, frozen=True):
    """groups/<group>.json, as submit writes it: the runs in topological order, their names and edges."""

    id: str
    runs: tuple[str, ...]
    names: dict[str, str] = {}
    edges: dict[str, tuple[str, ...]] = {}
    nonce: str = ""


def find(store: Store, name: str) -> list[str]:
    """The ids of the runs that `name` means: one for a run, all of a group's for a group, in its order.

    Raises NotFound with near matches, BadInput for a beginning that several runs or groups share.
    """
    if not name or "/" in name or name != name.strip():
        raise BadInput(f"`{name}` is no name of a run or a group")
    if store.head(RunKeys(name).job) is not None:
        return [name]
    members = group_runs(store, name)
    if members is not None:
        return members
    runs = list(islice(_runs(store, name), SHOWN + 1))
    groups = [meta.key.removeprefix(GROUPS).removesuffix(".json") for meta in islice(_groups(store, name), SHOWN + 1)]
    if len(runs) + len(groups) == 1:
        return runs or group_runs(store, groups[0]) or []
    if runs or groups:
        shown = [*runs, *groups]
        more = ", ..." if len(shown) > SHOWN else ""
        raise BadInput(f"`{name}` is the beginning of several: {', '.join(shown[:SHOWN])}{more}")
    raise NotFound(f"no run or group `{name}` in {store.url}.{_near(store, name)}")


def find_all(store: Store, names: list[str]) -> list[str]:
    """The runs of several names, each once, in the order given."""
    return list(dict.fromkeys(run for name in names for run in find(store, name)))


def group_runs(store: Store, group_id: str) -> list[str] | None:
    """The run ids of a group in their order, None when there is no such group."""
    found = store.read(group(group_id))
    if found is None:
        return None
    try:
        return list(msgspec.json.decode(found[0], type=GroupRecord).runs)
    except msgspec.MsgspecError as error:
        raise SlipwayError(f"store {store.url}: {group(group_id)}: unreadable: {error}") from None


def _runs(store: Store, prefix: str) -> Iterator[str]:
    """Run ids that start so. One request for each: the next listing begins behind everything of the last run."""
    after = ""
    while (meta := next(iter(store.scan(RUNS + prefix, after)), None)) is not None:
        run = meta.key.removeprefix(RUNS).partition("/")[0]
        yield run
        after = f"{RUNS}{run}0"  # `0` follows `/`


def _groups(store: Store, prefix: str) -> Iterator[Meta]:
    return iter(store.scan(GROUPS + prefix))


def _near(store: Store, name: str) -> str:
    from difflib import get_close_matches

    known = [
        *store.folders(RUNS),
        *(meta.key.removeprefix(GROUPS).removesuffix(".json") for meta in store.scan(GROUPS)),
    ]
    by_name = {run.rpartition("-")[0]: run for run in known}
    near = get_close_matches(name, known, n=3) or [by_name[n] for n in get_close_matches(name, by_name, n=3)]
    return f" Did you mean {' or '.join(f'`{run}`' for run in near)}?" if near else ""
