"""The stage of credit: from the returns of a generation's rollouts to the advantage of each turn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from training.rl.config import RlConfig
from training.rl.learning.advantages import (
    RolloutFacts,
    Scale,
    TaskGroup,
    TurnFacts,
    TurnValues,
    gigpo,
    grpo,
    per_turn,
    uncertain_turns,
)
from training.rl.learning.kl import costs_of
from training.rl.learning.turn_records import TurnRecord, by_rollout
from training.rl.rollouts.generation import RolloutGroup
from training.rl.rollouts.screen_states import state_keys
from training.rl.sections import KlConfig

CERTAIN: Final = "not among the turns with the most entropy (entropy_share)"


def credited(records: Sequence[TurnRecord], config: RlConfig) -> list[TurnRecord]:
    """All tokens of a turn have its advantage; the turns that are not uncertain enough are left out."""
    done = list(records)
    made = records[0].made
    for group, rollouts in zip(made.groups, by_rollout(records, made), strict=True):
        facts = _facts(group, rollouts, config.kl)
        values = _advantages(facts, config)
        chosen = uncertain_turns(facts, config.entropy_share) if config.entropy_share < 1.0 else None
        for rollout, turns in enumerate(rollouts):
            for turn, record in enumerate(turns):
                if record.masked is None:
                    gains = (values[rollout][turn],) * record.tokens
                    masked = CERTAIN if chosen is not None and not chosen[rollout][turn] else None
                    done[record.number] = replace(record, gains=gains, masked=masked)
    return done


def _facts(group: RolloutGroup, rollouts: Sequence[Sequence[TurnRecord]], kl: KlConfig | None) -> TaskGroup:
    keys = iter(state_keys([state for played in group.rollouts for state in played.states]))
    found = []
    for played, turns in zip(group.rollouts, rollouts, strict=True):
        facts = [
            TurnFacts(next(keys) if played.states else None, -math.fsum(costs_of(turn, kl)), turn.entropy or 0.0)
            for turn in turns
        ]
        total = math.fsum([played.reward, *(each.reward for each in facts)])
        found.append(RolloutFacts(total, tuple(facts)))
    return TaskGroup(tuple(found))


def _advantages(group: TaskGroup, config: RlConfig) -> TurnValues:
    scale: Scale = "std" if config.scale_rewards == "group" else "none"
    if config.advantage == "per_turn":
        return per_turn(group, config.gamma, scale)
    if config.advantage == "gigpo":
        return gigpo(group, config.gamma, config.step_weight, scale)
    return grpo(group, scale)
