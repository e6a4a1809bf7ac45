"""Collects the rollouts that a worker (`training.rl.asynchronous.worker`) plays while the training trains.

For each update the collector publishes the weights under their version, throws away what is too old, keeps enough
groups ordered, and waits until as many are complete as an update takes. Where the worker dies, another one plays what
was not back. A checkpoint holds nothing of this but the tasks that were drawn: a training that goes on orders them
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from eval.config import ConfigError
from eval.desktop import InfraError, Task
from training.rl.asynchronous.messages import GroupsWithdrawn, NewWeights, RolloutBegan, RolloutEnded, WorkerFailed
from training.rl.asynchronous.rollout_queue import RolloutQueue, RolloutTally, ages
from training.rl.asynchronous.worker_process import WorkerGone, WorkerLink
from training.rl.config import RlConfig
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.generation import RolloutGeneration
from training.rl.rollouts.play import POLL, PolicyFailed, RolloutsStopped, check_void
from training.rl.rollouts.waiting_times import WaitingTimes
from training.rl.sections import AsyncConfig


class Publisher(Protocol):
    """Where the weights are (`training.rl.weights.published.PublishedWeights`)."""

    def publish(self, version: int) -> Path: ...


class TaskSource(Protocol):
    """Draws tasks (`training.rl.rollouts.task_sampler.TaskSampler`)."""

    def further(self, count: int) -> Sequence[Task]: ...

    def effort(self, task: Task) -> TaskEffort: ...


class RolloutCollector:
    """
    tasks     what is drawn from
    weights   where they are published, in `folder`
    start     begins a worker
    """

    def __init__(
        self,
        config: RlConfig,
        tasks: TaskSource,
        weights: Publisher,
        start: Callable[[], WorkerLink],
    ) -> None:
        assert config.asynchronous is not None
        self.config = config
        self.chosen: AsyncConfig = config.asynchronous
        self.tasks = tasks
        self.weights = weights
        self.start = start
        self.worker: WorkerLink | None = None
        self.queue: RolloutQueue | None = None
        self.before: tuple[Task, ...] = ()  # drawn before an interruption, and never used
        self.deaths = 0
        self.times = WaitingTimes()
        self.figures: dict[str, float] = {}

    def collect(self, number: int, stop: Callable[[], bool] = lambda: False) -> RolloutGeneration:
        """The groups of update `number`, whose weights have that version. Raises RolloutsStopped, InfraError,
        ConfigError, PolicyFailed."""
        then = self.times
        if self.queue is None:
            self.queue = RolloutQueue(self.chosen.staleness, f"{self.config.seed} beside {number}")
        if self.worker is None:
            self.worker = self.start()
        self.worker.send(NewWeights(number, str(self.weights.publish(number))))
        before = RolloutTally(**asdict(self.queue.tally))
        if old := self.queue.age(number):
            self.worker.send(GroupsWithdrawn(old))
        self._order(number)
        while len(self.queue.done) < self.config.tasks_per_generation:
            if stop():
                raise RolloutsStopped
            try:
                self._hear(self.worker.news(POLL))
            except WorkerGone:
                self._again(number)
        while (news := self._more()) is not None:  # all that is back, so that nothing is taken for missing
            self._hear(news)
        made = self.queue.take(self.config.tasks_per_generation, number)
        check_void(made, self.config)
        if not made.groups:
            raise InfraError(f"update {number}: no group has two valid rollouts")
        self.figures = self._figures(made, number, then, before)
        return made

    def _order(self, number: int) -> None:
        """So many groups ahead that the worker need not wait for the training, and none that no update would use."""
        assert self.queue is not None
        assert self.worker is not None
        assert self.config.steps is not None
        left = self.config.steps // self.config.period - number
        ahead = max(1, min(left, self.chosen.staleness + 1))
        missing = max(0, self.config.tasks_per_generation * ahead - self.queue.there)
        again, self.before = self.before[:missing], self.before[missing:]
        for task in (*again, *self.tasks.further(missing - len(again))):
            for order in self.queue.order(task, self.tasks.effort(task)):
                self.worker.send(order)

    def _more(self) -> Any | None:
        assert self.worker is not None
        try:
            return self.worker.news(0)
        except WorkerGone:
            return None  # the next update notices

    def _hear(self, news: Any) -> None:
        assert self.queue is not None
        match news:
            case RolloutBegan():
                self.queue.began(news)
            case RolloutEnded():
                self.queue.ended(news)
            case WaitingTimes():
                self.times = news
            case WorkerFailed():
                raise ConfigError(news.error) if news.wrong else PolicyFailed(news.error)

    def _again(self, number: int) -> None:
        """Another worker plays what was not back."""
        assert self.worker is not None
        assert self.queue is not None
        how = self.worker.end()
        self.deaths += 1
        if self.deaths > self.chosen.restarts:
            raise InfraError(f"the rollout worker ended by itself {self.deaths} times, the last time with {how}")
        print(f"the rollout worker ended with {how}; another one plays what is not back", flush=True)
        self.worker, self.times = self.start(), WaitingTimes()
        self.worker.send(NewWeights(number, str(self.weights.publish(number))))
        for order in self.queue.unfinished():
            self.worker.send(order)

    def _figures(
        self,
        made: RolloutGeneration,
        number: int,
        then: WaitingTimes,
        before: RolloutTally,
    ) -> dict[str, float]:
        assert self.queue is not None
        tally, old = self.queue.tally, ages(made, number)
        return {
            "staleness": sum(old) / max(1, len(old)),
            "staleness_most": float(max(old, default=0)),
            "aged_rollouts": float(tally.aged - before.aged),
            "ordered_again": float(tally.again - before.again),
            **self.times.since(then),
        }

    @property
    def unused(self) -> list[Task]:
        """Tasks that were drawn and that no update has used."""
        return [*self.before, *(self.queue.tasks if self.queue is not None else ())]

    def close(self) -> None:
        """Ends the worker; what it plays is thrown away."""
        if self.queue is not None:
            self.queue.leave()
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end()
