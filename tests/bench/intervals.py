"""Coverage of the 95 % intervals and size of the tests of `launcher compare`, by simulation.

`python -m tests.bench.intervals` prints the tables of docs/explanation/statistics.md; minutes on one core.

A benchmark of G trajectories with 4 to 26 steps each. In each trajectory an agent solves a step with a probability that
is drawn anew from a distribution, so steps of one trajectory resemble each other: `correlation` is that of two
steps (the intraclass correlation). Two agents draw independently of each other. The distributions, `kind`:

beta      the usual one
logit     the normal one on the scale of log odds, with a longer tail
two       nine trajectories in ten are of one kind, and the tenth is much worse
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from launcher.results import stats

CLUSTERS: Final = (5, 10, 20, 30, 50, 150)
CORRELATIONS: Final = (0.0, 0.1, 0.3)
SIZES: Final = (4, 26)
TRIALS: Final = 2000
WORSE: Final = 0.1  # the share of the worse kind, of `two`


class Share(NamedTuple):
    """Of trials, in [0, 1]: intervals that hold the truth, and tests at .05 that reject."""

    covered: float
    rejected: float
    rejected_by_pair: float  # McNemar's test, which takes steps for independent


@lru_cache
def log_odds(rate: float, correlation: float) -> tuple[float, float]:
    """(mean, standard deviation) of log odds whose chances have the mean `rate` and the correlation; by bisection, on
    points that lie close enough."""
    points = [-8 + step / 20 for step in range(321)]
    weights = [math.exp(-point * point / 2) for point in points]
    whole = math.fsum(weights)

    def moment(mean: float, deviation: float, power: int) -> float:
        chances = (1 / (1 + math.exp(-(mean + deviation * point))) for point in points)
        return math.fsum(weight * chance**power for weight, chance in zip(weights, chances, strict=True)) / whole

    def found(is_below: Callable[[float], bool], low: float, high: float) -> float:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if is_below(middle) else (low, middle)
        return low

    def mean(deviation: float) -> float:
        return found(lambda tried: moment(tried, deviation, 1) < rate, -30, 30)

    wanted = rate * rate + correlation * rate * (1 - rate)
    deviation = found(lambda tried: moment(mean(tried), tried, 2) < wanted, 0, 12)
    return mean(deviation), deviation


def chance_of(rng: random.Random, rate: float, correlation: float, kind: str) -> float:
    """The chance of a step of one trajectory."""
    if not correlation:
        return rate
    if kind == "logit":
        mean, deviation = log_odds(rate, correlation)
        return 1 / (1 + math.exp(-rng.gauss(mean, deviation)))
    if kind == "two":
        apart = math.sqrt(correlation * rate * (1 - rate) / (WORSE * (1 - WORSE)))
        return rate + WORSE * apart - (apart if rng.random() < WORSE else 0)
    weight = (1 - correlation) / correlation
    return rng.betavariate(rate * weight, (1 - rate) * weight)


def solved(
    rng: random.Random, sizes: Sequence[int], rate: float, correlation: float, kind: str = "beta"
) -> list[list[float]]:
    """0 or 1 for each step of each trajectory."""
    steps = []
    for size in sizes:
        chance = chance_of(rng, rate, correlation, kind)
        steps.append([float(rng.random() < chance) for _ in range(size)])
    return steps


def mean_covered(
    clusters: int, rate: float, correlation: float, trials: int = TRIALS, seed: int = 0, kind: str = "beta"
) -> float:
    """The share of intervals of one agent's rate that hold the true rate."""
    rng = random.Random(seed)
    covered = 0
    for _ in range(trials):
        sizes = [rng.randint(*SIZES) for _ in range(clusters)]
        sums = [sum(steps) for steps in solved(rng, sizes, rate, correlation, kind)]
        interval = stats.clustered_mean(sums, sizes)
        assert interval is not None
        covered += interval.low <= rate <= interval.high
    return covered / trials


def compared(
    clusters: int, rate: float, difference: float, correlation: float, trials: int = TRIALS, seed: int = 0
) -> Share:
    """Two agents whose true rates are `rate` and `rate + difference`."""
    rng = random.Random(seed)
    covered = rejected = by_pair = 0
    for _ in range(trials):
        sizes = [rng.randint(*SIZES) for _ in range(clusters)]
        before = solved(rng, sizes, rate, correlation)
        after = solved(rng, sizes, rate + difference, correlation)
        pairs = [[y - x for x, y in zip(*both, strict=True)] for both in zip(before, after, strict=True)]
        sums = [sum(values) for values in pairs]
        interval = stats.clustered_mean(sums, sizes, -1.0, 1.0)
        assert interval is not None
        covered += interval.low <= difference <= interval.high
        rejected += stats.sign_flip(sums) < 0.05
        flat = [value for values in pairs for value in values]
        by_pair += stats.mcnemar(flat.count(-1.0), flat.count(1.0)) < 0.05
    return Share(covered / trials, rejected / trials, by_pair / trials)


def covered(clusters: int, rate: float, correlation: float, kind: str) -> str:
    """`mean_covered` as a cell; a dash where two kinds cannot have that rate and correlation."""
    apart = math.sqrt(correlation * rate * (1 - rate) / (WORSE * (1 - WORSE)))
    if kind == "two" and not apart * (1 - WORSE) <= rate <= 1 - apart * WORSE:
        return "-"
    return f"{100 * mean_covered(clusters, rate, correlation, kind=kind):.1f}"


def main() -> None:
    for kinds, correlations in ((("beta",), CORRELATIONS), (("logit", "two"), CORRELATIONS[1:])):
        heads = [f"{kind}, correlation {c:g}" for kind in kinds for c in correlations]
        print("\n| clusters | true rate | " + " | ".join(heads) + " |\n" + "|---" * (2 + len(heads)) + "|")
        for clusters in CLUSTERS:
            for rate in (0.5, 0.8, 0.9, 0.95, 0.98):
                cells = [covered(clusters, rate, correlation, kind) for kind in kinds for correlation in correlations]
                print(f"| {clusters} | {rate:g} | " + " | ".join(cells) + " |", flush=True)
    heads = ["clusters", "correlation", "true rates", "interval holds it", "sign-flip rejects", "McNemar rejects"]
    print("\n| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for clusters in CLUSTERS:
        for correlation in CORRELATIONS:
            for rate, difference in ((0.6, 0.0), (0.6, 0.1), (0.95, 0.03)):
                share = compared(clusters, rate, difference, correlation)
                line = [f"{clusters}", f"{correlation:g}", f"{rate:g}, {rate + difference:g}"]
                print("| " + " | ".join([*line, *(f"{100 * value:.1f}" for value in share)]) + " |", flush=True)


if __name__ == "__main__":
    main()
