"""What the loss's mean comes to where only a share of the turns is trained on, against sums from the definitions."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from eval.config import convert
from eval.desktop import Task
from eval.episodes import Episode
from training.rl.config import RlConfig
from training.rl.learning.coefficients import MeanSettings, with_coefficients
from training.rl.learning.credit import credited
from training.rl.learning.turn_records import TurnRecord, learnt, turns_of
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn

pytestmark = pytest.mark.ml
STEPS, LONGEST = 4, 16
TASKS = [Task("t", "do")]
BASE: dict[str, Any] = {
    "model": "hf://owner/name",
    "environment": "login",
    "tasks": {"count": 8, "seed": 0},
    "steps": 4,
    "limits": {"max_steps": STEPS},
    "max_completion": LONGEST,
    "scale_rewards": "none",
}


def played(draw: random.Random, reward: float) -> PlayedRollout:
    episode = Episode(episode_id="e", task_id="t", instruction="i", screen=(1, 1), success=False, score=0.0)
    lengths = [draw.randint(1, LONGEST) for _ in range(draw.randint(1, STEPS))]
    return PlayedRollout(
        0, episode, tuple(SampledTurn((1,), (), (2,) * many, (-0.5,) * many) for many in lengths), reward
    )


def drawn(draw: random.Random) -> tuple[RolloutGeneration, list[TurnRecord]]:
    groups = [
        RolloutGroup(Task("t", "do"), tuple(played(draw, draw.choice([0.0, 1.0])) for _ in range(draw.randint(2, 4))))
        for _ in range(draw.randint(1, 3))
    ]
    made = RolloutGeneration(0, groups)
    return made, [replace(record, entropies=(draw.random(),) * record.tokens) for record in turns_of(made)]


@pytest.mark.parametrize("share", [1.0, 0.8, 0.3])
@pytest.mark.parametrize("average", ["constant", "rollouts"])
def test_a_turn_that_is_not_trained_on_adds_nothing_and_changes_no_divisor(average: str, share: float) -> None:
    """Each token's loss is one number of its turn. Dr. GRPO: the sum over rollouts x longest. M-GRPO: the mean of the
    groups' means of rollouts' means of turns' means."""
    config = convert({**BASE, "average": average, "entropy_share": share}, RlConfig, "test")
    for number in range(200):
        draw = random.Random(number)
        made, records = drawn(draw)
        records = with_coefficients(credited(records, config), MeanSettings.of(config, TASKS))
        losses = {record.at: Fraction(draw.randint(-9, 9)) for record in records}
        values = {record.at for record in learnt(records)}
        mean = sum(each * float(losses[record.at]) for record in records for each in record.coefficients)
        wanted = Fraction(0)
        rollouts = sum(len(group.rollouts) for group in made.groups)
        for g, group in enumerate(made.groups):
            baseline = Fraction(sum(int(each.reward) for each in group.rollouts), len(group.rollouts))
            for r, each in enumerate(group.rollouts):
                for t, turn in enumerate(each.turns):
                    if (g, r, t) not in values:
                        continue
                    term = (Fraction(each.reward) - baseline) * losses[g, r, t]
                    if average == "constant":
                        wanted += term * len(turn.ids) / (rollouts * STEPS * LONGEST)
                    else:
                        wanted += term / (len(made.groups) * len(group.rollouts) * len(each.turns))
        assert mean == pytest.approx(float(wanted), abs=1e-9), number
