"""What the rollouts of a generation leave: rollouts, their groups, and what became of those that do not count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from eval.agents.base import History
from eval.desktop import Observation, Task
from eval.episodes import Episode
from training.rl.rollouts.policy import SampledTurn
from training.rl.rollouts.screen_states import ScreenState
from training.rl.rollouts.waiting_times import WaitingTimes


@dataclass(frozen=True)
class AskedTurn:
    """What a turn was asked: the screen, and what came before it."""

    observation: Observation
    history: History


@dataclass(frozen=True)
class PlayedRollout:
    """A rollout that counts. `turns` has one for each step of `episode`, and `states` too, where they are compared.

    parts    what `reward` is the sum of, by name
    version  of the weights that sampled its first turn; None: those of its generation
    asked    for SDPO: what each turn was asked
    end      for SDPO: the last screen
    limited  the limit of steps cut it: neither the model nor the environment had ended it
    replayed a success of before stands in its place: `turns` and `reward` are that one's (`success_replay`)
    """

    number: int  # in its group
    episode: Episode
    turns: tuple[SampledTurn, ...]
    reward: float
    states: tuple[ScreenState, ...] = ()
    asked: tuple[AskedTurn, ...] = ()
    end: Observation | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    version: int | None = None
    limited: bool = False
    replayed: bool = False


@dataclass(frozen=True)
class RolloutGroup:
    """The valid rollouts of one task, two at least. `number`: of the task in its generation."""

    task: Task
    rollouts: tuple[PlayedRollout, ...]
    number: int = 0

    @property
    def signal(self) -> bool:
        """Whether the returns differ, so that advantages are not all 0."""
        return len({each.reward for each in self.rollouts}) > 1


@dataclass
class RolloutGeneration:
    """
    number   counts from 0
    groups   in the order of the tasks
    void     reason -> rollouts that were lost to it
    retried  attempts that failed and were followed by another
    reused   rollouts that an interrupted training had finished
    dropped  ids of tasks whose group had too few rollouts left
    unused   groups that dynamic sampling left out: their rollouts all have the same return
    tasks    all that were tried
    tried    rollouts of them
    lost     the void rollouts: the task's number, the rollout's in its group, the reason
    times    who waited for whom
    """

    number: int
    groups: list[RolloutGroup] = field(default_factory=list)
    void: Counter[str] = field(default_factory=Counter)
    retried: int = 0
    reused: int = 0
    dropped: list[str] = field(default_factory=list)
    unused: list[RolloutGroup] = field(default_factory=list)
    tasks: tuple[Task, ...] = ()
    tried: int = 0
    lost: list[tuple[int, int, str]] = field(default_factory=list)
    times: WaitingTimes = field(default_factory=WaitingTimes)

    @property
    def judged(self) -> list[RolloutGroup]:
        """All groups with valid rollouts, also those that are not trained on, in the order of the tasks."""
        return sorted([*self.groups, *self.unused], key=lambda group: group.number)
