"""Asynchronous rollouts as the trainer uses them: the collector, the worker, and the published weights of before."""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import proxy

from torch import Tensor

from eval.config import ConfigError
from training.rl.asynchronous.collector import RolloutCollector
from training.rl.asynchronous.worker_process import WorkerProcess
from training.rl.config import RlConfig
from training.rl.learning.turn_records import TurnRecord
from training.rl.rollouts.generation import RolloutGeneration
from training.rl.rollouts.task_sampler import TaskSampler
from training.rl.sections import AsyncConfig
from training.rl.weights.published import PublishedWeights


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
