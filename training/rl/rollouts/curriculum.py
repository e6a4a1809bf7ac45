"""Which tasks are tried next, how often and how long; what stands in where every rollout of a group failed.

Everything here is bookkeeping over plain data: it draws from its seed and its own state only, so that a training that
goes on from a checkpoint draws exactly what it would have drawn. `state` is plain JSON.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from eval.config import ConfigError, ResumeError

LEAST_WEIGHT: Final = 0.05  # of a task that has taught nothing for long: it is still drawn now and then
RECENT: Final = 16  # rollouts that a success rate is estimated from, the latest ones
G = TypeVar("G")


class TaskProgress(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is known of a task.

    alike    groups in a row that were all solved or all failed
    recent   outcomes of the latest valid rollouts, the newest last
    longest  turns of the longest success, 0 before the first
    """

    alike: Annotated[int, msgspec.Meta(ge=0)] = 0
    recent: list[bool] = []
    longest: Annotated[int, msgspec.Meta(ge=0)] = 0


@dataclass(frozen=True)
class TaskEffort:
    """How much is spent on a task. `turns`: of a rollout at most; None: as the limits say."""

    rollouts: int
    turns: int | None = None


class _State(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    draws: int
    tasks: dict[str, TaskProgress]


class Curriculum:
    """Draws tasks, by their names.

    A task's weight is 1, and halves with each group in a row that was all solved or all failed, down to `least`; a
    mixed group makes it 1 again. So what is too hard now comes back when the model may be better, and what is solved
    is checked now and then.
    """

    def __init__(self, tasks: Iterable[str], seed: int = 0, least: float = LEAST_WEIGHT) -> None:
        self.tasks = {task: TaskProgress() for task in tasks}
        if not self.tasks:
            raise ConfigError("curriculum: there are no tasks")
        if not 0 < least <= 1:
            raise ConfigError(f"curriculum.least: {least} is not above 0 and at most 1")
        self.seed = seed
        self.least = least
        self.draws = 0

    def weight(self, task: str) -> float:
        return max(self.least, 0.5 ** self.tasks[task].alike)

    def draw(self, count: int) -> list[str]:
        """The next tasks. None comes twice before each came once, where there are enough of them.

        Weighted sampling without replacement by the keys u^(1/weight) (Efraimidis and Spirakis 2006).
        """
        out: list[str] = []
        while len(out) < count:
            chance = random.Random(f"curriculum {self.seed} {self.draws}")
            self.draws += 1
            keys = {task: math.log(1.0 - chance.random()) / self.weight(task) for task in self.tasks}
            out += sorted(self.tasks, key=lambda task: -keys[task])[: count - len(out)]
        return out

    def join(self, task: str, like: str) -> None:
        """A new task, of which nothing is known but how one of the same template went."""
        known = self.tasks[like]
        self.tasks[task] = TaskProgress(recent=known.recent, longest=known.longest)

    def leave(self, task: str) -> None:
        del self.tasks[task]

    def note(self, task: str, outcomes: Sequence[bool | None], turns: Sequence[int] = ()) -> None:
        """Tells what a group of rollouts came to. None: voided, which says nothing of the task.

        turns  how many each rollout took
        """
        progress = self.tasks[task]
        known = [outcome for outcome in outcomes if outcome is not None]
        progress.recent = [*progress.recent, *known][-RECENT:]
        solved = [length for outcome, length in zip(outcomes, turns, strict=False) if outcome]
        progress.longest = max([progress.longest, *solved])
        if len(known) > 1:
            progress.alike = 0 if len(set(known)) > 1 else progress.alike + 1

    def success_rate(self, task: str) -> float:
        """Estimated from the latest rollouts: (solved + 1) / (tried + 2), so 1/2 before the first."""
        recent = self.tasks[task].recent
        return (sum(recent) + 1) / (len(recent) + 2)

    def rollouts(self, task: str, least: int, most: int, chance: float = 0.9) -> int:
        """How many rollouts the next group should have: the fewest, from `least` to `most`, of which some succeed and
        some fail with a probability of `chance`, that is 1 - p^n - (1 - p)^n for the success rate p."""
        rate = self.success_rate(task)
        return next((n for n in range(least, most) if 1 - rate**n - (1 - rate) ** n >= chance), most)

    def turns(self, task: str, most: int, slack: float = 1.5) -> int:
        """How many turns a rollout may take: `slack` times the longest success, at most `most`; before one `most`.

        Source: the idea of DART-GUI (arXiv 2509.23866), whose lengths follow the successes of each task.
        """
        longest = self.tasks[task].longest
        return min(most, math.ceil(longest * slack)) if longest else most

    def state(self) -> dict[str, Any]:
        plain: dict[str, Any] = msgspec.to_builtins(_State(draws=self.draws, tasks=self.tasks))
        return plain

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state. Raises ConfigError for that of other tasks."""
        try:
            saved = msgspec.convert(state, _State)
        except msgspec.ValidationError as error:
            raise ResumeError(f"resume: the curriculum's state: {error}") from None
        if saved.tasks.keys() != self.tasks.keys():
            odd = sorted(saved.tasks.keys() ^ self.tasks.keys())
            raise ResumeError(f"resume: the curriculum's state is of other tasks: {', '.join(odd[:5])}")
        self.draws = saved.draws
        self.tasks = {task: saved.tasks[task] for task in self.tasks}


class StoredSuccess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rollout that succeeded. `rollout`: the name under which its tokens and pictures are kept."""

    rollout: str
    generation: int


class SuccessPool:
    """ARPO's replay: where every rollout of a group failed, one stored success of that task takes a failure's place.

    max_age  generations after which a success is too far from the present policy to be replayed
    keep     successes per task, the newest ones

    Source: ARPO (arXiv 2505.16282).
    """

    def __init__(self, max_age: int = 50, keep: int = 4) -> None:
        self.max_age = max_age
        self.keep = keep
        self.stored: dict[str, list[StoredSuccess]] = {}

    def add(self, task: str, rollout: str, generation: int) -> None:
        known = [*self.stored.get(task, []), StoredSuccess(rollout=rollout, generation=generation)]
        self.stored[task] = known[-self.keep :]

    def replay(self, task: str, outcomes: Sequence[bool | None], generation: int) -> tuple[int, StoredSuccess] | None:
        """(index of the failed rollout whose place it takes, the newest success); None where some rollout succeeded,
        fewer than two were valid, or nothing young enough is stored."""
        valid = [index for index, outcome in enumerate(outcomes) if outcome is not None]
        if len(valid) < 2 or any(outcomes):
            return None
        young = [one for one in self.stored.get(task, []) if 0 <= generation - one.generation <= self.max_age]
        return (valid[-1], young[-1]) if young else None

    def in_use(self) -> set[str]:
        """The rollouts that must be kept."""
        return {one.rollout for stored in self.stored.values() for one in stored}


@dataclass
class DynamicBatch(Generic[G]):
    """DAPO's dynamic sampling: groups are drawn until `wanted` of them have a signal, but at most `most`.

    Ask `missing` how many groups to try next, try them, `add` them, and again, until it says 0. What did not fit and
    what had no signal is in `dropped`. Source: DAPO (arXiv 2503.14476), which has no bound.
    """

    wanted: int
    most: int

    def __post_init__(self) -> None:
        if not 0 < self.wanted <= self.most:
            raise ConfigError(f"dynamic sampling: at most {self.most} groups are tried, which is below {self.wanted}")
        self.kept: list[G] = []
        self.dropped: list[G] = []

    @property
    def tried(self) -> int:
        return len(self.kept) + len(self.dropped)

    def missing(self) -> int:
        return max(0, min(self.wanted - len(self.kept), self.most - self.tried))

    def add(self, group: G, signal: bool) -> None:
        """A group, and whether it has a signal (`training.rl.rollouts.play.RolloutGroup.signal`)."""
        (self.kept if signal and len(self.kept) < self.wanted else self.dropped).append(group)
