"""Answers that were cut off at their longest, and rollouts that the limit of steps cut.

What verl does with the response mask and with overlong answers is written here from its core_algos.py (agg_loss,
compute_gae_advantage_return before it whitens) and its DAPO reward manager, of 2026-01-29. Its clipped value loss and
the value after a rollout that was cut are in test_critic.py.
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eval.actions import ActionType
from eval.config import ConfigError
from eval.desktop import Task
from eval.episodes import Episode
from training.rl.learning.coefficients import MeanSettings, with_coefficients
from training.rl.learning.critic import token_credit
from training.rl.learning.turn_records import CUT, UNFIT, learnt, turns_of, without_cut
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.play import limited, overlong_penalty
from training.rl.rollouts.policy import SampledTurn
from training.rl.sections import CriticConfig

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


def credited_by_verl(rewards: list[float], values: list[float], mask: list[int], lam: float) -> list[float]:
    """Of one sequence, gamma 1: a token outside the mask is passed over, by the value and by the sum of errors."""
    following = gained = 0.0
    out = []
    for reward, value, inside in reversed(list(zip(rewards, values, mask, strict=True))):
        fresh = reward + following - value + lam * gained
        following = value * inside + (1 - inside) * following
        gained = fresh * inside + (1 - inside) * gained
        out.append(gained)
    return out[::-1]


def mean_by_verl(rows: list[tuple[list[float], list[int]]], mode: str) -> float:
    """agg_loss of (terms, mask) of each row: token-mean, or seq-mean-token-mean, without rows that are all masked."""
    sums = [sum(term * inside for term, inside in zip(terms, mask, strict=True)) for terms, mask in rows]
    counts = [sum(mask) for _, mask in rows]
    if mode == "token-mean":
        return sum(sums) / sum(counts)
    each = [whole / count for whole, count in zip(sums, counts, strict=True) if count]
    return sum(each) / len(each)


def test_masked_answers_are_passed_over_as_verl_passes_over_its_mask() -> None:
    """Advantages and the mean of the loss, of random rollouts some of whose answers were cut off. The return comes with
    the last token that is in the loss."""
    for number in range(200):
        draw = random.Random(number)
        rollouts = []
        for _ in range(draw.randint(2, 3)):
            turns = tuple(
                SampledTurn((1,), (), (2,) * long, (-0.5,) * long, cut=draw.random() < 0.4)
                for long in (draw.randint(1, 5) for _ in range(draw.randint(1, 4)))
            )
            rollouts.append(PlayedRollout(len(rollouts), EPISODE, turns, draw.choice([0.0, 0.5, 1.0])))
        if all(turn.cut for played in rollouts for turn in played.turns):
            continue
        whole = turns_of(RolloutGeneration(0, groups=[RolloutGroup(Task("t", "do"), tuple(rollouts))]))
        records, lam = without_cut(whole), draw.choice([0.0, 0.9, 1.0])
        values = {each.number: [draw.gauss(0, 1) for _ in each.turn.ids] for each in whole}
        terms = {each.number: [draw.gauss(0, 1) for _ in each.turn.ids] for each in whole}
        own = learnt(records)
        gains, _ = token_credit(own, [values[each.number] for each in own], CriticConfig(policy_lambda=lam))
        found = {each.number: line for each, line in zip(own, gains, strict=True)}
        rows: list[tuple[list[float], list[int]]] = []
        for at, played in enumerate(rollouts):
            mine = [each for each in whole if each.at[1] == at]
            mask = [int(not each.turn.cut) for each in mine for _ in each.turn.ids]
            if not any(mask):
                continue
            rewards = [0.0] * len(mask)
            rewards[max(place for place, inside in enumerate(mask) if inside)] = played.reward
            said = [value for each in mine for value in values[each.number]]
            wanted, start = credited_by_verl(rewards, said, mask, lam), 0
            for each in mine:
                end = start + len(each.turn.ids)
                if not each.turn.cut:
                    assert found[each.number] == pytest.approx(wanted[start:end], abs=1e-9), number
                products = [gain * term for gain, term in zip(wanted[start:end], terms[each.number], strict=True)]
                rows.append((products, mask[start:end]))
                start = end
        given = [replace(each, gains=tuple(found[each.number])) if each.masked is None else each for each in records]
        for mode, by_row in (("token-mean", False), ("seq-mean-token-mean", True)):
            done = learnt(with_coefficients(given, MeanSettings(by_row=by_row)))
            loss = sum(
                share * term for each in done for share, term in zip(each.coefficients, terms[each.number], strict=True)
            )
            assert loss == pytest.approx(mean_by_verl(rows, mode), abs=1e-6), (number, mode)


def test_the_cost_of_a_long_answer_is_verls() -> None:
    """min(-(length - (longest - buffer)) / buffer, 0), of answers that are no longer than the longest."""
    for number in range(500):
        draw = random.Random(number)
        longest = draw.randint(2, 400)
        buffer, tokens = draw.randint(1, longest), draw.randint(0, longest)
        assert overlong_penalty(tokens, longest, buffer) == pytest.approx(
            min(-(tokens - (longest - buffer)) / buffer, 0), abs=1e-9
        )


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
