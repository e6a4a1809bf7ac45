"""Asynchronous rollouts as the trainer uses them: the collector, the worker's process, and the published weights.

A worker (`training.rl.asynchronous.worker`) plays rollouts while the training trains. For each update the collector
publishes the weights under their version, throws away what is too old, keeps enough groups ordered, and waits until as
many are complete as an update takes. Where the worker dies, another one plays what was not back. A checkpoint holds
only the tasks that were drawn: a training that goes on orders them anew.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol
from weakref import proxy

from torch import Tensor

from eval.config import ConfigError
from eval.desktop import InfraError, Task
from training.rl.asynchronous.messages import GroupsWithdrawn, NewWeights, RolloutBegan, RolloutEnded, WorkerFailed
from training.rl.asynchronous.rollout_queue import RolloutQueue, RolloutTally, ages
from training.rl.config import RlConfig
from training.rl.learning.turn_records import TurnRecord
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.generation import RolloutGeneration
from training.rl.rollouts.play import POLL, PolicyFailed, RolloutsStopped, check_void
from training.rl.rollouts.task_sampler import TaskSampler
from training.rl.rollouts.waiting_times import WaitingTimes
from training.rl.sections import AsyncConfig
from training.rl.weights.published import PublishedWeights

ENDING = 40.0  # seconds that a worker may take to close its desktops
TORCHRUN = re.compile(
    r"((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|ROLE_NAME|MASTER_(ADDR|PORT)|(TORCHELASTIC|PET|ACCELERATE|FSDP)_\w+"
)


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


class AsyncRollouts:
    """The worker, the collector and the published weights of one training. Nothing begins before the first update."""

    def __init__(self, trainer: Any, config: RlConfig, task_sampler: TaskSampler) -> None:
        self.trainer = proxy(trainer)
        self.config = config
        self.task_sampler = task_sampler
        self.collector: RolloutCollector | None = None
        self.weights: PublishedWeights | None = None

    def collect(self, number: int, stop: Callable[[], bool]) -> RolloutGeneration:
        """The rollouts that update `number` learns from. Raises what `RolloutCollector.collect` raises."""
        if self.collector is None:
            assert self.config.asynchronous is not None
            folder = weights_folder(self.config.asynchronous)
            self.weights = self.trainer.published(folder, self.config.asynchronous.staleness + 2)
            collector = RolloutCollector(
                self.config, self.task_sampler, self.weights, lambda: WorkerProcess(self.config, folder)
            )
            collector.before, self.task_sampler.unused = self.task_sampler.before, lambda: collector.unused
            self.collector = collector
        return self.collector.collect(number, stop)

    def at_sampling(self, rows: Sequence[TurnRecord], now: Sequence[Tensor], number: int) -> list[Tensor | None]:
        """The log probabilities of each row by the loss's forward, with the weights that sampled it: `now`, those with
        the weights of update `number`, or computed again; None for older rows that are not drawn (`gate_share`)."""
        assert self.weights is not None
        assert self.config.asynchronous is not None
        versions = [row.turn.version for row in rows]
        found = [line if each in (None, number) else None for each, line in zip(versions, now, strict=True)]
        for version in sorted({each for each in versions if each is not None and each != number}):
            places = [place for place, each in enumerate(versions) if each == version]
            draw = random.Random(f"{self.config.seed} gate {number} {version}")
            places = sorted(draw.sample(places, math.ceil(self.config.asynchronous.gate_share * len(places))))
            with self.weights.at(version):
                lines, _ = self.trainer.log_probabilities([rows[place] for place in places])
            for place, line in zip(places, lines, strict=True):
                found[place] = line
        return found

    def close(self) -> None:
        """Ends the worker."""
        if self.collector is not None:
            self.collector.close()
        if self.weights is not None:
            shutil.rmtree(self.weights.folder, ignore_errors=True)


def weights_folder(chosen: AsyncConfig) -> Path:
    """A new folder for the weights. Raises ConfigError where there can be none."""
    place = None if chosen.vllm is None else chosen.vllm.folder
    try:
        if place is not None:
            Path(place).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="slipway-weights-", dir=place))
    except OSError as error:
        raise ConfigError(f"asynchronous.vllm.folder: nothing can be written there: {error}") from None
    if chosen.vllm is not None and chosen.vllm.mode == "server":
        folder.chmod(0o755)  # the servers may be another user
    return folder
