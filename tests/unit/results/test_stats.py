"""Against published tables and brute force, not against the formulas themselves."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.results import stats


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [  # Newcombe (1998), Table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_gives_newcombes_published_bounds(successes: int, n: int, low: float, high: float) -> None:
    interval = stats.wilson(successes, n)
    assert interval is not None
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_wilson_inverts_the_score_test() -> None:
    """Independent of the closed form: at either bound the score statistic is the normal quantile."""
    for n in (7, 100, 364):
        for successes in {1, n // 3, n - 1}:
            interval = stats.wilson(successes, n)
            assert interval is not None
            for bound in (interval.low, interval.high):
                score = (interval.value - bound) / (bound * (1 - bound) / n) ** 0.5
                assert abs(score) == pytest.approx(1.959963984540054, rel=1e-9)


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_stays_a_rate_and_mirrors(case: tuple[int, int]) -> None:
    successes, n = case
    one, other = stats.wilson(successes, n), stats.wilson(n - successes, n)
    assert one is not None
    assert other is not None
    assert 0 <= one.low <= one.value <= one.high <= 1
    assert one.low == pytest.approx(1 - other.high, abs=1e-12)
    assert one.low < one.high


def test_wilson_of_nothing_is_unknown_not_zero() -> None:
    assert stats.wilson(0, 0) is None
    with pytest.raises(ValueError, match="5 successes of 4"):
        stats.wilson(5, 4)


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [(0, 0, 1.0), (8, 2, 0.109375), (2, 8, 0.109375), (1, 1, 1.0), (0, 6, 0.03125), (5, 5, 1.0)],
)
def test_mcnemar_known_values(b: int, c: int, p: float) -> None:
    assert stats.mcnemar(b, c) == p


@pytest.mark.parametrize("n", range(1, 11))
def test_mcnemar_is_the_sign_test_by_enumeration(n: int) -> None:
    heads = [sum(toss) for toss in itertools.product((0, 1), repeat=n)]
    for b in range(n + 1):
        extreme = min(b, n - b)
        by_hand = sum(1 for k in heads if min(k, n - k) <= extreme) / len(heads)
        assert stats.mcnemar(b, n - b) == pytest.approx(by_hand)


@given(st.integers(0, 1500), st.integers(0, 1500))
@settings(max_examples=50, deadline=None)
def test_mcnemar_is_symmetric_and_a_probability(b: int, c: int) -> None:
    p = stats.mcnemar(b, c)
    assert p == stats.mcnemar(c, b)
    assert 0 <= p <= 1


def test_bootstrap_covers_the_true_mean_about_as_often_as_it_says() -> None:
    rng = random.Random(7)
    covered = 0
    for trial in range(200):
        values = [float(rng.random() < 0.3) for _ in range(80)]
        interval = stats.bootstrap_mean(values, resamples=400, seed=trial)
        assert interval is not None
        covered += interval.low <= 0.3 <= interval.high
    assert 0.88 <= covered / 200 <= 0.99  # 0.95 within four standard errors, percentile bootstrap runs a little low


def test_bootstrap_agrees_with_the_normal_approximation() -> None:
    values = [1.0] * 60 + [0.0] * 35 + [-1.0] * 5
    interval = stats.bootstrap_mean(values)
    assert interval is not None
    mean = 0.55
    error = ((60 * (1 - mean) ** 2 + 35 * mean**2 + 5 * (1 + mean) ** 2) / 100 / 100) ** 0.5
    assert interval.value == pytest.approx(mean)
    assert interval.low == pytest.approx(mean - 1.96 * error, abs=0.015)
    assert interval.high == pytest.approx(mean + 1.96 * error, abs=0.015)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.randoms())
@settings(max_examples=30, deadline=None)
def test_bootstrap_is_seeded_ordered_and_blind_to_order(values: list[float], rng: random.Random) -> None:
    interval = stats.bootstrap_mean(values, resamples=100)
    shuffled = values[:]
    rng.shuffle(shuffled)
    assert interval == stats.bootstrap_mean(shuffled, resamples=100)
    assert interval is not None
    assert min(values) - 1e-12 <= interval.low <= interval.value <= interval.high <= max(values) + 1e-12


def test_bootstrap_of_nothing_is_unknown() -> None:
    assert stats.bootstrap_mean([]) is None


def test_quantiles_are_linear_between_order_statistics() -> None:
    # numpy.quantile([1, 2, 4, 8], [0.1, 0.5, 0.9]) == [1.3, 3.0, 6.8]
    ordered = [1.0, 2.0, 4.0, 8.0]
    assert [stats._quantile(ordered, q) for q in (0.1, 0.5, 0.9)] == pytest.approx([1.3, 3.0, 6.8])


def test_binary_tells_rates_from_scores() -> None:
    assert stats.binary([1.0, 0.0, 1.0])
    assert not stats.binary([1.0, 0.5])
