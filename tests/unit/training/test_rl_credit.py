"""The advantage of each turn, from rollouts that were made by hand. The arithmetic stands beside each number."""

from __future__ import annotations

from math import sqrt
from typing import Any

import pytest

from eval.config import convert
from eval.desktop import Task
from eval.episodes import Episode
from training.rl.advantages import EPSILON
from training.rl.anchors import ScreenState
from training.rl.config import RlConfig
from training.rl.credit import credit, turns_of, why_masked
from training.rl.policy import SampledTurn
from training.rl.rollouts import PlayedRollout, RolloutGeneration, RolloutGroup

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


def credited(generation: RolloutGeneration, chosen: RlConfig, **entropies: float) -> dict[tuple[int, int, int], float]:
    known = {row.at: 1.0 for row in turns_of(generation)}
    known |= {(int(name[1]), int(name[2]), int(name[3])): value for name, value in entropies.items()}
    return credit(generation, known, chosen)


def test_every_turn_of_a_rollout_has_its_return_in_the_group() -> None:
    generation = made((played(0, 1.0, [3, 2]), played(1, 0.0, [4])))
    # mean .5, deviation sqrt((.25 + .25) / 1) = sqrt(.5)
    high = 0.5 / (sqrt(0.5) + EPSILON)
    assert credited(generation, config()) == pytest.approx({(0, 0, 0): high, (0, 0, 1): high, (0, 1, 0): -high})
    assert credited(generation, config(scale_rewards="none")) == {(0, 0, 0): 0.5, (0, 0, 1): 0.5, (0, 1, 0): -0.5}


def test_each_group_has_a_baseline_of_its_own() -> None:
    generation = made((played(0, 1.0, [1]), played(1, 1.0, [1])), (played(0, 0.5, [1]), played(1, 0.0, [1])))
    values = credited(generation, config(scale_rewards="none"))
    assert values == {(0, 0, 0): 0.0, (0, 1, 0): 0.0, (1, 0, 0): 0.25, (1, 1, 0): -0.25}


def test_the_mean_over_rollouts_weighs_short_and_long_ones_alike() -> None:
    generation = made((played(0, 1.0, [3, 1]), played(1, 0.0, [4])))
    values = credited(generation, config(average="rollouts", scale_rewards="none"))
    # 8 tokens, 1 group of 2 rollouts: each rollout weighs 4 tokens. The first has 2 turns, so 2 tokens' weight each:
    # 2/3 for each of 3 tokens, 2/1 for the one. The second has 1 turn: 4/4
    assert values == pytest.approx({(0, 0, 0): 0.5 * 2 / 3, (0, 0, 1): 0.5 * 2, (0, 1, 0): -0.5})


def test_turns_from_the_same_state_are_compared() -> None:
    generation = made((played(0, 1.0, [1, 1], "AB"), played(1, 0.0, [1, 1], "AC")))
    values = credited(generation, config(advantage="gigpo", scale_rewards="none", step_weight=2.0, gamma=0.5))
    # the episode's part is .5 and -.5. From A the returns to go are .5 * 1 and 0: +-.25, twice. B and C stand alone
    assert values == pytest.approx({(0, 0, 0): 0.5 + 0.5, (0, 0, 1): 0.5, (0, 1, 0): -0.5 - 0.5, (0, 1, 1): -0.5})


def test_only_the_turns_of_the_highest_entropy_are_trained_on() -> None:
    generation = made((played(0, 1.0, [1, 1]), played(1, 0.0, [1, 1])))
    values = credited(generation, config(entropy_share=0.5), e000=0.1, e001=0.9, e010=0.8, e011=0.2)
    assert set(values) == {(0, 0, 1), (0, 1, 0)}


def test_a_turn_that_was_left_out_has_no_token_in_the_divisor() -> None:
    generation = made((played(0, 1.0, [3, 1]), played(1, 0.0, [4])))
    known = {row.at: 1.0 for row in turns_of(generation) if row.at != (0, 0, 0)}
    values = credit(generation, known, config(average="constant", scale_rewards="none", max_completion=5))
    # 5 tokens are left, of 2 rollouts of at most 4 steps x 5 tokens: 5 / (2 * 20) = 1 / 8
    assert values == pytest.approx({(0, 0, 1): 0.5 / 8, (0, 1, 0): -0.5 / 8})


def test_why_turns_are_not_in_the_loss() -> None:
    generation = made((played(0, 1.0, [1, 1]), played(1, 0.0, [1, 1])), (played(0, 0.0, [1]), played(1, 0.0, [1])))
    rows = list(turns_of(generation))
    sampled = [row for row in rows if row.at != (0, 0, 1)]
    uncertain = {row.at for row in sampled} - {(0, 1, 0)}
    learnt = uncertain - {(1, 0, 0)}
    assert why_masked(generation, sampled, uncertain, learnt, {(1, 1)}) == {
        (0, 0, 1): "its pictures do not fit its tokens",
        (0, 1, 0): "not among the turns with the most entropy (entropy_share)",
        (1, 0, 0): "the teacher has nothing to tell of it",
        (1, 1, 0): "a success of before stands in the rollout's place",
    }
    assert why_masked(generation, rows, {row.at for row in rows}, {row.at for row in rows}, ()) == {}
