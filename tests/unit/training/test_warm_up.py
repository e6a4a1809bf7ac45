"""The first step of a warm-up moves the weights."""

from __future__ import annotations

from typing import Any

import pytest

from training.common.rates import from_the_first_step

pytestmark = pytest.mark.ml


def shares(schedule: str, warmup: int, steps: int) -> list[float]:
    """The learning rate of each step, over the largest, in two parts of the weights with rates of their own."""
    import torch
    from transformers import get_scheduler

    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups: list[dict[str, Any]] = [{"params": [weights[0]]}, {"params": [weights[1]], "lr": 0.5}]
    optimizer = torch.optim.SGD(groups, lr=2.0)
    scheduler = get_scheduler(schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    scheduler = from_the_first_step(from_the_first_step(scheduler, warmup), warmup)  # a second time changes nothing
    found = []
    for _ in range(steps):
        first, second = (group["lr"] for group in optimizer.param_groups)
        assert first == pytest.approx(4 * second)
        assert scheduler.get_last_lr() == [first, second]
        found.append(first / 2.0)
        optimizer.step()
        scheduler.step()
    return found


def test_the_rate_rises_from_the_first_step_and_is_the_schedule_s_afterwards() -> None:
    """transformers' linear schedule falls by (steps - k) / (steps - warmup) after the warm-up."""
    assert shares("linear", 1, 5) == pytest.approx([1 / 2, 1, 3 / 4, 2 / 4, 1 / 4])
    assert shares("linear", 3, 5) == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1, 1 / 2])
    assert shares("constant_with_warmup", 2, 4) == pytest.approx([1 / 3, 2 / 3, 1, 1])
    assert shares("linear", 0, 2) == pytest.approx([1, 1 / 2])
    assert shares("constant", 2, 3) == [1, 1, 1]  # it has no warm-up
