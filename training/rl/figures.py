"""The figures of a generation, for the log and as metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from training.rl.rollouts import PlayedRollout, RolloutGeneration
from training.rl.rows import LossRow


def figures(
    made: RolloutGeneration, rows: Sequence[LossRow], faults: int, gate_told: Mapping[str, Any]
) -> dict[str, float]:
    """By name. `rows`: the turns that the loss can see, `faults`: how many it cannot."""
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
        "dropped": float(faults),
        "gate_mean": gate_told["mean"],
        "gate_most": gate_told["most"],
        **_parts(played),
    }


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


def in_words(made: RolloutGeneration, turns: int) -> str:
    """A line of the log."""
    played = [each for group in made.judged for each in group.rollouts]
    reward = math.fsum(each.reward for each in played) / len(played)
    success = sum(bool(each.episode.success) for each in played) / len(played)
    lost = "; ".join(f"{count} x {why}" for why, count in made.void.most_common(3))
    told = f"generation {made.number}: {len(played)} rollouts, {turns} turns"
    told += f", reward {reward:.3f}, success {success:.3f}"
    told += f", {made.reused} of them played before the interruption" if made.reused else ""
    return told + (f"; void: {lost}" if lost else "")
