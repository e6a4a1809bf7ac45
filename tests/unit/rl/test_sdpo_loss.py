"""SDPO's loss against TRL's functions and sums over whole distributions, 1,000 random cases each, and by hand."""

from __future__ import annotations

import importlib
import math
import warnings

import numpy as np
import pytest
import torch

from training.rl.learning.sdpo.loss import divergence, importance_weight, trust_region

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # that it is experimental
    trl = importlib.import_module("trl.experimental.sdpo.loss_utils")

pytestmark = pytest.mark.ml
CASES = 1_000


def logits(seed: int) -> tuple[torch.Tensor, torch.Tensor, float, int]:
    """(student, teacher, alpha, k): from nearly uniform to nearly certain distributions."""
    draw = torch.Generator().manual_seed(seed)
    size = int(torch.randint(3, 40, (), generator=draw))
    spread = float(torch.rand((), generator=draw)) * 8
    student = torch.randn(2, 3, size, generator=draw, dtype=torch.float64) * spread
    teacher = torch.randn(2, 3, size, generator=draw, dtype=torch.float64) * spread
    alpha = (0.0, 0.5, 1.0, 0.3)[seed % 4]
    return student, teacher, alpha, int(torch.randint(1, size + 1, (), generator=draw))


def collapsed(row: np.ndarray, chosen: list[int]) -> list[float]:
    """Probabilities of the chosen tokens and of all others together, each term by itself."""
    total = math.fsum(math.exp(value - row.max()) for value in row)
    probabilities = [math.exp(value - row.max()) / total for value in row]
    rest = math.fsum(p for token, p in enumerate(probabilities) if token not in chosen)
    return [probabilities[token] for token in chosen] + ([rest] if len(chosen) < len(row) else [])


def kl(one: list[float], other: list[float]) -> float:
    return math.fsum(p * math.log(p / q) for p, q in zip(one, other, strict=True) if p > 0)


def test_divergence_is_the_sum_over_the_buckets() -> None:
    for seed in range(CASES):
        student, teacher, alpha, k = logits(seed)
        got = divergence(student, teacher, alpha, k)
        assert got.shape == (2, 3)
        row, column = seed % 2, seed % 3
        s, t = student[row, column].numpy(), teacher[row, column].numpy()
        chosen = sorted(range(len(s)), key=lambda token: -s[token])[:k]
        p, q = collapsed(s, chosen), collapsed(t, chosen)
        mixture = [alpha * b + (1 - alpha) * a for a, b in zip(p, q, strict=True)]
        wanted = {0.0: kl(q, p), 1.0: kl(p, q)}.get(alpha, alpha * kl(q, mixture) + (1 - alpha) * kl(p, mixture))
        assert float(got[row, column]) == pytest.approx(wanted, rel=1e-7, abs=1e-9), seed


def test_divergence_is_trl_s() -> None:
    """Where the tail is not so small that TRL's 1 - sum loses it: it clamps the sum at 1 - 1e-7."""
    compared = 0
    for seed in range(CASES):
        student, teacher, alpha, k = logits(seed)
        if k == student.shape[-1]:
            theirs = trl.compute_full_logit_self_distillation_loss(student, teacher, distillation_alpha=alpha)
        else:
            tails = [
                1 - values.softmax(-1).gather(-1, student.topk(k).indices).sum(-1) for values in (student, teacher)
            ]
            if float(torch.stack(tails).min()) < 1e-4:
                continue
            theirs = trl.compute_topk_self_distillation_loss(
                student, teacher, distillation_topk=k, distillation_alpha=alpha, distillation_add_tail=True
            )
        torch.testing.assert_close(divergence(student, teacher, alpha, k), theirs, rtol=1e-6, atol=1e-8)
        compared += 1
    assert compared > CASES // 2


def test_the_gradient_is_the_definition_s_and_only_the_student_s() -> None:
    """The gradient of reverse KL over all tokens: p_i (log p_i - log q_i - KL)."""
    for seed in range(100):
        student, teacher, _, _ = logits(seed)
        student.requires_grad_()
        teacher.requires_grad_()
        divergence(student, teacher, 1.0, None).sum().backward()
        p, q = student.detach().log_softmax(-1), teacher.detach().log_softmax(-1)
        value = (p.exp() * (p - q)).sum(-1, keepdim=True)
        torch.testing.assert_close(student.grad, p.exp() * (p - q - value), rtol=1e-6, atol=1e-9)
        assert teacher.grad is None


def test_divergence_by_hand() -> None:
    """Student 1/2, 1/4, 1/4, teacher 1/4, 1/2, 1/4; the top one and the rest: (1/2, 1/2) and (1/4, 3/4).

    Forward: 1/4 ln(1/2) + 3/4 ln(3/2) = -.17329 + .30410 = .13081. Reverse: 1/2 ln 2 + 1/2 ln(2/3) = .34657 - .20273
    = .14384. Half: m = (3/8, 5/8); 1/2 (1/4 ln(2/3) + 3/4 ln(6/5)) + 1/2 (1/2 ln(4/3) + 1/2 ln(4/5))
    = 1/2 (-.10137 + .13674) + 1/2 (.14384 - .11157) = .03382.
    """
    student, teacher = torch.tensor([0.5, 0.25, 0.25]).log(), torch.tensor([0.25, 0.5, 0.25]).log()
    got = [float(divergence(student, teacher, alpha, 1)) for alpha in (0.0, 1.0, 0.5)]
    assert got == pytest.approx([0.13081, 0.14384, 0.03382], abs=1e-5)
    assert float(divergence(student, student, 0.5, 1)) == 0.0


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_certain_and_suppressed_tokens_give_numbers(alpha: float, dtype: torch.dtype) -> None:
    """One token has all the mass, and the sampler forbade others by -inf, as it does with <|image_pad|>."""
    certain = torch.tensor([200.0, 0.0, 1.0, -torch.inf, 2.0], dtype=dtype)
    flat = torch.tensor([0.0, 0.0, 0.0, -torch.inf, -torch.inf], dtype=dtype)
    for student, teacher in ((certain, flat), (flat, certain), (certain, certain)):
        for k in (1, 3, 5):
            leaf = student.clone().requires_grad_()
            value = divergence(leaf, teacher, alpha, k)
            value.backward()
            assert value.isfinite()
            assert leaf.grad is not None
            assert leaf.grad.isfinite().all()
    with pytest.raises(ValueError, match="alpha"):
        divergence(certain, flat, 1.5)


def test_importance_weight_is_trl_s_and_capped() -> None:
    draw = torch.Generator().manual_seed(3)
    for _ in range(CASES):
        now, then = (torch.randn(2, 5, generator=draw) * 15 for _ in range(2))
        ours = importance_weight(now, then)
        torch.testing.assert_close(
            ours, trl.apply_importance_sampling_clipping(torch.ones(2, 5), now, then, clip_coeff=2.0)
        )
        for got, a, b in zip(ours.flatten().tolist(), now.flatten().tolist(), then.flatten().tolist(), strict=True):
            assert got == pytest.approx(min(math.exp(max(-20.0, min(20.0, a - b))), 2.0), rel=1e-4)
    assert importance_weight(torch.tensor([1e9]), torch.tensor([0.0])).item() == 2.0  # not inf


def test_a_trust_region_is_a_geometric_mean() -> None:
    for seed in range(CASES):
        start, student, _, _ = logits(seed)
        mix = (seed % 11) / 10
        mixed = start.softmax(-1) ** (1 - mix) * student.softmax(-1) ** mix
        torch.testing.assert_close(
            trust_region(start, student, mix).softmax(-1), mixed / mixed.sum(-1, keepdim=True), rtol=1e-6, atol=1e-12
        )
