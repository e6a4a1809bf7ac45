"""What a token weighs in the loss and in its gradient, against plain loops from the papers' formulas (`oracle`)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from eval.desktop import Task
from tests.unit.rl import oracle
from tests.unit.rl.drawn_generations import (
    BareTrainer,
    changed,
    config_of,
    draw_groups,
    draw_rules,
    draw_token,
    records_of,
    rows_of,
    step_of,
)
from tests.unit.rl.oracle import Rollout, Rules, Turn
from training.rl.learning.coefficients import MeanSettings, with_coefficients
from training.rl.learning.credit import credited
from training.rl.learning.entropy_bonus import EntropyBonus
from training.rl.learning.row_trainer import RowTrainer
from training.rl.records.step_metrics import nothing_to_learn

pytestmark = pytest.mark.ml


def agrees(number: int) -> None:
    draw = random.Random(number)
    rules = draw_rules(draw)
    groups = draw_groups(draw, 1.0 if rules.share < 1.0 else 0.9)
    steps, count = draw.choice([1, 2, 3]), draw.choice([1, 1, 2, 3])
    config = config_of(rules, steps_per_generation=steps, batch_size=draw.choice([1, 2, 5, 64]))
    rows = rows_of(groups, rules, config)
    wanted = oracle.generation(groups, rules)
    whole = torch.zeros(len(wanted.losses), len(wanted.gradients[0]), dtype=torch.float64)
    trainer = BareTrainer(groups, rules, config)
    for step in range(steps):
        loss, gradient = step_of(groups, rules, config, rows, step, count)
        tokens = [token for row in trainer.step_rows(rows, step) for token in row.turn.ids if token >= 0]
        # the part of the generation's mean that these tokens have, times the number of such parts
        assert loss == pytest.approx(steps * sum(wanted.losses[token] for token in set(tokens)), abs=1e-6), number
        whole += gradient / steps
    assert torch.allclose(whole, torch.tensor(wanted.gradients, dtype=torch.float64), rtol=0, atol=1e-6), number


def test_loss_and_gradient_are_those_of_a_loop_over_tokens() -> None:
    for number in range(40):
        agrees(number)


@pytest.mark.nightly
def test_loss_and_gradient_of_six_hundred_configurations() -> None:
    for number in range(40, 640):
        agrees(number)


def told(lengths: list[int]) -> list[list[Rollout]]:
    """A group of rollouts of one turn each; each token was as likely before as it is now."""
    draw = random.Random(0)
    group = [
        Rollout(float(at % 2), [Turn([draw_token(draw) for _ in range(length)])]) for at, length in enumerate(lengths)
    ]
    for rollout in group:
        for token in rollout.turns[0].tokens:
            token.old = token.now
    return [group]


LENGTHS = [2, 2, 40, 3, 2, 35, 2, 4]


def test_dr_grpos_divisor_is_the_same_in_every_step_and_generation() -> None:
    """Eight rollouts in two steps, four in each, of at most 100 tokens: 4 x 100 in both."""
    rules = Rules(average="constant", deviation=False, longest=100)
    for lengths in (LENGTHS, [1] * 8):
        groups = told(lengths)
        config = config_of(rules, steps_per_generation=2)
        for row in rows_of(groups, rules, config):
            assert [abs(each) for each in row.coefficients] == pytest.approx([0.5 / 400] * len(row.turn.ids))


def test_a_mean_over_rollouts_is_one_in_every_step() -> None:
    """Each rollout has one turn and each step four rollouts: with advantage 1 everywhere both losses are -1."""
    rules = Rules(average="rollouts", deviation=False)
    groups = told(LENGTHS)
    config = config_of(rules, steps_per_generation=2)
    rows = rows_of(groups, rules, config)
    for step in range(2):
        mine = BareTrainer(groups, rules, config).step_rows(rows, step)
        # the advantages are .5 and -.5
        assert sum(abs(each) for row in mine for each in row.coefficients) == pytest.approx(0.5)


def test_the_entropy_bonus_and_the_uncertain_tokens_do_not_know_of_passes_and_processes() -> None:
    rules = Rules(bonus=0.3, quantile=0.5)
    groups = draw_groups(random.Random(3))
    config = config_of(rules)
    rows = rows_of(groups, rules, config)
    whole, gradient = step_of(groups, rules, config, rows, 0)
    for size, count in ((8, 1), (4, 1), (2, 1), (1, 1), (2, 2), (1, 3)):
        loss, other = step_of(groups, rules, changed(config, batch_size=size), rows, 0, count)
        assert loss == pytest.approx(whole, abs=1e-6)
        assert torch.allclose(other, gradient, rtol=0, atol=1e-6)


class AdaptiveTrainer(BareTrainer):
    """With TRL's options of an adaptive coefficient, at its start."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.args.use_adaptive_entropy = True
        self.args.entropy_coef_delta, self.args.entropy_coef_min, self.args.entropy_coef_max = 0.1, 0.0, 0.15
        self.args.entropy_target, self._last_world_entropy = 5.0, float("inf")
        self.bonus = EntropyBonus(self)
        self._metrics = {"train": defaultdict(list)}

    def _tell_step(self, told: Sequence[float]) -> None:
        RowTrainer._tell_step(self, told)


def test_an_adaptive_coefficient_moves_once_after_each_step() -> None:
    """By .1, to the entropy of all its tokens: up where that is at the target or below, and down above it. It is
    applied from the step on after one at the target or below."""
    groups = draw_groups(random.Random(5))
    for size in (1, 2, 64):
        config = config_of(Rules(), batch_size=size)
        trainer, rows = AdaptiveTrainer(groups, Rules(), config), rows_of(groups, Rules(), config)
        assert trainer.bonus.coefficient == 0.0
        found = []
        for target in (5.0, 5.0, 5.0, 0.01, 0.01):
            trainer.args.entropy_target = target
            trainer.step(rows, 0)
            found += [trainer.entropy_coef, trainer.bonus.coefficient]
        assert found == pytest.approx([0.1, 0.1, 0.15, 0.15, 0.15, 0.15, 0.05, 0.0, 0.0, 0.0])
        assert trainer._metrics["train"]["entropy_coef"] == pytest.approx(found[::2])
        tokens = [token for row in rows for token in row.turn.ids]
        shares = [trainer.table.detach()[token].softmax(-1) for token in tokens]
        mean = sum(float(-(each * each.log()).sum()) for each in shares) / len(shares)
        assert trainer._metrics["train"]["entropy"] == pytest.approx([mean] * 5)


def test_a_generation_of_equal_returns_is_said_to_teach_nothing() -> None:
    groups = told([2, 3])
    rules = Rules(average="constant", deviation=False, longest=100)
    config = config_of(rules)
    mean = MeanSettings.of(config, [Task("task", "")])
    assert nothing_to_learn(with_coefficients(credited(records_of(groups), config), mean)) is None
    for rollout in groups[0]:
        rollout.reward = 0.25
    said = nothing_to_learn(with_coefficients(credited(records_of(groups), config), mean))
    assert said is not None
    assert said.startswith("warning: generation 0 teaches nothing: within each group all rollouts have the same return")
