"""The rewards of a GRPO training's last generations, for its summary."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from training.rewards import SampledAnswer

RECENT: Final = 10  # generations whose rewards are in the summary


@dataclass
class RewardTally:
    """Rewards for the summary.

    groups   for each recent generation, its groups: the number of the prompt, and each reward's mean over the answers
    """

    groups: deque[list[tuple[int, list[float]]]] = field(default_factory=lambda: deque(maxlen=RECENT))
    dropped: int = 0
    unjudged: Counter[str] = field(default_factory=Counter)
    attempts: list[tuple[int, SampledAnswer]] = field(
        default_factory=list
    )  # of the last generation; its prompts' numbers
