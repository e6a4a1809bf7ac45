"""Random generations and settings: as the oracle reads them, and the same as the stages of training.rl read them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import torch

from eval.desktop import Task
from eval.environments.registry import TasksConfig
from eval.episodes import Episode
from eval.rollout.loop import RolloutLimits
from tests.unit.rl.oracle import Rollout, Rules, Token, Turn
from training.rl.config import RlConfig
from training.rl.learning.coefficients import MeanSettings, corrected, uncertain_tokens, with_coefficients
from training.rl.learning.credit import credited
from training.rl.learning.entropy_bonus import EntropyBonus
from training.rl.learning.loss_rows import LossRow
from training.rl.learning.losses import LossSettings
from training.rl.learning.row_trainer import RowTrainer
from training.rl.learning.trajectory_rows import join_turns
from training.rl.learning.turn_records import TurnRecord, learnt, turns_of
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.policy import SampledTurn
from training.rl.sections import AsyncConfig, KlConfig

WIDTH = 5  # of the vocabulary
EPISODE = Episode(episode_id="e", task_id="t", instruction="", goal="", seed=0, screen=(1, 1), success=None, steps=())
Groups = list[list[Rollout]]


def single(value: float) -> float:
    """A number that float32 holds."""
    return float(np.float32(value))


def draw_token(draw: random.Random) -> Token:
    token = Token([draw.gauss(0, 1) for _ in range(WIDTH)], draw.randrange(WIDTH), 0.0, 0.0, single(draw.uniform(0, 2)))
    token.old = single(token.now + draw.gauss(0, 0.4))
    token.sampled = single(token.old + draw.gauss(0, 0.4))
    token.reference = single(token.now + draw.gauss(0, 0.4))
    return token


def draw_groups(draw: random.Random, fits: float = 1.0) -> Groups:
    """`fits`: the share of the turns that the loss can see."""
    longest, same = draw.choice([1, 6, 6]), draw.random() < 0.1
    return [
        [
            Rollout(
                0.5 if same else draw.choice([0.0, 0.25, 1.0]),
                [
                    Turn(
                        [draw_token(draw) for _ in range(draw.randint(1, longest))],
                        draw.random() < fits,
                        turn > 0 and draw.random() < 0.2,
                    )
                    for turn in range(draw.randint(1, 3))
                ],
                number < 2 or draw.random() < 0.8,
            )
            for number in range(draw.randint(2, 4))
        ]
        for _ in range(draw.randint(1, 3))
    ]


def draw_rules(draw: random.Random) -> Rules:
    loss = draw.choice(["dapo", "cispo", "grpo", "sapo"])
    average = draw.choice(["tokens", "rollouts", "constant"]) if loss in ("dapo", "cispo") else "tokens"
    return Rules(
        loss=loss,
        sequence=draw.random() < 0.3,
        low=draw.choice([0.2, 0.1]),
        high=draw.choice([1.5, 5.0]) if loss == "cispo" else draw.choice([0.2, 0.28]),
        delta=draw.choice([None, 1.6]),
        heat=draw.choice([(1.0, 1.05), (2.0, 0.5)]),
        opsm=draw.choice([None, None, 0.1]),
        average=average,
        longest=draw.choice([20, 100]),
        whole=draw.random() < 0.4,
        deviation=average != "constant" and draw.random() < 0.5,
        advantage=draw.choice(["grpo", "per_turn"]),
        share=draw.choice([1.0, 1.0, 0.5]),
        quantile=draw.choice([1.0, 1.0, 0.4]),
        cap=draw.choice([None, 1.2]),
        bonus=draw.choice([0.0, 0.1]),
        beta=draw.choice([0.0, 0.3]),
        estimator=draw.choice(["k1", "k3"]),
        in_reward=draw.random() < 0.5,
    )


def config_of(rules: Rules, **changes: Any) -> RlConfig:
    steps = 4
    return RlConfig(
        model="none",
        environment="login",
        tasks=TasksConfig(count=8, seed=0),
        limits=RolloutLimits(max_steps=steps),
        max_completion=rules.longest // steps,
        loss=rules.loss,
        importance="sequence" if rules.sequence else "token",
        epsilon=rules.low,
        epsilon_high=rules.high,
        average=rules.average,
        scale_rewards="group" if rules.deviation else "none",
        advantage=rules.advantage,
        entropy_share=rules.share,
        rows="trajectory" if rules.whole else "turn",
        kl=KlConfig(coefficient=rules.beta, estimator=rules.estimator, place="reward" if rules.in_reward else "loss")
        if rules.beta
        else None,
        asynchronous=None if rules.cap is None else AsyncConfig(cap=rules.cap),
        **changes,
    )


def records_of(groups: Groups) -> list[TurnRecord]:
    """The turns as the model was asked them, with what the loss's forward tells. A token's id is its number, so that
    `BareTrainer` finds its logits; ids below 0 are prompts."""
    number, found, tokens, fits = 0, [], [], []
    for g, group in enumerate(groups):
        played = []
        for r, rollout in enumerate(group):
            prompt, turns = [-2] * (1 + (g + r) % 3), []
            for turn in rollout.turns:
                if turn.begins:
                    prompt = [-3, *prompt]
                ids = range(number, number := number + len(turn.tokens))
                turns.append(SampledTurn(tuple(prompt), (), tuple(ids), tuple(each.sampled for each in turn.tokens)))
                prompt = [*prompt, *ids, -4, -5]
                if rollout.valid:
                    tokens.append(turn.tokens)
                    fits.append(turn.fits)
            if rollout.valid:
                played.append(PlayedRollout(r, EPISODE, tuple(turns), rollout.reward))
        found.append(RolloutGroup(Task(f"task-{g}", "", max_steps=4), tuple(played), g))
    records = turns_of(RolloutGeneration(0, found))
    return [
        replace(
            record,
            masked=None if fit else "its pictures do not fit its tokens",
            old=tuple(each.old for each in of) if fit else (),
            entropies=tuple(each.entropy for each in of) if fit else (),
            reference=tuple(each.reference for each in of) if fit else (),
        )
        for record, of, fit in zip(records, tokens, fits, strict=True)
    ]


def rows_of(groups: Groups, rules: Rules, config: RlConfig) -> list[LossRow]:
    """What the stages make of it."""
    mean = MeanSettings.of(config, [Task("task", "", max_steps=4)], rules.quantile)
    records = credited(records_of(groups), config)
    if config.asynchronous is not None:
        records = corrected(records, config.asynchronous)
    records = with_coefficients(uncertain_tokens(records, mean), mean)
    rows = [record.row() for record in learnt(records)]
    return [each.row for each in join_turns(rows)] if rules.whole else rows


class BareTrainer(RowTrainer):
    """The passes of one process over rows whose log probabilities come from a table of logits, one line of each token.

    Nothing of TRL's trainer is made. `rank`, `count`: of the processes.
    """

    def __init__(self, groups: Groups, rules: Rules, config: RlConfig, rank: int = 0, count: int = 1) -> None:
        tokens = [token for group in groups for rollout in group for turn in rollout.turns for token in turn.tokens]
        self.table = torch.nn.Parameter(torch.tensor([token.logits for token in tokens], dtype=torch.float64))
        self.picks = torch.tensor([token.pick for token in tokens])
        self.chosen: Any = config
        self.filters = None
        self.ranks: Any = None if count == 1 else SimpleNamespace(rank=rank, count=count)
        self.pictures: Any = None
        self._tokenizer: Any = SimpleNamespace(pad_token_id=-1)
        self.args: Any = SimpleNamespace(world_size=count, use_adaptive_entropy=False)
        self.losses = LossSettings(
            kind=config.loss,
            sequence=rules.sequence,
            low=rules.low,
            high=rules.high,
            largest=rules.delta,
            above=rules.heat[0],
            below=rules.heat[1],
            off_policy=rules.opsm,
        )
        self.entropy_coef, self._last_world_entropy = rules.bonus, 0.0
        self.bonus = EntropyBonus(self)
        self.accelerator: Any = SimpleNamespace(
            device="cpu",
            backward=lambda loss: loss.backward(),
            no_sync=lambda model: nullcontext(),
            reduce=lambda told, reduction: told,
        )
        self.told: list[list[float]] = []

    def compute_loss_context_manager(self) -> Any:
        return nullcontext()

    def _tell_step(self, told: Sequence[float]) -> None:
        self.told.append(list(told))

    def likely(self, model: Any, made: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        ids = made["completion_ids"].clamp(min=0)
        each = self.table[ids].log_softmax(-1)
        return each.gather(-1, self.picks[ids].unsqueeze(-1)).squeeze(-1), -(each.exp() * each).sum(-1)

    def step(self, rows: Sequence[LossRow], number: int) -> tuple[float, torch.Tensor]:
        """(loss, gradient of the table) of an optimiser step."""
        self.table.grad = None
        loss = self.gradient(torch.nn.Module(), rows, number)
        grad = torch.zeros_like(self.table) if self.table.grad is None else self.table.grad
        return float(loss), grad.clone()


def step_of(
    groups: Groups, rules: Rules, config: RlConfig, rows: Sequence[LossRow], number: int, count: int = 1
) -> tuple[float, torch.Tensor]:
    """The same of `count` processes, whose losses and gradients are averaged."""
    both = [BareTrainer(groups, rules, config, rank, count).step(rows, number) for rank in range(count)]
    return sum(loss for loss, _ in both) / count, torch.stack([grad for _, grad in both]).mean(0)


def changed(config: RlConfig, **changes: Any) -> RlConfig:
    return msgspec.structs.replace(config, **changes)
