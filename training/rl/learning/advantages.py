"""Advantages of a group of rollouts: pure functions over plain data.

A group is several rollouts of one task. Every function gives a number for each turn, as [rollout][turn]; all sampled
tokens of a turn share it. A voided rollout (the desktop failed, or nothing could judge it) enters no mean, no deviation
and no divisor, and each of its turns gets 0.

docs/explanation/algorithms.md has the definitions and where they come from.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

TurnValues = list[list[float]]  # [rollout][turn]
Scale = Literal["std", "none"]
EPSILON: Final = 1e-4  # beside a standard deviation; TRL's number


@dataclass(frozen=True)
class TurnFacts:
    """One answer of the model.

    anchor   the key of the state in which the turn began (`rollouts.screen_states`); None: compared with no other turn
    reward   that came right after this turn, a part of the rollout's `total`
    entropy  mean entropy of the policy over the turn's tokens, in nats; None where it was not measured
    """

    anchor: str | None = None
    reward: float = 0.0
    entropy: float | None = None


@dataclass(frozen=True)
class RolloutFacts:
    """One rollout. `total`: its undiscounted return; what the turns' rewards do not hold of it came after the last.

    valid  False for a voided rollout; its `total` is never read
    """

    total: float
    turns: tuple[TurnFacts, ...]
    valid: bool = True

    def __post_init__(self) -> None:
        if self.valid and not all(map(math.isfinite, (self.total, *(turn.reward for turn in self.turns)))):
            raise ValueError(f"a valid rollout has the return {self.total}: one that nothing could judge is voided")

    def to_go(self, gamma: float) -> list[float]:
        """The discounted return from each turn on: the sum over k >= t of gamma^(k-t) r_k."""
        rewards = [turn.reward for turn in self.turns]
        if rewards:
            rewards[-1] += self.total - math.fsum(rewards)
        out, after = [0.0] * len(rewards), 0.0
        for index in range(len(rewards) - 1, -1, -1):
            out[index] = after = rewards[index] + gamma * after
        return out


@dataclass(frozen=True)
class TaskGroup:
    """The rollouts of one task that are compared with each other."""

    rollouts: tuple[RolloutFacts, ...]

    @property
    def valid(self) -> list[RolloutFacts]:
        return [rollout for rollout in self.rollouts if rollout.valid]

    def each(self, values: Callable[[int, RolloutFacts], Sequence[float]]) -> TurnValues:
        """`values` of each valid rollout, given with its index; zeros for the turns of a voided one."""
        return [
            list(values(index, rollout)) if rollout.valid else [0.0] * len(rollout.turns)
            for index, rollout in enumerate(self.rollouts)
        ]


def standardised(values: Sequence[float], scale: Scale = "std") -> list[float]:
    """(x - mean) / (std + EPSILON) with the sample's deviation (n - 1), as TRL; `none`: x - mean.

    Fewer than two values, or equal ones, give exactly 0.
    """
    if len(values) < 2 or min(values) == max(values):
        return [0.0] * len(values)
    mean = math.fsum(values) / len(values)
    apart = [value - mean for value in values]
    if scale == "none":
        return apart
    deviation = math.sqrt(math.fsum(value * value for value in apart) / (len(values) - 1))
    return [value / (deviation + EPSILON) for value in apart]


def grpo(group: TaskGroup, scale: Scale = "std") -> TurnValues:
    """The same number for all turns of a rollout: its return, standardised in the group.

    Source: DeepSeekMath (arXiv 2402.03300). Dr. GRPO (arXiv 2503.20783) is `scale` none.
    """
    numbers = iter(standardised([rollout.total for rollout in group.valid], scale))
    return group.each(lambda _, rollout: [next(numbers)] * len(rollout.turns))


def per_turn(group: TaskGroup, gamma: float = 1.0, scale: Scale = "std") -> TurnValues:
    """Each turn's discounted return from there on, standardised over all turns of the group.

    A long rollout weighs more in the mean, as it has more turns. Source: the step-level GRPO of ComputerRL (arXiv
    2508.14040), where the return is the outcome at every turn, which `gamma` 1 gives.
    """
    numbers = iter(standardised([value for rollout in group.valid for value in rollout.to_go(gamma)], scale))
    return group.each(lambda _, rollout: [next(numbers) for _ in rollout.turns])


def gigpo(group: TaskGroup, gamma: float = 0.95, weight: float = 1.0, scale: Scale = "std") -> TurnValues:
    """A = A_episode + weight * A_step.

    A_episode is `grpo`'s number. A_step standardises the discounted returns from each turn on among all turns of the
    group that began in the same anchor state; a turn that shares its state with no other has A_step 0.
    Source: GiGPO (arXiv 2505.10978).
    """
    there: dict[str, list[tuple[int, int]]] = defaultdict(list)
    returns: list[list[float]] = []
    for index, rollout in enumerate(group.rollouts):
        returns.append(rollout.to_go(gamma) if rollout.valid else [])
        for number, turn in enumerate(rollout.turns if rollout.valid else ()):
            if turn.anchor is not None:
                there[turn.anchor].append((index, number))
    values = grpo(group, scale)
    for places in there.values():
        steps = standardised([returns[index][number] for index, number in places], scale)
        for (index, number), step in zip(places, steps, strict=True):
            values[index][number] += weight * step
    return values


def uncertain_turns(group: TaskGroup, share: float = 0.8) -> list[list[bool]]:
    """Which turns are trained on: the `share` of the group's turns with the highest mean entropy, at least one, and
    whatever is equal to the last of them. As [rollout][turn].

    Source: DART-GUI (arXiv 2509.23866), which takes .8. Raises ValueError for a turn without an entropy.
    """
    measured = [turn.entropy for rollout in group.valid for turn in rollout.turns]
    known = sorted((entropy for entropy in measured if entropy is not None), reverse=True)
    if len(known) < len(measured):
        raise ValueError(f"{len(measured) - len(known)} of {len(measured)} turns have no entropy")
    # without the rounding, .8 of 5 turns is 4.000000000000001, so 5
    least = known[max(1, math.ceil(round(share * len(known), 9))) - 1] if known else 0.0
    chosen = group.each(lambda _, rollout: [float((turn.entropy or 0.0) >= least) for turn in rollout.turns])
    return [[bool(value) for value in values] for values in chosen]


def gae(
    rewards: Sequence[float], values: Sequence[float], gamma: float = 1.0, lam: float = 1.0, last: float = 0.0
) -> list[float]:
    """Generalised advantage estimates of one episode.

    values  the critic's value of the state before each entry
    last    and of the state after all of them: 0 where the episode ended there

    Sources: Schulman et al. (arXiv 1506.02438); of `last`, Pardo et al. (arXiv 1712.00378).
    """
    out, after, following = [0.0] * len(rewards), 0.0, last
    for index in range(len(rewards) - 1, -1, -1):
        surprise = rewards[index] + gamma * following - values[index]
        out[index] = after = surprise + gamma * lam * after
        following = values[index]
    return out


def adaptive_lambda(length: int, alpha: float = 0.05) -> float:
    """VAPO's lambda of the policy for a sequence of `length` tokens: 1 - 1 / (alpha * length), and never below 0, where
    the formula goes for fewer than 1 / alpha tokens. Source: VAPO (arXiv 2504.05118)."""
    return max(0.0, 1.0 - 1.0 / (alpha * length)) if length else 0.0


def decoupled_gae(
    rewards: Sequence[float],
    values: Sequence[float],
    *,
    gamma: float = 1.0,
    critic: float = 1.0,
    policy: float | None = None,
    alpha: float = 0.05,
    last: float = 0.0,
) -> tuple[list[float], list[float]]:
    """(advantages of the policy, targets of the critic) for the sampled tokens of one rollout, all turns in a row.

    critic  lambda of the targets, which are the values plus their own advantages: with 1 the returns themselves
    policy  lambda of the advantages; None: `adaptive_lambda` of the rollout's length with `alpha`
    last    the critic's value after all tokens

    Source: VC-PPO (arXiv 2503.01491), decoupled GAE; VAPO (arXiv 2504.05118), its length-adaptive form.
    """
    lam = adaptive_lambda(len(rewards), alpha) if policy is None else policy
    targets = [value + gain for value, gain in zip(values, gae(rewards, values, gamma, critic, last), strict=True)]
    return gae(rewards, values, gamma, lam, last), targets
