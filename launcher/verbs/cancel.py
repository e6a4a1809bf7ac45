"""Cancel: writes the request into the store first, so that no attempt starts a command any more; then the backend ends
the processes. The run is `stopping` until its final record says `cancelled`."""

from __future__ import annotations

import getpass
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from launcher.backends.abilities import SentParts
from launcher.backends.base import Backend, BackendObservation, backend_of
from launcher.decoding import decode_record
from launcher.errors import BadInput, BadRecord, NotFound
from launcher.parallel import Threads
from launcher.protocol.finish import finish, nowhere
from launcher.protocol.fold import ended_as
from launcher.protocol.read import read_run
from launcher.protocol.records import Cancel, Result
from launcher.spec.hashing import decode_job
from launcher.spec.model import ResolvedJob, at_turn
from launcher.spec.profile import Profile
from launcher.store.base import Store, settable
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from launcher.userdata.cluster_contexts import reached
from launcher.userdata.record_cache import Memory

WRITER: Final = "cancel"
PARALLEL: Final = 16


@dataclass(frozen=True)
class Cancelled:
    """The answer to one request. `state`: stopping, or the final state of a run that had ended before."""

    run: str
    state: str


def cancel(store: Store, run: str, backend: Backend, *, reason: str = "") -> Cancelled:
    return cancel_all(store, [run], backend, reason=reason)[0]


@dataclass
class CancelChoice:
    """The runs that a call is to cancel. `unread`: run -> why its job.json cannot be read; without it, nobody knows its
    labels, nor which backend has it."""

    jobs: dict[str, ResolvedJob] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def open_jobs(store: Store, runs: Sequence[str], memory: Memory) -> CancelChoice:
    """The runs that have a job.json and no result. One request per run, and one more for a job not yet cached."""

    def one(run: str) -> bytes | None:
        keys = RunKeys(run)
        metas = {meta.key: meta for meta in store.level(keys.prefix)[0]}
        if keys.job not in metas or keys.result in metas:
            return None
        stored = memory.read(keys.job, metas[keys.job])
        return stored[0] if stored is not None else None

    return _chosen(store, runs, one)


def named_jobs(store: Store, runs: Sequence[str], memory: Memory) -> CancelChoice:
    """The runs that have a job.json: a group may list runs whose job.json is not written yet."""

    def one(run: str) -> bytes | None:
        stored = store.read(RunKeys(run).job)
        if stored is not None:
            memory.learn(*stored)
        return stored[0] if stored is not None else None

    return _chosen(store, runs, one)


def _chosen(store: Store, runs: Sequence[str], body_of: Callable[[str], bytes | None]) -> CancelChoice:
    def one(run: str) -> ResolvedJob | str | None:
        try:
            body = body_of(run)
            return decode_job(body) if body is not None else None
        except (BadRecord, BadInput) as error:
            return str(error)

    chosen = CancelChoice()
    with Threads(PARALLEL, "cancel") as threads:
        # threads that read a folder share one interpreter and gain nothing
        each = map(one, runs) if settable(store) else threads.map(one, runs)
        for run, found in zip(runs, each, strict=True):
            if isinstance(found, str):
                chosen.unread[run] = found
            elif found is not None:
                chosen.jobs[run] = found
    return chosen


def cancel_unread(store: Store, runs: Iterable[str], *, reason: str = "") -> list[Cancelled]:
    """Asks runs to end whose job.json this launcher cannot read (a newer one's, or damaged): their own processes look
    for cancel.json. Their backends are not asked."""
    by = _user()
    chosen = list(runs)
    return [Cancelled(run, state) for run, state in zip(chosen, _ask(store, chosen, reason, by), strict=True)]


def cancel_jobs(
    store: Store, jobs: Mapping[str, ResolvedJob], profile: Profile, *, reason: str = ""
) -> list[Cancelled]:
    """Cancels runs of any backends. Runs of one backend whose options differ (the namespace) are cancelled in separate
    calls."""
    places = [(run, at) for run, job in jobs.items() for at in _places(store, run, job)]
    # where each run is now comes first: a backend that it has left may not answer
    places.sort(key=lambda place: -place[1].turn)
    by_backend: dict[tuple[str, bytes, bool], dict[str, ResolvedJob]] = {}
    asked: set[str] = set()
    for run, job in places:
        options = msgspec.json.encode([job.options, reached(job)], order="sorted")
        by_backend.setdefault((job.backend, options, run in asked), {})[run] = job
        asked.add(run)
    done: dict[str, Cancelled] = {}
    for (name, _, left), placed in by_backend.items():
        try:
            backend = backend_of(next(iter(placed.values())), profile.backend_options(name))
        except BadInput:  # this launcher does not know that backend, or its settings
            cancel_unread(store, placed, reason=reason)
            raise
        for answer in cancel_all(store, list(placed), backend, reason=reason, known=True, left=left):
            done.setdefault(answer.run, answer)
    return [done[run] for run in jobs]


def _places(store: Store, run: str, job: ResolvedJob) -> list[ResolvedJob]:
    """The job at every backend that has had the run."""
    turn = read_run(store, run, full=False).turn if job.alternatives else 0
    return [at_turn(job, at) for at in range(turn + 1)]


def cancel_all(
    store: Store, runs: Sequence[str], backend: Backend, *, reason: str = "", known: bool = False, left: bool = False
) -> list[Cancelled]:
    """Cancels runs of one backend. Raises NotFound when a run does not exist, before anything is written.

    known  the caller has read their job.json
    left   the runs have moved on to another backend and were cancelled there, which may have ended them: what this one
           still has of them ends all the same
    """
    with Threads(PARALLEL, "cancel") as threads:
        heads = [True] * len(runs) if known else list(threads.map(lambda run: _exists(store, run), runs))
        missing = [run for run, active in zip(runs, heads, strict=True) if not active]
        if missing:
            raise NotFound(f"no run `{missing[0]}` in {store.url}")
        by = _user()
        # of many runs a thread asks several, one after the other
        several = min(64, len(runs) // PARALLEL + 1) if settable(store) else min(8, len(runs) // 128 + 1)
        chunks = [runs[at : at + several] for at in range(0, len(runs), several)]
        asked = threads.map(lambda chunk: _ask(store, chunk, reason, by), chunks)
        states = [state for chunk in asked for state in chunk]
        # one that a cancel has ended may have something left: the last cancel died, or was not heard
        stopping = [run for run, state in zip(runs, states, strict=True) if left or state in ("stopping", "cancelled")]
        observed = {run: backend.look_up(run) for run in stopping}
        parts = {run: _part(store, run, backend) for run, seen in observed.items() if seen is None or not seen.active}
        observed |= {run: part for run, part in parts.items() if part is not None}
        # a machine is billed although the runtime has seen the cancel first and written the final record
        living = [seen.handle for seen in observed.values() if seen is not None and (seen.active or seen.billed)]
        if living:
            backend.cancel(living)
        # of these runs nothing is active on the backend: perhaps no process is left to write the final record
        gone = {run: seen for run, seen in observed.items() if run in parts or seen is None or not seen.active}
        gone |= {run: _part(store, run, backend) for run, seen in gone.items() if seen is not None and seen.active}
        ended = dict(zip(gone, threads.map(lambda run: _finish(store, run, backend, gone[run]), gone), strict=True))
    return [
        Cancelled(run, ended[run] or state if run in ended else state) for run, state in zip(runs, states, strict=True)
    ]


def _exists(store: Store, run: str) -> bool:
    return store.head(RunKeys(run).job) is not None


def _ask(store: Store, runs: Sequence[str], reason: str, by: str) -> list[str]:
    """Puts cancel.json of each run that has not ended. In a folder they are one file, which is made durable once."""
    body, first, states = b"", "", []
    for run in runs:
        stored = store.read(RunKeys(run).result)
        if stored is not None:
            states.append(str(ended_as(decode_record(stored[1].key, stored[0], Result))[0]))
            continue
        states.append("stopping")
        key = RunKeys(run).cancel
        if first and isinstance(store, FileStore) and store.name_again(key, first):
            continue
        body = body or msgspec.json.encode(Cancel(by=by, time=time.time(), nonce=uuid.uuid4().hex, reason=reason))
        if store.create(key, body):
            first = key
    return states


def _part(store: Store, run: str, backend: Backend) -> BackendObservation | None:
    """What an interrupted submit left of a run that its backend does not find, or may still get."""
    if not isinstance(backend, SentParts):
        return None
    stored = store.read(RunKeys(run).job)
    return backend.part(run, decode_job(stored[0])) if stored is not None else None


def _finish(store: Store, run: str, backend: Backend, seen: BackendObservation | None) -> str | None:
    """Writes the final record of a cancelled run whose records prove that it has ended, or of which the backend says
    so: of the run's parts, all ended."""
    here, active = nowhere, None
    if seen is not None and not seen.active and isinstance(backend, SentParts):
        here, active = partial(backend.here, seen=seen), False
    dead = partial(backend.dead, seen=seen) if active is False else nowhere
    result = finish(store, run, backend_active=active, here=here, dead=dead, writer=WRITER)
    return result.outcome if result is not None else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
