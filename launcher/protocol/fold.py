"""From a view to the status that a person sees. Pure: the same view and `now` give the same status, in whatever order
the records were read. The three final states come from result.json only and never change."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from launcher.decoding import named
from launcher.protocol.facts import RunFacts, Verdict, ended, facts, reason_of, verdict
from launcher.protocol.records import GPU_IDLE, Beat, Result
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import Reason
from launcher.spec.model import ResolvedJob

IDLE: Final = 900.0  # seconds without work after which the GPUs of a run are warned about


class State(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # it has ended, in a way that a newer launcher has recorded

    @property
    def final(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED, State.UNKNOWN)


def ended_as(result: Result) -> tuple[State, str]:
    """The state that a result names, and what to say of it."""
    state = named(State, result.outcome, State.UNKNOWN)
    if state in _OUTCOMES:
        return state, result.message
    told = f"a newer launcher recorded its end as `{result.outcome}`: update this one"
    return State.UNKNOWN, f"{told}{': ' + result.message if result.message else ''}"


_OUTCOMES: Final = (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class MemberStatus(msgspec.Struct, frozen=True):
    """The status of one rank in the newest attempt."""

    member: str
    phase: str = ""
    step: float | None = None
    host: str = ""
    reason: Reason | None = None
    seen: float | None = None  # the store's time of its last sign of life
    stale: bool = False
    usage: dict[str, float] = {}


class Status(msgspec.Struct, frozen=True):
    run: str
    name: str
    state: State
    attempt: int = 0  # the newest attempt; 0 before the first
    attempts: int = 0
    phase: str = ""
    step: float | None = None
    total: float | None = None
    message: str = ""
    eta: float | None = None  # seconds
    checkpoint: int | None = None  # the newest complete step
    reason: Reason | None = None
    detail: str = ""
    started: float | None = None  # the store's time of the first claim
    ended: float | None = None  # by the clock of the machine that wrote result.json
    running: float = 0.0  # seconds the command has run, over all attempts
    stale: bool = False
    lost: int = 0  # bytes of the last attempt's logs and metrics lost because disks were full
    left_out: int = 0  # files of its outputs that could not be stored
    members: tuple[MemberStatus, ...] = ()


def fold(view: RunView, now: float | None = None) -> Status:
    """The status of a run at `now`, the store's time in seconds since the epoch (default: when the view was read)."""
    now = view.now if now is None else now
    name = view.job.name if view.job else view.run.rpartition("-")[0]
    if view.job is None:
        return _without_job(view, name)
    job = view.job
    view = replace(view, now=now)
    seen = facts(view, job)
    # a person is shown silence by the store's times, even if a clock that can be set gave them
    shown = facts(replace(view, settable=False), job) if view.settable and view.attempts else seen
    leader = job.members()[0]
    last = view.computing[-1] if view.computing else None
    running = sum(attempt.running(leader) for attempt in view.attempts)
    steps = [attempt.checkpoints[-1] for attempt in view.attempts if attempt.checkpoints]
    beat = last.beats[leader][0] if last and leader in last.beats else None
    if beat is not None and beat.checkpoint is not None:
        steps.append(beat.checkpoint)
    state, reason, detail = _state(view, seen, beat)
    # the leader's last word, newer than its last heartbeat; of attempts that were not read, or deleted, it is
    # all that is known
    told = (view.result.shown if view.result is not None else None) or beat
    kept = view.result.shown if view.result is not None and not view.attempts else None
    if kept is not None and kept.checkpoint is not None:
        steps.append(kept.checkpoint)
    return Status(
        run=view.run,
        name=name,
        state=state,
        attempt=kept.attempt if kept else last.number if last else 0,
        attempts=kept.attempts if kept else len(view.computing),
        phase=beat.phase if beat and not state.final else "",
        step=told.step if told else None,
        total=told.total if told else None,
        message=told.message if told else "",
        eta=_eta(beat) if beat and state is State.RUNNING else None,
        checkpoint=max(steps, default=None),
        reason=reason,
        detail=detail,
        started=kept.held[0].start
        if kept and kept.held
        else min((time for attempt in view.attempts for time in attempt.claimed.values()), default=None),
        ended=view.result.time if view.result else None,
        running=max(running, view.result.running if view.result else 0.0),
        stale=not state.final
        and bool(shown.since_move)
        and shown.attempts[-1].exits[0] is None
        and shown.attempts[-1].gone[0],
        lost=view.result.lost if view.result else last.lost if last else 0,
        left_out=view.result.left_out_count if view.result else last.left_out if last else 0,
        members=_members(last, job, shown) if last else (),
    )


def _without_job(view: RunView, name: str) -> Status:
    result = view.result
    if result is not None:
        state, told = ended_as(result)
        return Status(view.run, name, state, result.attempt, reason=result.reason, detail=told)
    return Status(view.run, name, State.STOPPING if view.cancelled else State.QUEUED)


def _state(view: RunView, seen: RunFacts, beat: Beat | None) -> tuple[State, Reason | None, str]:
    if view.result is not None:
        state, told = ended_as(view.result)
        return state, view.result.reason, told
    end = verdict(seen)
    if end is not None:
        return State.STOPPING, end.reason, _unwritten(end)
    if view.cancelled:
        return State.STOPPING, Reason.CANCELLED, "cancel was asked for"
    if not seen.attempts:
        return State.QUEUED, None, ""
    last = seen.attempts[-1]
    if last.move:
        return State.STARTING, None, moved(view.attempts[-1])
    if ended(last):
        reason = reason_of(last, seen.leading)
        return State.STARTING, reason, f"attempt {len(seen.attempts)} ended ({reason}); the next has not begun"
    if beat is not None and beat.phase in ("running", "asking", "saving", "stopping"):
        return State.RUNNING, None, _idle(beat)
    return State.STARTING, None, ""


def _idle(beat: Beat) -> str:
    """A warning where the leader's GPUs have done nothing for long; "" else."""
    seconds = beat.usage.get(GPU_IDLE, 0.0)
    return f"its GPUs have done nothing for {seconds / 60:.0f} min" if seconds >= IDLE else ""


def moved(attempt: AttemptView) -> str:
    """Where an attempt's claim moved the run, and why."""
    why = next((claim.why for claim in attempt.claims.values() if claim.why), "")
    return f"moved to {attempt.moved_to}{': ' + why if why else ''}"


def _unwritten(end: Verdict) -> str:
    return f"attempt {end.attempt} ended ({end.reason}); the run's record is not written yet"


def _eta(beat: Beat) -> float | None:
    """Remaining seconds, at the pace since the first step of this attempt. Earlier time is not counted: a resumed
    attempt did not do the earlier steps itself, and loading is no step."""
    if beat.step is None or not beat.total or beat.first_step is None or beat.step <= beat.first_step:
        return None
    return (beat.running - beat.first_running) / (beat.step - beat.first_step) * max(0.0, beat.total - beat.step)


def _members(last: AttemptView, job: ResolvedJob, seen: RunFacts) -> tuple[MemberStatus, ...]:
    statuses = []
    for index, member in enumerate(job.members()):
        if member not in last.claims:
            continue
        beat = last.beats[member][0] if member in last.beats else None
        phase = "ended" if member in last.exits else beat.phase if beat else "waiting"
        statuses.append(
            MemberStatus(
                member,
                phase=phase,
                step=beat.step if beat else None,
                host=last.claims[member].placement.host,
                reason=last.exits[member].reason if member in last.exits else None,
                seen=last.seen(member),
                stale=member not in last.exits and seen.attempts[last.number - 1].gone[index],
                usage=dict(beat.usage) if beat else {},
            )
        )
    return tuple(statuses)
