"""Launchers, reapers and cancels killed between any two requests, in virtual time (tests/unit/lambda_labs/storm.py).
The ledger of the stand-in for Lambda Cloud judges: nothing worked twice, no machine outlived its deadline, no run was
lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from launcher.backends.lambda_labs import accounts, launching
from tests.unit.lambda_labs.storm import SimulatedMachine, World, storm


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "secret_storm")


@pytest.mark.parametrize(
    ("launchers", "trials"), [(3, 6), *[pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 6), (8, 4))]]
)
def test_a_short_storm(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 1, launchers)
    assert failed == []
    assert sums["kills"] > 25
    assert sums["machines"] > trials


# seeds whose trials failed before something was mended
@pytest.mark.parametrize(
    ("seed", "launchers"),
    [(8, 3), (14, 3), (24, 8), (33, 8), (38, 3), (39, 8)],
)
def test_a_storm_that_once_lost_a_run(seed: int, launchers: int) -> None:
    assert storm(1, seed, launchers)[1] == []


CALM = {"kill": 0.0, "fault": 0.0, "capacity": 1000, "quota": 1000, "sick": 0.0, "cancels": False}


def test_the_judge_sees_what_each_rule_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the lease three launchers launch twice; without the claim both machines work; without reap machines
    outlive their deadlines."""

    @contextmanager
    def no_lease(*arguments: object, **options: object) -> Iterator[accounts.LeaseTurn]:
        yield accounts.LeaseTurn(1e12, 0.0)

    sums, failed = storm(6, 1, 3, **CALM, list_lag=15.0)
    assert (sums["doubled"], failed) == (0, [])
    monkeypatch.setattr(launching, "turn", no_lease)
    sums, failed = storm(6, 1, 3, **CALM, list_lag=15.0)
    assert sums["doubled"] > 0
    assert failed == []  # they did no work, and were ended early
    assert sums["longest duplicate, s"] < 1800
    monkeypatch.setattr(World, "reaper", lambda world, number: None)
    sums, failed = storm(6, 1, 3, **CALM, list_lag=15.0)
    assert sums["left"] == sums["past_deadline"] == sums["machines"] > 0
    assert sums["worked_twice"] == 0
    claim = SimulatedMachine.claim
    monkeypatch.setattr(SimulatedMachine, "claim", lambda machine: claim(machine) or True)
    sums, failed = storm(6, 1, 3, **CALM, list_lag=15.0)
    assert sums["worked_twice"] > 0


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("launchers", "trials"), [(1, 800), (3, 800), (8, 500)])
def test_a_long_storm(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 1000, launchers)
    print(launchers, "launchers:", dict(sums))
    assert failed == []
