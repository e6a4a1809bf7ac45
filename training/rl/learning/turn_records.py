"""A generation as the list of its turns: the record of each, which the stages of `RolloutTrainer.learn_from` fill in.

A stage takes all records and gives all records, in their order, also those of turns that are not in the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from eval.config import ConfigError
from eval.desktop import InfraError
from training.rl.learning.loss_rows import LossRow, Pictures
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup

UNFIT = "its pictures do not fit its tokens"
CUT = "its answer was cut off (mask_truncated)"


@dataclass(frozen=True, kw_only=True)
class TurnRecord(LossRow):
    """A row of one turn, and where its coefficients come from. Tuples have a number for each token, or none at all.

    made       the generation, where successes have taken their places
    number     of the record in the generation's list
    masked     why the turn is not in the loss; None: it is
    then       log probability by the loss's forward, with the weights that sampled it, nats: what the gate compares;
               empty where it does not
    entropies  at each token before the first step, nats
    gains      the advantage of each token
    weights    of each token, for the correction of what older weights sampled; none: 1
    kept       whether each token's term is in the sum (`top_entropy_quantile`); none: all
    shown      what SDPO's teacher was shown of its rollout
    """

    made: RolloutGeneration = field(compare=False, repr=False)
    number: int = 0
    masked: str | None = None
    then: tuple[float, ...] = ()
    entropies: tuple[float, ...] = ()
    gains: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    kept: tuple[bool, ...] = ()
    shown: Literal["success", "failure"] | None = None

    @property
    def group(self) -> RolloutGroup:
        return self.made.groups[self.at[0]]

    @property
    def played(self) -> PlayedRollout:
        return self.group.rollouts[self.at[1]]

    @property
    def advantage(self) -> float | None:
        """The mean over its tokens; None where it does not learn from one."""
        if self.masked is not None or self.teacher_turn is not None or not self.gains:
            return None
        return math.fsum(self.gains) / len(self.gains)

    @property
    def entropy(self) -> float | None:
        """The mean over its tokens, nats; None where it was not measured."""
        return math.fsum(self.entropies) / len(self.entropies) if self.entropies else None

    def row(self) -> LossRow:
        """What the loss needs of it, and what other processes get."""
        return LossRow(
            self.turn,
            self.at,
            self.where,
            self.teacher_turn,
            self.old,
            self.coefficients,
            self.bonus,
            self.reference,
            self.kl,
        )


def turns_of(made: RolloutGeneration) -> list[TurnRecord]:
    """Every turn of the valid rollouts."""
    found: list[TurnRecord] = []
    for group, each in enumerate(made.groups):
        for rollout, played in enumerate(each.rollouts):
            for turn, sampled in enumerate(played.turns):
                where = f"task {each.task.task_id}, rollout {played.number}, turn {turn}"
                found.append(TurnRecord(sampled, (group, rollout, turn), where, made=made, number=len(found)))
    return found


def learnt(records: Sequence[TurnRecord]) -> list[TurnRecord]:
    """Those that are in the loss."""
    return [record for record in records if record.masked is None]


def without_cut(records: Sequence[TurnRecord]) -> list[TurnRecord]:
    """Leaves out the turns whose answers were cut off. Raises ConfigError where none is left."""
    done = [replace(each, masked=CUT) if each.turn.cut and each.masked is None else each for each in records]
    if not learnt(done):
        raise ConfigError(
            "mask_truncated: every answer of a generation was cut off, and none is left to learn from; allow more "
            "tokens (max_completion), or leave it out"
        )
    return done


def by_rollout(records: Sequence[TurnRecord], made: RolloutGeneration) -> list[list[list[TurnRecord]]]:
    """As [group][rollout][turn]."""
    found: list[list[list[TurnRecord]]] = [[[] for _ in group.rollouts] for group in made.groups]
    for record in records:
        found[record.at[0]][record.at[1]].append(record)
    return found


def fitting(records: Sequence[TurnRecord], pictures: Pictures) -> list[TurnRecord]:
    """Leaves out the turns of which the loss cannot see what the rollout saw. Raises InfraError where none is left."""
    faults = [pictures.fault(record) for record in records]
    told = [fault for fault in faults if fault is not None]
    for fault in told[:3]:
        print(f"generation {records[0].made.number}: left out: {fault}", flush=True)
    if len(told) == len(records):
        raise InfraError(f"not one turn is left: {told[0] if told else 'no rollout had a turn'}")
    return [
        record if fault is None else replace(record, masked=UNFIT)
        for record, fault in zip(records, faults, strict=True)
    ]
