"""Which seeds are training's and which evaluation's, of environments that draw a task from a number."""

from __future__ import annotations

from typing import Final, Literal

from eval.config import ConfigError

Split = Literal["train", "validation", "test"]
SPLIT_SEED: Final = 1_000_000  # seeds below are training's, then come as many of evaluation's, then of validation's


def seeds(split: str, first: int, count: int) -> range:
    """`count` seeds from `first` on. Raises ConfigError where one is of the other split."""
    low = SPLIT_SEED * ("train", "test", "validation").index(split)
    high = low + SPLIT_SEED
    if not low <= first <= high - count:
        raise ConfigError(f"tasks.seed: the {split} split has the seeds {low} to {high - 1}")
    return range(first, first + count)
