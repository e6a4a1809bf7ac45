"""The advantage of each token by PPO's critic, against sums written from the definition in fractions."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from eval.desktop import Task
from eval.episodes import Episode
from training.rl.config import CriticConfig
from training.rl.learning.critic import token_credit, whitened
from training.rl.learning.turn_records import turns_of
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn

pytestmark = pytest.mark.ml


def played(reward: float, lengths: list[int]) -> PlayedRollout:
    episode = Episode(episode_id="e", task_id="t", instruction="i", screen=(1, 1), success=False, score=0.0)
    turns = tuple(SampledTurn((1,), (), (2,) * length, (-0.5,) * length) for length in lengths)
    return PlayedRollout(0, episode, turns, reward)


def test_each_token_has_the_sum_of_discounted_surprises_of_its_whole_rollout() -> None:
    """A_t is the sum over l of lambda^l (r + V_(t+l+1) - V_(t+l)), with the return at the last token and V 0 after it,
    and lambda 1 - 1 / (alpha l), not below 0, of l tokens in all. 1,000 generations, their rows in any order, some
    turns missing."""
    for number in range(1000):
        draw = random.Random(number)
        groups = [
            RolloutGroup(
                Task("t", "do"),
                tuple(
                    played(draw.choice([0.0, 1.0, 0.5]), [draw.randint(1, 6) for _ in range(draw.randint(1, 4))])
                    for _ in range(draw.randint(1, 3))
                ),
            )
            for _ in range(draw.randint(1, 2))
        ]
        made = RolloutGeneration(0, groups=groups)
        rows = [row for row in turns_of(made) if draw.random() < 0.9] or turns_of(made)
        draw.shuffle(rows)
        values = [[draw.gauss(0, 1) for _ in row.turn.ids] for row in rows]
        alpha = draw.choice([0.05, 0.3, 1.0])
        given = draw.choice([None, 0.0, 0.9, 1.0])
        gains, targets = token_credit(rows, values, CriticConfig(policy_lambda=given, alpha=alpha))
        for group, each in enumerate(groups):
            for rollout, one in enumerate(each.rollouts):
                mine = sorted((row.at[2], place) for place, row in enumerate(rows) if row.at[:2] == (group, rollout))
                said = [Fraction(value) for _, place in mine for value in values[place]]
                if not said:
                    continue
                lam = Fraction(given) if given is not None else max(Fraction(0), 1 - 1 / (Fraction(alpha) * len(said)))
                nexts = [*said[1:], Fraction(0)]
                rewards = [Fraction(0)] * (len(said) - 1) + [Fraction(one.reward)]
                apart = [r + n - v for r, n, v in zip(rewards, nexts, said, strict=True)]
                wanted = [
                    float(sum(lam ** (later - at) * apart[later] for later in range(at, len(said))))
                    for at in range(len(said))
                ]
                found = [value for _, place in mine for value in gains[place]]
                assert found == pytest.approx(wanted, abs=1e-9), number
                aims = [value for _, place in mine for value in targets[place]]
                assert aims == pytest.approx([one.reward] * len(said), abs=1e-9), number


def test_two_turns_by_hand() -> None:
    """Values .5 | .2, .8 and a return of 1, lambda .5: surprises .2 - .5 = -.3, .8 - .2 = .6 and 1 - .8 = .2; so .2 at
    last, .6 + .5 * .2 = .7 before it, and -.3 + .5 * .7 = .05 at first."""
    made = RolloutGeneration(0, groups=[RolloutGroup(Task("t", "do"), (played(1.0, [1, 2]),))])
    gains, targets = token_credit(turns_of(made), [[0.5], [0.2, 0.8]], CriticConfig(policy_lambda=0.5))
    assert [*gains[0], *gains[1]] == pytest.approx([0.05, 0.7, 0.2])
    assert [*targets[0], *targets[1]] == pytest.approx([1.0, 1.0, 1.0])


def test_whitened_by_hand() -> None:
    """1, 2 and 3: less 2, divided by the root of 2/3."""
    (first, second) = whitened([[1.0], [2.0, 3.0]])
    assert [*first, *second] == pytest.approx([-(1.5**0.5), 0.0, 1.5**0.5])
