"""The rate behind one that a judge with errors measured, and its interval."""

from __future__ import annotations

import random

import pytest

from eval.scores.judge_errors import rogan_gladen
from eval.scores.stats import Estimate, wilson


def rate(successes: int, n: int) -> Estimate:
    found = wilson(successes, n)
    assert found is not None
    return found


def test_the_formula_of_rogan_and_gladen() -> None:
    """(apparent + specificity - 1) / (sensitivity + specificity - 1)"""
    found = rogan_gladen(rate(200, 1000), rate(900, 1000), rate(950, 1000))
    assert found is not None
    assert found.value == pytest.approx(0.15 / 0.85)
    assert found.n == 1000


def test_a_judge_without_errors_changes_nothing_but_what_is_not_known_of_it() -> None:
    raw = rate(30, 100)
    sure = rogan_gladen(raw, rate(10**6, 10**6), rate(10**6, 10**6))
    unsure = rogan_gladen(raw, rate(20, 20), rate(20, 20))
    assert sure is not None
    assert unsure is not None
    assert (sure.value, unsure.value) == pytest.approx((0.3, 0.3))
    assert (sure.low, sure.high) == pytest.approx((raw.low, raw.high), abs=0.005)
    assert unsure.high - unsure.low > sure.high - sure.low


@pytest.mark.parametrize(("sensitivity", "specificity"), [(1.0, 0.0), (0.5, 0.5), (0.2, 0.7)])
def test_a_judge_that_knows_nothing_tells_nothing(sensitivity: float, specificity: float) -> None:
    errors = [Estimate(value, 0, 1, 50) for value in (sensitivity, specificity)]
    assert rogan_gladen(rate(10, 20), *errors) is None


def test_the_rate_stays_between_0_and_1() -> None:
    """Fewer were called solved than the judge calls solved by mistake."""
    found = rogan_gladen(rate(1, 100), rate(45, 50), rate(45, 50))
    assert found is not None
    assert (found.value, found.low) == (0.0, 0.0)
    assert 0 < found.high < 0.1


def test_clusters_are_the_observations() -> None:
    """Of 10 clusters with 10 tasks each as of 10 tasks."""
    clusters, tasks = Estimate(0.5, 0, 1, 100, 10), Estimate(0.5, 0, 1, 10)
    errors = (rate(45, 50), rate(45, 50))
    found, other = rogan_gladen(clusters, *errors), rogan_gladen(tasks, *errors)
    assert found is not None
    assert other is not None
    assert (found.low, found.high) == (other.low, other.high)


@pytest.mark.parametrize(
    ("truth", "sensitivity", "specificity", "n"), [(0.1, 0.9, 0.95, 100), (0.5, 0.8, 0.9, 60), (0.8, 0.95, 0.8, 200)]
)
def test_the_interval_covers_the_truth_in_95_of_100_experiments(
    truth: float, sensitivity: float, specificity: float, n: int
) -> None:
    drawn, covered, trials = random.Random(f"{truth} {n}"), 0, 1000

    def many(count: int, chance: float) -> Estimate:
        return rate(sum(drawn.random() < chance for _ in range(count)), count)

    apparent = truth * sensitivity + (1 - truth) * (1 - specificity)
    for _ in range(trials):
        found = rogan_gladen(many(n, apparent), many(80, sensitivity), many(80, specificity))
        covered += found is not None and found.low <= truth <= found.high
    assert 0.93 <= covered / trials <= 1
