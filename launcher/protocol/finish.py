"""Writes the end of a run, and its move to the next of its backends.

Any process that sees that a run has ended, and that its record is missing, writes it: `decide.finish` says when. A move
is the claim of the next attempt (docs/explanation/protocol.md, Moving a run). Who puts it then ends the run's object on
the backend that it leaves and submits it to the next: `launcher.verbs.move`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

import msgspec

from launcher.decoding import decode_record
from launcher.protocol import decide, steps
from launcher.protocol.facts import RunFacts, Verdict, facts
from launcher.protocol.read import read_events, read_run, unlisted
from launcher.protocol.records import (
    Beat,
    Claim,
    Event,
    HeldAttempt,
    Placement,
    Result,
    Resumed,
    ShownResult,
    StoredFolder,
)
from launcher.protocol.steps import Move
from launcher.protocol.view import RunView
from launcher.reasons import MAX_BRIEF_ATTEMPTS, Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import ResolvedJob, backend_order
from launcher.store.base import Store
from launcher.store.layout import RunKeys, work_run
from launcher.store.paths import LISTED
from launcher.version import __version__

# why a run that GitOps applied is cancelled without `launcher cancel`
REMOVED: Final = (
    f"its object was deleted, and nothing made it again within {decide.GONE_FOR_GOOD / 60:.0f} min: its file was "
    "removed from Git, or what applied it does not work"
)
# what is known of processes that left no word
KILLED: Final = (
    f"{MAX_BRIEF_ATTEMPTS} attempts in a row were killed within seconds of their start. Files in /dev/shm and in a "
    "tmpfs count as memory: where they fill it, the kernel kills the runtime too"
)
Here = Callable[[Placement | None], bool]  # whether a claim was made at this place; None: there is no claim yet


def is_own_placement(view: RunView, here: Here) -> bool:
    """Whether the newest attempt of a run was started at the place of `here`."""
    places = [claim.placement for attempt in view.since_move[-1:] for claim in attempt.claims.values()]
    return all(map(here, places)) if places else here(None)


def nowhere(placement: Placement | None) -> bool:
    """The `here` of a caller that asks no backend: only what follows from the records alone is completed."""
    return False


def onlookers(view: RunView, job: ResolvedJob, dead: Here = nowhere) -> RunFacts:
    """The facts as a process outside the run sees them. `dead`: whether the process of a claim has certainly ended,
    even if its last heartbeat is recent."""
    return facts(view, job, alive=lambda placement: False if dead(placement) else None)


def seconds_silent(view: RunView) -> float:
    """Seconds since the last sign of life of a run's newest attempt, by the store's clock."""
    signs = [attempt.seen(member) for attempt in view.attempts[-1:] for member in attempt.claims]
    return view.now - max((sign for sign in signs if sign is not None), default=view.now)


def finish(
    store: Store,
    run: str,
    *,
    backend_active: bool | None,
    here: Here,
    writer: str,
    dead: Here = nowhere,
    evidence: Reason | None = None,
    message: str = "",
    absent: bool = False,
    turn: int | None = None,
) -> Result | None:
    """Writes result.json if the run has ended, and the works/ record if it succeeded. Returns the result, or None if
    the run has not ended.

    backend_active     an object on the backend runs or may still start a process; False also if there is no object;
                       None if the backend could not be asked
    here               whether that backend is the run's own place
    dead               see `onlookers`
    evidence, message  why the backend's object ended (image_pull, ...) or will never start (upstream_failed); used only
                       if no attempt says more
    absent             the run was applied without submit (GitOps), and its object is gone
    turn               of that backend, in the order of the job; None: it is the one whose turn it is

    Raises NotFound, Unreachable.
    """
    view = read_run(store, run, full=False)
    job = view.job
    if job is None:
        return view.result
    if view.result is not None:
        if lacks_works(store, job, view.result, run):
            complete_works(store, job, view.result, run)
        return view.result
    step = decide.finish(
        onlookers(view, job, dead),
        backend_active,
        evidence=evidence,
        own=is_own_placement(view, here) and turn in (None, view.turn),
        absent=seconds_silent(view) if absent else None,
    )
    if not isinstance(step, steps.Finish) or unlisted(store, view):
        return None
    told = message if step.verdict.reason is evidence else ""
    if absent and step.verdict.outcome == "cancelled" and not view.cancelled:
        told = REMOVED
    return put_result(store, view, job, step.verdict, writer=writer, message=told)


def put_result(
    store: Store,
    view: RunView,
    job: ResolvedJob,
    verdict: Verdict,
    *,
    writer: str,
    message: str = "",
    data: Mapping[str, str] | None = None,
    last: Beat | None = None,
    claim: Claim | None = None,
    folders: Mapping[str, StoredFolder] | None = None,
) -> Result:
    """Creates result.json from a verdict. Returns the result in the store, which is another process's if that one was
    first.

    `last`, `claim`, `folders`: heartbeat, claim and outputs of the leader of the view's newest attempt, which writes
    this.

    `data`: input -> digest of the bytes that the attempt read; None: it is read from the attempt's events.
    """
    if data is None:
        events = read_events(store, view).events if verdict.outcome == "succeeded" else ()
        data = {name: digest for event in events if _read_by(event, verdict) for name, digest in event.fields.items()}
    ours = result_of(view, job, verdict, writer=writer, message=message, data=data)
    told = shown(view, job, last)
    if told is not None and len(job.members()) == len(view.attempts) == 1:
        mine = view.attempts[0].exits.get(job.members()[0]) if claim is not None else None
        told = msgspec.structs.replace(told, claim=claim if mine is not None else None, exit=mine)
    if told is not None and folders:
        told = msgspec.structs.replace(told, folders=dict(folders))
    ours = msgspec.structs.replace(ours, shown=told)
    return write_result(store, view.run, job, ours)


def _read_by(event: Event, verdict: Verdict) -> bool:
    return event.kind == "data" and event.attempt == verdict.attempt


def result_of(
    view: RunView, job: ResolvedJob, verdict: Verdict, *, writer: str, message: str, data: Mapping[str, str]
) -> Result:
    leader = job.members()[0]
    attempt = view.attempt(verdict.attempt)
    exits = attempt.exits if attempt else {}
    messages = [end.message for end in exits.values() if end.reason is verdict.reason and end.message]
    if verdict.reason is Reason.LOST and verdict.outcome == "failed" and _brief(view, job, leader):
        messages.append(KILLED)
    return Result(
        outcome=verdict.outcome,
        attempt=verdict.attempt,
        reason=verdict.reason,
        message=message or (messages[0] if messages else ""),
        time=time.time(),
        nonce=uuid4().hex,
        work=work_hash(job),
        data=dict(data),
        running=sum(earlier.running(leader) for earlier in view.attempts),
        held=sum(earlier.held(leader) for earlier in view.attempts),
        written_by=writer,
        lost=sum(end.lost for end in exits.values()),
        left_out=tuple(file for end in exits.values() for file in end.left_out)[:LISTED],
        left_out_count=sum(end.left_out_count for end in exits.values()),
        resumed=Resumed(job.resume, job.resume_made_with) if job.resume and job.resume_made_with else None,
    )


def shown(view: RunView, job: ResolvedJob, last: Beat | None) -> ShownResult | None:
    """What a status line says of a run whose view holds the ends of all its attempts. None where it does not, and for a
    job with several backends, whose times differ in price."""
    if job.alternatives or (last is None and view.attempts):
        return None
    leader = job.members()[0]
    held, steps = [], [step for attempt in view.attempts for step in attempt.checkpoints[-1:]]
    for attempt in view.attempts:
        if leader not in attempt.claimed or attempt.moved_to:
            return None
        seconds = attempt.held(leader)
        start = attempt.claimed[leader]
        if attempt is view.attempts[-1]:  # the writer's own: it may have read its claim late, or never
            start = min(start, view.now - seconds)
            steps += [end.checkpoint for end in attempt.exits.values() if end.checkpoint is not None]
        held.append(HeldAttempt(start, seconds))
    if last is None:
        return ShownResult()
    newest = view.attempts[-1].number
    return ShownResult(newest, len(held), tuple(held), last.step, last.total, last.message, max(steps, default=None))


def _brief(view: RunView, job: ResolvedJob, leader: str) -> bool:
    """Whether the newest attempts, as many as then are enough, were lost within their first heartbeats."""
    newest = view.computing[-MAX_BRIEF_ATTEMPTS:]
    return len(newest) == MAX_BRIEF_ATTEMPTS and all(attempt.brief(leader, job.timing.beat) for attempt in newest)


def write_result(store: Store, run: str, job: ResolvedJob, ours: Result) -> Result:
    """Creates result.json, then the works/ record if the run succeeded. Returns the result in the store."""
    keys = RunKeys(run)
    if not store.create(keys.result, msgspec.json.encode(ours)):
        there = decode_record(keys.result, store.get(keys.result), Result)
        complete_works(store, job, there, run)
        return there
    _record_work(store, job, ours, run)
    return ours


def adopt(store: Store, view: RunView, job: ResolvedJob, done: Result, *, writer: str) -> Result:
    """Creates the result.json of a run whose work another run has done. `done`: the record in works/ of that other
    run. Returns the result in the store."""
    assert done.adopted is not None
    source = f"the work of {done.adopted.run}, attempt {done.adopted.attempt}: nothing was computed"
    ours = result_of(
        view, job, Verdict("succeeded", len(view.attempts), Reason.SUCCEEDED), writer=writer, message=source,
        data=done.data,
    )  # fmt: skip
    return write_result(
        store, view.run, job, msgspec.structs.replace(ours, adopted=done.adopted, shown=shown(view, job, None))
    )


def lacks_works(store: Store, job: ResolvedJob, result: Result, run: str) -> bool:
    """Whether a run that did its work itself has no works/ record."""
    did_work = result.outcome == "succeeded" and result.adopted is None
    return did_work and store.head(work_run(work_hash(job), run)) is None


def complete_works(store: Store, job: ResolvedJob, result: Result, run: str) -> None:
    """Writes works/<work>/<run>.json, which says that this run did this work. Its body is the result's, so every writer
    writes the same bytes. A run that adopted the work of another has no such record, and neither has a run whose
    outputs were deleted. If they are deleted between the check here and the put, the record is void: its readers look
    for deleted.json, and `launcher gc` deletes it."""
    if result.outcome == "succeeded" and store.head(RunKeys(run).deleted) is None:
        _record_work(store, job, result, run)


def _record_work(store: Store, job: ResolvedJob, result: Result, run: str) -> None:
    if result.outcome == "succeeded" and result.adopted is None:
        store.create(work_run(work_hash(job), run), msgspec.json.encode(result))


NOWHERE = "nowhere"  # the kind of placement of a claim in which nothing computes


def put_move(store: Store, view: RunView, step: Move, why: str) -> str:
    """Creates the claim that moves a run. Returns the backend to which it has moved; "" if another claim of that
    attempt came first: the run was moved by somebody else, or its backend has started it again."""
    job = view.job
    assert job is not None
    target = backend_order(job)[view.turn + 1]
    claim = Claim(Placement(NOWHERE, ""), uuid4().hex, time.time(), __version__, moved_to=target, why=why)
    key = RunKeys(view.run).attempt(step.attempt).claim(job.members()[0])
    return target if store.create(key, msgspec.json.encode(claim)) else ""


def move_on(
    store: Store, run: str, turn: int, here: Here, dead: Here = nowhere, evidence: Reason | None = None, why: str = ""
) -> str:
    """Moves a run of which a backend has nothing left, if the protocol says so. `turn`: of that backend; the rest is as
    in `finish`. Returns the next backend; "" if the run stays. Raises NotFound, Unreachable."""
    view = read_run(store, run, full=False)
    if view.job is None or view.turn != turn:
        return ""
    own = is_own_placement(view, here)
    step = decide.move(onlookers(view, view.job, dead), False if own else None, evidence if own else None, own=own)
    return put_move(store, view, step, why or str(step.reason)) if step is not None else ""
