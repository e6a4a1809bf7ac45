"""Simulated desktops that fail in every way, with a ledger of what was done in each, and a worker in a thread."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from PIL import Image

from eval.actions import Action, ActionType
from eval.agents.base import Decision, History
from eval.desktop import DesktopGone, Observation, Score, SetupFailed, Task
from eval.environments.registry import TasksConfig
from eval.rollout.loop import RolloutLimits
from training.rl.asynchronous.rollouts import WorkerLink
from training.rl.asynchronous.worker import RolloutWorker
from training.rl.config import RlConfig
from training.rl.rollouts.curriculum import TaskEffort
from training.rl.rollouts.policy import PolicyQuestion, SampledTurn

SHOWN = Observation(Image.new("RGB", (32, 32)), (32, 32))
CLICK = Decision("", Action(ActionType.CLICK, x=0.5, y=0.5))


@dataclass
class Ledger:
    """Of all desktops: attempts that began, those that were judged well, those whose checker raised (each is followed
    by a desktop for the untouched state), desktops open now and at most."""

    began: list[int] = field(default_factory=list)
    judged: list[int] = field(default_factory=list)
    raised: list[int] = field(default_factory=list)
    open: int = 0
    most: int = 0
    closed: int = 0


class FaultyDesktop:
    """Fails with the chance `faults` in one of its calls; each of its attempts has a number. `seconds`: of a call."""

    def __init__(self, ledger: Ledger, draw: random.Random, faults: float, seconds: float = 0.0) -> None:
        self.ledger = ledger
        self.fails = draw.choice(["reset", "step", "gone", "score", "nan", "close"]) if draw.random() < faults else ""
        self.at = draw.randrange(3)
        self.right = draw.random() < 0.5
        self.seconds = seconds
        self.number = -1
        self.steps = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.number = len(self.ledger.began)
        self.ledger.began.append(self.number)
        self.ledger.open += 1
        self.ledger.most = max(self.ledger.most, self.ledger.open)
        await asyncio.sleep(self.seconds)
        if self.fails == "reset":
            raise SetupFailed("no window came")
        return SHOWN

    async def step(self, action: Action) -> Observation:
        await asyncio.sleep(self.seconds)
        self.steps += 1
        if self.fails in ("step", "gone") and self.steps > self.at:
            raise ValueError("a fault of the environment") if self.fails == "step" else DesktopGone("the cable")
        return SHOWN

    async def score(self) -> Score:
        await asyncio.sleep(self.seconds)
        if not self.steps:  # the untouched state, which the rollout asks for after a checker that raised twice
            raise ValueError("a fault of the checker")
        if self.fails == "score":
            self.ledger.raised += [self.number] if self.number not in self.ledger.raised else []
            raise ValueError("a fault of the checker")
        if self.fails == "nan":
            return Score(float("nan"), False)
        self.ledger.judged.append(self.number)
        return Score(float(self.right), self.right, {"attempt": self.number})

    async def close(self) -> None:
        self.ledger.open -= 1
        self.ledger.closed += 1
        if self.fails == "close":
            raise DesktopGone("closed already")


class Clicking:
    """A policy that always clicks, after `seconds`. `version`: of the weights it was given."""

    name = "clicking"
    parallel = 1

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.version = -1

    def follow(self, version: int, file: str) -> None:
        self.version = version

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        version = self.version
        await asyncio.sleep(self.seconds)
        for history in histories:
            assert isinstance(history, PolicyQuestion)
            history.turns.append(SampledTurn((1,), (), (2,), (-0.5,), version=version))
        return [CLICK] * len(histories)


class ThreadWorker(WorkerLink):
    """A worker in a thread of this process."""

    def __init__(self, policy: Any, make_desktop: Callable[[], Any], config: RlConfig) -> None:
        mine, theirs = Pipe()
        super().__init__(mine)
        self.theirs = theirs

        def run() -> None:
            RolloutWorker(policy, make_desktop, config, theirs).run()
            theirs.close()

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def end(self) -> str:
        told = super().end()
        self.thread.join()
        return told


class NoWeights:
    """Publishes nothing."""

    def publish(self, version: int) -> Path:
        return Path("nowhere")


class Endless:
    """Tasks without end, of three steps each."""

    def __init__(self, rollouts: int, steps: int = 3) -> None:
        self.rollouts = rollouts
        self.steps = steps
        self.drawn = 0

    def further(self, count: int) -> list[Task]:
        first, self.drawn = self.drawn, self.drawn + count
        return [Task(f"t{number}", "click", number, max_steps=self.steps) for number in range(first, self.drawn)]

    def effort(self, task: Task) -> TaskEffort:
        return TaskEffort(self.rollouts)


def simulated_config(**changes: Any) -> RlConfig:
    values: dict[str, Any] = {
        "model": "none",
        "environment": "login",
        "tasks": TasksConfig(count=8, seed=0),
        "limits": RolloutLimits(concurrency=1000, attempts=2, backoff=0.0),
        "tasks_per_generation": 125,
        "group_size": 8,
        "max_void": 0.9,
        "steps": 10_000,
        "save_every": 10_000,
    }
    return RlConfig(**{**values, **changes})
