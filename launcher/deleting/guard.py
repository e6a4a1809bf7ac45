"""How a deletion and a submit keep out of each other's way.

deleting/<nonce>.json announces a deletion: it is written before anything is deleted and removed afterwards. After it
wrote its job.json files a submit looks for it, so that no `launcher gc` deletes what it needs.

Each side writes before it reads: a submit writes job.json and then looks for intents; a gc writes its intent and then
looks for job.json. The second to write always sees the first.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final
from uuid import uuid4

import msgspec

from launcher.decoding import decode
from launcher.errors import Conflict
from launcher.parallel import Threads
from launcher.protocol.deleted import EXPIRED, describe_deletion, read_deleted
from launcher.protocol.records import Deleting
from launcher.runtime.process import procs
from launcher.spec.hashing import work_hash
from launcher.spec.model import ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import DELETING, deleting, works

LEASE: Final = 300.0  # seconds for which a check of the store is valid; then it is made again


class Intent:
    """An intent of this process. `fresh`: whether the check made under it is still valid, by a clock that counts
    suspend."""

    def __init__(self, store: Store, runs: Collection[str], blobs: Collection[str]) -> None:
        self._store = store
        self._began = _now()
        self.record = Deleting(
            by=user(),
            time=time.time(),
            nonce=uuid4().hex,
            runs=tuple(runs),
            blobs=tuple(blobs),
            host=os.uname().nodename,
            boot=procs.boot_id(),
            pid=os.getpid(),
            start=procs.start_time(os.getpid()) or 0,
        )
        store.create(deleting(self.record.nonce), msgspec.json.encode(self.record))

    @property
    def fresh(self) -> bool:
        return _now() - self._began < LEASE

    def withdraw(self, more: Collection[str] = ()) -> None:
        """Removes the intent; deletes the keys `more` with it."""
        self._store.delete([deleting(self.record.nonce), *more])


def intents(store: Store) -> list[Deleting]:
    """The intents in the store that are still valid."""
    records = []
    for meta in store.scan(DELETING):
        body = store.read(meta.key)
        if body is not None and (record := _decoded(body[0])) is not None and not void(store, record, meta.modified):
            records.append(record)
    return records


def void(store: Store, record: Deleting, written: float) -> bool:
    """Whether an intent is no longer valid: it is too old, or its process died on this machine."""
    if store.now() - written > EXPIRED:
        return True
    here = record.host == os.uname().nodename and record.boot == procs.boot_id()
    return here and not procs.alive(record.pid, record.start, record.boot)


def sweep(store: Store) -> None:
    """Deletes the intents that are no longer valid."""
    for meta in list(store.scan(DELETING)):
        body = store.read(meta.key)
        record = _decoded(body[0]) if body is not None else None
        if record is not None and void(store, record, meta.modified):
            store.delete([meta.key])


def _decoded(body: bytes) -> Deleting | None:
    try:
        return decode(body, Deleting)
    except msgspec.MsgspecError:
        return None


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


PATIENCE: Final = 30.0  # seconds that a submit waits for the end of a deletion of what it needs
PAUSE: Final = 0.1
PARALLEL: Final = 16


def needs(job: ResolvedJob) -> tuple[set[str], set[str], set[str]]:
    """(runs, works, overlays as bare hex) that a job needs from the store."""
    runs = {item.run for item in job.inputs.values() if item.run} | ({job.resume} if job.resume else set())
    wanted = {work for item in job.inputs.values() for work in (item.work, *item.works.values()) if work}
    return runs, wanted, job.blobs()


def wait_for_deletions(store: Store, runs: Collection[str], blobs: Collection[str]) -> None:
    """Returns when no intent names one of these; raises Conflict when that takes too long."""
    if not runs and not blobs:
        return
    until = time.monotonic() + PATIENCE
    while met := [
        intent
        for intent in intents(store)
        if not {*runs}.isdisjoint(intent.runs) or not {*blobs}.isdisjoint(intent.blobs)
    ]:
        if time.monotonic() > until:
            first = met[0]
            name = next(iter({*runs} & {*first.runs}), "") or "a code overlay"
            raise Conflict(
                f"{first.by} is deleting {name}, which is needed here (pid {first.pid} on {first.host}); "
                "submit again when that has ended"
            )
        time.sleep(PAUSE)


def served_by(store: Store, work: str) -> list[str]:
    """The runs that did this work and still have their outputs."""
    prefix = works(work)
    runs = [meta.key.removeprefix(prefix).removesuffix(".json") for meta in store.scan(prefix)]
    return [run for run in runs if read_deleted(store, run) is None]


def guard(store: Store, jobs: Sequence[ResolvedJob], ended: Iterable[ResolvedJob], renew: Callable[[], object]) -> None:
    """Call this after the job.json of all `jobs` are written and before any of them starts. `ended`: jobs of the same
    submit that have succeeded already; `renew` uploads missing overlays again. Raises Conflict when something that a
    job reads was deleted or is being deleted.

    Work that this submit itself will do is not checked: its readers wait until it is done.
    """
    parts = list(zip(*map(needs, jobs), strict=True)) or [(), (), ()]
    runs, wanted, overlays = (set[str]().union(*part) for part in parts)
    if not (runs or wanted or overlays):
        return
    wanted -= {work_hash(job) for job in jobs} if wanted else set()
    done = {work_hash(job) for job in ended} if wanted else set()
    with Threads(PARALLEL, "guard") as threads:

        def serving() -> dict[str, list[str]]:
            return dict(zip(wanted, threads.map(lambda work: served_by(store, work), wanted), strict=True))

        before = serving()
        wait_for_deletions(store, runs.union(*before.values()), overlays)
        gone = {work for work, served in serving().items() if not served and (before[work] or work in done)}
        records = dict(zip(runs, threads.map(lambda run: read_deleted(store, run), runs), strict=True))
    for job in jobs:
        if not gone.isdisjoint(needs(job)[1]):
            raise Conflict(f"{job.name}: the outputs that it reads were deleted meanwhile; submit again")
        for name, item in job.inputs.items():
            if item.run and (record := records[item.run]) is not None:
                raise Conflict(f"{job.name}: input {name}: run {item.run}: {describe_deletion(record)}")
    if overlays:
        renew()
