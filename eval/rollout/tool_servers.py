"""A desktop with the tools of an agent's own MCP servers beside it (`agent.tools`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.actions import Action
from eval.config import ConfigError
from eval.desktop import ActionRefused, Desktop, Observation, Score, Task, ToolDesktop, answer_of
from eval.desktops.mcp_client import McpServer, McpServerConfig
from eval.desktops.tools import TOOLS, DescribedTools, Tool


class DesktopWithServers:
    """`inner`, and for each episode a connection to each server. A call of a server's tool changes no screen; of its
    pictures the result tells the number."""

    def __init__(self, inner: Desktop, servers: Sequence[McpServerConfig]) -> None:
        self.inner = inner
        self.servers = [McpServer(config, f"agent.tools[{number}]") for number, config in enumerate(servers)]
        self._of: dict[str, McpServer] = {}
        self._seen: Observation

    async def reset(self, task: Task, seed: int) -> Observation:
        """Raises ConfigError for a name that two have."""
        self._seen = await self.inner.reset(task, seed)
        self._of = {}
        for server in self.servers:
            await server.close()
            await server.start()
            for name in server.tools:
                if name in self._of or name in self._inner_tools():
                    raise ConfigError(f"{server.where}: {server.config.mcp}: its tool {name!r} is there already")
                self._of[name] = server
        return self._seen

    def _inner_tools(self) -> tuple[str, ...]:
        return self.inner.tools if isinstance(self.inner, ToolDesktop) else ()

    @property
    def tools(self) -> tuple[str, ...]:
        return (*self._inner_tools(), *self._of)

    @property
    def described(self) -> Mapping[str, Tool]:
        """See eval.desktops.tools.DescribedTools."""
        inner: Mapping[str, Tool] = {name: TOOLS[name] for name in self._inner_tools() if name in TOOLS}
        if isinstance(self.inner, DescribedTools):
            inner = self.inner.described
        return {**inner, **{name: server.tools[name] for name, server in self._of.items()}}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        inner: object = self.inner
        if (server := self._of.get(name)) is None:
            if not isinstance(inner, ToolDesktop):
                raise ActionRefused(f"there is no tool {name[:60]!r} here")
            text, self._seen = await inner.call(name, arguments)
            return text, self._seen
        result = await server.call(name, arguments)
        if result.failed:
            raise ActionRefused(result.text or f"{name} failed")
        left_out = [f"[{len(result.pictures)} pictures, not shown]"] if result.pictures else []
        return "\n".join([*([result.text] if result.text else []), *left_out]), self._seen

    async def step(self, action: Action) -> Observation:
        self._seen = await self.inner.step(action)
        return self._seen

    async def answers(self) -> Observation | None:
        return await answer_of(self.inner)

    async def score(self) -> Score:
        return await self.inner.score()

    async def close(self) -> None:
        for server in self.servers:
            await server.close()
        await self.inner.close()


def with_servers(desktop: Desktop, agent: object) -> Desktop:
    """The desktop as this agent uses it."""
    servers: Sequence[McpServerConfig] = getattr(agent, "tool_servers", ())
    return DesktopWithServers(desktop, servers) if servers else desktop
