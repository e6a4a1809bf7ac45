"""A desktop that stands before another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval.actions import Action
from eval.desktop import ActionRefused, Desktop, Observation, Score, Task, ToolDesktop, answer_of
from eval.desktops.tools import DescribedTools, Tool


class WrappedDesktop:
    """Passes on to `inner` what a class of it does not do itself. `inner`: None before the first reset, where that
    chooses it."""

    def __init__(self, inner: Desktop | None) -> None:
        self.inner = inner

    async def seen(self, observation: Observation) -> Observation:
        """Is given each observation, and gives what others see of it."""
        return observation

    async def reset(self, task: Task, seed: int) -> Observation:
        return await self.seen(await self._chosen().reset(task, seed))

    async def step(self, action: Action) -> Observation:
        return await self.seen(await self._chosen().step(action))

    @property
    def has_tools(self) -> bool:
        return has_tools(self.inner)

    @property
    def tools(self) -> tuple[str, ...]:
        return self.inner.tools if isinstance(self.inner, ToolDesktop) else ()

    @property
    def described(self) -> Mapping[str, Tool]:
        """See eval.desktops.tools.DescribedTools; of a desktop without such tools, none."""
        return self.inner.described if isinstance(self.inner, DescribedTools) else {}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        """See eval.desktop.ToolDesktop."""
        inner: object = self.inner
        if not isinstance(inner, ToolDesktop):
            raise ActionRefused(f"there is no tool {name[:60]!r} here")
        said, observation = await inner.call(name, arguments)
        return said, await self.seen(observation)

    async def answers(self) -> Observation | None:
        observation = await answer_of(self._chosen())
        return None if observation is None else await self.seen(observation)

    async def score(self) -> Score:
        return await self._chosen().score()

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()

    def _chosen(self) -> Desktop:
        assert self.inner is not None, "it is reset first"
        return self.inner


def has_tools(desktop: object) -> bool:
    """Whether agents can call tools on a desktop that was reset."""
    return desktop.has_tools if isinstance(desktop, WrappedDesktop) else isinstance(desktop, ToolDesktop)
