"""What a reaper does next about a run that has no result: a pure function of what it read. launcher/verbs/reap.py reads
the store, asks the backend, asks here for the next step, and takes it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from launcher.protocol import decide
from launcher.protocol.facts import Rules, RunFacts
from launcher.protocol.rules import ALL, Rule
from launcher.protocol.steps import EndFormer, EndObject, Finish, Move, NoteDeletion, PutWorks, SubmitNext
from launcher.reasons import Reason

HOPELESS: Final = 1800.0  # seconds after which a run that can never start loses its place, or its GPU
CAN_NOT_START: Final = (Reason.IMAGE_PULL, Reason.CONFIG_ERROR)


class Open(StrEnum):
    """Why a run stays open although no process of it is known to run. A person has to know of it."""

    UNSUBMITTED = "no backend has an object of the run, and none ever started a process of it"
    INTERRUPTED = "a submit of the run was interrupted on this machine"
    COMES_BACK = "what applied its object may make it again"
    UNDECIDED = "it has ended unless another cluster or queue has an object of it"


class Situation(NamedTuple):
    """What a reaper knows of a run. `active`, `evidence`, `own` and `absent` are as in `decide.finish`."""

    run: RunFacts
    active: bool | None = None
    evidence: Reason | None = None
    own: bool = True
    absent: float | None = None
    object: bool = False  # the backend has an object of the run, ended or not
    explained: bool = False  # the backend says why it has none, or why it could not be asked
    # the active object has other runs too: it makes each pod that is deleted again, and a stage that waits for the one
    # before it would lose every pod that is about to start
    shared: bool = False
    queue: bool = False  # the backend is this machine's own, and its supervisor ends what cannot start
    waited: float = 0.0  # seconds since the backend whose turn it is got the run
    start_deadline: float | None = None  # of the limits: seconds
    deletion: Reason | None = None  # a reaper has noted that it deletes the object, and why
    interrupted: bool = False  # a submit of the run was interrupted on this machine
    # what this reaper has done about the run
    left: bool = False  # it has asked the backends that the run has left
    passed_on: bool = False  # it could not submit the run to the backend whose turn it is
    noted: bool = False  # it has noted the deletion
    ended: bool = False  # it has tried to delete the object


def start_limit(now: Situation) -> float | None:
    """Seconds that a run may wait for its first process; None: for ever."""
    if now.start_deadline is None and now.evidence in CAN_NOT_START:
        return HOPELESS
    return now.start_deadline


def deleted(now: Situation) -> bool:
    """Whether a reaper has deleted the object of a run that had not started, and died before it wrote the result."""
    return now.deletion is not None and not now.object and not now.explained and not now.run.since_move


def overdue(now: Situation) -> bool:
    """Whether the run has waited too long for its first process."""
    limit = start_limit(now)
    if limit is None or now.run.since_move or deleted(now):
        return False
    return not now.shared and now.waited > limit


def concluded(now: Situation) -> Situation:
    """The situation with what follows from a noted deletion, or from waiting too long."""
    if deleted(now):
        return now._replace(active=False, evidence=now.deletion, own=True)
    if overdue(now):
        return now._replace(evidence=now.evidence or Reason.UNSCHEDULABLE)
    return now


def reap(
    now: Situation, rules: Rules = ALL
) -> EndFormer | SubmitNext | Move | NoteDeletion | EndObject | Finish | PutWorks | Open | None:
    """The next step of a reaper, or why the run stays open; None: it lives or waits, and nobody has to know. Called
    again after each step."""
    if now.run.turn and not now.left:
        return EndFormer()
    if _between_backends(now) and not now.passed_on:
        return SubmitNext()
    late = overdue(now)
    now = concluded(now)
    if _unsubmitted(now):
        return Open.UNSUBMITTED
    if now.interrupted:
        return Open.INTERRUPTED
    # while the object is active, what its backend says is no end; that it waited too long is one
    ends = now.evidence if late or now.active is False else None
    step = decide.move(now.run, now.active, ends, rules, own=now.own, absent=now.absent)
    if step is not None and Rule.NEXT_BACKEND in rules:
        return step
    if late and now.active and Rule.OBJECT_FIRST in rules and not now.ended:
        # the note comes first: once the object is gone, only the note tells that it was here
        if not now.noted and Rule.NOTE_FIRST in rules:
            return NoteDeletion(now.evidence or Reason.UNSCHEDULABLE)
        return EndObject()
    active = False if late and Rule.OBJECT_FIRST not in rules else now.active
    end = decide.finish(now.run, active, evidence=now.evidence, rules=rules, own=now.own, absent=now.absent)
    return end or _stays_open(now)


def _between_backends(now: Situation) -> bool:
    """Whether the run has moved to a backend that does not have it yet: whoever moved it has died."""
    run = now.run
    return bool(run.turn) and not now.object and not now.explained and not run.since_move and not run.cancelled


def _unsubmitted(now: Situation) -> bool:
    """Whether nothing is known of the run but its job."""
    if now.run.turn or now.run.since_move or now.run.cancelled or now.queue:
        return False
    return not now.object and not now.active and now.evidence is None and not now.explained


def _stays_open(now: Situation) -> Open | None:
    if now.absent is not None and now.run.attempts:
        return Open.COMES_BACK
    if now.active is None and decide.finish(now.run, False, evidence=now.evidence) is not None:
        return Open.UNDECIDED
    return None
