"""Intervals and tests for evaluations. Plain Python, so the figures are the same on every machine.

Observations of one cluster (the steps of one trajectory, the repeats of one task) are not independent, so the cluster
is the unit. docs/explanation/statistics.md says what is used where, with a table of simulated coverage.
`eval.scores.stats` has the same formulas, because neither package imports the other; a test holds them equal.

Sources: Wilson (1927), JASA 22:209-212, formula as in Newcombe (1998), Statistics in Medicine 17:857-872, method 3; by
cluster with an effective number of observations and Student's t: Korn and Graubard (1998), Survey Methodology
24:193-201, and Franco, Little, Louis, Slud (2019), Journal of Survey Statistics and Methodology 7:334-364. The variance
by cluster is the jackknife's: MacKinnon, Nielsen, Webb (2023), Journal of Applied Econometrics 38:671-694. Degrees of
freedom from how much that variance itself varies: Fay, Graubard (2001), Biometrics 57:1198-1206, and Pan, Wall (2002),
Statistics in Medicine 21:1429-1441. Paired proportions: Tango (1998), Statistics in Medicine 17:891-908. McNemar (1947)
in its exact conditional form: Agresti, Categorical Data Analysis, 3rd ed., 11.1.2. Sign-flip by cluster: Canay, Romano,
Shaikh (2017), Econometrica 85:1013-1030.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

LEVEL: Final = 0.95
SEED: Final = 20240229
DRAWN: Final = 0.25  # of a cluster at the middle; see clustered_mean
FEW: Final = 10  # clusters below which neither intervals nor p can be relied on
FEW_NEAR_AN_END: Final = 50  # the same for the interval of a value within NEAR of 0 or 1: a rare kind may be missing
NEAR: Final = 0.25
ENUMERATED: Final = 14  # clusters up to which every combination of signs is tried
FLIPS: Final = 10_000  # random signs above that
STATES: Final = 2_000_000  # steps of the exact count over whole numbers, above which random signs are drawn


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence bounds, `low <= value <= high`."""

    value: float
    low: float
    high: float


def wilson(successes: int, n: int, level: float = LEVEL) -> Interval | None:
    """Wilson's score interval of a rate, without continuity correction; None if `n` is 0."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return None
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    rate = successes / n
    centre = successes + z2 / 2
    half = math.sqrt(z2) * math.sqrt(successes * (n - successes) / n + z2 / 4)
    # the bounds are exactly 0 and 1 at the ends; rounding must not move a bound past the rate
    low = 0.0 if successes == 0 else min((centre - half) / (n + z2), rate)
    high = 1.0 if successes == n else max((centre + half) / (n + z2), rate)
    return Interval(rate, low, high)


@lru_cache(maxsize=256)
def student(freedom: int, level: float = LEVEL) -> float:
    """The two-sided quantile of Student's t with `freedom` degrees of freedom.

    By bisection of its distribution for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4).
    """
    if freedom > 2000:
        z = NormalDist().inv_cdf((1 + level) / 2)
        return z + (z**3 + z) / (4 * freedom)  # 26.7.5, whose next term is below 1e-6 here
    low, high = 0.0, 1e6
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < level else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| <= t)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine2, odd = math.cos(angle) ** 2, freedom % 2
    term = total = math.cos(angle) if odd else 1.0
    for k in range(1, (freedom - 1) // 2 if odd else freedom // 2):
        term *= cosine2 * (2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k))
        total += term
    if odd:
        return 2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0))
    return math.sin(angle) * total


def by_cluster(clusters: Iterable[str], values: Iterable[float]) -> tuple[list[float], list[int]]:
    """(sum, number) of the values of each cluster, in the order of the clusters' names."""
    groups: dict[str, list[float]] = {}
    for cluster, value in zip(clusters, values, strict=True):
        groups.setdefault(cluster, []).append(value)
    members = [groups[cluster] for cluster in sorted(groups)]
    return [math.fsum(member) for member in members], [len(member) for member in members]


def clustered_mean(
    sums: Sequence[float], sizes: Sequence[float], low: float = 0.0, high: float = 1.0
) -> Interval | None:
    """The mean of values in [`low`, `high`] by cluster: sum(sums) / sum(sizes); None without values.

    Wilson's formula with the effective number of observations that the jackknife's variance by cluster implies, and
    Student's t. Near the ends the few clusters that differ make that variance too small too often, so it is taken for a
    mean drawn to the middle by a quarter of a cluster: a choice of ours, made by simulation. The degrees of freedom are
    `_freedom`'s. Where all clusters agree there is no variance
    to measure; the bounds are then those of Wilson, and of Tango for differences, with one observation per cluster. One
    cluster says nothing: the bounds are `low` and `high`.
    """
    count, total = len(sizes), math.fsum(sizes)
    if not count:
        return None
    mean = math.fsum(sums) / total
    if count == 1:
        return Interval(mean, min(low, mean), max(high, mean))
    share = (mean - low) / (high - low)  # in [0, 1], as all that follows
    overall = math.fsum(sums)
    squares = [((overall - part) / (total - size) - mean) ** 2 for part, size in zip(sums, sizes, strict=True)]
    variance = (count - 1) / count * math.fsum(squares) / (high - low) ** 2
    t = student(_freedom(squares, sizes))
    if not 0.0 <= share <= 1.0:  # not the range that was promised
        half = t * math.sqrt(variance) * (high - low)
        return Interval(mean, mean - half, mean + half)
    if variance < 1e-15 or share in (0.0, 1.0):
        z2 = NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2
        other = z2 / (count + z2)  # the share of clusters that may lie elsewhere, at worst at the other end
        bounds = (1 - other) * share, (1 - other) * share + other
    else:
        spread = share * (1 - share)
        drawn = (share * count + DRAWN / 2) / (count + DRAWN)
        variance *= drawn * (1 - drawn) / spread
        ratio = t * t * variance / spread  # t^2 / the effective number of observations
        centre = (share + ratio / 2) / (1 + ratio)
        half = math.sqrt(ratio * spread + ratio * ratio / 4) / (1 + ratio)
        bounds = centre - half, centre + half
    return Interval(mean, min(mean, low + (high - low) * bounds[0]), max(mean, low + (high - low) * bounds[1]))


def _freedom(squares: Sequence[float], sizes: Sequence[float]) -> int:
    """The degrees of freedom of a variance that is a sum over clusters, `squares` its parts.

    At most the effective number of clusters less one, sum(size)^2 / sum(size^2) - 1. Fewer where few clusters make up
    most of the variance, as near 0 and 1: 2 x variance^2 / (the variance of that sum, from its own parts), which for
    parts of normal deviations is about the number of clusters.
    """
    count, whole = len(sizes), math.fsum(sizes)
    most = math.floor(whole * whole / math.fsum(size * size for size in sizes) + 1e-9) - 1
    total = math.fsum(squares)
    spread = count / (count - 1) * math.fsum((square - total / count) ** 2 for square in squares)
    if 2 * total * total < most * spread:
        most = math.floor(2 * total * total / spread + 1e-9)
    return max(1, most)


def few(clusters: int, value: float) -> bool:
    """Whether an interval over so many clusters may be too narrow (docs/explanation/statistics.md, the simulations).

    For values in [0, 1] near an end: a kind of cluster that is rare may be missing among fewer than 50, which no
    interval can know. At 0 and 1 themselves the bounds are those of one observation per cluster. Other values, such as
    numbers of steps, have no ends.
    """
    return clusters < FEW or (clusters < FEW_NEAR_AN_END and (0 < value < NEAR or 1 - NEAR < value < 1))


def tango(gained: int, lost: int, n: int, level: float = LEVEL) -> Interval | None:
    """Tango's score interval of the difference of paired proportions, (gained - lost) / n; None for no pair.

    The bounds are the differences at which his score statistic, with the restricted estimate of the nuisance parameter,
    is the normal quantile; found by bisection. The interval is never a point.
    """
    if min(gained, lost) < 0 or gained + lost > n:
        raise ValueError(f"{gained} gained and {lost} lost of {n}")
    if n == 0:
        return None
    z = NormalDist().inv_cdf((1 + level) / 2)
    value = (gained - lost) / n

    def statistic(difference: float) -> float:
        b = -gained - lost + (2 * n - gained + lost) * difference
        c = -lost * difference * (1 - difference)
        restricted = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)
        variance = n * (2 * restricted + difference * (1 - difference))
        distance = gained - lost - n * difference
        return distance / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, distance)

    def bound(inner: float, outer: float, quantile: float) -> float:
        for _ in range(100):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if abs(statistic(middle)) < quantile else (inner, middle)
        return inner

    return Interval(value, bound(value, -1.0, z), bound(value, 1.0, z))


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p of McNemar's test, from the numbers of discordant pairs; 1 if there are none."""
    if only_first < 0 or only_second < 0:
        raise ValueError("numbers of pairs are not negative")
    n = only_first + only_second
    tail = term = 1  # C(n, 0) and the sum so far
    for k in range(min(only_first, only_second)):
        term = term * (n - k) // (k + 1)
        tail += term
    total: int = 2**n
    return min(1.0, 2 * tail / total)  # integers until the one division, which Python rounds correctly at any size


def sign_flip(sums: Sequence[float], seed: int = SEED) -> float:
    """Two-sided p of no difference, from each cluster's sum of differences; 1 if all are 0.

    Without a difference each sum might as well have the other sign: p is the share of all combinations of signs whose
    total is at least as far from 0. Exact for whole numbers and for few clusters; else over FLIPS combinations drawn at
    random, the observed one counted in. With clusters of one pair of successes it is the exact McNemar test.
    """
    values = [abs(value) for value in sums if value]
    if not values:
        return 1.0
    observed = abs(math.fsum(sums)) - 1e-9
    if all(value == int(value) for value in values) and len(values) * sum(values) <= STATES:
        return _exact([int(value) for value in values], observed)
    if len(values) <= ENUMERATED:
        totals = (
            abs(math.fsum(map(float.__mul__, values, signs)))
            for signs in itertools.product((1.0, -1.0), repeat=len(values))
        )
        return sum(total >= observed for total in totals) / float(2 ** len(values))
    rng, everything, far = random.Random(seed), math.fsum(values), 1
    for _ in range(FLIPS):
        chosen = map("1".__eq__, format(rng.getrandbits(len(values)), f"0{len(values)}b"))
        far += abs(2 * sum(itertools.compress(values, chosen)) - everything) >= observed
    return far / (FLIPS + 1)


def _exact(values: Sequence[int], observed: float) -> float:
    """`sign_flip` for whole numbers: the combinations of signs are counted by their total."""
    ways = {0: 1}
    for value in values:
        grown: dict[int, int] = {}
        for total, count in ways.items():
            grown[total + value] = grown.get(total + value, 0) + count
            grown[total - value] = grown.get(total - value, 0) + count
        ways = grown
    far: int = sum(count for total, count in ways.items() if abs(total) >= observed)
    every: int = 2 ** len(values)
    return far / every


def binary(values: Sequence[float]) -> bool:
    """Whether a metric is a rate of successes, so that Wilson, Tango and McNemar apply."""
    return set(values) <= {0.0, 1.0}
