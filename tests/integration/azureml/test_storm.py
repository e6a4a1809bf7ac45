"""Launchers, reapers and cancels killed between any two requests, in virtual time (storm.py beside this). The ledger of
the stand-in for Azure judges: nothing worked twice, no job outlived its limit, no run was lost or given up while
nothing was wrong with it."""

from __future__ import annotations

import pytest

from tests.integration.azureml.pool_storm import PoolWorld
from tests.integration.azureml.storm import storm

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow


@pytest.fixture(autouse=True)
def outside_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK starts git five times for each job that it creates."""
    monkeypatch.setenv("GIT_DIR", "/nonexistent")


@pytest.mark.parametrize(
    ("launchers", "trials"), [(3, 4), *[pytest.param(*one, marks=pytest.mark.nightly) for one in ((1, 4), (8, 4))]]
)
def test_a_short_storm(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 1, launchers)
    assert failed == []
    assert sums["kills"] > 10
    assert sums["jobs"] > trials


def test_a_storm_that_once_lost_a_run() -> None:
    """An image was missing: the first job of a run had ended before a launcher that was killed sent the second."""
    assert storm(1, 16162, 1)[1] == []


@pytest.mark.parametrize("launchers", [1, 3])
def test_a_short_storm_of_pools(launchers: int) -> None:
    """None of its counters names a fault: never more instances than ranks, none left, none billed for too long."""
    sums, failed = storm(1, 104, launchers, PoolWorld)
    assert failed == []
    assert sums["made"] >= 3


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("launchers", "trials"), [(1, 340), (3, 330), (8, 330)])
def test_a_long_storm_of_pools(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 3000, launchers, PoolWorld)
    print(launchers, "launchers:", dict(sums))
    assert failed == []


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("launchers", "trials"), [(1, 350), (3, 350), (8, 300)])
def test_a_long_storm(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 1000, launchers)
    print(launchers, "launchers:", dict(sums))
    assert failed == []
