"""A desktop with the tools of an agent's own MCP servers beside it (`agent.tools`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eval.config import ConfigError
from eval.desktop import ActionRefused, Desktop, Observation, Task, WrappedDesktop
from eval.desktops.mcp.client import McpServer, McpServerConfig
from eval.desktops.tools import Tool


class DesktopWithServers(WrappedDesktop):
    """`inner`, and for each episode a connection to each server. A call of a server's tool changes no screen; of its
    pictures the result tells the number."""

    def __init__(self, inner: Desktop, servers: Sequence[McpServerConfig]) -> None:
        super().__init__(inner)
        self.servers = [McpServer(config, f"agent.tools[{number}]") for number, config in enumerate(servers)]
        self._of: dict[str, McpServer] = {}
        self._last: Observation

    async def reset(self, task: Task, seed: int) -> Observation:
        """Raises ConfigError for a name that two have."""
        self._last = await super().reset(task, seed)
        self._of = {}
        for server in self.servers:
            await server.close()
            await server.start()
            for name in server.tools:
                if name in self.tools:
                    raise ConfigError(f"{server.where}: {server.config.mcp}: its tool {name!r} is there already")
                self._of[name] = server
        return self._last

    @property
    def has_tools(self) -> bool:
        return True

    @property
    def tools(self) -> tuple[str, ...]:
        return (*super().tools, *self._of)

    @property
    def described(self) -> Mapping[str, Tool]:
        return {**super().described, **{name: server.tools[name] for name, server in self._of.items()}}

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        if (server := self._of.get(name)) is None:
            return await super().call(name, arguments)
        result = await server.call(name, arguments)
        if result.failed:
            raise ActionRefused(result.text or f"{name} failed")
        left_out = [f"[{len(result.pictures)} pictures, not shown]"] if result.pictures else []
        return "\n".join([*([result.text] if result.text else []), *left_out]), self._last

    async def seen(self, observation: Observation) -> Observation:
        self._last = observation
        return observation

    async def close(self) -> None:
        for server in self.servers:
            await server.close()
        await super().close()


def with_servers(desktop: Desktop, agent: object) -> Desktop:
    """The desktop as this agent uses it."""
    servers: Sequence[McpServerConfig] = getattr(agent, "tool_servers", ())
    return DesktopWithServers(desktop, servers) if servers else desktop
