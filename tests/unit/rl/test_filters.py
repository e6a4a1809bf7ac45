"""The filters of the sampling, against transformers' own processors; what is drawn, against what the loss computes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from training.rl.rollouts.filters import SamplingFilters, entropy_of, seen_before
from training.rl.rollouts.policy import PolicyQuestion, _Draws

pytestmark = pytest.mark.ml
WIDTH = 23


def drawn(draw: random.Random) -> SamplingFilters:
    return SamplingFilters(
        temperature=draw.choice([0.5, 1.0, 1.7]),
        top_k=draw.choice([0, 1, 5, 100]),
        top_p=draw.choice([1.0, 0.9, 0.3]),
        min_p=draw.choice([0.0, 0.05, 0.4]),
        penalty=draw.choice([1.0, 1.3, 0.8]),
    )


def by_transformers(filters: SamplingFilters, before: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """(V,) log probabilities, by the processors that `generate` would take, in its order."""
    steps: list[Any] = [RepetitionPenaltyLogitsProcessor(filters.penalty)] if filters.penalty != 1.0 else []
    steps.append(TemperatureLogitsWarper(filters.temperature))
    steps += [TopKLogitsWarper(filters.top_k)] if filters.top_k else []
    steps += [TopPLogitsWarper(filters.top_p)] if filters.top_p < 1.0 else []
    steps += [MinPLogitsWarper(filters.min_p)] if filters.min_p else []
    scores = logits[None].clone()
    for step in steps:
        scores = step(before[None], scores)
    return scores.log_softmax(-1)[0]


def test_what_is_left_is_what_transformers_leave() -> None:
    for number in range(300):
        draw, filters = random.Random(number), drawn(random.Random(number))
        torch.manual_seed(number)
        prompt, answer = torch.randint(WIDTH, (1, draw.randint(1, 6))), torch.randint(WIDTH, (1, draw.randint(1, 6)))
        logits = torch.randn(answer.shape[1], WIDTH) * 2
        seen = seen_before(prompt, torch.ones_like(prompt), answer, WIDTH)[0]
        ours = filters.log_probabilities(logits, seen)
        for place in range(answer.shape[1]):
            theirs = by_transformers(filters, torch.cat([prompt[0], answer[0, :place]]), logits[place])
            torch.testing.assert_close(ours[place], theirs, msg=f"{number} {filters}")


def test_padding_is_not_seen_and_a_token_that_was_drawn_is_kept() -> None:
    prompts, mask = torch.tensor([[7, 7, 2]]), torch.tensor([[0, 0, 1]])
    seen = seen_before(prompts, mask, torch.tensor([[4, 2, 5]]), 9)
    assert [line.nonzero().flatten().tolist() for line in seen[0]] == [[2], [2, 4], [2, 4]]
    filters = SamplingFilters(top_k=1)
    likely = filters.log_probabilities(torch.tensor([[0.0, 2.0, 1.0]]), sampled=torch.tensor([2]))
    assert likely[0].tolist() == pytest.approx([-torch.inf, -0.313262, -1.313262], abs=1e-5)
    assert entropy_of(likely).tolist() == pytest.approx([0.582203], abs=1e-5)
    never = SamplingFilters(top_k=1, never=(1,)).log_probabilities(torch.tensor([0.0, 2.0, 1.0]))
    assert never.tolist() == [-torch.inf, -torch.inf, 0.0]


def test_what_is_drawn_has_the_log_probability_that_the_loss_computes() -> None:
    """Two answers in one batch, the first prompt shorter: padding must not count as seen."""
    for number in range(60):
        filters = drawn(random.Random(number))
        torch.manual_seed(number)
        prompts, mask = torch.randint(WIDTH, (2, 5)), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
        asked = [PolicyQuestion(None, (), seed=f"{number} {row}") for row in range(2)]  # type: ignore[arg-type]
        batch = {"input_ids": prompts, "attention_mask": mask}
        draws = _Draws(batch, [("", []), ("", [])], asked, filters, (), {WIDTH})  # type: ignore[arg-type]
        logits, ids = torch.randn(4, 2, WIDTH) * 2, prompts
        for step in logits:
            ids = torch.cat([ids, draws(ids, step).argmax(-1, keepdim=True)], dim=1)
        for row in range(2):
            draws.took(row, ids[row, 5:].tolist())
            turn = asked[row].turns[0]
            answer = torch.tensor([turn.ids])
            seen = seen_before(prompts[row : row + 1], mask[row : row + 1], answer, WIDTH)[0]
            likely = filters.log_probabilities(logits[:, row], seen, answer[0])
            again = likely.gather(-1, answer[0].unsqueeze(-1)).squeeze(-1)
            assert again.tolist() == pytest.approx(list(turn.logprobs), abs=1e-6)
            assert all(each > -torch.inf for each in turn.logprobs)
            assert turn.cut


def test_a_token_that_newer_weights_leave_out_has_a_gradient() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0]], requires_grad=True)
    likely = SamplingFilters(top_p=0.5).log_probabilities(logits, sampled=torch.tensor([2]))[0, 2]
    likely.backward()
    assert logits.grad is not None
    share = float(torch.tensor([3.0, 1.0]).softmax(-1)[1])
    assert logits.grad[0].tolist() == pytest.approx([0.0, share - 1, 1 - share])
