"""The last stage: one final coefficient for every token. The loss is the sum of the tokens' terms with it, so that
neither passes nor processes, steps or padding can change what a token weighs.

A coefficient is advantage x correction x (1 where the token is kept) x steps / divisor. The divisor is that of the
generation's mean; times the steps that the generation is divided over, because a step has one part of its tokens: a
step's loss is on the average over its parts the mean of the generation. Definitions and sources:
docs/explanation/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch

from eval.desktop import Task
from training.rl.config import Average, RlConfig
from training.rl.learning.trajectory_rows import chains
from training.rl.learning.turn_records import TurnRecord, learnt
from training.rl.sections import AsyncConfig

TOKENS: Final = ("dapo", "cispo")  # losses that are a mean over tokens; the others are one over the tokens of rows


@dataclass(frozen=True)
class MeanSettings:
    """
    average   `RlConfig.average`
    by_row    the mean over each row's tokens, then over rows
    whole     a row is a whole rollout
    steps     that a generation is divided over
    longest   sampled tokens that a rollout of this training may have at most
    kl        coefficient of the divergence from a reference in the loss: of all tokens with an advantage, kept or not
    quantile  the share of tokens, those of the highest entropy, whose terms are kept (TRL's `top_entropy_quantile`)
    """

    average: Average = "tokens"
    by_row: bool = False
    whole: bool = False
    steps: int = 1
    longest: int = 1
    quantile: float = 1.0
    kl: float = 0.0

    @classmethod
    def of(cls, config: RlConfig, tasks: Sequence[Task], quantile: float = 1.0) -> MeanSettings:
        """`tasks`: of the training, from its start on: `longest` is the same in every generation."""
        return cls(
            config.average,
            config.loss not in TOKENS,
            config.rows == "trajectory",
            config.steps_per_generation,
            max(config.limits.steps_of(task) for task in tasks) * config.max_completion,
            quantile,
            config.kl.coefficient if config.kl is not None and config.kl.place == "loss" else 0.0,
        )


def uncertain_tokens(records: Sequence[TurnRecord], settings: MeanSettings) -> list[TurnRecord]:
    """Keeps only the share `quantile` of the tokens that learn from an advantage: those with the highest entropy.
    Source: arXiv 2506.01939."""
    own = [record for record in learnt(records) if record.teacher_turn is None]
    if settings.quantile >= 1.0 or not own:
        return list(records)
    known = np.concatenate([np.asarray(record.entropies) for record in own])
    least = float(np.quantile(known, 1.0 - settings.quantile))
    return [replace(record, kept=tuple(each >= least for each in record.entropies)) for record in records]


def with_coefficients(records: Sequence[TurnRecord], settings: MeanSettings) -> list[TurnRecord]:
    """The records with `coefficients`, `bonus` and `kl` of each token that is in the loss."""
    own = learnt(records)
    rows = [[own[at] for at in chain] for chain in chains(own)] if settings.whole else [[record] for record in own]
    tokens = sum(record.tokens for record in own)
    kept = sum(sum(_kept(record)) for record in own if record.teacher_turn is None)
    done = list(records)
    for row in rows:
        of_row = len(rows) * sum(record.tokens for record in row)
        for record in row:
            share = settings.steps / _divisor(record, settings, of_row if settings.by_row else tokens)
            done[record.number] = replace(
                record,
                coefficients=tuple(share * each for each in _terms(record)),
            )
            if record.teacher_turn is None:
                bonus = tuple(settings.steps / kept * each for each in _kept(record))
                kl = (share * settings.kl,) * record.tokens if settings.kl else ()
                done[record.number] = replace(done[record.number], bonus=bonus, kl=kl)
    return done


def _divisor(record: TurnRecord, settings: MeanSettings, usual: int) -> int:
    """Of each token of a turn."""
    groups = record.made.groups
    if settings.average == "rollouts":
        return len(groups) * len(record.group.rollouts) * len(record.played.turns) * record.tokens
    if settings.average == "constant":
        return sum(len(group.rollouts) for group in groups) * settings.longest
    return usual


def _terms(record: TurnRecord) -> list[float]:
    """What a token's term is multiplied by before the mean."""
    if record.teacher_turn is not None:
        return [1.0] * record.tokens
    weights = record.weights or (1.0,) * record.tokens
    return [a * b * c for a, b, c in zip(record.gains, weights, _kept(record), strict=True)]


def _kept(record: TurnRecord) -> tuple[bool, ...]:
    return record.kept or (True,) * record.tokens


def corrected(records: Sequence[TurnRecord], config: AsyncConfig) -> list[TurnRecord]:
    """Truncated importance sampling, token by token: by the weights that learn, to those that sampled. Source: IMPALA
    (arXiv 1802.01561)."""
    return [
        record
        if record.masked is not None
        else replace(record, weights=truncated_weights(record.old, record.turn.logprobs, config.cap))
        for record in records
    ]


def truncated_weights(now: Sequence[float], then: Sequence[float], cap: float) -> tuple[float, ...]:
    """min(p_now / p_then, cap) of each token, from log probabilities in nats. Each token has its own: the product over
    a long answer leaves any bounds by noise alone."""
    apart = torch.tensor(now, dtype=torch.float64) - torch.tensor(then, dtype=torch.float64)
    return tuple(apart.clamp(-20.0, 20.0).exp().clamp(max=cap).tolist())
