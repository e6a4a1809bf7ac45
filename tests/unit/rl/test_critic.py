"""The advantage of each token by PPO's critic, against sums written from the definition in fractions."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from eval.desktop import Task
from eval.episodes import Episode
from training.rl.learning.critic import token_credit, value_loss, whitened
from training.rl.learning.turn_records import turns_of
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.sections import CriticConfig

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


def by_verl(rewards: list[float], values: list[float], lam: float, following: float) -> tuple[list[float], list[float]]:
    """(advantages, returns) of one response, by verl's compute_gae_advantage_return with gamma 1 before it whitens,
    begun with the value after the last token where it has 0."""
    gained, out = 0.0, []
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        gained = reward + following - value + lam * gained
        following = value
        out.append(gained)
    out.reverse()
    return out, [gain + value for gain, value in zip(out, values, strict=True)]


def test_a_rollout_that_the_limit_cut_goes_on_with_the_value_after_it() -> None:
    for number in range(300):
        draw = random.Random(number)
        lengths = [draw.randint(1, 6) for _ in range(draw.randint(1, 4))]
        rollouts = tuple(replace(played(draw.choice([0.0, 1.0]), lengths), limited=cut) for cut in (True, False))
        rows = turns_of(RolloutGeneration(0, groups=[RolloutGroup(Task("t", "do"), rollouts)]))
        values = [[draw.gauss(0, 1) for _ in row.turn.ids] for row in rows]
        after = [draw.gauss(0, 1) for _ in rows]
        lam, critic = draw.choice([0.0, 0.9, 1.0]), draw.choice([0.5, 1.0])
        config = CriticConfig(policy_lambda=lam, critic_lambda=critic, bootstrap=draw.random() < 0.8)
        gains, targets = token_credit(rows, values, config, None, after)
        for index, one in enumerate(rollouts):
            mine = [place for place, row in enumerate(rows) if row.at[1] == index]
            said = [value for place in mine for value in values[place]]
            rewards = [0.0] * (len(said) - 1) + [one.reward]
            last = after[mine[-1]] if one.limited and config.bootstrap else 0.0
            wanted, _ = by_verl(rewards, said, lam, last)
            _, aims = by_verl(rewards, said, critic, last)
            assert [value for place in mine for value in gains[place]] == pytest.approx(wanted, abs=1e-9)
            assert [value for place in mine for value in targets[place]] == pytest.approx(aims, abs=1e-9)


def test_the_clipped_loss_of_values_is_verls() -> None:
    """verl's compute_value_loss with the mean over tokens, and the half that its worker multiplies it by."""
    for number in range(200):
        torch.manual_seed(number)
        shape = (3, 5)
        said, wanted, before = torch.randn(shape, requires_grad=True), torch.randn(shape), torch.randn(shape)
        mask = (torch.rand(shape) < 0.7).long()
        mask[0, 0] = 1
        clip = (None, 0.2, 0.7)[number % 3]
        loss = value_loss(said, wanted, before, mask, clip)
        errors = []
        for row, place in mask.nonzero().tolist():
            value, old, aim = (float(each.detach()[row, place]) for each in (said, before, wanted))
            kept = value if clip is None else min(max(value, old - clip), old + clip)
            errors.append(max((value - aim) ** 2, (kept - aim) ** 2))
        assert float(loss.detach()) == pytest.approx(0.5 * sum(errors) / len(errors), abs=1e-6)
        loss.backward()
        assert said.grad is not None
        assert not said.grad[mask == 0].any()
