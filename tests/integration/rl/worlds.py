"""Environments for the tests of training.rl, over the real pixels of the login form."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.actions import Action
from eval.benchmarks.gtk_forms import environment as gtk_forms
from eval.desktop import Desktop, DesktopGone, Observation, Score, Task
from eval.environments import login

STEPS = 3


class RightSide(login.LoginDesktop):
    """Its score is the share of the steps that clicked in the right half: a policy that knows nothing has some."""

    def __init__(self, options: login.LoginOptions) -> None:
        super().__init__(options)
        self.right = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.right = 0
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Observation:
        self.right += action.x is not None and action.x > 0.5
        return await super().step(action)

    async def score(self) -> Score:
        return Score(self.right / STEPS, self.right == STEPS)


class Sides:
    """Tasks of the login form, judged by `RightSide`."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        found = login.tasks(count, seed, {"split": "train"})
        return [Task(task.task_id, task.instruction, task.seed, max_steps=STEPS) for task in found]

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return RightSide(login.LoginOptions(split="train"))


class Lenient(RightSide):
    """Solved by two clicks of three in the right half, so that a policy that knows nothing sometimes solves it."""

    async def score(self) -> Score:
        return Score(self.right / STEPS, self.right >= STEPS - 1)


class Easy(Sides):
    """Judged by `Lenient`."""

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return Lenient(login.LoginOptions(split="train"))


class Spoilt(Sides):
    """The first options["good"] tries succeed, whatever the policy does, and none after them; the file options["count"]
    grows by a byte at each."""

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return Counted(login.LoginOptions(split="train"), Path(options["count"]), options["good"])


class Counted(RightSide):
    def __init__(self, options: login.LoginOptions, file: Path, good: int) -> None:
        super().__init__(options)
        self.file, self.good = file, good

    async def score(self) -> Score:
        with self.file.open("ab") as file:
            file.write(b".")
            solved = file.tell() <= self.good
        return Score(float(solved), solved)


class Redrawn(Easy):
    """A form of another seed, where a training asks for one."""

    def redraw(self, task: Task, seed: int, options: Mapping[str, Any]) -> Task:
        return self.tasks(1, seed, options)[0]


ODD = {"nan": float("nan"), "five": 5.0, "minus": -0.5}


class Faulty(RightSide):
    """A desktop in which something fails: `start`, `desktop` (a step), `checker`, `nan`, `five` or `minus` (what the
    checker gives), or "" for nothing."""

    def __init__(self, options: login.LoginOptions, fails: str) -> None:
        super().__init__(options)
        self.fails = fails

    async def reset(self, task: Task, seed: int) -> Observation:
        if self.fails == "start":
            raise DesktopGone("the desktop is gone")
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Observation:
        if self.fails == "desktop":
            raise DesktopGone("the desktop is gone")
        return await super().step(action)

    async def score(self) -> Score:
        if self.fails == "checker":
            raise ValueError("the checker has a fault")
        if self.fails in ODD:
            return Score(ODD[self.fails], True)
        return await super().score()


class Gone(Sides):
    """No desktop starts."""

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return Faulty(login.LoginOptions(split="train"), "start")


class Slow(RightSide):
    """A desktop that is slow in its steps, and tells when each begins and ends."""

    def __init__(self, options: login.LoginOptions, seconds: float, log: list[str]) -> None:
        super().__init__(options)
        self.seconds = seconds
        self.log = log

    async def step(self, action: Action) -> Observation:
        self.log.append("begin")
        await asyncio.sleep(self.seconds)
        self.log.append("end")
        return await super().step(action)


class Dawdling(RightSide):
    """A desktop that takes half a second for a step."""

    async def step(self, action: Action) -> Observation:
        await asyncio.sleep(0.5)
        return await super().step(action)


class Dawdle(Sides):
    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return Dawdling(login.LoginOptions(split="train"))


LEDGER = (
    "RL_TEST_LEDGER"  # a file outside the training: each line tells of an attempt, as it begins and as it is judged
)
KILLER = "RL_TEST_KILLER"  # a file that the first desktop to do its tenth step takes away, and its own process with it


def tell(event: str, name: str) -> None:
    """A line of the ledger."""
    line = json.dumps({"event": event, "name": name, "process": os.getpid()}) + "\n"
    file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


class LedgerDesktop(Lenient):
    """Tells a ledger outside the training of each attempt, under a name that its judgement carries, too."""

    def __init__(self, options: login.LoginOptions) -> None:
        super().__init__(options)
        self.name = ""

    async def reset(self, task: Task, seed: int) -> Observation:
        self.name = uuid.uuid4().hex
        tell("began", self.name)
        return await super().reset(task, seed)

    async def step(self, action: Action) -> Observation:
        global stepped
        stepped += 1
        killer = os.environ.get(KILLER)
        if killer is not None and stepped == 10 and Path(killer).exists():
            Path(killer).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().step(action)

    async def score(self) -> Score:
        judged = await super().score()
        tell("judged", self.name)
        return Score(judged.value, judged.success, {"attempt": self.name})


stepped = 0  # by all desktops of this process


class Ledgered(Sides):
    """Judged by `LedgerDesktop`."""

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return LedgerDesktop(login.LoginOptions(split="train"))


class FormDesktop:
    """A real desktop with a GTK form. Tells the ledger of each attempt. The score is the share of the steps that
    clicked in the right half: a policy that knows nothing has some."""

    def __init__(self) -> None:
        self.inner = gtk_forms.desktop(FORMS)
        self.name = ""
        self.right = 0

    async def reset(self, task: Task, seed: int) -> Observation:
        self.name, self.right = uuid.uuid4().hex, 0
        tell("began", self.name)
        return await self.inner.reset(task, seed)

    async def step(self, action: Action) -> Observation:
        self.right += action.x is not None and action.x > 0.5
        return await self.inner.step(action)

    async def score(self) -> Score:
        judged = await self.inner.score()
        tell("judged", self.name)
        return Score(self.right / STEPS, judged.success, {**judged.detail, "attempt": self.name})

    async def close(self) -> None:
        await self.inner.close()


FORMS = {"split": "train", "tree": False}


class Forms:
    """GTK forms on real desktops, judged by `FormDesktop`."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return [replace(task, max_steps=STEPS) for task in gtk_forms.tasks(count, seed, FORMS)]

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return FormDesktop()
