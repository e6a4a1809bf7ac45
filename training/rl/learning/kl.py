"""The divergence of the policy from a reference, and from itself before a generation's steps.

The estimators are Schulman's (http://joschu.net/blog/kl-approx.html): at a sampled token, with d = log p - log p_ref,
k1 is d, and k3 is exp(-d) + d - 1. As a term of the loss, k3 is GRPO's (arXiv 2402.03300, equation 4), of which the
gradient is that of TRL with the same `beta`. The gradient of k1 in the loss is 0 on the average over samples: it
belongs into the reward, as PPO has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import proxy

import torch
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from training.rl.learning.loss_rows import LossRow
from training.rl.sections import Estimator, KlConfig


def divergence(now: Tensor, reference: Tensor, estimator: Estimator) -> Tensor:
    """Of each token, nats, from its two log probabilities."""
    apart = now - reference
    return apart if estimator == "k1" else torch.expm1(-apart) + apart


def costs_of(row: LossRow, kl: KlConfig | None) -> list[float]:
    """What is taken off the return at each sampled token of a turn: nothing where the divergence is not in the reward,
    and nothing of a turn that the loss cannot see."""
    if kl is None or kl.place == "loss" or not row.reference:
        return [0.0] * len(row.turn.ids)
    lines = torch.tensor([row.old, row.reference], dtype=torch.float64)
    return [kl.coefficient * each for each in divergence(lines[0], lines[1], kl.estimator).tolist()]


class ReferenceModel:
    """The model of the start, which gives the reference's log probabilities.

    trainer  whose model it is the start of
    make     loads it; None: the trained model without its LoRA, which takes no memory
    """

    def __init__(self, trainer: Any, make: Callable[[], Any] | None) -> None:
        self.trainer = proxy(trainer)
        self.make = make
        self.copy: Any = None

    @contextmanager
    def model(self) -> Iterator[Any]:
        """What computes as the reference. After it the trained model is what it was."""
        if self.make is None:
            with self.trainer.accelerator.unwrap_model(self.trainer.model).disable_adapter():
                yield self.trainer.model
            return
        if self.copy is None:
            self.copy = self.make().to(self.trainer.accelerator.device).eval().requires_grad_(False)
        yield self.copy


class Measuring(Protocol):
    """The part of the trainer that `PostKl` needs."""

    rows: list[LossRow] | None

    def measured(self, rows: Sequence[LossRow]) -> list[Tensor]: ...

    def note(self, name: str, value: float, step: int | None = None) -> None: ...


class PostKl(TrainerCallback):  # type: ignore[misc]
    """Figures after the last step of each generation: how far its steps moved the policy, at the tokens of its rows.

    With d the log probability before the first step less that after the last one, nats: post_kl_v1 is the mean of d,
    post_kl_v2 half the mean of its square, both as in Tinker's cookbook (`compute_post_kl`).

    period  steps of a generation
    """

    def __init__(self, trainer: Measuring, period: int) -> None:
        self.trainer = proxy(trainer)
        self.period = period

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        rows = [row for row in self.trainer.rows or () if row.teacher_turn is None]
        if state.global_step % self.period or not rows:
            return
        apart = []
        for row, now in zip(rows, self.trainer.measured(rows), strict=True):
            learnt = torch.ones(len(now), dtype=torch.bool) if row.learnt is None else torch.tensor(row.learnt)
            apart.append((torch.tensor(row.old, dtype=torch.float64) - now.double())[learnt])
        each = torch.cat(apart)
        self.trainer.note("post_kl_v1", float(each.mean()), state.global_step)
        self.trainer.note("post_kl_v2", float((each**2).mean() / 2), state.global_step)
