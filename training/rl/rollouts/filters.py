"""Filters of the sampling, and the log probabilities of what they leave.

In the order of transformers: the repetition penalty, the temperature, top_k, top_p, min_p. What is left is a
distribution of its own, of which the kept tokens have all the mass: rollouts are drawn from it, and the loss computes
the same. Sources: top_k, arXiv 1805.04833; top_p, arXiv 1904.09751; min_p, arXiv 2407.01082; the penalty, arXiv
1909.05858.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.rl.config import RlConfig


@dataclass(frozen=True)
class SamplingFilters:
    """
    top_k    so many of the likeliest tokens are kept; 0: all
    top_p    the likeliest tokens are kept whose shares reach this sum; 1: all
    min_p    tokens are kept with at least this part of the likeliest one's share; 0: all
    penalty  what the logits of tokens that stand in the prompt or the answer are divided by, or multiplied where they
             are below 0; 1: none
    never    ids of tokens that are never drawn and have no share
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    never: tuple[int, ...] = ()

    @classmethod
    def of(cls, config: RlConfig) -> SamplingFilters | None:
        """None where the configuration has none."""
        if not config.filtered:
            return None
        return cls(config.temperature, config.top_k, config.top_p, config.min_p, config.repetition_penalty)

    def log_probabilities(self, logits: Tensor, seen: Tensor | None = None, sampled: Tensor | None = None) -> Tensor:
        """(..., V), float32: of the distribution that the filters leave; -inf for what they take away.

        logits   (..., V)
        seen     (..., V), True for the tokens that stand before; needed with a penalty
        sampled  (...,), tokens that are kept at all events: weights that have learnt since may leave them out
        """
        scores = logits.float()
        if self.penalty != 1.0:
            assert seen is not None
            punished = torch.where(scores < 0, scores * self.penalty, scores / self.penalty)
            scores = torch.where(seen, punished, scores)
        scores = scores / self.temperature
        with torch.no_grad():
            kept = self._kept(scores)
            if sampled is not None:
                kept = kept.scatter(-1, sampled.unsqueeze(-1), True)
        return scores.masked_fill(~kept, -torch.inf).log_softmax(-1)

    def _kept(self, scores: Tensor) -> Tensor:
        scores = scores.clone()
        if self.never:
            scores[..., list(self.never)] = -torch.inf
        if 0 < self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        if self.top_p < 1.0:
            ordered, places = scores.sort(dim=-1, descending=True, stable=True)
            shares = ordered.softmax(-1)
            before = shares.cumsum(-1) - shares  # of all that are likelier
            gone = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, places, before >= self.top_p)
            scores = scores.masked_fill(gone, -torch.inf)
        if self.min_p > 0.0:
            shares = scores.softmax(-1)
            scores = scores.masked_fill(shares < self.min_p * shares.max(dim=-1, keepdim=True).values, -torch.inf)
        return scores > -torch.inf


def seen_before(prompts: Tensor, mask: Tensor, answers: Tensor, width: int) -> Tensor:
    """(B, T, width): whether each token of the vocabulary stands in the prompt, or before that place of the answer.

    prompts, mask  (B, P), padding has mask 0; answers: (B, T)
    """
    rows, long = answers.shape
    first = torch.full((rows, width + 1), long, device=answers.device)  # where each token stands first
    places = torch.arange(long, device=answers.device).expand(rows, long).contiguous()
    first.scatter_reduce_(1, answers, places, "amin")
    first.scatter_(1, torch.where(mask.bool(), prompts, width), -1)
    return first[:, None, :width] < torch.arange(long, device=answers.device)[None, :, None]


def entropy_of(likely: Tensor) -> Tensor:
    """(...,), nats, of log probabilities (..., V), -inf among them."""
    finite = torch.where(likely > -torch.inf, likely, 0.0)
    return -(likely.exp() * finite).sum(-1)
