"""Launchers, reapers and cancels killed between any two requests, in virtual time (tests/unit/lambda_labs/storm.py).
The ledger of the stand-in for Lambda Cloud judges: nothing worked twice, no machine outlived its deadline, no run was
lost."""

from __future__ import annotations

import pytest

from tests.unit.lambda_labs.storm import storm


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "secret_storm")


@pytest.mark.parametrize(("launchers", "trials"), [(1, 24), (3, 24), (8, 12)])
def test_a_short_storm(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 1, launchers)
    assert failed == []
    assert sums["kills"] > 50
    assert sums["machines"] > trials


# seeds whose trials failed before something was mended
@pytest.mark.parametrize(
    ("seed", "launchers"),
    [(8, 3), (14, 3), (24, 8), (33, 8), (38, 3), (39, 8)],
)
def test_a_storm_that_once_lost_a_run(seed: int, launchers: int) -> None:
    assert storm(1, seed, launchers)[1] == []


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("launchers", "trials"), [(1, 800), (3, 800), (8, 500)])
def test_a_long_storm(launchers: int, trials: int) -> None:
    sums, failed = storm(trials, 1000, launchers)
    print(launchers, "launchers:", dict(sums))
    assert failed == []
