"""Writes the results of a training: summary.json, with the rollouts of the last generation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eval.scores.stats import by_cluster
from eval.scores.summary import MetricRow, row
from training.common.measuring.measured_weights import SAMPLED, KeptWeights, write_measured
from training.rl.config import RlConfig
from training.rl.rollouts.generation import RolloutGeneration


def write(config: RlConfig, last: RolloutGeneration | None, kept: KeptWeights, folder: Path) -> None:
    """Writes `folder`/summary.json: the rows of the evaluation and of the last generation, where there are any."""
    rows = [*kept.rows, *([] if last is None else of_generation(config, last))]
    if rows:
        write_measured(folder / "summary.json", rows, kept.step)


def of_generation(config: RlConfig, made: RolloutGeneration) -> list[MetricRow]:
    """The mean reward and the share of solved rollouts, sampled as in training, with intervals by task."""
    # asynchronous rollouts may begin with one version of the weights and end with another
    steps = None if config.asynchronous is not None else [made.number * config.period]
    told: dict[str, Any] = {
        "benchmark": config.environment,
        "version": "1",
        "split": f"training tasks, generation {made.number}",
        "infra": made.void.total(),
        "seed": config.tasks.seed,
        "agent": SAMPLED,
        "steps": steps,
    }
    rewards = [(group.task.task_id, each.reward) for group in made.judged for each in group.rollouts]
    solved = [
        (group.task.task_id, float(bool(each.episode.success))) for group in made.judged for each in group.rollouts
    ]
    return [row("reward", by_cluster(rewards), **told), row("success", by_cluster(solved), **told)]
