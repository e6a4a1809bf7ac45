"""Advantages against computations written from the papers' definitions, 1,000 random groups each, and by hand."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from training.rl.learning import advantages as ours
from training.rl.learning.advantages import RolloutFacts, TaskGroup, TurnFacts
from training.rl.rollouts.play import efficiency_penalty, overlong_penalty

pytestmark = pytest.mark.ml
CASES = 1_000


def random_group(draw: random.Random, *, entropy: bool = False) -> TaskGroup:
    """Returns of 0 and 1 or in between; turns with rewards of their own; states that come again; voided rollouts."""
    rollouts = []
    for _ in range(draw.randint(1, 8)):
        turns = tuple(
            TurnFacts(
                anchor=draw.choice([None, "a", "b", "c", f"only {draw.random()}"]),
                reward=draw.choice([0.0, 0.0, 0.25, -0.125]),
                entropy=draw.choice([0.5, draw.random()]) if entropy else None,
            )
            for _ in range(draw.randint(0, 7))
        )
        valid = draw.random() > 0.2
        total = draw.choice([0.0, 1.0, draw.random()]) if valid else math.nan
        rollouts.append(RolloutFacts(total, turns, valid))
    return TaskGroup(tuple(rollouts))


def trial(number: int) -> random.Random:
    return random.Random(f"advantages {number}")


def flat(values: list[list[float]]) -> list[float]:
    return [value for row in values for value in row]


def z_scores(numbers: np.ndarray) -> np.ndarray:
    """(x - mean) / (std + 1e-4), with the deviation of a sample."""
    if len(numbers) < 2 or np.ptp(numbers) == 0:
        return np.zeros(len(numbers))
    return np.asarray((numbers - numbers.mean()) / (numbers.std(ddof=1) + 1e-4))


def returns_by_definition(rollout: RolloutFacts, gamma: float) -> list[float]:
    """R_t = sum over k of gamma^(k-t) r_k, term by term in exact fractions."""
    rewards = [Fraction(turn.reward) for turn in rollout.turns]
    if rewards:
        rewards[-1] += Fraction(rollout.total) - sum(rewards)
    step = Fraction(gamma)
    return [
        float(sum((step ** (k - t) * rewards[k] for k in range(t, len(rewards))), Fraction(0)))
        for t in range(len(rewards))
    ]


@pytest.mark.parametrize("scale", ["std", "none"])
def test_grpo_is_the_definition_and_trl_s_number(scale: ours.Scale) -> None:
    for number in range(CASES):
        group = random_group(trial(number))
        totals = np.array([rollout.total for rollout in group.rollouts if rollout.valid])
        wanted = z_scores(totals) if scale == "std" else totals - (totals.mean() if len(totals) else 0)
        if len(totals) < 2:
            wanted = np.zeros(len(totals))
        elif scale == "std" and np.ptp(totals):  # as TRL computes it, in torch
            given = torch.tensor(totals)
            np.testing.assert_allclose(((given - given.mean()) / (given.std() + 1e-4)).numpy(), wanted, rtol=1e-9)
        each = iter(wanted)
        rows = [
            [next(each)] * len(rollout.turns) if rollout.valid else [0.0] * len(rollout.turns)
            for rollout in group.rollouts
        ]
        np.testing.assert_allclose(
            flat(ours.grpo(group, scale)), flat(rows), rtol=1e-9, atol=1e-12, err_msg=str(number)
        )


def test_per_turn_standardises_over_all_turns_of_the_group() -> None:
    for number in range(CASES):
        draw = trial(number)
        group, gamma = random_group(draw), draw.choice([1.0, 0.95, 0.5])
        pooled = z_scores(
            np.array([value for r in group.rollouts if r.valid for value in returns_by_definition(r, gamma)])
        )
        keep = np.array([r.valid for r in group.rollouts for _ in r.turns], dtype=bool)
        wanted = np.zeros(len(keep))
        wanted[keep] = pooled
        np.testing.assert_allclose(flat(ours.per_turn(group, gamma)), wanted, rtol=1e-6, atol=1e-9, err_msg=str(number))


def test_gigpo_is_the_definition() -> None:
    for number in range(CASES):
        draw = trial(number)
        group, gamma, weight = random_group(draw), draw.choice([0.95, 1.0]), draw.choice([1.0, 0.0, 2.5])
        steps = [
            (r, t, turn.anchor, returns_by_definition(rollout, gamma)[t])
            for r, rollout in enumerate(group.rollouts)
            if rollout.valid
            for t, turn in enumerate(rollout.turns)
        ]
        episode = ours.grpo(group)  # has a test of its own
        got = ours.gigpo(group, gamma, weight)
        for r, t, anchor, own in steps:
            beside = np.array([value for _, _, other, value in steps if other == anchor and anchor is not None])
            relative = 0.0
            if len(beside) > 1 and np.ptp(beside):
                relative = (own - beside.mean()) / (beside.std(ddof=1) + 1e-4)
            assert got[r][t] == pytest.approx(episode[r][t] + weight * relative, rel=1e-6, abs=1e-8), number
        for rollout, row in zip(group.rollouts, got, strict=True):
            assert len(row) == len(rollout.turns)
            assert rollout.valid or not any(row)


def test_gigpo_by_hand() -> None:
    """Two rollouts of two turns. Both begin in state s; the second turns begin in states of their own.

    Returns 1 and 0, gamma .5: R of the first turns .5 * 1 = .5 and 0; of the second turns 1 and 0.
    A_episode: mean .5, deviation sqrt(.5) = .70711; +-.5 / (.70711 + .0001) = +-.70701.
    A_step in s: mean .25, deviation sqrt(2 * .0625) = .35355; +-.25 / (.35355 + .0001) = +-.70691; alone: 0.
    """
    group = TaskGroup(
        (
            RolloutFacts(1.0, (TurnFacts("s"), TurnFacts("after a click"))),
            RolloutFacts(0.0, (TurnFacts("s"), TurnFacts("after a wrong click"))),
        )
    )
    got = ours.gigpo(group, gamma=0.5, weight=1.0)
    assert got[0] == pytest.approx([0.70701 + 0.70691, 0.70701], abs=2e-5)
    assert got[1] == pytest.approx([-0.70701 - 0.70691, -0.70701], abs=2e-5)


def test_grpo_and_per_turn_by_hand() -> None:
    """Returns 1, 1, 0, 0: mean .5, deviation sqrt(4 * .25 / 3) = .57735; .5 / .57745 = .86588.

    Over turns, the first rollout with two of them: 1, 1, 1, 0, 0: mean .6, squares 3 * .16 + 2 * .36 = 1.2, deviation
    sqrt(1.2 / 4) = .54772; .4 / .54782 = .73017 and -.6 / .54782 = -1.09525.
    """
    one, two = (TurnFacts(),), (TurnFacts(), TurnFacts())
    group = TaskGroup((RolloutFacts(1.0, two), RolloutFacts(1.0, one), RolloutFacts(0.0, one), RolloutFacts(0.0, one)))
    assert flat(ours.grpo(group)) == pytest.approx([0.86588] * 3 + [-0.86588] * 2, abs=1e-5)
    assert flat(ours.grpo(group, "none")) == [0.5, 0.5, 0.5, -0.5, -0.5]
    assert flat(ours.per_turn(group)) == pytest.approx([0.73017] * 3 + [-1.09525] * 2, abs=1e-5)


def test_a_voided_rollout_changes_nothing_for_the_others() -> None:
    """Every function gives the valid rollouts what it gives them alone, and the voided one zeros."""
    for number in range(CASES):
        group = random_group(trial(number), entropy=True)
        alone = TaskGroup(tuple(group.valid))
        for function in (ours.grpo, ours.per_turn, ours.gigpo):
            mixed = [row for row, rollout in zip(function(group), group.rollouts, strict=True) if rollout.valid]
            assert mixed == function(alone), (number, function.__name__)
        kept_turns = [
            row for row, rollout in zip(ours.uncertain_turns(group), group.rollouts, strict=True) if rollout.valid
        ]
        assert kept_turns == ours.uncertain_turns(alone), number


def test_uncertain_turns_are_the_most_uncertain_share() -> None:
    for number in range(CASES):
        draw = trial(number)
        group, share = random_group(draw, entropy=True), draw.choice([0.8, 0.5, 1.0, 0.01])
        chosen = ours.uncertain_turns(group, share)
        picked, left = [], []
        for rollout, row in zip(group.rollouts, chosen, strict=True):
            for turn, taken in zip(rollout.turns, row, strict=True):
                assert rollout.valid or not taken
                if rollout.valid:
                    (picked if taken else left).append(turn.entropy)
        total = len(picked) + len(left)
        if not total:
            continue
        exact = Fraction(str(share)) * total
        wanted = max(1, math.ceil(exact))
        assert min(picked) > max(left, default=-1.0), number  # type: ignore[type-var]
        assert len(picked) >= wanted
        assert sum(entropy > min(picked) for entropy in picked) < wanted  # type: ignore[operator,type-var]


def test_uncertain_turns_by_hand() -> None:
    """Four of five turns: ceil(.8 * 5) = 4; the one with .1 is left out."""
    turns = tuple(TurnFacts(entropy=entropy) for entropy in (0.3, 0.1, 0.9, 0.5, 0.2))
    assert ours.uncertain_turns(TaskGroup((RolloutFacts(1.0, turns),))) == [[True, False, True, True, True]]
    with pytest.raises(ValueError, match="1 of 2 turns have no entropy"):
        ours.uncertain_turns(TaskGroup((RolloutFacts(1.0, (TurnFacts(), TurnFacts(entropy=1.0))),)))


def test_a_group_without_signal_has_no_advantage() -> None:
    def group(*totals: float) -> TaskGroup:
        return TaskGroup(tuple(RolloutFacts(total, (TurnFacts(),), not math.isnan(total)) for total in totals))

    solved, failed, alone = group(1, 1), group(0, 0), group(1, math.nan)
    assert flat(ours.grpo(solved)) == flat(ours.gigpo(failed)) == flat(ours.grpo(alone)) == [0.0, 0.0]


def test_a_valid_rollout_has_a_finite_return() -> None:
    with pytest.raises(ValueError, match="voided"):
        RolloutFacts(math.nan, (TurnFacts(),))
    RolloutFacts(math.nan, (TurnFacts(),), valid=False)


def test_overlong_and_efficiency() -> None:
    """DAPO's own numbers: at most 20,480 tokens, of which the last 4,096 are the buffer."""
    for number in range(CASES):
        tokens = trial(number).randint(0, 25_000)
        if tokens <= 16_384:
            wanted = 0.0
        elif tokens <= 20_480:
            wanted = float(Fraction(16_384 - tokens, 4_096))
        else:
            wanted = -1.0
        assert overlong_penalty(tokens, 20_480, 4_096) == wanted
    assert overlong_penalty(18_432, 20_480, 4_096) == -0.5
    assert [overlong_penalty(tokens, 10, 0) for tokens in (10, 11)] == [0.0, -1.0]  # no buffer: a step
    assert efficiency_penalty(5) == pytest.approx(-0.1)


def test_gae_is_the_sum_of_discounted_surprises() -> None:
    """A_t = sum over l of (gamma lambda)^l delta_(t+l), each term by itself in fractions."""
    for number in range(CASES):
        draw = trial(number)
        length = draw.randint(0, 25)
        rewards = [draw.choice([0.0, 1.0, -0.5]) for _ in range(length)]
        values = [draw.gauss(0, 1) for _ in range(length)]
        gamma, lam = draw.choice([1.0, 0.95]), draw.choice([0.0, 0.9, 1.0])
        nexts = [*values[1:], 0.0][:length]
        deltas = [
            Fraction(r) + Fraction(gamma) * Fraction(n) - Fraction(v)
            for r, n, v in zip(rewards, nexts, values, strict=True)
        ]
        decay = Fraction(gamma) * Fraction(lam)
        wanted = [
            float(sum((decay ** (k - t) * deltas[k] for k in range(t, length)), Fraction(0))) for t in range(length)
        ]
        assert ours.gae(rewards, values, gamma, lam) == pytest.approx(wanted, abs=1e-9), number
        gains, targets = ours.decoupled_gae(rewards, values, gamma=gamma, policy=lam)
        assert gains == ours.gae(rewards, values, gamma, lam)
        to_go = [
            float(sum(Fraction(gamma) ** (k - t) * Fraction(rewards[k]) for k in range(t, length)))
            for t in range(length)
        ]
        assert targets == pytest.approx(to_go, abs=1e-9)  # lambda 1: the critic learns the returns, whatever it says


def test_gae_by_hand() -> None:
    """Rewards 0, 1; values .5, .8; gamma 1, lambda .5. delta = .8 - .5 = .3, then 1 - .8 = .2; .3 + .5 * .2 = .4."""
    assert ours.gae([0, 1], [0.5, 0.8], 1.0, 0.5) == pytest.approx([0.4, 0.2])


def test_lambda_grows_with_the_length() -> None:
    """1 - 1 / (.05 * 100) = .8; 1 - 1 / (.05 * 1000) = .98. The formula is 0 at 20 tokens."""
    assert [ours.adaptive_lambda(length) for length in (100, 1000, 20, 5, 0)] == pytest.approx([0.8, 0.98, 0, 0, 0])
    rewards, values = [0.0] * 99 + [1.0], [0.5] * 100
    assert ours.decoupled_gae(rewards, values)[0] == ours.gae(rewards, values, 1.0, ours.adaptive_lambda(100))
