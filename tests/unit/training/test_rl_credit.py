"""The advantage of each turn, from rollouts that were made by hand. The arithmetic stands beside each number."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import pytest

from eval.config import convert
from eval.desktop import Task
from eval.episodes import Episode
from training.rl.config import RlConfig
from training.rl.learning.advantages import EPSILON
from training.rl.learning.coefficients import MeanSettings, with_coefficients
from training.rl.learning.credit import CERTAIN, credited
from training.rl.learning.turn_records import UNFIT, TurnRecord, learnt, turns_of
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.rollouts.screen_states import ScreenState

pytestmark = pytest.mark.ml
EPISODE = Episode(episode_id="e", task_id="t", instruction="", goal="", seed=0, screen=(1, 1), success=None, steps=())


def played(number: int, reward: float, lengths: list[int], states: str = "") -> PlayedRollout:
    turns = tuple(SampledTurn((1,), (), tuple(range(length)), (-1.0,) * length) for length in lengths)
    return PlayedRollout(number, EPISODE, turns, reward, tuple(ScreenState(each, (1, 1)) for each in states))


def config(**changes: Any) -> RlConfig:
    given = {"model": "hf://a/b", "environment": "login", "tasks": {"count": 8, "seed": 0}, "steps": 1}
    return convert({**given, **changes}, RlConfig, "test")


def made(*groups: tuple[PlayedRollout, ...]) -> RolloutGeneration:
    return RolloutGeneration(
        0, [RolloutGroup(Task(f"task-{at}", "", max_steps=4), group) for at, group in enumerate(groups)]
    )


def measured(generation: RolloutGeneration, **entropies: float) -> list[TurnRecord]:
    """All tokens of a turn have the entropy that is given for it, else 1."""
    return [
        replace(record, entropies=(entropies.get("e{}{}{}".format(*record.at), 1.0),) * record.tokens)
        for record in turns_of(generation)
    ]


def advantages(
    generation: RolloutGeneration, chosen: RlConfig, **entropies: float
) -> dict[tuple[int, int, int], float]:
    """Of the turns that are learnt; all tokens of a turn have the same."""
    found = credited(measured(generation, **entropies), chosen)
    assert all(len(set(record.gains)) == 1 and len(record.gains) == record.tokens for record in learnt(found))
    return {record.at: record.gains[0] for record in learnt(found)}


def weights(records: list[TurnRecord], chosen: RlConfig) -> dict[tuple[int, int, int], float]:
    """The coefficient of each token of the turns that are learnt, over the turn's advantage."""
    found = with_coefficients(credited(records, chosen), MeanSettings.of(chosen, [Task("t", "", max_steps=4)]))
    assert all(len(set(record.coefficients)) == 1 for record in learnt(found))
    return {record.at: record.coefficients[0] / record.gains[0] for record in learnt(found)}


def test_every_turn_of_a_rollout_has_its_return_in_the_group() -> None:
    generation = made((played(0, 1.0, [3, 2]), played(1, 0.0, [4])))
    # mean .5, deviation sqrt((.25 + .25) / 1) = sqrt(.5)
    high = 0.5 / (sqrt(0.5) + EPSILON)
    assert advantages(generation, config()) == pytest.approx({(0, 0, 0): high, (0, 0, 1): high, (0, 1, 0): -high})
    assert advantages(generation, config(scale_rewards="none")) == {(0, 0, 0): 0.5, (0, 0, 1): 0.5, (0, 1, 0): -0.5}


def test_each_group_has_a_baseline_of_its_own() -> None:
    generation = made((played(0, 1.0, [1]), played(1, 1.0, [1])), (played(0, 0.5, [1]), played(1, 0.0, [1])))
    values = advantages(generation, config(scale_rewards="none"))
    assert values == {(0, 0, 0): 0.0, (0, 1, 0): 0.0, (1, 0, 0): 0.25, (1, 1, 0): -0.25}


def test_the_mean_over_rollouts_weighs_short_and_long_ones_alike() -> None:
    generation = made((played(0, 1.0, [3, 1]), played(1, 0.0, [4])))
    # 1 group of 2 rollouts: each weighs 1/2. The first has 2 turns of 1/4: 1/12 for each of 3 tokens, 1/4 for the one.
    # The second has 1 turn of 4 tokens
    wanted = {(0, 0, 0): 1 / 12, (0, 0, 1): 1 / 4, (0, 1, 0): 1 / 8}
    for steps in (1, 3):  # each of three steps has on the average a third of the tokens
        found = weights(
            measured(generation), config(average="rollouts", scale_rewards="none", steps_per_generation=steps)
        )
        assert found == pytest.approx({at: steps * value for at, value in wanted.items()})


def test_turns_from_the_same_state_are_compared() -> None:
    generation = made((played(0, 1.0, [1, 1], "AB"), played(1, 0.0, [1, 1], "AC")))
    values = advantages(generation, config(advantage="gigpo", scale_rewards="none", step_weight=2.0, gamma=0.5))
    # the episode's part is .5 and -.5. From A the returns to go are .5 * 1 and 0: +-.25, twice. B and C stand alone
    assert values == pytest.approx({(0, 0, 0): 0.5 + 0.5, (0, 0, 1): 0.5, (0, 1, 0): -0.5 - 0.5, (0, 1, 1): -0.5})


def test_only_the_turns_of_the_highest_entropy_are_trained_on() -> None:
    generation = made((played(0, 1.0, [1, 1]), played(1, 0.0, [1, 1])))
    values = advantages(generation, config(entropy_share=0.5), e000=0.1, e001=0.9, e010=0.8, e011=0.2)
    assert set(values) == {(0, 0, 1), (0, 1, 0)}


def test_a_turn_that_was_left_out_has_no_token_in_the_divisor() -> None:
    generation = made((played(0, 1.0, [3, 1]), played(1, 0.0, [4])))
    records = measured(generation)
    records[0] = replace(records[0], masked=UNFIT)
    assert weights(records, config()) == pytest.approx({(0, 0, 1): 1 / 5, (0, 1, 0): 1 / 5})
    # Dr. GRPO divides by 2 rollouts of at most 4 steps x 5 tokens, whatever they have
    constant = config(average="constant", scale_rewards="none", max_completion=5)
    assert weights(records, constant) == pytest.approx({(0, 0, 1): 1 / 40, (0, 1, 0): 1 / 40})


def test_why_turns_are_not_in_the_loss() -> None:
    generation = made((played(0, 1.0, [1, 1]), played(1, 0.0, [1, 1])))
    records = measured(generation, e000=0.9, e010=0.1, e011=0.8)
    records[1] = replace(records[1], masked=UNFIT, entropies=())
    found = credited(records, config(entropy_share=0.5))
    assert [record.masked for record in found] == [None, UNFIT, CERTAIN, None]
    assert [record.advantage is None for record in found] == [False, True, True, False]
