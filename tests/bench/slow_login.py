"""The drawn login form on desktops that take their time, as real ones do: for `tests.bench.rl_algorithms --slow`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from eval.actions import Action
from eval.desktop import Desktop, Observation, Score, Task
from eval.environments import login


class SlowDesktop:
    """A desktop whose start and steps take so many seconds more."""

    def __init__(self, inner: Desktop, seconds: float) -> None:
        self.inner, self.seconds = inner, seconds

    async def reset(self, task: Task, seed: int) -> Observation:
        await asyncio.sleep(self.seconds)
        return await self.inner.reset(task, seed)

    async def step(self, action: Action) -> Observation:
        await asyncio.sleep(self.seconds)
        return await self.inner.step(action)

    async def score(self) -> Score:
        return await self.inner.score()

    async def close(self) -> None:
        await self.inner.close()


class SlowLogin:
    """The environment `login`; its options, and `seconds`."""

    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return login.tasks(count, seed, self._others(options))

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return SlowDesktop(login.desktop(self._others(options)), float(options["seconds"]))

    def _others(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in options.items() if name != "seconds"}
