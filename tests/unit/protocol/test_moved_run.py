"""A run of several backends as its records tell it: which attempts count, and what a person reads."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from launcher.protocol.decide import ceiling
from launcher.protocol.facts import AttemptFacts, facts
from launcher.protocol.fold import State, fold
from launcher.protocol.records import GPU_IDLE, Beat, Claim
from launcher.protocol.steps import Stop
from launcher.protocol.view import AttemptView, RunView
from launcher.reasons import Reason
from launcher.spec.model import Alternative
from tests.unit.protocol.test_facts import HERE, JOB, NOW, attempt

SEVERAL = msgspec.structs.replace(JOB, alternatives=(Alternative("lambda"), Alternative("azureml")))


def moved(number: int, to: str, why: str = "") -> AttemptView:
    claims = {"main-0": Claim(HERE, "n", 0.0, moved_to=to, why=why)}
    return AttemptView(number, claims=claims, claimed={"main-0": NOW - 1})


def view(*attempts: AttemptView) -> RunView:
    return RunView("job-1", job=SEVERAL, attempts=attempts, now=NOW)


def working(usage: dict[str, float]) -> RunView:
    beat = Beat(1, "running", usage=usage)
    return view(attempt(beats=dict.fromkeys(SEVERAL.members(), (beat, NOW - 1))))


def test_what_counts_is_after_the_last_move() -> None:
    """Two moves, of which the second counts; with none, all attempts do."""
    first, third, fifth = attempt(1), attempt(3), attempt(5)
    run = view(first, moved(2, "lambda"), third, moved(4, "azureml"), fifth)
    assert run.since_move == (fifth,)
    assert run.computing == (first, third, fifth)
    assert run.turn == 2
    assert view(first, moved(2, "lambda"), third).since_move == (third,)
    assert view(first, attempt(2)).since_move == (first, attempt(2))


def test_the_job_is_placed_by_the_backend_whose_turn_it_is() -> None:
    placed = view(attempt(1), moved(2, "lambda")).placed
    assert placed is not None
    assert (placed.backend, placed.turn) == ("lambda", 1)
    first = view(attempt(1)).placed
    assert first is not None
    assert first.backend == "local"
    assert RunView("job-1").placed is None


def test_nobody_has_claimed_and_nothing_lives_in_an_attempt_that_only_moved_the_run() -> None:
    run = facts(view(attempt(1), moved(2, "lambda")), SEVERAL)
    assert run.attempts[1] == AttemptFacts((False,) * 3, (None,) * 3, (True,) * 3, move=True)
    assert run.backends == 3
    assert facts(view(), JOB).backends == 1


@pytest.mark.parametrize(
    ("claim", "told"),
    [(moved(2, "lambda", "no capacity"), "moved to lambda: no capacity"), (moved(2, "lambda"), "moved to lambda")],
)
def test_a_person_reads_where_a_run_was_moved_and_why(claim: AttemptView, told: str) -> None:
    status = fold(view(attempt(1), claim))
    assert (status.state, status.detail) == (State.STARTING, told)


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({GPU_IDLE: 899.9}, ""),
        ({GPU_IDLE: 900.0}, "its GPUs have done nothing for 15 min"),
        ({GPU_IDLE: 5400.0}, "its GPUs have done nothing for 90 min"),
        ({}, ""),
    ],
)
def test_a_quarter_of_an_hour_without_work_is_told(usage: dict[str, float], told: str) -> None:
    status = fold(working(usage))
    assert (status.state, status.detail) == (State.RUNNING, told)


def test_a_ceiling_stops_a_run_when_all_of_it_is_spent() -> None:
    told = "the runs of its group may cost 10.00 USD together, and have"
    assert ceiling(Decimal("9.99"), Decimal("10.00"), "USD") is None
    assert ceiling(Decimal("10.00"), Decimal("10.00"), "USD") == Stop(Reason.BUDGET, told)
