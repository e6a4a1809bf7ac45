"""The next step of a reaper, for every state in which a run without a result may be found."""

from __future__ import annotations

import pytest

from launcher.protocol.facts import AttemptFacts, RunFacts, Verdict
from launcher.protocol.reaping import HOPELESS, Open, Situation, deleted, overdue, reap, start_limit
from launcher.protocol.steps import EndFormer, EndObject, Finish, Move, NoteDeletion, SubmitNext
from launcher.reasons import Reason

LIVE = AttemptFacts((True,), (None,), (False,))
PREEMPTED = LIVE._replace(exits=(Reason.PREEMPTED,))
LOST = LIVE._replace(gone=(True,))
MOVED = AttemptFacts((True,), (None,), (True,), move=True)
NEW, CANCELLED = RunFacts(()), RunFacts((), cancelled=True)
GOING = Situation(RunFacts((LIVE,)), active=True, object=True)
WAITS = Situation(NEW, active=True, object=True, start_deadline=60.0, waited=60.1)
NOTED = Situation(NEW, active=None, own=False, deletion=Reason.IMAGE_PULL)
AWAY = Situation(RunFacts((PREEMPTED, MOVED), backends=2), active=False, left=True)
FAILED = Finish(Verdict("failed", 0, Reason.UNSCHEDULABLE))


@pytest.mark.parametrize(
    ("now", "step"),
    [
        (GOING, None),
        (GOING._replace(interrupted=True), Open.INTERRUPTED),
        # nothing of it was ever seen
        (Situation(NEW), Open.UNSUBMITTED),
        (Situation(NEW, active=False), Open.UNSUBMITTED),
        (Situation(NEW, active=False, queue=True), None),
        (Situation(NEW, explained=True), None),
        (Situation(NEW, explained=True, interrupted=True), Open.INTERRUPTED),
        (Situation(CANCELLED), Finish(Verdict("cancelled", 0, Reason.CANCELLED))),
        (Situation(NEW, evidence=Reason.UPSTREAM_FAILED), Open.UNDECIDED),
        (Situation(NEW, active=True), None),
        # it waits for its first process
        (WAITS, NoteDeletion(Reason.UNSCHEDULABLE)),
        (WAITS._replace(evidence=Reason.QUOTA), NoteDeletion(Reason.QUOTA)),
        (WAITS._replace(noted=True), EndObject()),
        (WAITS._replace(noted=True, ended=True), None),  # it could not be deleted
        (WAITS._replace(noted=True, ended=True, active=None), Open.UNDECIDED),
        (WAITS._replace(noted=True, ended=True, active=False), FAILED),
        (WAITS._replace(waited=60.0), None),
        (WAITS._replace(shared=True), None),
        (WAITS._replace(start_deadline=None), None),
        (WAITS._replace(run=RunFacts((LIVE,))), None),
        (WAITS._replace(run=RunFacts((), backends=2)), Move(1, Reason.UNSCHEDULABLE)),
        (WAITS._replace(run=RunFacts((), backends=2), waited=1.0, evidence=Reason.QUOTA), None),
        (WAITS._replace(run=RunFacts((), backends=2), active=False, evidence=Reason.QUOTA), Move(1, Reason.QUOTA)),
        (WAITS._replace(active=False, object=False), FAILED),
        # its object was deleted by a reaper that died then
        (NOTED, Finish(Verdict("failed", 0, Reason.IMAGE_PULL))),
        (NOTED._replace(start_deadline=60.0, waited=61.0), Finish(Verdict("failed", 0, Reason.IMAGE_PULL))),
        (NOTED._replace(explained=True), None),
        (NOTED._replace(object=True, active=True), None),
        (NOTED._replace(run=RunFacts((LIVE,))), None),
        # it has moved
        (AWAY._replace(left=False), EndFormer()),
        (AWAY, SubmitNext()),
        (AWAY._replace(passed_on=True), None),
        (AWAY._replace(object=True, active=True), None),
        (AWAY._replace(explained=True), None),
        (AWAY._replace(run=AWAY.run._replace(cancelled=True)), Finish(Verdict("cancelled", 1, Reason.CANCELLED))),
        (AWAY._replace(run=RunFacts((PREEMPTED, MOVED, LIVE), backends=2)), None),
        # it has run
        (Situation(RunFacts((PREEMPTED,)), active=False), Finish(Verdict("failed", 1, Reason.LOST))),
        (Situation(RunFacts((PREEMPTED,)), active=False, own=False), None),
        (Situation(RunFacts((PREEMPTED,)), active=None), Open.UNDECIDED),
        (Situation(RunFacts((PREEMPTED,), backends=2), active=True, object=True), Move(2, Reason.PREEMPTED)),
        (Situation(RunFacts((LOST,)), active=False, absent=1.0), Open.COMES_BACK),
        (Situation(RunFacts((LOST,)), active=False, absent=1800.0), Finish(Verdict("cancelled", 1, Reason.CANCELLED))),
        (Situation(NEW, active=False, absent=1.0, object=True), None),
    ],
)
def test_the_next_step(now: Situation, step: object) -> None:
    answer = reap(now)
    assert (type(answer), answer) == (type(step), step)  # steps without fields are equal tuples


def test_only_what_cannot_start_waits_for_half_an_hour_by_default() -> None:
    assert HOPELESS == 1800
    for reason in Reason:
        limit = HOPELESS if reason in (Reason.IMAGE_PULL, Reason.CONFIG_ERROR) else None
        assert start_limit(Situation(NEW, evidence=reason)) == limit
        assert start_limit(Situation(NEW, evidence=reason, start_deadline=5.0)) == 5.0


def test_a_noted_deletion_counts_only_while_nothing_else_is_known() -> None:
    assert deleted(NOTED)
    assert not deleted(NOTED._replace(deletion=None))
    assert not overdue(NOTED._replace(start_deadline=1.0, waited=2.0))
    assert overdue(NOTED._replace(start_deadline=1.0, waited=2.0, object=True))
