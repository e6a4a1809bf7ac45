"""A warm-up whose first step moves the weights, for trainers that make what a step learns from.

transformers' learning rate is 0 in the first step of a warm-up. Where that step had to be played or sampled first, a
whole generation of it would be thrown away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def from_the_first_step(scheduler: Any, steps: int) -> Any:
    """torch's LambdaLR, before its first step: in step k of the `steps` of a warm-up, counted from 0, the share of the
    learning rate is (k + 1) / (steps + 1) in place of k / steps. A schedule without a warm-up stays as it is."""
    lambdas = [_risen(each, steps) for each in scheduler.lr_lambdas]
    scheduler.lr_lambdas = lambdas
    for group, base, share in zip(scheduler.optimizer.param_groups, scheduler.base_lrs, lambdas, strict=True):
        group["lr"] = base * share(scheduler.last_epoch)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]
    return scheduler


def _risen(share: Callable[[int], float], steps: int) -> Callable[[int], float]:
    if not steps or share(0) != 0.0:
        return share
    return lambda step: (step + 1) / (steps + 1) if step < steps else share(step)
