"""When a run goes on at the next of its backends, and what its former and its next backend may still do."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.protocol.decide import (
    GONE_FOR_GOOD,
    BackendObject,
    Submission,
    budget,
    finish,
    idle,
    move,
    start,
    submit,
)
from launcher.protocol.facts import AttemptFacts, RunFacts, Verdict
from launcher.protocol.steps import Attached, Finish, Leave, Move, Stop, Submit
from launcher.reasons import EXIT_NEVER, Reason

LIVE = AttemptFacts((True,), (None,), (False,))
LOST = LIVE._replace(gone=(True,))
MOVED = AttemptFacts((True,), (None,), (True,), move=True)
PLACELESS = (Reason.CAPACITY, Reason.QUOTA, Reason.UNSCHEDULABLE, Reason.PREEMPTED, Reason.EVICTED)


def over(reason: Reason) -> AttemptFacts:
    return LIVE._replace(exits=(reason,))


def run(*attempts: AttemptFacts, backends: int = 2, **facts: Any) -> RunFacts:
    return RunFacts(attempts, backends=backends, **facts)


@pytest.mark.parametrize("reason", PLACELESS)
def test_a_run_that_has_no_place_moves(reason: Reason) -> None:
    assert move(run(), active=True, evidence=reason) == Move(1, reason)
    assert move(run(over(Reason.LOST)), active=None, evidence=reason) == Move(2, reason)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in PLACELESS])
def test_no_other_evidence_moves_it(reason: Reason) -> None:
    assert move(run(), active=False, evidence=reason) is None


@pytest.mark.parametrize("reason", [Reason.PREEMPTED, Reason.EVICTED])
def test_a_run_that_was_displaced_moves_whatever_the_backend_says(reason: Reason) -> None:
    for active in (True, False, None):
        assert move(run(over(reason)), active) == Move(2, reason)


def test_a_lost_run_moves_only_where_its_own_backend_has_no_object_of_it_any_more() -> None:
    assert move(run(LOST), active=False) == Move(2, Reason.LOST)
    assert move(run(LOST), active=True) is None
    assert move(run(LOST), active=None) is None
    assert move(run(LOST), active=False, own=False) is None
    assert move(run(LOST), active=False, evidence=Reason.IMAGE_PULL) is None
    assert move(run(over(Reason.INFRASTRUCTURE)), active=False) is None


def test_what_never_began_or_lives_or_was_applied_from_git_stays() -> None:
    assert move(run(), active=False) is None
    assert move(run(LIVE), active=False, evidence=Reason.CAPACITY) is None
    assert move(run(over(Reason.PREEMPTED)), active=False, absent=1e9) is None
    assert move(run(over(Reason.PREEMPTED), MOVED, backends=3), active=False) is None  # nothing ran since it moved


def test_nothing_moves_beyond_its_last_backend_or_its_end() -> None:
    for stays in (
        run(over(Reason.PREEMPTED), backends=1),
        run(over(Reason.PREEMPTED), MOVED, over(Reason.PREEMPTED)),
        run(over(Reason.PREEMPTED), cancelled=True),
        run(over(Reason.PREEMPTED), result="failed"),
        run(over(Reason.CONFIG_ERROR)),
    ):
        assert move(stays, active=False) is None
        assert move(stays, active=False, asked=True) is None
    assert move(run(over(Reason.PREEMPTED), MOVED, LOST, backends=3), active=False) == Move(4, Reason.LOST)


def test_a_person_moves_what_lives() -> None:
    assert move(run(LIVE), active=True, asked=True) == Move(2, Reason.PREEMPTED)
    assert move(run(), active=True, asked=True) == Move(1, Reason.PREEMPTED)


def test_who_has_to_move_is_not_ended() -> None:
    assert finish(run(LOST), active=False) is None
    assert finish(run(LOST, backends=1), active=False) == Finish(Verdict("failed", 1, Reason.LOST))
    assert finish(run(LOST, MOVED, LOST), active=False) == Finish(Verdict("failed", 3, Reason.LOST))


def test_an_applied_run_whose_object_is_gone_is_cancelled_after_half_an_hour() -> None:
    """Half an hour: a sync of Argo CD comes every 3 minutes, one of Flux every 10 in k8s/gitops."""
    assert GONE_FOR_GOOD == 1800
    gone = run(LOST, backends=1)
    assert finish(gone, active=False, absent=1799.9) is None
    assert finish(gone, active=False, absent=1800.0) == Finish(Verdict("cancelled", 1, Reason.CANCELLED))


def test_a_process_of_a_former_or_a_later_backend_leaves() -> None:
    moved = run(over(Reason.PREEMPTED), MOVED)
    told = "it is the turn of the run's backend 2; this is its backend 1"
    assert start(moved, 0, turn=0) == Leave(EXIT_NEVER, Reason.LOST, told)
    told = "it is the turn of the run's backend 1; this is its backend 2"
    assert start(run(), 0, turn=1) == Leave(EXIT_NEVER, Reason.LOST, told)
    assert not isinstance(start(moved, 0, turn=1), Leave)


def test_a_submit_gives_it_to_the_backend_whose_turn_it_is_and_to_no_other() -> None:
    moved = run(over(Reason.PREEMPTED), MOVED)
    absent = BackendObject(there=False)
    # by their type: steps without fields are equal
    assert isinstance(submit(Submission(moved, job=True, object=absent, turn=0)), Attached)
    assert isinstance(submit(Submission(moved, job=True, object=absent, turn=1)), Submit)


def test_a_budget_is_spent_when_all_of_it_is() -> None:
    told = "the budget is spent: it pays for 60 s over all attempts"
    assert budget(59.9, 60) is None
    assert budget(60, 60) == Stop(Reason.BUDGET, told)
    assert budget(1e9, None) is None


def test_idle_is_who_did_nothing_for_all_of_the_time() -> None:
    assert idle(899.9, 900) is None
    assert idle(900, 900) == Stop(Reason.IDLE, "the GPUs have done nothing for 900 s")
    assert idle(1e9, None) is None
