"""Whether two results of one task are of the same task: all that can change its start, answer or verdict is equal.

Each record names it in `identity`, part by part (docs/explanation/identity.md). Records of before it was written have
none: their judge is unknown, which fits other records of that time and none of now. Records without episodes, whose
answers are judged one by one by a published rule of a version, need none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from launcher.results.read import TaskResult

UNKNOWN = "judge unknown"


def judge_unknown(task: TaskResult) -> bool:
    """Whether it is the result of an episode that does not say by which judge."""
    return not task.identity and "environment" in task.rules


def same_task(first: TaskResult, second: TaskResult) -> bool:
    return first.identity == second.identity


def describe_differences(a: str, b: str, pairs: Iterable[tuple[TaskResult, TaskResult]]) -> str:
    """What differs between pairs of two sides, in words, with the number of pairs."""
    counts: Counter[str] = Counter()
    for first, second in pairs:
        if not first.identity or not second.identity:
            counts[f"{UNKNOWN} in {b if first.identity else a}"] += 1
            continue
        left, right = first.identity, second.identity
        names = (name for name in {**left, **right} if left.get(name) != right.get(name))
        counts["; ".join(f"{name}: {left.get(name, 'none')} against {right.get(name, 'none')}" for name in names)] += 1
    common = counts.most_common(3)
    rest = counts.total() - sum(count for _, count in common)
    return ", ".join([*(f"{words} ({count})" for words, count in common), *([f"others ({rest})"] if rest else [])])


def unknown_note(a: str, b: str, pairs: Sequence[tuple[TaskResult, TaskResult]]) -> list[str]:
    """A note where neither side says by which judge."""
    if not any(judge_unknown(first) and judge_unknown(second) for first, second in pairs):
        return []
    return [f"{UNKNOWN}: neither {a} nor {b} says which judge, programs and desktop its tasks had"]


def mixed(sides: Sequence[tuple[str, Sequence[TaskResult]]]) -> list[str]:
    """Lines about sides that are shown in one table: those whose judge is unknown, and those that had other tasks than
    the first one."""
    unknown = [name for name, tasks in sides if any(map(judge_unknown, tasks))]
    lines = [f"{UNKNOWN}: {', '.join(unknown)}"] if unknown else []
    if not sides:
        return lines
    (a, first), *others = sides
    before = {task.key: task for task in first}
    for b, tasks in others:
        shared = [(before[task.key], task) for task in tasks if task.key in before]
        if other := [pair for pair in shared if not same_task(*pair)]:
            why = describe_differences(a, b, other)
            lines.append(f"{len(other)} of {len(shared)} tasks are not the same in {a} and {b}: {why}")
    return lines
