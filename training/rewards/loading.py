"""Loads reward functions from a configuration's `rewards` section; checks names, import paths, arguments, weights.

Computes their values for a batch of answers. A fault is a clear error, or the answer is left out.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from eval.config import Config, ConfigError, convert
from eval.config.importing import is_path, load_object
from eval.desktop import Expected, InfraError
from training.rewards.base import RewardFunction, SampledAnswer
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


@dataclass(frozen=True)
class Scores:
    """`rows`: per attempt the value of each reward, or None for an attempt that one of them could not judge.

    `unjudged`: how many attempts each reward could not judge, by its label and the reason.
    """

    rows: list[list[float] | None]
    unjudged: Counter[str] = field(default_factory=Counter)

    @property
    def dropped(self) -> int:
        return sum(row is None for row in self.rows)


def score(rewards: Sequence[Reward], attempts: Sequence[SampledAnswer]) -> Scores:
    """Every reward of every attempt. Raises ConfigError that names the reward and the sample at fault.

    An attempt that lacks a reward of nonzero weight has no sum and is left out. An attempt that lacks only a reward of
    weight 0 stays, with NaN for that reward.
    """
    columns: list[list[float | None]] = []
    unjudged: Counter[str] = Counter()
    for reward in rewards:
        try:
            judged = _call(reward, attempts)
        except InfraError as error:
            unjudged[f"{reward.label}: {type(error).__name__}: {error}"] += len(attempts)
            judged = [None] * len(attempts)
        else:
            if missing := sum(value is None for value in judged):
                unjudged[f"{reward.label}: no judgement"] += missing
        columns.append(judged)
    rows: list[list[float] | None] = []
    for values in zip(*columns, strict=True):
        lost = any(value is None and reward.weight for value, reward in zip(values, rewards, strict=True))
        rows.append(None if lost else [math.nan if value is None else value for value in values])
    return Scores(rows, unjudged)


def _call(reward: Reward, attempts: Sequence[SampledAnswer]) -> list[float | None]:
    try:
        given = list(reward.function(attempts))
    except (InfraError, ConfigError):
        raise
    except Exception as error:
        culprit = _culprit(reward, attempts)
        at = "" if culprit is None else f" at {_named(culprit)}"
        raise ConfigError(f"reward {reward.label}: raised {type(error).__name__}: {error}{at}") from error
    if len(given) != len(attempts):
        raise ConfigError(
            f"reward {reward.label}: gave {len(given)} values for {len(attempts)} attempts, "
            f"{_named(attempts[0])} the first"
        )
    numbers: list[float | None] = []
    for attempt, value in zip(attempts, given, strict=True):
        if value is None:
            numbers.append(None)
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ConfigError(f"reward {reward.label}: gave {value!r} for {_named(attempt)}, no number") from None
        if not math.isfinite(number):
            raise ConfigError(f"reward {reward.label}: gave {number} for {_named(attempt)}")
        numbers.append(number)
    return numbers


def _culprit(reward: Reward, attempts: Sequence[SampledAnswer]) -> SampledAnswer | None:
    """The first attempt for which the function raises when called with it alone."""
    for attempt in attempts:
        try:
            reward.function([attempt])
        except Exception:
            return attempt
    return None


def _named(attempt: SampledAnswer) -> str:
    return f"{attempt.where} (answer {attempt.text[:80]!r})"
