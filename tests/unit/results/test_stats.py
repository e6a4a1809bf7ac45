"""Against published tables and brute force, not against the formulas themselves."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.scores import stats as evals
from launcher.results import stats
from tests.bench.intervals import compared, mean_covered


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


# scipy.stats.t.ppf(.975, df), from its documentation's tables: Fisher and Yates (1938), table III
@pytest.mark.parametrize(
    ("freedom", "quantile"),
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (10, 2.2281), (29, 2.0452), (120, 1.9799)],
)
def test_students_quantile_is_the_published_one(freedom: int, quantile: float) -> None:
    assert round(stats.student(freedom), 4) == quantile


def test_students_quantile_has_no_jump_where_the_expansion_begins() -> None:
    assert stats.student(2000) > stats.student(2001) > stats.student(10**6) > 1.959963
    assert stats.student(2001) == pytest.approx(stats.student(2000), abs=5e-6)


def test_tango_gives_the_published_bounds() -> None:
    """Fagerland, Lydersen, Laake (2014), Statistics in Medicine 33:2850: airway reactivity of 21 children before and
    after stem cell transplantation, the pairs 1, 1, 7, 12."""
    interval = stats.tango(1, 7, 21)
    assert interval is not None
    assert [round(value, 3) for value in (interval.value, interval.low, interval.high)] == [-0.286, -0.517, -0.026]


def restricted(gained: int, lost: int, n: int, difference: float) -> float:
    """Independent of the closed form: the score statistic at the likelihood's maximum under this difference, found by
    golden section over the probability of a lost pair."""

    def likelihood(q: float) -> float:
        cells = ((gained, q + difference), (lost, q), (n - gained - lost, 1 - 2 * q - difference))
        return sum(count * math.log(max(p, 1e-300)) for count, p in cells if count)

    low, high = max(0.0, -difference), (1 - difference) / 2
    for _ in range(200):
        third = (high - low) / 3
        if likelihood(low + third) < likelihood(high - third):
            low += third
        else:
            high -= third
    q = (low + high) / 2
    return (gained - lost - n * difference) / math.sqrt(n * (2 * q + difference - difference**2))


@pytest.mark.parametrize(("gained", "lost", "n"), [(40, 20, 160), (3, 1, 12), (12, 2, 50), (5, 0, 30)])
def test_at_tangos_bounds_the_score_statistic_is_the_normal_quantile(gained: int, lost: int, n: int) -> None:
    interval = stats.tango(gained, lost, n)
    assert interval is not None
    for bound in (interval.low, interval.high):
        assert abs(restricted(gained, lost, n, bound)) == pytest.approx(1.959964, abs=1e-3)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.integers(0, n), st.just(n))))
def test_tango_is_never_a_point_and_mirrors(case: tuple[int, int, int]) -> None:
    gained, lost, n = case
    lost = min(lost, n - gained)
    interval, mirror = stats.tango(gained, lost, n), stats.tango(lost, gained, n)
    assert interval is not None
    assert mirror is not None
    assert -1 <= interval.low <= interval.value <= interval.high <= 1
    assert interval.low < interval.high
    assert interval.low == pytest.approx(-mirror.high, abs=1e-9)


def test_tango_of_nothing_is_unknown() -> None:
    assert stats.tango(0, 0, 0) is None
    with pytest.raises(ValueError, match="3 gained and 2 lost of 4"):
        stats.tango(3, 2, 4)


def test_where_all_clusters_agree_the_bounds_are_tangos_and_wilsons() -> None:
    for n in (3, 20, 150):
        same, gained, solved = stats.tango(0, 0, n), stats.tango(n, 0, n), stats.wilson(n, n)
        for sums, low, reference in (([0.0] * n, -1.0, same), ([4.0] * n, -1.0, gained), ([4.0] * n, 0.0, solved)):
            interval = stats.clustered_mean(sums, [4] * n, low, 1.0)
            assert interval is not None
            assert reference is not None
            assert (interval.low, interval.high) == pytest.approx((reference.low, reference.high), abs=1e-6)


def test_the_variance_is_that_of_the_clusters_and_not_of_the_steps() -> None:
    """Twenty trajectories of ten equal steps are twenty observations."""
    rates = [1.0] * 12 + [0.0] * 8
    steps = stats.clustered_mean([10 * rate for rate in rates], [10] * 20)
    alone = stats.clustered_mean(rates, [1] * 20)
    assert steps is not None
    assert alone is not None
    assert (steps.low, steps.high) == pytest.approx((alone.low, alone.high))
    # the textbook's: 0.6 +- t(19) x s / sqrt(20), before Wilson draws it to the middle
    half = 2.093 * math.sqrt(12 * 0.4**2 + 8 * 0.6**2) / math.sqrt(19) / math.sqrt(20)
    assert steps.high - steps.low == pytest.approx(2 * half, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=12), st.randoms())
def test_a_mean_by_cluster_is_ordered_bounded_and_blind_to_order(
    pairs: list[tuple[int, int]], rng: random.Random
) -> None:
    pairs = [(min(part, size), size) for part, size in pairs]
    interval = stats.clustered_mean([part for part, _ in pairs], [size for _, size in pairs])
    rng.shuffle(pairs)
    again = stats.clustered_mean([part for part, _ in pairs], [size for _, size in pairs])
    assert interval is not None
    assert again is not None
    assert interval.value == pytest.approx(sum(part for part, _ in pairs) / sum(size for _, size in pairs))
    assert -1e-12 <= interval.low <= interval.value <= interval.high <= 1 + 1e-12
    assert interval.low < interval.high
    assert (again.low, again.high) == pytest.approx((interval.low, interval.high))


def test_one_cluster_says_nothing_and_none_is_unknown() -> None:
    assert stats.clustered_mean([7], [10]) == stats.Interval(0.7, 0.0, 1.0)
    assert stats.clustered_mean([], []) is None


# the shares of docs/explanation/statistics.md; the seeds are fixed, so the figures are the same everywhere
@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("rate", [0.5, 0.8])
@pytest.mark.parametrize("clusters", [10, 20])
def test_intervals_of_a_rate_hold_the_truth_as_often_as_they_say(
    clusters: int, rate: float, correlation: float
) -> None:
    assert 0.93 <= mean_covered(clusters, rate, correlation, trials=1000) <= 0.97


@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.3])
def test_intervals_of_a_rate_near_the_end_err_on_the_wide_side(correlation: float) -> None:
    assert 0.93 <= mean_covered(20, 0.95, correlation, trials=1000) <= 0.985


# each was below .93 while the degrees of freedom came from the number of clusters alone
@pytest.mark.parametrize(
    ("kind", "clusters", "rate"),
    [
        *(("beta", 20, 0.9), ("beta", 50, 0.95), ("two", 50, 0.8), ("two", 50, 0.95)),
        *(("logit", 20, 0.95), ("logit", 30, 0.95), ("logit", 50, 0.95)),
    ],
)
def test_intervals_hold_the_truth_where_few_trajectories_make_up_most_of_the_variance(
    kind: str, clusters: int, rate: float
) -> None:
    assert 0.93 <= mean_covered(clusters, rate, 0.3, trials=1000, kind=kind) <= 0.97


@pytest.mark.parametrize("clusters", [10, 20])
def test_intervals_of_a_difference_of_high_rates_hold_the_truth(clusters: int) -> None:
    """Red before: .90 and .91."""
    assert 0.93 <= compared(clusters, 0.95, 0.03, 0.3, trials=1000).covered <= 0.97


def test_the_degrees_of_freedom_are_the_clusters_less_one_or_fewer_where_one_makes_up_the_variance() -> None:
    """By hand. Half of 20 clusters at 1 and half at 0: all squares are equal, so 19. One of 20 at 0: its square is
    (1/20)^2, those of the others (1/380)^2, and 2 V^2 / (the variance of V) is 2.2: whole degrees, 2."""
    half = stats.clustered_mean([10.0] * 10 + [0.0] * 10, [10] * 20)
    one = stats.clustered_mean([10.0] * 19 + [0.0], [10] * 20)
    assert half is not None
    assert one is not None
    # Wilson with t^2 / the effective number, which for equal clusters is about their number
    assert half.high - half.low == pytest.approx(2 * stats.student(19) * 0.5 / math.sqrt(19), rel=0.12)
    assert one.low == pytest.approx(low_end(0.95, 20, stats.student(2)), abs=1e-9)


def low_end(rate: float, clusters: int, t: float) -> float:
    """Wilson's lower bound with the variance of `clusters` equal ones, of which one is at 0, drawn by a quarter."""
    variance = rate * (1 - rate) / (clusters - 1)
    drawn = (rate * clusters + 0.125) / (clusters + 0.25)
    ratio = t * t * variance * drawn * (1 - drawn) / (rate * (1 - rate)) ** 2
    return (rate + ratio / 2 - math.sqrt(ratio * rate * (1 - rate) + ratio * ratio / 4)) / (1 + ratio)


@pytest.mark.parametrize(
    ("clusters", "value", "marked"),
    [
        *((9, 0.5, True), (10, 0.5, False), (10, 0.75, False), (49, 0.76, True), (49, 0.2, True), (50, 0.95, False)),
        *((12, 6.3, False), (12, -0.4, False), (12, 1.0, False), (12, 0.0, False), (9, 1.0, True), (9, 6.3, True)),
    ],
)
def test_an_interval_over_few_clusters_is_marked_and_near_the_ends_over_more(
    clusters: int, value: float, marked: bool
) -> None:
    assert stats.few(clusters, value) is marked
    assert evals.few(clusters, value) is marked


@pytest.mark.parametrize("correlation", [0.0, 0.3])
@pytest.mark.parametrize("difference", [0.0, 0.1])
def test_intervals_of_a_difference_hold_the_truth_and_the_test_keeps_its_level(
    difference: float, correlation: float
) -> None:
    share = compared(10, 0.6, difference, correlation, trials=1000)
    assert 0.93 <= share.covered <= 0.97
    if not difference:
        assert share.rejected <= 0.065  # .05 within two standard errors
        if correlation:
            assert share.rejected_by_pair > 0.15  # why steps must not be taken for independent


@pytest.mark.parametrize(("gained", "lost"), [(8, 2), (2, 8), (1, 1), (0, 6), (0, 0), (150, 113)])
def test_a_sign_flip_of_single_pairs_is_mcnemars_test(gained: int, lost: int) -> None:
    assert stats.sign_flip([1.0] * gained + [-1.0] * lost + [0.0] * 5) == pytest.approx(stats.mcnemar(lost, gained))


@given(st.lists(st.integers(-6, 6), max_size=10))
def test_a_sign_flip_is_the_share_of_all_signs_by_enumeration(sums: list[int]) -> None:
    totals = [
        abs(sum(sign * value for sign, value in zip(signs, sums, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(sums))
    ]
    by_hand = sum(total >= abs(sum(sums)) for total in totals) / len(totals)
    assert stats.sign_flip([float(value) for value in sums]) == pytest.approx(by_hand)
    assert stats.sign_flip([value / 4 + 0.0 for value in sums]) == pytest.approx(by_hand)


def test_random_signs_agree_with_the_exact_count() -> None:
    whole = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0, -5.0, 3.0, 5.0, 8.0, -9.0, 7.0, 9.0, 3.0]
    exact, drawn = stats.sign_flip(whole), stats.sign_flip([value / 8 for value in whole])
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact / 10_000))
    assert drawn == stats.sign_flip([value / 8 for value in whole])


def test_binary_tells_rates_from_scores() -> None:
    assert stats.binary([1.0, 0.0, 1.0])
    assert not stats.binary([1.0, 0.5])
