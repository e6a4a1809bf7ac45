"""What of TRL's arguments the losses of training.rl do not read. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from eval.config import ConfigError

OF_ADVANTAGES: Final = (
    *("delta", "entropy_coef", "entropy_coef_delta", "entropy_coef_max", "entropy_coef_min", "entropy_target"),
    *("off_policy_mask_threshold", "sapo_temperature_neg", "sapo_temperature_pos", "top_entropy_quantile"),
    "use_adaptive_entropy",
)


def check_trl(trl: Mapping[str, Any], *, taught: bool) -> None:
    """Raises ConfigError. `taught`: every turn learns from SDPO's teacher, and none from an advantage."""
    if taught and (unread := [name for name in OF_ADVANTAGES if name in trl]):
        raise ConfigError(
            f"trl.{unread[0]}: does nothing where every turn learns from the teacher; leave it out, or take "
            "sdpo.solved: grpo"
        )
