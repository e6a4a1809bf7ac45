"""A real desktop and its server in this process, for tests."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import aiohttp

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktops.client.fast import DesktopClient
from eval.desktops.computer import DesktopComputer, ShownScreen
from eval.desktops.server.app import listening, make_app
from eval.desktops.server.requests import Settings
from eval.desktops.server.service import DesktopService, Permissions
from eval.desktops.session import DesktopOptions, DesktopSession

TOKEN = "a-token-of-the-test"


@dataclass
class Served:
    """`http` asks with the token; `address` is a port of 127.0.0.1, `open_address` one that asks for no token."""

    session: DesktopSession
    service: DesktopService
    address: str
    open_address: str
    http: aiohttp.ClientSession


@contextlib.asynccontextmanager
async def served(
    options: DesktopOptions | None = None,
    permissions: Permissions | None = None,
    settings: Settings | None = None,
) -> AsyncIterator[Served]:
    """Until the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        start = DesktopSession.start(options or DesktopOptions(screen=(1280, 720)))
        session = await stack.enter_async_context(await start)
        service = await DesktopService.open(session, permissions)
        stack.push_async_callback(service.close)
        address, open_address = [
            await stack.enter_async_context(listening(make_app(service, token, settings), "127.0.0.1:0"))
            for token in (TOKEN, None)
        ]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        http = await stack.enter_async_context(aiohttp.ClientSession(address, headers=headers))
        yield Served(session, service, address, open_address, http)


class OverServer(DesktopComputer):
    """Acts on a session through a server of its own and our client; both end with `close`."""

    def __init__(self) -> None:
        self.stack = contextlib.AsyncExitStack()
        self.client: DesktopClient

    @classmethod
    async def connect(cls, session: DesktopSession) -> OverServer:
        computer = cls()
        service = await DesktopService.open(session)
        computer.stack.push_async_callback(service.close)
        # beside the folder of the session, where no program of the desktop sees it
        where = f"unix:{session.place.xauthority.parent}.{secrets.token_hex(2)}"
        address = await computer.stack.enter_async_context(listening(make_app(service, TOKEN), where))
        computer.client = await DesktopClient.connect(address, TOKEN)
        computer.stack.push_async_callback(computer.client.close)
        return computer

    async def act(self, actions: Sequence[Action]) -> ShownScreen:
        return await self.client.act(actions)

    async def look(self) -> ShownScreen:
        return await self.client.look()

    async def accessibility(self) -> Tree:
        return await self.client.accessibility()

    async def release(self) -> None:
        await self.client.release()

    async def answers(self) -> bool:
        return await self.client.answers()

    async def close(self) -> None:
        await self.stack.aclose()
