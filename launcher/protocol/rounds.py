"""The order in which a submit takes the steps of a group's runs. `decide.submit` names the next step of each run; the
runs that are at the same step take it together, and the earliest step of this order comes first.

The order is that of what may not be undone: every job.json first, so that a submit that dies can be repeated from the
store; then the group's record and what it may cost, before a backend starts one of its runs; an object that is not ours
is refused before anything is given to the backend; last of all one call of `backend.submit` for all runs that need it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from launcher.protocol import steps

Step = (
    steps.PutJob | steps.LookUp | steps.Refuse | steps.Attached | steps.CancelThere | steps.ReportResult | steps.Finish
    | steps.LookForWork | steps.Adopt | steps.Submit
)  # fmt: skip
ORDER: Final[tuple[type, ...]] = (
    steps.LookUp,
    steps.Refuse,
    steps.Attached,
    steps.CancelThere,
    steps.ReportResult,
    steps.Finish,
    steps.LookForWork,
    steps.Adopt,
    steps.Submit,
)


def next_round(pending: Mapping[str, Step], grouped: bool) -> tuple[type, tuple[str, ...]]:
    """(the kind of step to take now, the runs that take it together). `pending`: run -> its next step, for every run
    that is not done; `grouped`: the group's record is written, or only a plan is made."""
    first = _at(pending, steps.PutJob)
    if first:
        return steps.PutJob, first
    if not grouped:
        return steps.PutGroup, tuple(pending)
    return next((kind, runs) for kind in ORDER if (runs := _at(pending, kind)))


def _at(pending: Mapping[str, Step], kind: type) -> tuple[str, ...]:
    return tuple(run for run, step in pending.items() if isinstance(step, kind))
