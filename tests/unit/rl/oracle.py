"""The loss of a generation and its gradient, as plain loops over tokens in double precision, from the papers' formulas.

Imports nothing of `training`. GRPO: arXiv 2402.03300, equation 3. DAPO: arXiv 2503.14476, equation 8. Dr. GRPO: arXiv
2503.20783, section 3.2. GSPO: arXiv 2507.18071, equations 5 and 7. CISPO: arXiv 2506.13585, equation 4. SAPO: arXiv
2511.20347. M-GRPO: arXiv 2505.16421. Masking of tokens: arXiv 2506.01939, equation 5; of rows: arXiv 2512.02556,
equation 9. The bound of an unclipped ratio: arXiv 1912.09729. Truncated importance weights: arXiv 1802.01561.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Token:
    """
    logits   of the weights that learn; pick: the sampled one
    old      log probability before the first step; sampled: that of the weights that sampled it
    entropy  before the first step
    reference  log probability by the reference
    """

    logits: list[float]
    pick: int
    old: float
    sampled: float
    entropy: float
    reference: float = 0.0

    @property
    def probabilities(self) -> list[float]:
        most = max(self.logits)
        each = [math.exp(value - most) for value in self.logits]
        return [value / math.fsum(each) for value in each]

    @property
    def now(self) -> float:
        return math.log(self.probabilities[self.pick])


@dataclass
class Turn:
    """`fits`: the loss can see it. `begins`: with rows that are rollouts, it begins a new row."""

    tokens: list[Token]
    fits: bool = True
    begins: bool = False


@dataclass
class Rollout:
    reward: float
    turns: list[Turn]
    valid: bool = True


@dataclass
class Rules:
    """The formulas' settings, by the names of the papers' symbols or of TRL's options."""

    loss: str = "dapo"
    sequence: bool = False
    low: float = 0.2
    high: float = 0.2
    delta: float | None = None
    heat: tuple[float, float] = (1.0, 1.05)
    opsm: float | None = None
    average: str = "tokens"
    longest: int = 1
    whole: bool = False
    deviation: bool = True
    advantage: str = "grpo"
    share: float = 1.0
    quantile: float = 1.0
    cap: float | None = None
    bonus: float = 0.0
    beta: float = 0.0
    estimator: str = "k3"
    in_reward: bool = False


@dataclass
class Found:
    """Of the tokens in their order: each one's part of the loss, and the gradient to its logits; 0 without one."""

    losses: list[float] = field(default_factory=list)
    gradients: list[list[float]] = field(default_factory=list)


def estimated(apart: float, rules: Rules) -> float:
    """Of the divergence from the reference. Schulman, http://joschu.net/blog/kl-approx.html."""
    return apart if rules.estimator == "k1" else math.exp(-apart) - 1 + apart


def returns(rollout: Rollout, rules: Rules) -> list[float]:
    """Of each turn: of the whole rollout, or with per_turn from this turn on."""
    costs = [
        math.fsum(rules.beta * estimated(token.old - token.reference, rules) for token in turn.tokens)
        if turn.fits and rules.in_reward
        else 0.0
        for turn in rollout.turns
    ]
    if rules.advantage == "per_turn":
        return [rollout.reward - math.fsum(costs[at:]) for at in range(len(costs))]
    return [rollout.reward - math.fsum(costs)] * len(costs)


def advantages(group: list[Rollout], rules: Rules) -> list[float]:
    """Of each turn of the valid rollouts."""
    valid = [rollout for rollout in group if rollout.valid]
    each = [returns(rollout, rules) for rollout in valid]
    values = [value for line in each for value in (line if rules.advantage == "per_turn" else line[:1])]
    mean = math.fsum(values) / len(values)
    apart = 0.0
    if len(values) > 1:
        apart = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    out = []
    for line in each:
        out += [(value - mean) / (apart + 1e-4 if rules.deviation else 1.0) for value in line]
    return out


def uncertain(group: list[Rollout], rules: Rules) -> list[bool]:
    """Of each turn of the valid rollouts: whether it is among the share with the highest mean entropy."""
    means = [
        math.fsum(token.entropy for token in turn.tokens) / len(turn.tokens)
        for rollout in group
        if rollout.valid
        for turn in rollout.turns
    ]
    count = max(1, math.ceil(round(rules.share * len(means), 9)))
    least = sorted(means, reverse=True)[count - 1]
    return [mean >= least for mean in means]


@dataclass
class _Place:
    token: Token
    gain: float
    row: tuple[int, int, int]
    weight: float  # of the mean, where that is not over rows or over tokens
    number: int  # of the token


def _places(groups: list[list[Rollout]], rules: Rules) -> Iterator[_Place]:
    """The tokens that are in the loss."""
    used = [sum(rollout.valid for rollout in group) >= 2 for group in groups]
    rollouts = sum(rollout.valid for group, there in zip(groups, used, strict=True) if there for rollout in group)
    number = 0
    for g, group in enumerate(groups):
        gains, chosen = advantages(group, rules) if used[g] else [], uncertain(group, rules) if used[g] else []
        at = 0
        for r, rollout in enumerate(group):
            begun = 0
            for t, turn in enumerate(rollout.turns):
                begun += turn.begins
                learnt = used[g] and rollout.valid and turn.fits and chosen[at]
                for token in turn.tokens:
                    if learnt:
                        weight = 1 / (rollouts * rules.longest)
                        if rules.average == "rollouts":
                            there = sum(each.valid for each in group)
                            weight = 1 / (sum(used) * there * len(rollout.turns) * len(turn.tokens))
                        row = (g, r, begun if rules.whole else t)
                        yield _Place(token, gains[at], row, weight, number)
                    number += 1
                at += used[g] and rollout.valid


def policy_term(ratio: float, gain: float, now: float, rules: Rules) -> tuple[float, float, float]:
    """(term, its derivative by the ratio, its derivative by the log probability beside that)."""
    if rules.loss == "cispo":
        weight = min(ratio, rules.high)  # no gradient
        return -weight * gain * now, 0.0, -weight * gain
    if rules.loss == "sapo":
        heat = rules.heat[0] if gain > 0 else rules.heat[1]
        gate = 1 / (1 + math.exp(-heat * (ratio - 1)))
        return -gate * 4 / heat * gain, -4 * gate * (1 - gate) * gain, 0.0
    free = ratio if rules.delta is None else min(ratio, rules.delta)
    within = min(max(ratio, 1 - rules.low), 1 + rules.high)
    if free * gain <= within * gain:
        return -free * gain, -gain if rules.delta is None or ratio < rules.delta else 0.0, 0.0
    return -within * gain, -gain if 1 - rules.low < ratio < 1 + rules.high else 0.0, 0.0


def generation(groups: list[list[Rollout]], rules: Rules) -> Found:
    """The mean of the generation, token by token."""
    places = list(_places(groups, rules))
    total = sum(len(turn.tokens) for group in groups for rollout in group for turn in rollout.turns)
    width = len(groups[0][0].turns[0].tokens[0].logits)
    out = Found([0.0] * total, [[0.0] * width for _ in range(total)])
    if not places:
        return out
    rows: dict[tuple[int, int, int], list[_Place]] = {}
    for place in places:
        rows.setdefault(place.row, []).append(place)
    least = -1.0
    if rules.quantile < 1.0:
        least = float(np.quantile([place.token.entropy for place in places], 1 - rules.quantile))
    kept = [place for place in places if place.token.entropy >= least]
    slopes = [0.0] * total
    for row in rows.values():
        apart = [place.token.now - place.token.old for place in row]
        mean = math.fsum(apart) / len(apart)
        for place, log_ratio in zip(row, apart, strict=True):
            token = place.token
            ratio = math.exp(mean if rules.sequence else log_ratio)
            term, by_ratio, beside = policy_term(ratio, place.gain, token.now, rules)
            weight = 1 / len(places)
            if rules.average != "tokens":
                weight = place.weight
            elif rules.loss in ("grpo", "sapo"):
                weight = 1 / (len(rows) * len(row))
            if not rules.in_reward:
                apart_now = token.now - token.reference
                out.losses[place.number] += weight * rules.beta * estimated(apart_now, rules)
                slope = 1.0 if rules.estimator == "k1" else 1.0 - math.exp(-apart_now)
                slopes[place.number] += weight * rules.beta * slope
            if rules.cap is not None:
                weight *= min(math.exp(token.old - token.sampled), rules.cap)
            if rules.opsm is not None and place.gain < 0 and -mean > rules.opsm:
                weight = 0.0
            if token.entropy < least:
                weight = 0.0
            out.losses[place.number] += weight * term
            slopes[place.number] += weight * beside
            if rules.sequence:
                for other in row:
                    slopes[other.number] += weight * by_ratio * ratio / len(row)
            else:
                slopes[place.number] += weight * by_ratio * ratio
    for place in places:
        for at, share in enumerate(place.token.probabilities):
            out.gradients[place.number][at] += slopes[place.number] * ((at == place.token.pick) - share)
    for place in kept:
        shares = place.token.probabilities
        entropy = -math.fsum(share * math.log(share) for share in shares)
        out.losses[place.number] -= rules.bonus * entropy / len(kept)
        for at, share in enumerate(shares):
            out.gradients[place.number][at] += rules.bonus / len(kept) * share * (math.log(share) + entropy)
    return out
