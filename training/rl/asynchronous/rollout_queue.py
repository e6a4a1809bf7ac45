"""The queue of asynchronous rollouts: which are ordered, and what becomes of each.

A rollout is the unit of scheduling. Each one that is ordered ends once: it counts in its group, it is void, or it is
thrown away with its group. Pure bookkeeping: no clock, no process, no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eval.desktop import Task
from training.rl.asynchronous.messages import RolloutBegan, RolloutEnded, RolloutOrder
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.generation import PlayedRollout, RolloutGeneration, RolloutGroup
from training.rl.rollouts.play import LEAST


@dataclass
class _OpenGroup:
    number: int
    task: Task
    orders: list[RolloutOrder]
    results: dict[int, PlayedRollout | str] = field(default_factory=dict)
    oldest: int | None = None  # version with which its first rollout began
    retried: int = 0


@dataclass
class RolloutTally:
    """What became of all rollouts that were ordered: their sum is `ordered` when nothing is open.

    used     they came into an update, void ones among them
    aged     thrown away with their group, which was too old
    left     thrown away at the end
    again    times that a rollout was ordered once more, because its worker had died
    strange  answers that were waited for no more: of a group that is withdrawn, or for the second time
    """

    ordered: int = 0
    used: int = 0
    aged: int = 0
    left: int = 0
    again: int = 0
    strange: int = 0


class RolloutQueue:
    """Groups of rollouts from the order to the update. `staleness`: updates that may lie between the weights with which
    a group began and those that learn from it."""

    def __init__(self, staleness: int, seed: str) -> None:
        self.staleness = staleness
        self.seed = seed
        self.open: dict[int, _OpenGroup] = {}  # in the order in which they were ordered
        self.done: list[_OpenGroup] = []  # complete, in the order in which they were completed
        self.next = 0
        self.tally = RolloutTally()

    @property
    def there(self) -> int:
        """Groups that are ordered or complete, and not used yet."""
        return len(self.open) + len(self.done)

    @property
    def tasks(self) -> list[Task]:
        """The tasks of those groups."""
        return [group.task for group in (*self.done, *self.open.values())]

    def order(self, task: Task, effort: TaskEffort) -> list[RolloutOrder]:
        """A new group."""
        number, self.next = self.next, self.next + 1
        orders = [
            RolloutOrder(number, member, task, f"{self.seed} {number} {member}", effort.turns)
            for member in range(effort.rollouts)
        ]
        self.open[number] = _OpenGroup(number, task, orders)
        self.tally.ordered += len(orders)
        return orders

    def began(self, news: RolloutBegan) -> None:
        if (group := self.open.get(news.group)) is not None:
            group.oldest = news.version if group.oldest is None else min(group.oldest, news.version)

    def ended(self, news: RolloutEnded) -> bool:
        """Whether it counts: once for each order, and only while its group is waited for."""
        group = self.open.get(news.group)
        if group is None or news.member in group.results:
            self.tally.strange += 1
            return False
        group.results[news.member] = news.result
        group.retried += news.retried
        if len(group.results) == len(group.orders):
            self.done.append(self.open.pop(group.number))
        return True

    def age(self, version: int) -> tuple[int, ...]:
        """Throws away all groups that are too old for an update of the weights `version`, each as a whole, and gives
        their numbers."""
        old = {
            group.number
            for group in (*self.done, *self.open.values())
            if group.oldest is not None and version - group.oldest > self.staleness
        }
        self.tally.aged += self._forget(old)
        return tuple(sorted(old))

    def _forget(self, numbers: set[int]) -> int:
        gone = [group for group in (*self.done, *self.open.values()) if group.number in numbers]
        self.done = [group for group in self.done if group.number not in numbers]
        self.open = {number: group for number, group in self.open.items() if number not in numbers}
        return sum(len(group.orders) for group in gone)

    def unfinished(self) -> list[RolloutOrder]:
        """What has to be ordered again from another worker: all that is not back."""
        again = [order for group in self.open.values() for order in group.orders if order.member not in group.results]
        self.tally.again += len(again)
        return again

    def take(self, count: int, number: int) -> RolloutGeneration:
        """The `count` groups that were complete first, as a generation. They are in the queue no more."""
        taken, self.done = self.done[:count], self.done[count:]
        made = RolloutGeneration(number)
        for place, group in enumerate(taken):
            members = [group.results[member] for member in range(len(group.orders))]
            made.tried += len(members)
            made.retried += group.retried
            lost = [(place, member, why) for member, why in enumerate(members) if isinstance(why, str)]
            made.lost += lost
            made.void.update(why for _, _, why in lost)
            valid = tuple(each for each in members if isinstance(each, PlayedRollout))
            if len(valid) < LEAST:
                made.dropped.append(group.task.task_id)
            else:
                made.groups.append(RolloutGroup(group.task, valid, place))
        made.tasks = tuple(group.task for group in taken)
        self.tally.used += made.tried
        return made

    def leave(self) -> None:
        """Throws away all that is there, at the end."""
        self.tally.left += self._forget({group.number for group in (*self.done, *self.open.values())})


def ages(made: RolloutGeneration, version: int) -> Sequence[int]:
    """How many updates older than `version` the weights of each turn are."""
    turns = [turn for group in made.groups for played in group.rollouts for turn in played.turns]
    return [version - turn.version for turn in turns if turn.version is not None]
