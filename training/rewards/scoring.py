"""Computes the rewards of a batch of attempts; a fault is either a clear error, or an attempt that is left out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from eval.config import ConfigError
from eval.desktop import InfraError
from training.rewards.base import SampledAnswer
from training.rewards.loading import Reward


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
