"""Answers that were cut off at their longest, and rollouts that the limit of steps cut."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eval.actions import ActionType
from eval.config import ConfigError
from eval.desktop import Task
from eval.episodes import Episode
from training.rl.learning.turn_records import CUT, UNFIT, turns_of, without_cut
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.play import limited
from training.rl.rollouts.policy import SampledTurn

pytestmark = pytest.mark.ml
EPISODE = Episode(episode_id="e", task_id="t", instruction="i", screen=(1, 1), success=False, score=0.0)


def made(*cut: bool) -> RolloutGeneration:
    turns = tuple(SampledTurn((1,), (), (2,), (-0.5,), cut=each) for each in cut)
    return RolloutGeneration(0, groups=[RolloutGroup(Task("t", "do"), (PlayedRollout(0, EPISODE, turns, 1.0),))])


def test_what_was_cut_off_is_in_no_loss_and_what_is_masked_keeps_its_reason() -> None:
    records = turns_of(made(False, True, True))
    records[2] = replace(records[2], masked=UNFIT)
    assert [each.masked for each in without_cut(records)] == [None, CUT, UNFIT]


def test_a_generation_of_which_nothing_is_left_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"mask_truncated: every answer .*max_completion"):
        without_cut(turns_of(made(True, True)))


def computer(steps: int, *actions: ActionType, done: bool = False, failed: str = "") -> Any:
    each = SimpleNamespace(actions=[SimpleNamespace(type=action) for action in actions])
    return SimpleNamespace(steps=[each] * steps, max_steps=3, observation=SimpleNamespace(done=done), failed=failed)


@pytest.mark.parametrize(
    ("it", "said"),
    [
        (computer(3, ActionType.CLICK), True),
        (computer(3), True),  # an answer without an action
        (computer(2, ActionType.CLICK), False),
        (computer(3, ActionType.CLICK, ActionType.DONE), False),
        (computer(3, ActionType.FAIL), False),
        (computer(3, ActionType.CLICK, done=True), False),
        (computer(3, ActionType.CLICK, failed="no valid action"), False),
    ],
)
def test_only_the_limit_of_steps_cuts_a_rollout(it: Any, said: bool) -> None:
    assert limited(it) == said
