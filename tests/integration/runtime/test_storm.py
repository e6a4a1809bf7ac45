"""Kill storms: a fresh seed each time, printed when a trial fails; `make nightly` runs 300."""

from __future__ import annotations

import secrets
import time

import pytest

from tests.integration.runtime_storm import storm, summary


@pytest.mark.parametrize("trials", [10, pytest.param(300, marks=[pytest.mark.nightly, pytest.mark.alone])])
@pytest.mark.timeout(1800)
def test_storm(trials: int) -> None:
    began = time.monotonic()
    done = list(storm(trials, seed=secrets.randbelow(10**9)))
    while (
        sum(trial.kills for trial in done) < trials and len(done) < 4 * trials
    ):  # on a quick machine many come too late
        done += storm(10, seed=secrets.randbelow(10**9))
    text = summary(done, time.monotonic() - began)
    print(text)
    assert not any(trial.problems for trial in done), text
    assert sum(trial.kills for trial in done) >= trials
