"""An environment for tests: a terminal in which a hostile agent types, on a small desktop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.desktop import Desktop, Expected, Observation, Score, Task
from eval.desktops.live import LiveDesktop
from eval.desktops.stage import DesktopStage
from tests.integration.desktops.test_floods import DAEMON, message, new_method_call
from tests.integration.desktops.test_hostile import SMALL
from tests.support import bus_flood, x_flood


class TerminalScene:
    """Solved unless the agent left a file `found`. The checker reads the file `answer`, where there is one."""

    async def prepare(self, stage: DesktopStage) -> None:
        for module in (x_flood, bus_flood):
            path = Path(module.__file__)
            await stage.write_file(path.name, path.read_bytes())
        await stage.write_file("message", message("signals").serialise(7))
        await stage.write_file("hello", new_method_call(DAEMON, "Hello").serialise(1))
        await stage.start(["xterm", "-e", "sh"])
        await stage.windows(1)

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        return None

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        for name in ("answer", "found"):
            try:
                await stage.read_file(name)
            except FileNotFoundError:
                continue
            if name == "found":
                return Score(0.0, False)
        return Score(1.0, True)


class TerminalDesktop(LiveDesktop):
    """A text that is typed is a command, which has begun when the step is over: it makes the file `begun`."""

    async def step(self, action: Action) -> Observation:
        seen = await super().step(action)
        if action.type is ActionType.TYPE:
            assert self._session is not None
            while not (self._session.place.home / "begun").exists():
                await asyncio.sleep(0.02)
        return seen


class Terminal:
    """One task: do what you like."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return [Task(f"terminal-{number}", "Do what you like.", number) for number in range(seed, seed + count)]

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return TerminalDesktop(lambda task, seed: TerminalScene(), SMALL)
