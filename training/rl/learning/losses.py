"""The losses of a policy: a term for each sampled token, whose sum is the loss.

A token's coefficient c is its advantage times all that a mean divides it by (`coefficients`): every term
here is homogeneous in it, so a term with c is the term with the advantage, times what it is divided by. Sources: GRPO
(arXiv 2402.03300), DAPO (arXiv 2503.14476), GSPO (arXiv 2507.18071), CISPO (arXiv 2506.13585), SAPO (arXiv 2511.20347),
the mask of what is too far off the policy (DeepSeek-V3.2, arXiv 2512.02556), the second bound of the ratio (arXiv
1912.09729).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from training.rl.config import Loss


@dataclass(frozen=True)
class LossSettings:
    """
    kind         the loss: `RlConfig.loss`
    sequence     one ratio for all tokens of a row: the exponential of the mean of their log ratios
    low, high    how far the ratio may leave 1, down and up; of cispo `high` is the largest ratio itself
    largest      ratio of an unclipped term (TRL's `delta`); None: without a bound
    above, below temperatures of sapo, of tokens with an advantage above 0 and of the others
    off_policy   mean log ratio of a row, nats, beyond which its tokens of negative advantage are left out; None: never
    """

    kind: Loss = "dapo"
    sequence: bool = False
    low: float = 0.2
    high: float = 0.2
    largest: float | None = None
    above: float = 1.0
    below: float = 1.05
    off_policy: float | None = None

    @classmethod
    def of(cls, args: Any) -> LossSettings:
        """From a TRL GRPOConfig."""
        return cls(
            args.loss_type,
            args.importance_sampling_level == "sequence",
            args.epsilon,
            args.epsilon if args.epsilon_high is None else args.epsilon_high,
            args.delta,
            args.sapo_temperature_pos,
            args.sapo_temperature_neg,
            args.off_policy_mask_threshold,
        )


def token_losses(
    now: Tensor, old: Tensor, coefficients: Tensor, learnt: Tensor, settings: LossSettings
) -> tuple[Tensor, Tensor]:
    """(each token's term, its ratio), both (B, T); a term is 0 where a token is not learnt.

    now, old      (B, T) log probabilities, nats, by the weights that learn and by those before the first step
    coefficients  (B, T)
    learnt        (B, T), True for the tokens of the loss
    """
    now, old = torch.where(learnt, now, 0.0), torch.where(learnt, old, 0.0)
    apart = now - old
    mean = apart.sum(-1, keepdim=True) / learnt.sum(-1, keepdim=True).clamp(min=1)
    ratio = (mean.expand_as(apart) if settings.sequence else apart).exp()
    if settings.kind == "cispo":
        terms = -ratio.clamp(max=settings.high).detach() * coefficients * now
    elif settings.kind == "sapo":
        heat = torch.where(coefficients > 0, settings.above, settings.below)
        terms = -torch.sigmoid(heat * (ratio - 1)) * 4 / heat * coefficients
    else:
        within = ratio.clamp(1 - settings.low, 1 + settings.high)
        free = ratio if settings.largest is None else ratio.clamp(max=settings.largest)
        terms = -torch.min(free * coefficients, within * coefficients)
    if settings.off_policy is not None:
        terms = terms * ((coefficients >= 0) | (-mean.detach() <= settings.off_policy))
    return torch.where(learnt, terms, 0.0), ratio.detach()


def clipped(ratio: Tensor, coefficients: Tensor, learnt: Tensor, settings: LossSettings) -> Tensor:
    """(2,): how many learnt tokens have a ratio beyond the lower and the upper bound, where it takes their gradient."""
    low = (ratio < 1 - settings.low) & (coefficients < 0)
    high = (ratio > (settings.high if settings.kind == "cispo" else 1 + settings.high)) & (coefficients > 0)
    if settings.kind in ("cispo", "sapo"):
        low = torch.zeros_like(low)
    if settings.kind == "sapo":
        high = torch.zeros_like(high)
    return torch.stack([(low & learnt).sum(), (high & learnt).sum()]).float()
