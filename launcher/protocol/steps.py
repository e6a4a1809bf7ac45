"""The steps that `launcher.protocol.decide` names: what a process of a run, a reader or a submitter does next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from launcher.protocol.facts import Verdict
from launcher.reasons import Reason


class Leave(NamedTuple):
    """End this process; `code` is the container's exit code."""

    code: int
    reason: Reason
    message: str


class Finish(NamedTuple):
    """Put result.json (create-only), then decide again."""

    verdict: Verdict


class PutWorks(NamedTuple):
    """Put the missing works/ record, then decide again."""


class LookForWork(NamedTuple):
    """Look for another run that has done this work and may be adopted, then decide again."""


class Adopt(NamedTuple):
    """Put result.json (create-only), which names the run that has done this work, then decide again."""


class PutClaim(NamedTuple):
    """Create this member's claim in an attempt. The leader's claim starts the attempt; other ranks join it."""

    attempt: int


class Move(NamedTuple):
    """Create the leader's claim in an attempt as the one that moves the run to its next backend; then end the run's
    object on the backend that it leaves, and submit it to the next."""

    attempt: int
    reason: Reason


class Break(NamedTuple):
    """Put broken.json (create-only) into an attempt because a member failed or is gone, then decide again."""

    attempt: int
    member: int
    why: str


class WriteExit(NamedTuple):
    """Put this member's exit, then decide again. `message`: why the reason is not that of the command's own end."""

    reason: Reason
    message: str = ""


class Wait(NamedTuple):
    """Read the store again after a while."""

    why: str


class Go(NamedTuple):
    """Go on: nothing has to be waited for."""


class Stop(NamedTuple):
    """End the command. `gone`: the member that failed or disappeared, if the other ranks have not been told yet."""

    reason: Reason
    message: str
    gone: int | None = None


class PutJob(NamedTuple):
    """Put job.json (create-only)."""


class LookUp(NamedTuple):
    """Ask the backend for the run's object."""


class Submit(NamedTuple):
    """backend.submit (idempotent by name), then read cancel.json again."""


class CancelThere(NamedTuple):
    """backend.cancel: the run was cancelled while it was being submitted."""


class Attached(NamedTuple):
    """The backend has the run."""


class ReportResult(NamedTuple):
    """The run has ended: report its result and start nothing."""

    outcome: str


class Refuse(NamedTuple):
    """The backend has an object of that name with another fingerprint."""


class EndFormer(NamedTuple):
    """Ask the backends that the run has left to end its objects, then decide again."""


class SubmitNext(NamedTuple):
    """Submit the run to the backend to which it has moved; if that cannot take it now, decide again."""


class NoteDeletion(NamedTuple):
    """Put an event that says why the run's object is about to be deleted, then decide again."""

    reason: Reason


class EndObject(NamedTuple):
    """Delete the run's object on its backend, so that nothing of it can start, then decide again."""


class PutGroup(NamedTuple):
    """Put the group's record and its budget, complete records of work, and guard the inputs against deletion."""


# The order in which a submit takes the steps of a group's runs: `decide.submit` names the next step of each run, runs
# at the same step take it together, and the earliest step comes first.
#
# First comes what may not be undone: every job.json, so that a submit that dies can be repeated from the store. Then
# follow the group's record and what the group may cost, before a backend starts one of its runs. An object that is not
# ours is refused before anything is given to the backend. One call of `backend.submit` for all runs comes last.

Step = (
    PutJob | LookUp | Refuse | Attached | CancelThere | ReportResult | Finish
    | LookForWork | Adopt | Submit
)  # fmt: skip
ORDER: Final[tuple[type, ...]] = (
    LookUp,
    Refuse,
    Attached,
    CancelThere,
    ReportResult,
    Finish,
    LookForWork,
    Adopt,
    Submit,
)


def next_round(pending: Mapping[str, Step], grouped: bool) -> tuple[type, tuple[str, ...]]:
    """(the kind of step to take now, the runs that take it together). `pending`: run -> its next step, for every run
    that is not done; `grouped`: the group's record is written, or only a plan is made."""
    first = _at(pending, PutJob)
    if first:
        return PutJob, first
    if not grouped:
        return PutGroup, tuple(pending)
    return next((kind, runs) for kind in ORDER if (runs := _at(pending, kind)))


def _at(pending: Mapping[str, Step], kind: type) -> tuple[str, ...]:
    return tuple(run for run, step in pending.items() if isinstance(step, kind))
