"""The figures of a generation: for the log, as metrics, as rows for the trackers, and in summary.json."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.scores.stats import by_cluster
from eval.scores.summary import MetricRow, row
from training.common.measuring.measured_weights import SAMPLED, KeptWeights, write_measured
from training.rl.config import RlConfig
from training.rl.learning.sdpo.stage import NO_HINDSIGHT
from training.rl.learning.turn_records import TurnRecord, learnt
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration


def generation_metrics(
    made: RolloutGeneration, records: Sequence[TurnRecord], gate_told: Mapping[str, Any]
) -> dict[str, float]:
    """By name. `made`: what was played; `records`: of the turns, masked where the loss cannot see them."""
    rows = learnt(records)
    played = [each for group in made.judged for each in group.rollouts]
    flat = [not group.signal for group in made.judged]
    return {
        "reward": math.fsum(each.reward for each in played) / len(played),
        "success": sum(bool(each.episode.success) for each in played) / len(played),
        "zero_variance": sum(flat) / len(flat),
        "turns": sum(len(each.turns) for each in played) / len(played),
        "length": sum(len(row.turn.ids) for row in rows) / len(rows),
        "truncated": sum(row.turn.cut for row in rows) / len(rows),
        "void": float(made.void.total()),
        "retried": float(made.retried),
        "reused": float(made.reused),
        "dropped_groups": float(len(made.dropped)),
        "groups": float(len(made.groups)),
        "unused_groups": float(len(made.unused)),
        "dropped": float(len(records) - len(rows)),
        "gate_mean": gate_told["mean"],
        "gate_most": gate_told["most"],
        **_parts(played),
    }


def stage_metrics(records: Sequence[TurnRecord], config: RlConfig) -> dict[str, float]:
    """Of what the stages did."""
    found: dict[str, float] = {}
    if config.replay is not None:
        found["replayed"] = float(sum(each.replayed for group in records[0].made.groups for each in group.rollouts))
    if config.asynchronous is not None:
        weights = [weight for record in learnt(records) for weight in record.weights]
        found["weights"] = math.fsum(weights) / max(1, len(weights))
    if config.sdpo is not None:
        for name in ("success", "failure"):
            found[f"told_{name}"] = float(len({record.at[:2] for record in records if record.shown == name}))
        found["untold"] = float(sum(record.masked == NO_HINDSIGHT for record in records))
    return found


def nothing_to_learn(records: Sequence[TurnRecord]) -> str | None:
    """What is said of a generation whose steps change nothing; None where something is learnt."""
    if any(any(record.coefficients) or any(record.kl) for record in learnt(records)):
        return None
    return (
        f"warning: generation {records[0].made.number} teaches nothing: within each group all rollouts have the same "
        "return, so every advantage is 0. Take tasks that are sometimes solved, larger groups, or most_groups"
    )


def _parts(played: Sequence[PlayedRollout]) -> dict[str, float]:
    """The mean of each part of the returns, and the shares of turns with no action and with a refused one."""
    names = dict.fromkeys(name for each in played for name in each.parts)
    steps = [step for each in played for step in each.episode.steps]
    faults = {
        "format_errors": sum(step.parse_error is not None for step in steps),
        "tool_errors": sum(step.refused is not None for step in steps),
    }
    return {
        **{f"part_{name}": math.fsum(each.parts.get(name, 0.0) for each in played) / len(played) for name in names},
        **{name: count / max(1, len(steps)) for name, count in faults.items()},
        "partial": sum(bool(each.episode.score) and not each.episode.success for each in played) / len(played),
    }


def generation_line(made: RolloutGeneration, turns: int) -> str:
    """A line of the log."""
    played = [each for group in made.judged for each in group.rollouts]
    reward = math.fsum(each.reward for each in played) / len(played)
    success = sum(bool(each.episode.success) for each in played) / len(played)
    lost = "; ".join(f"{count} x {why}" for why, count in made.void.most_common(3))
    told = f"generation {made.number}: {len(played)} rollouts, {turns} turns"
    told += f", reward {reward:.3f}, success {success:.3f}"
    told += f", {made.reused} of them played before the interruption" if made.reused else ""
    return told + (f"; void: {lost}" if lost else "")


def rollout_rows(made: RolloutGeneration, step: int, groups: int) -> list[dict[str, Any]]:
    """A row for each rollout of the first groups, with the screens before its first and its last turn; a rollout
    without pictures has none in the columns `first` and `last`."""
    return [
        {
            "step": step,
            "group": group.number,
            "rollout": played.number,
            "task": group.task.task_id,
            "instruction": group.task.instruction,
            "return": played.reward,
            "success": played.episode.success,
            "turns": len(played.turns),
            "answers": "\n".join(each.response or "" for each in played.episode.steps),
            **_screens(played),
        }
        for group in made.groups[:groups]
        for played in group.rollouts
    ]


def _screens(played: PlayedRollout) -> dict[str, Any]:
    """The last picture of a prompt is the present screen, as the model saw it."""
    seen = [turn.images[-1] for turn in played.turns if turn.images]
    return {"first": seen[0] if seen else None, "last": seen[-1] if seen else None}


def write_summary(config: RlConfig, last: RolloutGeneration | None, kept: KeptWeights, folder: Path) -> None:
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
