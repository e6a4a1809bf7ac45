"""Rollouts of a generation as rows for the trackers (`training.common.trackers`): what was asked, answered, earned."""

from __future__ import annotations

from typing import Any

from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration


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
