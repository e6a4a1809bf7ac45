"""Intervals for what an evaluation measures. Plain Python: the same figures on every machine.

The unit is the cluster (the task, the episode, the trajectory), because the steps of one episode are not independent.
docs/explanation/statistics.md says what is used where, with a table of simulated coverage. Sources: E. B. Wilson
(1927), JASA 22, 209-212; with an effective number of observations and Student's t: E. L. Korn and B. I. Graubard
(1998), Survey Methodology 24, 193-201; the jackknife's variance by cluster: J. MacKinnon, M. Nielsen, M. Webb (2023),
Journal of Applied Econometrics 38, 671-694; degrees of freedom from how much that variance itself varies: M. Fay, B. I.
Graubard (2001), Biometrics 57, 1198-1206, and W. Pan, M. Wall (2002), Statistics in Medicine 21, 1429-1441.
`launcher.results.stats` has the same formulas, as neither package imports
the other; a test holds them equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

Z95: Final = 1.959963984540054  # the 97.5 % point of the normal distribution
DRAWN: Final = 0.25  # of a cluster at the middle: near the ends the variance between clusters is too small too often
FEW: Final = 10  # clusters below which an interval cannot be relied on
FEW_NEAR_AN_END: Final = 50  # the same for a value within NEAR of 0 or 1: a rare kind of cluster may be missing
NEAR: Final = 0.25


@dataclass(frozen=True)
class Estimate:
    """A value, its 95 % bounds, and the number of observations behind it.

    clusters  the number of clusters behind an interval by cluster; None where the observations are independent
    """

    value: float
    low: float
    high: float
    n: int
    clusters: int | None = None


def wilson(successes: int, n: int) -> Estimate | None:
    """A rate with Wilson's 95 % interval; None for n = 0."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    if n == 0:
        return None
    rate, z2 = successes / n, Z95 * Z95
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * math.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n))
    low = 0.0 if successes == 0 else min(rate, middle - half)
    high = 1.0 if successes == n else max(rate, middle + half)
    return Estimate(rate, low, high, n)


@lru_cache(maxsize=256)
def student(freedom: int) -> float:
    """The 97.5 % point of Student's t, for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 to 26.7.5)."""
    if freedom > 2000:
        return Z95 + (Z95**3 + Z95) / (4 * freedom)
    low, high = 0.0, 1e6
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < 0.95 else (low, middle)
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


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> Estimate | None:
    """sum(parts) / sum(wholes) over clusters, with Student's 95 % interval by cluster; `n` is the sum of the wholes.

    A cluster whose whole is 0 is skipped; None when none is left. With every whole 1 it is the mean. For quantities
    without bounds, such as steps: where all clusters agree, and with one cluster, the interval is a point.
    """
    pairs = [(part, whole) for part, whole in zip(parts, wholes, strict=True) if whole]
    if not pairs:
        return None
    value, total, variance, freedom = _jackknife(pairs)
    half = student(freedom) * math.sqrt(variance)
    return Estimate(value, value - half, value + half, round(total), len(pairs))


def per_solved(parts: Sequence[float], solved: Sequence[float]) -> Estimate | None:
    """What all clusters took, for each solved task: sum(parts) / sum(solved), with Student's 95 % interval by cluster.

    Unlike `ratio` it counts what was taken where nothing was solved. None where nothing was solved at all; where one
    cluster alone was, nothing is known of the spread, and the interval is a point.
    """
    pairs = list(zip(parts, solved, strict=True))
    if not sum(solved):
        return None
    if sum(one > 0 for one in solved) == 1:
        value = math.fsum(parts) / math.fsum(solved)
        return Estimate(value, value, value, round(sum(solved)), len(pairs))
    value, total, variance, freedom = _jackknife(pairs)
    half = student(freedom) * math.sqrt(variance)
    return Estimate(value, max(0.0, value - half), value + half, round(total), len(pairs))


def rate(parts: Sequence[float], wholes: Sequence[float]) -> Estimate | None:
    """`ratio` for values in [0, 1], with bounds in [0, 1].

    Wilson's formula with the effective number of observations that the variance by cluster implies, and Student's t.
    Where all clusters agree there is no variance to measure: the bounds are Wilson's with an observation per cluster.
    One cluster says nothing: the bounds are 0 and 1. Successes with one observation per cluster are Wilson's own case.
    """
    pairs = [(part, whole) for part, whole in zip(parts, wholes, strict=True) if whole]
    if not pairs:
        return None
    count = len(pairs)
    if all(whole == 1 and part in (0, 1) for part, whole in pairs):
        return wilson(round(math.fsum(part for part, _ in pairs)), count)
    value, total, variance, freedom = _jackknife(pairs)
    value = min(1.0, max(0.0, value))  # rounding
    n = round(total)
    if count == 1:
        return Estimate(value, 0.0, 1.0, n, 1)
    if variance < 1e-15 or value in (0.0, 1.0):
        other = Z95 * Z95 / (count + Z95 * Z95)  # the share of clusters that may lie elsewhere
        return Estimate(value, min(value, (1 - other) * value), max(value, (1 - other) * value + other), n, count)
    spread = value * (1 - value)
    drawn = (value * count + DRAWN / 2) / (count + DRAWN)
    shrink = student(freedom) ** 2 * variance * drawn * (1 - drawn) / spread**2  # t^2 / effective number
    middle = (value + shrink / 2) / (1 + shrink)
    half = math.sqrt(shrink * spread + shrink * shrink / 4) / (1 + shrink)
    return Estimate(value, min(value, max(0.0, middle - half)), max(value, min(1.0, middle + half)), n, count)


def by_cluster(values: Sequence[tuple[str, float]]) -> Estimate | None:
    """The mean of values in [0, 1] with a 95 % interval by cluster; `values`: (cluster, value). None if empty."""
    sums: dict[str, list[float]] = {}
    for cluster, value in values:
        sums.setdefault(cluster, []).append(value)
    return rate([math.fsum(group) for group in sums.values()], [float(len(group)) for group in sums.values()])


def few(clusters: int, value: float) -> bool:
    """Whether an interval over so many clusters may be too narrow (docs/explanation/statistics.md, the simulations).
    Values outside [0, 1], such as numbers of steps, have no ends to be near, and at 0 and 1 the bounds are one
    observation's per cluster."""
    return clusters < FEW or (clusters < FEW_NEAR_AN_END and (0 < value < NEAR or 1 - NEAR < value < 1))


def pass_at(k: int, solved: int, trials: int) -> float:
    """The chance that at least one of `k` trials solves a task, of which `solved` of `trials` did: the estimator
    without bias, 1 - C(trials - solved, k) / C(trials, k) (M. Chen et al. (2021), Evaluating Large Language Models
    Trained on Code, arXiv:2107.03374, equation 1). Raises ValueError for fewer trials than `k`."""
    if not (0 <= solved <= trials and 1 <= k <= trials):
        raise ValueError(f"{k} of {trials} trials, {solved} solved")
    return 1.0 - math.comb(trials - solved, k) / math.comb(trials, k)


def pass_all(k: int, solved: int, trials: int) -> float:
    """The chance that all of `k` trials solve a task, of which `solved` of `trials` did (pass^k): the estimator without
    bias, C(solved, k) / C(trials, k) (S. Yao et al. (2024), tau-bench, arXiv:2406.12045, section 3). Raises ValueError
    for fewer trials than `k`."""
    if not (0 <= solved <= trials and 1 <= k <= trials):
        raise ValueError(f"{k} of {trials} trials, {solved} solved")
    return math.comb(solved, k) / math.comb(trials, k)


def _jackknife(pairs: Sequence[tuple[float, float]]) -> tuple[float, float, float, int]:
    """(sum of parts / sum of wholes, sum of wholes, its variance by leaving out one cluster at a time, the degrees of
    freedom). With one cluster the variance is 0.

    The degrees of freedom are at most the effective number of clusters less one; fewer where few clusters make up most
    of the variance, as near 0 and 1: 2 x variance^2 / (the variance of that sum, from its own parts)."""
    count = len(pairs)
    total, overall = math.fsum(whole for _, whole in pairs), math.fsum(part for part, _ in pairs)
    value = overall / total
    if count == 1:
        return value, total, 0.0, 1
    squares = [((overall - part) / (total - whole) - value) ** 2 for part, whole in pairs]
    whole_variance = math.fsum(squares)
    freedom = math.floor(total * total / math.fsum(whole * whole for _, whole in pairs) + 1e-9) - 1
    spread = count / (count - 1) * math.fsum((square - whole_variance / count) ** 2 for square in squares)
    if 2 * whole_variance**2 < freedom * spread:
        freedom = math.floor(2 * whole_variance**2 / spread + 1e-9)
    return value, total, (count - 1) / count * whole_variance, max(1, freedom)
