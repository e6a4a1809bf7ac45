"""Reads what deleting needs from a store: one listing, then job.json and result.json of each run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import msgspec

from launcher.decoding import decode_record
from launcher.deleting.unreferenced import unreferenced
from launcher.errors import BadInput, BadRecord
from launcher.spec.hashing import decode_job, work_hash
from launcher.store.base import Meta, Store
from launcher.store.layout import BLOBS, CHECKS, NOTES, RUNS, WORKS, RunKeys
from launcher.store.proof import ListProof
from launcher.store.transfer import Damaged

PARALLEL: Final = 16
OUTCOMES: Final = ("succeeded", "failed", "cancelled")


class _Code(msgspec.Struct):
    digest: str


class _Input(msgspec.Struct):
    work: str | None = None
    works: dict[str, str] = {}
    run: str | None = None


class _Image(msgspec.Struct, frozen=True):
    environment: str = ""


class _Role(msgspec.Struct):
    image: _Image = _Image()


class _Job(msgspec.Struct):
    """The fields of job.json that deleting needs. A newer launcher may have written it: unknown fields are ignored."""

    name: str
    code: _Code | None = None
    roles: dict[str, _Role] = {}
    inputs: dict[str, _Input] = {}
    labels: dict[str, str] = {}
    resume: str | None = None


class _Adopted(msgspec.Struct):
    run: str


class _Result(msgspec.Struct):
    outcome: str
    work: str = ""
    adopted: _Adopted | None = None


@dataclass(frozen=True)
class Known:
    """What is known of a run. Times are by the store's clock, in seconds since the epoch; `ended` is None for a run
    that has not ended; `objects` and `size` (bytes) do not count what stays of a deleted run, and are 0 when the run
    was not listed."""

    run: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    created: float = 0.0
    ended: float | None = None
    outcome: str = ""
    work: str = ""  # the run's own work; a run that has not ended may still adopt another run's results
    works: frozenset[str] = frozenset()  # the works of its inputs
    runs: frozenset[str] = frozenset()  # runs that its inputs or `resume` name
    blobs: frozenset[str] = frozenset()  # digests of its overlay and environments, as bare hex
    adopted: str = ""  # the run whose outputs it adopted
    deleted: bool = False
    unreadable: str = ""  # why its records cannot be read: nobody knows what it needs
    damaged: bool = False  # its job.json cannot be read; it has ended, so it needs nothing
    objects: int = 0
    size: int = 0
    steps: tuple[Meta, ...] = ()  # for an ended run, where they were asked for: the objects of its checkpoints
    unused: tuple[Meta, ...] = ()  # for an ended run: the objects that readers ignore


@dataclass(frozen=True)
class Survey:
    """`leftovers`: objects of deleted runs that stayed or were written late. `strays`: works/ records of such runs."""

    now: float
    runs: Mapping[str, Known]
    blobs: Mapping[str, Meta] = field(default_factory=dict)
    notes: Mapping[str, Meta] = field(default_factory=dict)
    leftovers: Mapping[str, tuple[Meta, ...]] = field(default_factory=dict)
    strays: tuple[Meta, ...] = ()
    checks: tuple[Meta, ...] = ()  # objects of checks of the store that were interrupted or are still running


def survey(store: Store, proof: ListProof | None = None, *, checkpoints: bool = False) -> Survey:
    """Surveys the whole store: one listing, and two requests for each run. `proof`: of the list of runs, for a caller
    that deletes what it lacks. `checkpoints`: with the objects of checkpoints. Raises Unreachable."""
    now = store.now()
    proof = proof or ListProof(store, may_act=False)
    proof.renew()
    # blobs before runs: an overlay that a submit uploads meanwhile is either not listed, or its job.json will be
    blobs = {meta.key.removeprefix(BLOBS): meta for meta in store.scan(BLOBS)}
    notes = {meta.key.removeprefix(NOTES).removesuffix(".json"): meta for meta in store.scan(NOTES)}
    listed: dict[str, _Listed] = {}
    for run, metas in groupby(
        proof.without(store.scan(RUNS)), lambda meta: meta.key.removeprefix(RUNS).partition("/")[0]
    ):
        listed[run] = _listed(store, run, metas, checkpoints)
    runs = {known.run: known for known in _read(store, listed)}
    leftovers = {run: listed_run.metas for run, listed_run in listed.items() if listed_run.deleted and listed_run.metas}
    deleted = {run for run, listed_run in listed.items() if listed_run.deleted}
    strays = tuple(meta for meta in store.scan(WORKS) if _last(meta.key) in deleted)
    return Survey(now, runs, blobs, notes, leftovers, strays, (*store.scan(CHECKS), *proof.others))


def glance(store: Store, proof: ListProof, before: Mapping[str, Known] | None = None) -> dict[str, Known]:
    """The runs, without listing their objects. `proof`: of their list. `before`: runs known already, which are not read
    again: an ended run stays ended, and one that had not ended still counts as running."""
    known = dict(before or {})
    proof.renew()
    new = [run for run in proof.names() if run not in known]
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="survey") as threads:
        for one in threads.map(lambda run: _look(store, run), new):
            if one is not None:
                known[one.run] = one
    return known


def sized(store: Store, known: Known) -> Known:
    """The same run, with its objects counted."""
    listed = _listed(None, known.run, store.scan(RunKeys(known.run).prefix))
    return replace(known, objects=listed.objects, size=listed.size)


def leftovers(store: Store, run: str) -> list[Meta]:
    """The objects of a deleted run other than its tombstone."""
    return [meta for meta in store.scan(RunKeys(run).prefix) if meta.key not in RunKeys(run).tombstone]


@dataclass(frozen=True)
class _Listed:
    job: Meta | None
    result: Meta | None
    deleted: bool
    objects: int
    size: int
    closed: bool  # the run's folder cannot be listed
    steps: tuple[Meta, ...]  # the objects of checkpoints, where they were asked for
    metas: tuple[Meta, ...]  # for a deleted run: its objects except the tombstone; for any other: the unreferenced ones


def _listed(store: Store | None, run: str, metas: Iterable[Meta], checkpoints: bool = False) -> _Listed:
    """Summarises a run's objects. With `store`, unreferenced objects are looked for."""
    keys = RunKeys(run)
    stays: dict[str, Meta] = {}
    rest = []
    for meta in metas:
        if meta.key in keys.tombstone:
            stays[meta.key] = meta
        else:
            rest.append(meta)
    result, deleted = stays.get(keys.result), keys.deleted in stays
    metas_left: Iterable[Meta] = ()
    if deleted:
        metas_left = rest
    elif result is not None and store is not None:
        with suppress(BadRecord, Damaged):  # of a run with an unreadable manifest everything stays
            metas_left = unreferenced(store, run, rest)
    closed = any(meta.key == keys.prefix[:-1] for meta in rest)
    size = sum(meta.size for meta in rest)
    steps = tuple(meta for meta in rest if "/checkpoints/" in meta.key) if checkpoints and result is not None else ()
    return _Listed(stays.get(keys.job), result, deleted, len(rest), size, closed, steps, tuple(metas_left))


def _read(store: Store, found: Mapping[str, _Listed]) -> Iterator[Known]:
    def read(item: tuple[str, _Listed]) -> Known | None:
        run, listed = item
        if listed.closed:
            return Known(run, run.rpartition("-")[0], unreadable="its folder cannot be listed")
        if listed.job is None:
            return None  # cancelled before it started
        if listed.deleted:
            return Known(run, run.rpartition("-")[0], deleted=True, ended=0.0)
        known = _known(store, run, listed.result is not None)
        if known is None:
            return None
        return replace(
            known,
            objects=listed.objects,
            size=listed.size,
            steps=listed.steps,
            unused=listed.metas,
        )

    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="survey") as threads:
        yield from (known for known in threads.map(read, found.items()) if known is not None)


def _look(store: Store, run: str) -> Known | None:
    keys = RunKeys(run)
    known = _known(store, run, True)
    if known is not None and known.ended is not None and _is_deleted(store, keys):
        return Known(run, run.rpartition("-")[0], deleted=True, ended=0.0)
    return known


def _is_deleted(store: Store, keys: RunKeys) -> bool:
    try:
        return store.head(keys.deleted) is not None
    except BadRecord:
        return False


def _known(store: Store, run: str, may_have_ended: bool) -> Known | None:
    """One run; with `unreadable` where its records are damaged, another user's, or a newer launcher's. None without a
    job.json."""
    try:
        return _decoded(store, run, may_have_ended)
    except BadRecord as error:
        return Known(run, run.rpartition("-")[0], unreadable=str(error))


def _decoded(store: Store, run: str, may_have_ended: bool) -> Known | None:
    """Raises BadRecord, except for the job of a run that has ended: it needs nothing any more."""
    keys = RunKeys(run)
    ended = store.read(keys.result) if may_have_ended else None
    result = decode_record(keys.result, ended[0], _Result) if ended is not None else None
    work, job, damaged = result.work if result is not None else "", _Job(run.rpartition("-")[0]), False
    body = None
    try:
        body = store.read(keys.job)
        if body is None:
            return None
        job = decode_record(keys.job, body[0], _Job)
        if result is None or (result.outcome == "succeeded" and not work):
            work = work_hash(decode_job(body[0]))
    except BadInput as error:
        raise BadRecord(f"{keys.job}: {error}") from None
    except BadRecord:
        if result is None:
            raise
        damaged = True
    return Known(
        run=run,
        name=job.name,
        labels=job.labels,
        created=body[1].modified if body is not None else 0.0,
        ended=ended[1].modified if ended is not None else None,
        outcome=result.outcome if result is not None else "",
        work=work,
        works=frozenset(work for item in job.inputs.values() for work in (item.work, *item.works.values()) if work),
        runs=frozenset(run for run in (*(item.run for item in job.inputs.values()), job.resume) if run),
        blobs=frozenset(each.removeprefix("sha256:") for each in _blobs(job)),
        adopted=result.adopted.run if result is not None and result.adopted is not None else "",
        damaged=damaged,
    )


def _blobs(job: _Job) -> Iterator[str]:
    if job.code is not None:
        yield job.code.digest
    for role in job.roles.values():
        if ":" in role.image.environment:
            yield role.image.environment


def _last(key: str) -> str:
    return key.rpartition("/")[2].removesuffix(".json")
