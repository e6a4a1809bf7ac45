"""Every task that can run here, set up and judged while nobody acts: what fails now would fail each evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.actions.dialects.dsl import Dsl
from eval.agents.baselines import DoesNothing
from eval.benchmarks.osworld import environment
from eval.benchmarks.osworld.listing import RunnableTask
from eval.environments.registry import tasks_of
from eval.rollout.loop import Rollout, RolloutLimits, rollout

BENCHMARK = "osworld without an agent"


async def without_agent(
    rows: Sequence[RunnableTask], options: dict[str, Any], out: Path, at_once: int
) -> dict[str, Rollout]:
    """Task -> its episode, of those that can run. Records are below `out`; tasks that are judged there are kept.

    Raises ConfigError.
    """
    can_run = {row.task for row in rows if row.can_run}
    every = tasks_of("osworld", environment.size(options), 0, options)
    tasks = [task for task in every if task.task_id in can_run]
    found = await rollout(
        DoesNothing(Dsl(4)),
        lambda: environment.desktop(options),
        tasks,
        out=out,
        benchmark=BENCHMARK,
        environment="osworld",
        options={**options, **environment.provenance(options)},
        limits=RolloutLimits(attempts=1, concurrency=at_once),
        keep_episodes=0,
    )
    return {task.task_id: result for task, result in zip(tasks, found, strict=True)}


def faults(rows: Sequence[RunnableTask], played: dict[str, Rollout]) -> list[str]:
    """A line for each task that could run and was not judged, or was solved although nobody acted."""
    lines = []
    for row in rows:
        if (result := played.get(row.task)) is None:
            continue
        if result.record.outcome != "scored":
            lines.append(f"{row.task}: {result.record.error}")
        elif result.record.success:
            lines.append(f"{row.task}: solved while nobody acted")
    return lines


def table(rows: Sequence[RunnableTask], played: dict[str, Rollout], unread: Mapping[str, str]) -> str:
    """A line for each task, and how many were judged."""
    wide = max(len(row.task) for row in rows)
    lines = []
    for row in rows:
        if (result := played.get(row.task)) is None:
            told = f"lacks {row.told}"
        elif result.record.score is None:
            told = result.record.outcome
        else:
            told = f"score {result.record.score:g}, {result.record.duration_ms / 1000:.1f} s"
        lines.append(f"{row.task:<{wide}}  {told}")
    judged = sum(result.record.score is not None for result in played.values())
    lines.append(f"\n{judged} judged, of {len(played)} that can run, of {len(rows) + len(unread)} tasks")
    lines += [f"{name}: {why}" for name, why in unread.items()]
    return "\n".join([*lines, *(f"fault: {line}" for line in faults(rows, played))])
