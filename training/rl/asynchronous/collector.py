"""Rollouts that run beside the training: its end of the link to the worker (`training.rl.asynchronous.worker`).

For each update the feed publishes the weights under their version, throws away what is too old, keeps enough groups
ordered, and waits until as many are complete as an update takes. Where the worker dies, another one plays what was not
back. Nothing of this is in a checkpoint but the tasks that were drawn: a training that goes on orders them anew.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from eval.config import ConfigError
from eval.desktop import InfraError, Task
from training.rl.asynchronous.rollout_queue import (
    GroupBook,
    GroupsWithdrawn,
    NewWeights,
    RolloutBegan,
    RolloutEnded,
    RolloutTally,
    WorkerFailed,
    ages,
)
from training.rl.config import AsyncConfig, RlConfig
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.play import POLL, PolicyFailed, RolloutGeneration, RolloutsStopped, check_void
from training.rl.rollouts.waiting_times import WorkerTimes

ENDING = 40.0  # seconds that a worker may take to close its desktops
TORCHRUN = re.compile(
    r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|(TORCHELASTIC|PET|ACCELERATE|FSDP)_\w+"
)


class Publisher(Protocol):
    """Where the weights are (`training.rl.weights.published.PublishedWeights`)."""

    def publish(self, version: int) -> Path: ...


class TaskSource(Protocol):
    """Draws tasks (`training.rl.rollouts.task_sampler.TaskDrawer`)."""

    def further(self, count: int) -> Sequence[Task]: ...

    def effort(self, task: Task) -> TaskEffort: ...


class WorkerGone(Exception):
    """The worker's process has ended."""


class WorkerLink:
    """The training's end of the pipe to a worker."""

    def __init__(self, link: Connection) -> None:
        self.link = link

    def send(self, news: Any) -> None:
        with contextlib.suppress(OSError):  # it is gone: what is read next says so
            self.link.send(news)

    def news(self, patience: float) -> Any | None:
        """What it tells; None where it tells nothing for so many seconds. Raises WorkerGone."""
        try:
            return self.link.recv() if self.link.poll(patience) else None
        except (EOFError, OSError):
            raise WorkerGone from None

    def end(self) -> str:
        """Ends the worker, and tells how it ended."""
        self.link.close()
        return "its link closed"


class WorkerProcess(WorkerLink):
    """A worker in a process of its own. `folder`: where the weights are published."""

    def __init__(self, config: RlConfig, folder: Path) -> None:
        mine, theirs = Pipe()
        super().__init__(mine)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "training.rl.asynchronous.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=outside_torchrun(os.environ),
        )
        theirs.close()
        self.send((config, str(folder)))

    def end(self) -> str:
        self.link.close()
        try:
            code = self.process.wait(ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return f"exit code {code}" if code >= 0 else f"signal {-code}"


def outside_torchrun(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what torchrun and accelerate tell each of their processes: libraries would take the worker for one."""
    return {name: value for name, value in environment.items() if not TORCHRUN.fullmatch(name)}


class RolloutFeed:
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
        self.book: GroupBook | None = None
        self.before: tuple[Task, ...] = ()  # drawn before an interruption, and never used
        self.deaths = 0
        self.times = WorkerTimes()
        self.figures: dict[str, float] = {}

    def collect(self, number: int, stop: Callable[[], bool] = lambda: False) -> RolloutGeneration:
        """The groups of update `number`, whose weights have that version. Raises RolloutsStopped, InfraError,
        ConfigError, PolicyFailed."""
        then = self.times
        if self.book is None:
            self.book = GroupBook(self.chosen.staleness, f"{self.config.seed} beside {number}")
        if self.worker is None:
            self.worker = self.start()
        self.worker.send(NewWeights(number, str(self.weights.publish(number))))
        before = RolloutTally(**asdict(self.book.tally))
        if old := self.book.age(number):
            self.worker.send(GroupsWithdrawn(old))
        self._order()
        while len(self.book.done) < self.config.tasks_per_generation:
            if stop():
                raise RolloutsStopped
            try:
                self._hear(self.worker.news(POLL))
            except WorkerGone:
                self._again(number)
        while (news := self._more()) is not None:  # all that is back, so that nothing is taken for missing
            self._hear(news)
        made = self.book.take(self.config.tasks_per_generation, number)
        check_void(made, self.config)
        if not made.groups:
            raise InfraError(f"update {number}: no group has two valid rollouts")
        self.figures = self._figures(made, number, then, before)
        return made

    def _order(self) -> None:
        """So many groups ahead that the worker need not wait for the training."""
        assert self.book is not None
        assert self.worker is not None
        missing = max(0, self.config.tasks_per_generation * (self.chosen.staleness + 1) - self.book.there)
        again, self.before = self.before[:missing], self.before[missing:]
        for task in (*again, *self.tasks.further(missing - len(again))):
            for order in self.book.order(task, self.tasks.effort(task)):
                self.worker.send(order)

    def _more(self) -> Any | None:
        assert self.worker is not None
        try:
            return self.worker.news(0)
        except WorkerGone:
            return None  # the next update notices

    def _hear(self, news: Any) -> None:
        assert self.book is not None
        match news:
            case RolloutBegan():
                self.book.began(news)
            case RolloutEnded():
                self.book.ended(news)
            case WorkerTimes():
                self.times = news
            case WorkerFailed():
                raise ConfigError(news.error) if news.wrong else PolicyFailed(news.error)

    def _again(self, number: int) -> None:
        """Another worker plays what was not back."""
        assert self.worker is not None
        assert self.book is not None
        how = self.worker.end()
        self.deaths += 1
        if self.deaths > self.chosen.restarts:
            raise InfraError(f"the rollout worker ended by itself {self.deaths} times, the last time with {how}")
        print(f"the rollout worker ended with {how}; another one plays what is not back", flush=True)
        self.worker, self.times = self.start(), WorkerTimes()
        self.worker.send(NewWeights(number, str(self.weights.publish(number))))
        for order in self.book.unfinished():
            self.worker.send(order)

    def _figures(
        self,
        made: RolloutGeneration,
        number: int,
        then: WorkerTimes,
        before: RolloutTally,
    ) -> dict[str, float]:
        assert self.book is not None
        tally, old = self.book.tally, ages(made, number)
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
        return [*self.before, *(self.book.tasks if self.book is not None else ())]

    def close(self) -> None:
        """Ends the worker; what it plays is thrown away."""
        if self.book is not None:
            self.book.leave()
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end()
