"""Compares two evaluations on the same tasks, paired by (benchmark, task, seed). Every task left out is reported.

Scores of different benchmarks, versions or rules are never put together: one comparison per benchmark and version, and
an error where the two sides were scored by different rules. Of tasks whose judge, programs or desktop changed between
the two (launcher.results.identity) nothing is compared: they are left out, and it is an error where no others are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from launcher.errors import BadInput
from launcher.results import identity, stats
from launcher.results.read import TaskResult
from launcher.results.stats import Interval
from launcher.trees import document

ALL_OF: Final = {f"pass_all/{k}": k for k in (1, 2, 3, 5)}  # all of k trials solve the task
METRICS = ("success", "score", *ALL_OF)
GROUPS: Final[dict[str, Callable[[TaskResult], str]]] = {
    "difficulty": lambda task: task.difficulty,
    "program": lambda task: " + ".join(task.programs),
}
MCNEMAR: Final = "exact McNemar"
SIGN_FLIP: Final = "sign-flip"
SIGN_FLIP_BY_CLUSTER: Final = "sign-flip by cluster"
Key = tuple[str, str, str]  # benchmark, task, seed


@dataclass(frozen=True)
class PerSolved:
    """What the scored episodes of one side took, for each that solved its task: answers, seconds, and USD where the
    records know it. None where none solved one. `summary.json` says the same, with intervals, of all tasks."""

    steps: float | None
    seconds: float | None
    cost: float | None


class Trials(TaskResult, frozen=True):
    """Several trials of one task. `wins`: how many of them solved it."""

    wins: int = 0


@dataclass(frozen=True)
class Comparison:
    """B compared with A on one benchmark.

    An infrastructure failure is never a score, and every task stays in the denominator: the two values are over
    `tasks`, the shared ones, of which those that the infrastructure broke, or that could not run there, are not solved,
    as in `results`. What a solved task took is over the same tasks. The
    difference, its interval and `p` are over the `pairs` that are scored on both sides.
    """

    a: str
    b: str
    benchmark: str
    version: str
    metric: str
    tasks: int
    pairs: int
    clusters: int  # of the pairs: as many as pairs where the records name none
    value_a: Interval | None
    value_b: Interval | None
    difference: Interval | None  # B - A
    p: float | None
    test: str  # which p it is; "" without one
    gained: int  # pairs where B is higher
    lost: int  # pairs where A is higher
    only_a: tuple[Key, ...]
    only_b: tuple[Key, ...]
    infra_a: tuple[Key, ...]
    infra_b: tuple[Key, ...]
    not_run_a: tuple[Key, ...]
    not_run_b: tuple[Key, ...]
    unscored: tuple[Key, ...]  # scored on both sides, but without this metric
    per_solved_a: PerSolved
    per_solved_b: PerSolved
    other_task: tuple[Key, ...] = ()  # on both sides, with another judge, other programs or another desktop
    notes: tuple[str, ...] = ()  # what a reader must know before believing the figures
    group: str = ""  # the difficulty or the application whose tasks these are; "": all tasks

    @property
    def left_out(self) -> int:
        """The number of tasks that are left out of the comparison."""
        broken = {*self.infra_a, *self.infra_b, *self.not_run_a, *self.not_run_b}
        return len({*self.only_a, *self.only_b, *self.unscored, *self.other_task} | broken)

    @property
    def by_cluster(self) -> bool:
        """Whether several pairs belong to one cluster."""
        return self.clusters < self.pairs


def compare(
    a: str,
    tasks_a: Sequence[TaskResult],
    b: str,
    tasks_b: Sequence[TaskResult],
    metric: str = "success",
    by: str | None = None,
) -> list[Comparison]:
    """Pairs the tasks of two evaluations: one comparison for each benchmark, and version of it, that both have; then
    one for each group of their tasks, where `by` names what groups them (GROUPS).

    Raises BadInput if there is no pair, or if the two sides were scored by different rules.
    """
    whole = _compare_all(a, tasks_a, b, tasks_b, metric)
    if by is None:
        return whole
    key = GROUPS[by]
    shared = {key(task) for task in tasks_a} & {key(task) for task in tasks_b} - {""}
    if not shared:
        raise BadInput(f"--by {by}: the tasks of {a} and {b} tell no {by} that both have")
    for name in sorted(shared):
        sides = [[task for task in tasks if key(task) == name] for tasks in (tasks_a, tasks_b)]
        whole += [replace(one, group=name) for one in _compare_all(a, sides[0], b, sides[1], metric)]
    return whole


def _compare_all(
    a: str, tasks_a: Sequence[TaskResult], b: str, tasks_b: Sequence[TaskResult], metric: str
) -> list[Comparison]:
    if metric in ALL_OF:
        tasks_a, tasks_b = (_all_of(name, side, ALL_OF[metric]) for name, side in ((a, tasks_a), (b, tasks_b)))
    benchmarks = {task.benchmark for task in tasks_a} & {task.benchmark for task in tasks_b}
    if not benchmarks:
        raise BadInput(f"{a} and {b} have no task in common: {_benchmarks(tasks_a)} against {_benchmarks(tasks_b)}")
    comparisons = []
    for benchmark in sorted(benchmarks):
        mine = [task for task in tasks_a if task.benchmark == benchmark]
        others = [task for task in tasks_b if task.benchmark == benchmark]
        for version, left, right, notes in _versions(a, mine, b, others):
            comparisons.append(_compare(a, left, b, right, metric, version, notes))
    if not any(comparison.pairs for comparison in comparisons) and any(c.unscored for c in comparisons):
        raise BadInput(f"no task has the metric `{metric}` on both sides; allowed: {', '.join(METRICS)}")
    strangers = [
        tuple(sorted(task.key for task in tasks if task.benchmark not in benchmarks)) for tasks in (tasks_a, tasks_b)
    ]
    first = comparisons[0]
    comparisons[0] = replace(first, only_a=first.only_a + strangers[0], only_b=first.only_b + strangers[1])
    return comparisons


def _all_of(name: str, tasks: Sequence[TaskResult], k: int) -> list[TaskResult]:
    """The trials of each task as one result, whose score is the chance that all of `k` solve it: C(solved, k) /
    C(trials, k) (S. Yao et al. (2024), tau-bench, arXiv:2406.12045).

    A trial without a score solved nothing; a task of which no trial has one keeps its outcome. Raises BadInput for a
    task with fewer trials.
    """
    trials: dict[tuple[str, str, str, str], list[TaskResult]] = {}
    for task in tasks:
        seed = "" if task.seed is None else str(task.seed)
        trials.setdefault((task.benchmark, str(task.version), task.task_id, seed), []).append(task)
    found: list[TaskResult] = []
    for some in trials.values():
        if len(some) < k:
            raise BadInput(f"{name}: {some[0].task_id} has {len(some)} of the {k} trials that pass_all/{k} needs")
        value = math.comb(sum(bool(each.success) for each in some), k) / math.comb(len(some), k)
        scored = [each for each in some if each.outcome == "scored"]
        costs = [each.metrics["cost"] for each in scored if "cost" in each.metrics]
        whole = {
            **{name: getattr(some[0], name) for name in TaskResult.__struct_fields__},
            "trial": 0,
            "outcome": scored[0].outcome if scored else some[0].outcome,
            "score": value,
            "steps": sum(each.steps for each in scored),
            "duration_ms": sum(each.duration_ms for each in scored),
            "metrics": {"cost": sum(costs)} if costs else {},
        }
        found.append(Trials(**whole, wins=sum(bool(each.success) for each in scored)))
    return found


def _per_solved(tasks: Sequence[TaskResult]) -> PerSolved:
    scored = [task for task in tasks if task.outcome == "scored"]
    solved = sum(task.wins if isinstance(task, Trials) else bool(task.success) for task in scored)
    sums = (
        sum(task.steps for task in scored),
        sum(task.duration_ms for task in scored) / 1000,
        sum(task.metrics.get("cost", 0.0) for task in scored),
    )
    return PerSolved(*(total / solved if solved and total else None for total in sums))


def _versions(
    a: str, tasks_a: Sequence[TaskResult], b: str, tasks_b: Sequence[TaskResult]
) -> list[tuple[str, list[TaskResult], list[TaskResult], list[str]]]:
    """(version, tasks of A, tasks of B, notes) for each version of the scoring rules that both sides have.

    A record of before versions were written has none; it is compared, with a note, where the other side has one only.
    """
    sides: list[dict[str, list[TaskResult]]] = []
    for tasks in (tasks_a, tasks_b):
        by_version: dict[str, list[TaskResult]] = {}
        for task in tasks:
            by_version.setdefault(str(task.version), []).append(task)
        sides.append(by_version)
    left, right = sides
    shared = sorted(left.keys() & right.keys())
    if shared:
        return [(version, left[version], right[version], []) for version in shared]
    if len(left) == len(right) == 1 and "" in {*left, *right}:
        unknown = a if "" in left else b
        (version_a, of_a), (version_b, of_b) = *left.items(), *right.items()
        note = f"{unknown} does not say by which version of the rules it was scored"
        return [(version_a or version_b, of_a, of_b, [note])]
    benchmark = tasks_a[0].benchmark
    versions = " against ".join(" and ".join(version or "unknown" for version in sorted(side)) for side in sides)
    raise BadInput(
        f"{a} and {b} are scored by different versions of {benchmark}: {versions}; "
        "score the answers of one again with the other's version"
    )


def _compare(
    a: str,
    tasks_a: Sequence[TaskResult],
    b: str,
    tasks_b: Sequence[TaskResult],
    metric: str,
    version: str,
    notes: Sequence[str],
) -> Comparison:
    side_a, side_b = _index(a, tasks_a), _index(b, tasks_b)
    shared = sorted(side_a.keys() & side_b.keys())
    benchmark = tasks_a[0].benchmark
    if not shared:
        raise BadInput(f"{a} and {b} have no task in common, though both are of {benchmark}")
    other_rule = _same_rules(a, b, [(side_a[key], side_b[key]) for key in shared])
    other_task = [key for key in shared if not identity.same_task(side_a[key], side_b[key])]
    if other_task:
        why = identity.describe_differences(a, b, ((side_a[key], side_b[key]) for key in other_task))
        if len(other_task) == len(shared):
            raise BadInput(f"{a} and {b} have no task of {benchmark} in common that was judged in the same way: {why}")
        notes = [*notes, f"not the same tasks, and left out: {len(other_task)} of {len(shared)}: {why}"]
        shared = sorted(set(shared) - set(other_task))
    other_rule += identity.unknown_note(a, b, [(side_a[key], side_b[key]) for key in shared])
    tasks: list[tuple[TaskResult, TaskResult]] = []
    pairs: list[tuple[TaskResult, float, float]] = []
    unscored = []
    for key in shared:
        first, second = side_a[key], side_b[key]
        score_a, score_b = first.value(metric), second.value(metric)
        if score_a is not None and score_b is not None:
            pairs.append((first, score_a, score_b))
        elif first.outcome == second.outcome == "scored":
            unscored.append(key)
            continue
        tasks.append((first, second))
    values_a = [first.value(metric) or 0.0 for first, _ in tasks]
    values_b = [second.value(metric) or 0.0 for _, second in tasks]
    units = [first.unit for first, _ in tasks]
    differences = [score_b - score_a for _, score_a, score_b in pairs]
    sums, sizes = stats.by_cluster((task.unit for task, _, _ in pairs), differences)
    gained, lost = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    rate = stats.binary([*values_a, *values_b])
    alone = rate and len(sums) == len(pairs)
    p: float | None
    if not pairs:
        difference, p = None, None
    elif alone:
        difference, p = stats.tango(gained, lost, len(pairs)), stats.mcnemar(lost, gained)
    else:
        bound = max([1.0, *map(abs, differences)])
        difference, p = stats.clustered_mean(sums, sizes, -bound, bound), stats.sign_flip(sums)
    test = MCNEMAR if alone else SIGN_FLIP if len(sums) == len(pairs) else SIGN_FLIP_BY_CLUSTER
    return Comparison(
        a=a,
        b=b,
        benchmark=benchmark,
        version=version,
        metric=metric,
        tasks=len(tasks),
        pairs=len(pairs),
        clusters=len(sums),
        value_a=mean_with_interval(units, values_a, rate),
        value_b=mean_with_interval(units, values_b, rate),
        difference=difference,
        p=p,
        test=test if p is not None else "",
        gained=gained,
        lost=lost,
        only_a=tuple(sorted(side_a.keys() - side_b.keys())),
        only_b=tuple(sorted(side_b.keys() - side_a.keys())),
        infra_a=tuple(key for key, task in sorted(side_a.items()) if task.outcome == "infra"),
        infra_b=tuple(key for key, task in sorted(side_b.items()) if task.outcome == "infra"),
        not_run_a=tuple(key for key, task in sorted(side_a.items()) if task.outcome == "not run"),
        not_run_b=tuple(key for key, task in sorted(side_b.items()) if task.outcome == "not run"),
        unscored=tuple(unscored),
        per_solved_a=_per_solved([first for first, _ in tasks]),
        per_solved_b=_per_solved([second for _, second in tasks]),
        other_task=tuple(other_task),
        notes=(*notes, *other_rule, *_few(len(sums), alone or not pairs), *_apart(difference, p)),
    )


def _few(clusters: int, alone: bool) -> list[str]:
    if alone or clusters >= stats.FEW:
        return []
    count = "one cluster" if clusters == 1 else f"{clusters} clusters"
    return [f"{count}: below {stats.FEW} neither the intervals nor p can be relied on"]


def _apart(difference: Interval | None, p: float | None) -> list[str]:
    """A note where the interval and the test do not say the same, as with few tasks that changed: an interval is
    approximate, while the test is exact, or draws from what it would count."""
    if difference is None or p is None:
        return []
    apart = difference.low > 0 or difference.high < 0
    if apart == (p < 1 - stats.LEVEL):
        return []
    found = "does not contain 0, but" if apart else "contains 0, but"
    side = "not below" if apart else "below"
    limit = f"{1 - stats.LEVEL:.2f}"
    return [f"the interval {found} p is {side} {limit}: go by p; the interval is approximate where few tasks changed"]


def mean_with_interval(units: Sequence[str], values: Sequence[float], rate: bool) -> Interval | None:
    """The mean, with the interval that fits: Wilson's for successes that are independent, else by cluster."""
    sums, sizes = stats.by_cluster(units, values)
    if rate and len(sums) == len(values):
        return stats.wilson(round(math.fsum(values)), len(values))
    return stats.clustered_mean(sums, sizes, min([0.0, *values]), max([1.0, *values]))


def _same_rules(a: str, b: str, pairs: Sequence[tuple[TaskResult, TaskResult]]) -> list[str]:
    """A note where the two sides had other rules of what an answer counts as. Raises BadInput where two records of one
    task name different rules of any other kind; a record without rules fits any."""
    notes: dict[str, None] = {}
    for first, second in pairs:
        if not first.rules or not second.rules or first.rules == second.rules:
            continue
        left, right = ({ANSWERS: FIRST_RULE, **each.rules} for each in (first, second))
        if "environment" not in left or "environment" not in right:  # no episodes: answers are judged one by one
            left, right = dict(first.rules), dict(second.rules)
        names = sorted(name for name in {*left, *right} if left.get(name, _ABSENT) != right.get(name, _ABSENT))
        if names == [ANSWERS] and left[ANSWERS].get("rule") != right[ANSWERS].get("rule"):
            rules = " and ".join(
                f"{name} by rule {each[ANSWERS].get('rule')}" for name, each in ((a, left), (b, right))
            )
            page = document("docs/explanation/answers.md")
            notes[f"what an answer counts as was decided otherwise: {rules} ({page})"] = None
        elif names:
            told = "; ".join(f"{name}: {_told(left, name)} against {_told(right, name)}" for name in names)
            raise BadInput(f"{a} and {b} were not scored by the same rules of {first.benchmark}: {told}")
    return list(notes)


ANSWERS: Final = "answers"  # of a record's rules: the rule by which answers count
FIRST_RULE: Final = {"rule": "1"}  # of results of before it was written
_ABSENT: Final = object()


def _told(rules: dict[str, Any], name: str) -> str:
    return repr(rules[name]) if name in rules else "nothing"


def _index(name: str, tasks: Sequence[TaskResult]) -> dict[Key, TaskResult]:
    by_key: dict[Key, TaskResult] = {}
    for task in tasks:
        if task.key in by_key:
            raise BadInput(f"{name} has {' / '.join(filter(None, task.key))} more than once; name one run, or an agent")
        by_key[task.key] = task
    return by_key


def _benchmarks(tasks: Sequence[TaskResult]) -> str:
    return ", ".join(sorted({task.benchmark for task in tasks})) or "nothing"
