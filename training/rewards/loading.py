"""Loads reward functions from a configuration's `rewards` section; checks names, import paths, arguments, weights."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from eval.config import Config, ConfigError, convert
from eval.config.importing import is_path, load_object
from eval.desktop import Expected
from training.rewards.base import RewardFunction
from training.rewards.builtin import BUILTINS, Builtin


class RewardSpec(Config, frozen=True):
    """
    name    one of training.rewards.builtin.BUILTINS, or a function of your own as `package.module:function`
    weight  of this reward in the sum; 0 only writes it to the metrics
    args    of the function
    label   its name in metrics, where two would have the same
    """

    name: str
    weight: float = 1.0
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    label: str | None = None


@dataclass(frozen=True)
class Reward:
    """A reward function ready to be called. `label` is unique among those of a training."""

    label: str
    weight: float
    function: RewardFunction

    def missing(self, expected: Expected | None) -> str | None:
        """What a prompt with this expectation lacks to be judged, or None."""
        return self.function.missing(expected) if isinstance(self.function, Builtin) else None


def load(specs: Sequence[RewardSpec]) -> list[Reward]:
    """The rewards of a configuration. Raises ConfigError that names the entry and the field."""
    if not specs:
        raise ConfigError("rewards: name one at least")
    rewards: list[Reward] = []
    for number, spec in enumerate(specs):
        where = f"rewards[{number}] ({spec.name})"
        label = spec.label or spec.name.rpartition(":")[2]
        if any(reward.label == label for reward in rewards):
            raise ConfigError(f"{where}: two rewards are called {label}; give one of them another label")
        if not abs(spec.weight) < float("inf"):
            raise ConfigError(f"{where}: weight must be finite, not {spec.weight}")
        rewards.append(Reward(label, spec.weight, _own(spec, where) if is_path(spec.name) else _builtin(spec, where)))
    if not any(reward.weight for reward in rewards):
        raise ConfigError("rewards: all weights are 0, so nothing would be learnt")
    return rewards


def _builtin(spec: RewardSpec, where: str) -> RewardFunction:
    kind = BUILTINS.get(spec.name)
    if kind is None:
        raise ConfigError(f"{where}: unknown; allowed: {', '.join(BUILTINS)}, or package.module:function")
    reward = convert(spec.args, kind, f"{where}: args")
    try:
        reward.check()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return reward


def _own(spec: RewardSpec, where: str) -> RewardFunction:
    name = spec.name.partition(":")[2]
    function = load_object(spec.name, where)
    if not callable(function):
        raise ConfigError(f"{where}: {name} is a {type(function).__name__}; needed: a function")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{where}: must be a plain function, not async")
    try:
        inspect.signature(function).bind([], **spec.args)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{where}: cannot be called as {name}(attempts{''.join(f', {key}=...' for key in spec.args)}): {error}"
        ) from None
    return partial(function, **spec.args)
