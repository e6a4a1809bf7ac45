"""The entropy bonus: the loss less a coefficient times the mean entropy of the tokens (TRL's `entropy_coef`).

Where it is adaptive, the coefficient moves once after each optimiser step, by the mean entropy of all tokens of the
step. Source: Skywork-OR1 (arXiv 2505.22312), as TRL has it. TRL's trainer holds the two numbers, because it writes them
into checkpoints and reads them again.
"""

from __future__ import annotations

from typing import Any
from weakref import proxy


class EntropyBonus:
    """`trainer`: a GRPOTrainer, with `entropy_coef` and `_last_world_entropy`."""

    def __init__(self, trainer: Any) -> None:
        self.trainer: Any = proxy(trainer)
        self.args = trainer.args
        self.adaptive = bool(trainer.args.use_adaptive_entropy)

    @property
    def on(self) -> bool:
        """Whether there may be a bonus in some step."""
        return self.adaptive or self.weight != 0.0

    @property
    def weight(self) -> float:
        """The coefficient, whether it is applied now or not."""
        return float(self.trainer.entropy_coef)

    @property
    def coefficient(self) -> float:
        """Of this step: an adaptive one is applied where the entropy of the step before was at the target or below."""
        if self.adaptive and self.trainer._last_world_entropy > self.args.entropy_target:
            return 0.0
        return self.weight

    def follow(self, entropy: float) -> None:
        """After a step, with its mean entropy, nats."""
        if not self.adaptive:
            return
        args = self.args
        if entropy <= args.entropy_target:
            self.trainer.entropy_coef = min(self.weight + args.entropy_coef_delta, args.entropy_coef_max)
        else:
            self.trainer.entropy_coef = max(self.weight - args.entropy_coef_delta, args.entropy_coef_min)
        self.trainer._last_world_entropy = entropy
