"""The arms of an experiment: the same agent on the same tasks, each time with another rule for its demonstration.

An arm's rate is over all its tasks, as everywhere: what the infrastructure failed is not reached. A difference is over
the tasks that are scored in both arms. Its p is exact, by changing the sign of each cluster's sum of differences: of
two arms whose tasks are independent that is McNemar's test. Its interval is then Tango's (T. Tango (1998), Statistics
in Medicine 17, 891-908), else Student's by cluster. `launcher.results.stats` has the same formulas; a test holds them
equal. The differences are several, and no p is adjusted for that.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from eval.records.task_record import TaskRecord
from eval.scores.stats import Z95, Estimate, by_cluster, ratio

ARMS: Final = "arms.json"
FIRST: Final = "first_action"
SUCCESS: Final = "success"


class Unit(msgspec.Struct, frozen=True):
    """What is counted once: a task, or a recording. `reached`: by metric; None where it was not scored."""

    cluster: str
    reached: dict[str, bool | None]


class ArmRate(msgspec.Struct, frozen=True, kw_only=True):
    """How often an arm reached what the metric asks for, with its 95 % interval. `infra`: of the n, not scored."""

    arm: str
    metric: str
    reached: int
    n: int
    infra: int
    value: float
    ci_low: float
    ci_high: float


class ArmPair(msgspec.Struct, frozen=True, kw_only=True):
    """Arm `b` less arm `a`, over the `n` units that both have scored; `left_out` are the others.

    gained, lost  units that only b, and that only a reached
    clusters      of the n; as many as n where they are independent
    """

    metric: str
    a: str
    b: str
    n: int
    left_out: int
    clusters: int
    gained: int
    lost: int
    difference: float | None
    ci_low: float | None
    ci_high: float | None
    p: float | None


class Arms(msgspec.Struct, frozen=True):
    """arms.json."""

    arms: list[ArmRate]
    pairs: list[ArmPair]


def of_tasks(records: Sequence[TaskRecord]) -> dict[str, Unit]:
    """The tasks of an evaluation in a loop, by name. `first_action`, where the environment has an expert: whether the
    first answer was what the expert would have done."""
    units = {}
    for record in records:
        key = f"{record.task_id} {record.seed} {record.trial}"
        scored = record.outcome == "scored"
        reached: dict[str, bool | None] = {SUCCESS: bool(record.success) if scored else None}
        if FIRST in record.metrics or not scored:
            reached[FIRST] = record.metrics[FIRST] == 1.0 if scored else None
        units[key] = Unit(record.cluster or key, reached)
    return units


def of_recordings(records: Sequence[TaskRecord]) -> dict[str, Unit]:
    """The recordings of an evaluation by steps, by name. `success`: all answers were what the person did."""
    steps: dict[str, list[TaskRecord]] = {}
    for record in records:
        steps.setdefault(record.cluster or record.task_id, []).append(record)
    units = {}
    for name, some in steps.items():
        whole = all(record.outcome == "scored" for record in some)
        first = bool(some[0].success) if some[0].outcome == "scored" else None
        units[name] = Unit(name, {FIRST: first, SUCCESS: all(r.success for r in some) if whole else None})
    return units


def compare(arms: Mapping[str, Mapping[str, Unit]]) -> Arms:
    """Every arm's rates, and the difference of every two, the later one less the earlier one."""
    metrics = [name for name in (FIRST, SUCCESS) if any(name in u.reached for a in arms.values() for u in a.values())]
    rates = [_rate(name, units, metric) for metric in metrics for name, units in arms.items()]
    pairs = [_pair(a, arms[a], b, arms[b], m) for m in metrics for a, b in itertools.combinations(arms, 2)]
    return Arms(rates, pairs)


def _rate(arm: str, units: Mapping[str, Unit], metric: str) -> ArmRate:
    values = [(unit.cluster, float(unit.reached.get(metric) or 0)) for unit in units.values()]
    found = by_cluster(values)
    assert found is not None  # an evaluation has a task
    return ArmRate(
        arm=arm,
        metric=metric,
        reached=round(math.fsum(value for _, value in values)),
        n=len(values),
        infra=sum(unit.reached.get(metric) is None for unit in units.values()),
        value=found.value,
        ci_low=found.low,
        ci_high=found.high,
    )


def _pair(a: str, first: Mapping[str, Unit], b: str, second: Mapping[str, Unit], metric: str) -> ArmPair:
    sums: dict[str, list[int]] = {}
    for name in sorted(first.keys() & second.keys()):
        was, now = first[name].reached.get(metric), second[name].reached.get(metric)
        if was is not None and now is not None:
            sums.setdefault(first[name].cluster, []).append(int(now) - int(was))
    every = [difference for group in sums.values() for difference in group]
    gained, lost, n = every.count(1), every.count(-1), len(every)
    totals = [sum(group) for group in sums.values()]
    alone = len(sums) == n
    found = tango(gained, lost, n) if alone else ratio(totals, [len(group) for group in sums.values()])
    return ArmPair(
        metric=metric,
        a=a,
        b=b,
        n=n,
        left_out=len(first.keys() | second.keys()) - n,
        clusters=len(sums),
        gained=gained,
        lost=lost,
        difference=None if found is None else found.value,
        ci_low=None if found is None else max(-1.0, found.low),
        ci_high=None if found is None else min(1.0, found.high),
        p=sign_flip(totals) if every else None,
    )


def tango(gained: int, lost: int, n: int) -> Estimate | None:
    """Tango's 95 % score interval of (gained - lost) / n, the difference of paired rates; None for no pair."""
    if n == 0:
        return None

    def far(difference: float) -> bool:
        b = -gained - lost + (2 * n - gained + lost) * difference
        restricted = (math.sqrt(max(0.0, b * b + 8 * n * lost * difference * (1 - difference))) - b) / (4 * n)
        variance = n * (2 * restricted + difference * (1 - difference))
        return abs(gained - lost - n * difference) >= Z95 * math.sqrt(max(0.0, variance))

    value = (gained - lost) / n
    return Estimate(value, _bound(value, -1.0, far), _bound(value, 1.0, far), n)


def _bound(inner: float, outer: float, far: Callable[[float], bool]) -> float:
    """The place between the two at which `far` begins, by bisection."""
    for _ in range(100):
        middle = (inner + outer) / 2
        inner, outer = (inner, middle) if far(middle) else (middle, outer)
    return inner


def sign_flip(sums: Sequence[int]) -> float:
    """The share of all combinations of signs whose total is at least as far from 0 as the one seen."""
    ways = {0: 1}
    for value in map(abs, sums):
        grown: dict[int, int] = {}
        for total, count in ways.items():
            grown[total + value] = grown.get(total + value, 0) + count
            grown[total - value] = grown.get(total - value, 0) + count
        ways = grown
    far: int = sum(count for total, count in ways.items() if abs(total) >= abs(sum(sums)))
    every: int = 2 ** len(sums)
    return far / every


def write(path: Path, found: Arms) -> None:
    """arms.json."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(msgspec.to_builtins(found), indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)


def table(found: Arms) -> str:
    """For people: each arm in per cent, then each difference in points."""
    lines: list[tuple[Any, ...]] = [("arm", "metric", "per cent", "95 % interval", "reached", "")]
    for one in found.arms:
        interval = f"{100 * one.ci_low:.1f} to {100 * one.ci_high:.1f}"
        lines.append((one.arm, one.metric, f"{100 * one.value:.1f}", interval, f"{one.reached} of {one.n}", ""))
    lines.append(("difference", "metric", "points", "95 % interval", "only one reached", "p"))
    for pair in found.pairs:
        if pair.difference is None or pair.ci_low is None or pair.ci_high is None or pair.p is None:
            lines.append((f"{pair.b} - {pair.a}", pair.metric, "-", "-", "no task in both", "-"))
            continue
        interval = f"{100 * pair.ci_low:+.1f} to {100 * pair.ci_high:+.1f}"
        p = "<.001" if pair.p < 0.001 else f"{pair.p:.3f}"
        points = f"{100 * pair.difference:+.1f}"
        lines.append((f"{pair.b} - {pair.a}", pair.metric, points, interval, f"{pair.gained} to {pair.lost}", p))
    widths = [max(len(str(line[i])) for line in lines) for i in range(6)]
    told = ["  ".join(str(cell).ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(told)
