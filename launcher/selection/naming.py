"""Finds the runs that one name means: a run's id, a group's id, a job's name, or the unique beginning of an id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from launcher.errors import BadInput, BadRecord, NotFound, SlipwayError, Unreachable
from launcher.parallel import Threads
from launcher.spec.hashing import decode_job
from launcher.spec.resolve.matrix_inputs import label_of
from launcher.store.base import Meta, Store
from launcher.store.find import GroupRecord, group_of, groups_by_age, groups_from, read_group, runs_from, runs_of_job
from launcher.store.layout import RunKeys
from launcher.store.proof import runs_of

A = TypeVar("A")
B = TypeVar("B")

SHOWN: Final = 8  # candidates that an error lists
PARALLEL: Final = 16
LATER: Final = 64  # groups to search for the one that submitted a run


class Found(msgspec.Struct, frozen=True):
    """The runs that a name means, in order; their display names; their group; and `told`, a line for the user where the
    launcher chose among several."""

    runs: tuple[str, ...]
    names: Mapping[str, str] = {}
    group: GroupRecord | None = None
    whole: bool = False  # the name is the id of the group
    told: str = ""


def find(store: Store, name: str) -> Found:
    """Returns the runs that `name` means. Tried in this order: the run with that id; all runs of the group with that
    id, in its order; the newest run of the job with that name, or all runs of that job's matrix (`name[label]`: one of
    them); the only run or group whose id begins with `name`.

    The newest run has the latest job.json, by the store's clock. Raises NotFound with near matches, BadInput when
    several runs or groups begin with `name`, or when the store's clock does not tell which run is the newest.
    """
    if not name or "/" in name or name != name.strip():
        raise BadInput(f"`{name}` is not the name of a run, a group or a job")
    job, bracket, label = name.partition("[")
    if bracket:
        return _combination(store, job, label.removesuffix("]"))
    if _head(store, name) is not None:
        return Found((name,))
    record = read_group(store, name)
    if record is not None:
        return Found(record.runs, record.names, record, whole=True)
    named = _named(store, name)
    if named is not None:
        return named
    runs = list(islice(runs_from(store, name), SHOWN + 1))
    groups = list(islice(groups_from(store, name), SHOWN + 1))
    if len(runs) + len(groups) == 1:
        if runs:
            return Found(tuple(runs))
        record = read_group(store, groups[0])
        if record is not None:
            return Found(record.runs, record.names, record, whole=True)
    if runs or groups:
        shown = [*runs, *groups]
        more = ", ..." if len(shown) > SHOWN else ""
        raise BadInput(f"`{name}` is the beginning of several: {', '.join(shown[:SHOWN])}{more}")
    raise NotFound(f"no run, group or job `{name}` in {store.url}.{_near(store, name)}")


def _named(store: Store, name: str) -> Found | None:
    """The newest run of a job, or the runs of its matrix."""
    runs = runs_of_job(store, name)
    if not runs:
        return None
    if len(runs) == 1:
        return Found(tuple(runs), {runs[0]: name})
    created = {run: meta.modified for run, meta in zip(runs, _heads(store, runs), strict=True) if meta is not None}
    if not created:  # no run has a job.json yet, so none is known to be the newest
        return None
    newest = max(created, key=lambda run: (created[run], run))
    latest = {run for run, time in created.items() if time == created[newest]}
    if _variant(store, newest):
        matrix = _matrix(store, name, created, newest)
        if not latest <= set(matrix.runs):
            raise _undecided(name, {newest, *latest - set(matrix.runs)})
        return matrix
    if len(latest) > 1:
        raise _undecided(name, latest)
    return Found((newest,), {newest: name}, told=_newest(name, newest, len(runs)))


def _undecided(name: str, runs: Iterable[str]) -> BadInput:
    """The store's times have a resolution of one second over S3, so they do not always tell which run came last."""
    return BadInput(
        f"`{name}` means the newest run of that name, and {' and '.join(sorted(runs)[:SHOWN])} came into the store at "
        "the same time: give the run's id"
    )


def _newest(name: str, run: str, count: int) -> str:
    return f"{name} is {run}, the newest of {count} runs of that name"


def _matrix(store: Store, name: str, created: Mapping[str, float], newest: str) -> Found:
    """All runs of the matrix that the newest run of a job belongs to: the runs of its group; without a group (applied
    from Git), the newest run of each combination."""
    record = group_of_run(store, newest, created[newest])
    if record is not None:
        members = record.members(name)
        where = f" of {record.id}"
        names: dict[str, str] = {run: record.names.get(run, run) for run in members}
    else:
        variants = dict(zip(created, _each(created, lambda run: _variant(store, run)), strict=True))
        axes = set(variants[newest])
        by_label: dict[str, str] = {}
        for run in sorted(created, key=lambda run: (created[run], run)):
            if set(variants[run]) == axes:
                label = label_of(name, variants[run])
                if label in by_label and created[by_label[label]] == created[run]:
                    raise _undecided(f"{name}[{label}]", (by_label[label], run))
                by_label[label] = run
        names = {run: f"{name}[{label}]" for label, run in sorted(by_label.items())}
        members, where = tuple(names), ""
    if len(members) == 1:
        return Found(
            members, names, record, told=f"{name} is {members[0]}, the newest of {len(created)} runs of that name"
        )
    return Found(members, names, record, told=f"{name} is a matrix: all {len(members)} runs{where}")


def _combination(store: Store, job: str, label: str) -> Found:
    """`name[label]`: one run of a matrix."""
    matrix = _named(store, job)
    if matrix is None:
        raise NotFound(f"no job `{job}` in {store.url}.{_near(store, job)}")
    chosen = tuple(run for run in matrix.runs if matrix.names.get(run) == f"{job}[{label}]")
    if not chosen:
        labels = [called.partition("[")[2].removesuffix("]") for called in matrix.names.values() if "[" in called]
        raise NotFound(f"{job} has no `{label}`; it has {', '.join(labels) or 'no matrix'}")
    return Found(chosen, {run: matrix.names[run] for run in chosen}, matrix.group)


def group_of_run(store: Store, run: str, created: float) -> GroupRecord | None:
    """The first group that contains the run and was written after it: submit writes a group after the job.json of all
    its runs."""
    later = [meta for meta in groups_by_age(store) if meta.modified >= created][:LATER]
    for start in range(0, len(later), PARALLEL):
        ids = [group_of(meta) for meta in later[start : start + PARALLEL]]
        # the next group is almost always the right one, so it is read alone first
        for part in (ids[:1], ids[1:]) if start == 0 else (ids,):
            for record in _each(part, lambda each: _readable_group(store, each)):
                if record is not None and run in record.runs:
                    return record
    return None


def _readable_group(store: Store, group: str) -> GroupRecord | None:
    """None for a record that cannot be read: it says nothing of the runs of other groups."""
    try:
        return read_group(store, group)
    except Unreachable:
        raise
    except SlipwayError:
        return None


def _variant(store: Store, run: str) -> dict[str, object]:
    try:
        stored = store.read(RunKeys(run).job)
        return decode_job(stored[0]).variant if stored is not None else {}
    except (BadRecord, BadInput):
        return {}


def _heads(store: Store, runs: Sequence[str]) -> list[Meta | None]:
    return _each(runs, lambda run: _head(store, run))


def _head(store: Store, run: str) -> Meta | None:
    """The run's job.json; where it cannot be looked at, it is there, and old."""
    try:
        return store.head(RunKeys(run).job)
    except BadRecord:
        return Meta(RunKeys(run).job, 0, 0.0)


def _each(items: Iterable[A], ask: Callable[[A], B]) -> list[B]:
    """Calls `ask` for all items in parallel; returns the answers in the order of the items."""
    wanted = list(items)
    if len(wanted) < 2:
        return [ask(item) for item in wanted]
    with Threads(min(PARALLEL, len(wanted))) as pool:
        return list(pool.map(ask, wanted))


def _near(store: Store, name: str) -> str:
    from difflib import get_close_matches

    ids = [
        *runs_of(store),
        *groups_from(store, ""),
    ]
    by_name = {run.rpartition("-")[0]: run for run in ids}
    near = get_close_matches(name, ids, n=3) or [by_name[n] for n in get_close_matches(name, by_name, n=3)]
    return f" Did you mean {' or '.join(f'`{run}`' for run in near)}?" if near else ""
