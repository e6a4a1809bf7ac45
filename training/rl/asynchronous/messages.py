"""What the training and the worker that plays its rollouts send each other."""

from __future__ import annotations

from dataclasses import dataclass

from eval.desktop import Task
from training.rl.rollouts.generation import PlayedRollout


@dataclass(frozen=True)
class RolloutOrder:
    """One rollout to be played. `seed`: of its random numbers; `turns`: at most so many, None: as the limits say."""

    group: int
    member: int
    task: Task
    seed: str
    turns: int | None = None


@dataclass(frozen=True)
class NewWeights:
    """The weights after `version` updates lie in `file`."""

    version: int
    file: str


@dataclass(frozen=True)
class GroupsWithdrawn:
    """Nothing of these groups is wanted any more; what runs of them is broken off."""

    groups: tuple[int, ...]


@dataclass(frozen=True)
class RolloutBegan:
    """`version`: of the weights that answer now."""

    group: int
    member: int
    version: int


@dataclass(frozen=True)
class RolloutEnded:
    """What came of an order: a rollout, or why it is void. `retried`: attempts that failed before."""

    group: int
    member: int
    result: PlayedRollout | str
    retried: int = 0


@dataclass(frozen=True)
class WorkerFailed:
    """The worker itself cannot go on. `wrong`: no retry helps."""

    error: str
    wrong: bool
