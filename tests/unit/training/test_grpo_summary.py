"""GRPO's summary: intervals by the prompts' episodes, whose steps resemble each other."""

from __future__ import annotations

import math
import random

import pytest

from training.grpo.config import GrpoConfig
from training.grpo.results import RewardTally, summary
from training.rewards import Reward, RewardSpec, load

CONFIG = GrpoConfig(model=".", data=".", rewards=[RewardSpec(name="format")], steps=1)
TRIALS, EPISODES, PROMPTS = 400, 20, 12


def mean(values: list[float], answers: object = None) -> list[float | None]:
    raise AssertionError("never called")


def tally(groups: list[tuple[int, list[float]]]) -> RewardTally:
    kept = RewardTally()
    kept.groups.append(groups)
    return kept


def episode(number: int) -> str:
    return f"episode {number // PROMPTS}"


@pytest.mark.parametrize("own", [False, True], ids=["in-[0,1]", "any-number"])
def test_19_of_20_intervals_hold_the_true_mean(own: bool) -> None:
    """Simulated: half of a reward's variance is its episode's. With each group for itself, 54 % do."""
    chance = random.Random(11)
    rewards = [Reward("mine", 1.0, mean)] if own else load([RewardSpec(name="format")])  # type: ignore[arg-type]
    held = 0
    for _ in range(TRIALS):
        groups = []
        for at in range(EPISODES):
            shared = chance.uniform(-0.3, 0.3)
            for step in range(PROMPTS):
                groups.append((at * PROMPTS + step, [0.5 + shared / 2 + chance.uniform(-0.15, 0.15)]))
        (row,) = summary(CONFIG, rewards, tally(groups), episode)
        assert row.ci_low is not None
        assert row.ci_high is not None
        held += row.ci_low <= 0.5 <= row.ci_high
    assert 0.92 * TRIALS <= held <= 0.985 * TRIALS
    assert (row.n, row.clusters) == (EPISODES * PROMPTS, EPISODES)


def test_a_prompt_that_comes_again_is_no_new_episode() -> None:
    once = summary(CONFIG, load(CONFIG.rewards), tally([(0, [0.2]), (12, [0.8]), (24, [0.5])]), episode)[0]
    kept = tally([(0, [0.2]), (12, [0.8]), (24, [0.5])])
    for _ in range(9):
        kept.groups.append([(0, [0.2]), (12, [0.8]), (24, [0.5])])
    (again,) = summary(CONFIG, load(CONFIG.rewards), kept, episode)
    assert (again.value, again.ci_low, again.ci_high) == pytest.approx((once.value, once.ci_low, once.ci_high))
    assert (once.clusters, again.clusters) == (3, 3)


def test_a_group_that_was_not_judged_is_left_out() -> None:
    (row,) = summary(CONFIG, load(CONFIG.rewards), tally([(0, [math.nan]), (12, [0.5]), (13, [0.7])]), episode)
    assert (row.value, row.n, row.clusters) == (pytest.approx(0.6), 2, 1)
    assert (row.ci_low, row.ci_high) == (0.0, 1.0)  # one episode says nothing
