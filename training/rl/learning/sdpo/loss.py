"""The loss of SDPO: the student learns, token by token, what a teacher that knows more would have said.

The student sampled the tokens; the teacher (`sdpo_teacher`) is the student of before with hindsight in its
prompt (`sdpo_prompts`), and reads the same tokens. Source: Reinforcement Learning via Self-Distillation
(arXiv 2601.20802). TRL has the loss too (`trl.experimental.sdpo.loss_utils`), without pictures in its trainer; it is a
second witness in the tests. Ours takes the mass outside the top k from the other logits themselves, so that it stays
exact where the top k hold nearly everything, and tokens that the sampler suppressed (a logit of -inf) are no trouble.
"""

from __future__ import annotations

from typing import Final

import torch

LEAST: Final = -100.0  # a log-probability below is taken as this: e^-100 is 0 in float32
SUPPRESSED: Final = -1e30  # stands for a logit of -inf, whose gradient would be NaN


def divergence(student: torch.Tensor, teacher: torch.Tensor, alpha: float = 0.5, top: int | None = 100) -> torch.Tensor:
    """D(student || teacher) per token, (...,), in nats; no gradient goes to the teacher.

    student, teacher  logits (..., V) at the same places
    alpha  0: forward KL(teacher || student). 1: reverse KL(student || teacher). Between: the generalised
           Jensen-Shannon divergence alpha KL(teacher || m) + (1 - alpha) KL(student || m) of the mixture
           m = alpha teacher + (1 - alpha) student
    top    the student's most likely tokens that are compared one by one; the others are one bucket. None: all
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must be from 0 to 1, not {alpha}")
    places = student.shape[-1] if top is None else top
    mine, other = buckets(student, teacher.detach(), places)
    if alpha == 0:
        return _kl(other, mine)
    if alpha == 1:
        return _kl(mine, other)
    share = torch.tensor(alpha, dtype=mine.dtype, device=mine.device)
    mixture = torch.logaddexp(other + share.log(), mine + (-share).log1p())
    return alpha * _kl(other, mixture) + (1 - alpha) * _kl(mine, mixture)


def buckets(student: torch.Tensor, teacher: torch.Tensor, top: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Both distributions over the student's `top` most likely tokens and a bucket of all others, as log-probabilities
    (..., top + 1) in float32 at least; without the bucket where `top` covers the vocabulary."""
    student, teacher = _finite(student), _finite(teacher)
    if top >= student.shape[-1]:
        return student.log_softmax(-1).clamp(min=LEAST), teacher.log_softmax(-1).clamp(min=LEAST)
    chosen = student.detach().topk(top, dim=-1).indices
    return _bucketed(student, chosen), _bucketed(teacher, chosen)


def _bucketed(logits: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    whole = logits.logsumexp(-1, keepdim=True)
    others = logits.scatter(-1, chosen, SUPPRESSED).logsumexp(-1, keepdim=True)
    return (torch.cat([logits.gather(-1, chosen), others], dim=-1) - whole).clamp(min=LEAST)


def _finite(logits: torch.Tensor) -> torch.Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return wide.clamp(min=SUPPRESSED)


def _kl(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one.exp() * (one - other)).sum(-1)


def importance_weight(logprobs: torch.Tensor, sampled: torch.Tensor, most: float = 2.0) -> torch.Tensor:
    """min(exp(clip(logprobs - sampled, -20, 20)), most) per token, without a gradient.

    logprobs, sampled  of the sampled tokens: by the student now, and when they were sampled
    """
    return (logprobs - sampled).detach().clamp(-20.0, 20.0).exp().clamp(max=most)


def trust_region(start: torch.Tensor, student: torch.Tensor, mix: float) -> torch.Tensor:
    """The logits of a teacher between the model of the start and the student, both with the same hindsight:
    (1 - mix) start + mix student, that is probabilities in proportion to start^(1-mix) student^mix."""
    if not 0 <= mix <= 1:
        raise ValueError(f"mix must be from 0 to 1, not {mix}")
    return torch.lerp(start, student, mix).detach()
