"""Which tasks can run on a machine, and what the others lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from eval.benchmarks.osworld.machine import Machine, lacking_line
from eval.benchmarks.osworld.tasks import PublicTasks


class LackedNeed(msgspec.Struct, frozen=True):
    """One thing that a task needs and that is not here, and the place in its file that asks for it."""

    kind: str
    name: str
    where: str


class RunnableTask(msgspec.Struct, frozen=True):
    """Whether a task can run here. `told`: what it lacks, in words."""

    task: str
    infeasible: bool
    can_run: bool
    lacks: tuple[LackedNeed, ...]
    told: str


def report(found: PublicTasks, machine: Machine) -> list[RunnableTask]:
    """A row for each task."""
    rows = []
    for task in found.tasks:
        lacking = machine.lacks(task)
        lacks = tuple(LackedNeed(need.kind, need.name, need.where) for need in lacking)
        rows.append(
            RunnableTask(
                task.task_id, task.infeasible, not lacks, lacks, lacking_line(task, lacking, machine.evaluators)
            )
        )
    return rows


def table(rows: Sequence[RunnableTask], unread: Mapping[str, str]) -> str:
    """The rows for people, and how many tasks lack what. `unread`: why a task of the set cannot be read."""
    wide = max(len(row.task) for row in rows)
    lines = [f"{row.task:<{wide}}  {'can run' if row.can_run else f'lacks {row.told}'}" for row in rows]
    lines.append(f"\n{sum(row.can_run for row in rows)} of {len(rows) + len(unread)} tasks can run here")
    counts: Counter[str] = Counter()
    for row in rows:
        judge = [need for need in row.lacks if need.kind in ("metric", "getter")]
        counts.update({f"{need.kind} {need.name}" for need in row.lacks if need not in judge})
        counts["the public evaluators"] += bool(judge)
    lines += [f"{count:4} lack {what}" for what, count in counts.most_common() if count]
    lines += [f"{name}: {why}" for name, why in unread.items()]
    return "\n".join(lines)
