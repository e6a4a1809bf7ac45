"""Sections of the configuration of training.rl that say how a policy is held and sampled. Imports no torch."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from eval.config import Config

Estimator = Literal["k1", "k3"]


class KlConfig(Config, frozen=True, kw_only=True):
    """
    coefficient  what the divergence from the reference is multiplied by (TRL's `beta`)
    estimator    of it at each sampled token, where d is its log probability less that by the reference: k1, d; k3,
                 exp(-d) + d - 1, which is never below 0
    place        loss: a term of each token, in the mean that `average` and `loss` say; reward: taken off the return,
                 at each of the rollout's sampled tokens, by the weights from before the first step
    """

    coefficient: Annotated[float, msgspec.Meta(gt=0)]
    estimator: Estimator = "k3"
    place: Literal["loss", "reward"] = "loss"
