"""The stage that corrects for the older weights that sampled asynchronous rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from training.rl.learning.turn_records import TurnRecord
from training.rl.sections import AsyncConfig


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
