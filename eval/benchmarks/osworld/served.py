"""A desktop by its server, for the steps of a set-up and for the judge: both speak OSWorld's protocol."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from eval.benchmarks.osworld.guest_browser import GuestBrowserPort
from eval.desktop import SetupFailed
from eval.desktops.client.transport import Transport
from eval.desktops.machines import PublicStage
from eval.desktops.server.browser_port import BrowserPort
from eval.desktops.stage import DesktopStage, LocalStage, ServedStage

ANSWER_S: Final = 150.0  # seconds; a command of the set-up may take 120
REST_S: Final = 0.5  # so long every program sleeps, whenever it is looked at
STILL_S: Final = 2.0  # so long the screen stays the same
REST_LIMIT_S: Final = 60.0  # OSWorld's harness sleeps so long after each reset; what a busy machine takes is left out
HANGS_S: Final = 240.0  # no longer than this in any case; the rollout's own limit is 300 s
POLL_S: Final = 0.05


@dataclass(frozen=True)
class ServedDesktop:
    """`transport` asks the server; `windows` gives how many windows there are, `asleep` whether every program
    sleeps; each gives None where nobody can tell. `timer` starts a clock: the seconds in which no program waited for a
    processor, where that is known. `browser` is the debugging port of its browser: for the set-up and the judge alone,
    or that of a virtual machine; None where there is none."""

    address: str
    token: str | None
    screen: tuple[int, int]
    transport: Transport
    windows: Callable[[], Awaitable[int | None]]
    asleep: Callable[[], Awaitable[bool | None]]
    timer: Callable[[], Callable[[], float]]
    browser: BrowserPort | None = None

    async def rest(self) -> None:
        """Returns when the programs have nothing more to do: a program that starts shows its window long before it can
        be used. Where nobody can tell, the screen must stay the same. At most REST_LIMIT_S: a video never rests."""
        spent, began, since, seen = await asyncio.to_thread(self.timer), time.monotonic(), time.monotonic(), b""
        while await asyncio.to_thread(spent) < REST_LIMIT_S and time.monotonic() - began < HANGS_S:
            asleep, need = await self.asleep(), REST_S
            if asleep is None:
                picture = (await self.transport.ask("GET", "/screenshot", repeat=True)).body
                asleep, seen, need = picture == seen, picture, STILL_S
            if not asleep:
                since = time.monotonic()
            if time.monotonic() - since >= need:
                return
            await asyncio.sleep(POLL_S)


@contextlib.asynccontextmanager
async def served(stage: DesktopStage) -> AsyncIterator[ServedDesktop]:
    """The server of a stage, and where it is a desktop of this machine, one that is there until the block ends.

    That one listens on the loopback interface with a token of its own. While the agent acts, none listens.
    """
    if isinstance(stage, PublicStage):
        transport = Transport(stage.address, limit_s=ANSWER_S)
        guest = None if stage.browser is None else GuestBrowserPort(stage.browser)
        try:
            screen = stage.client.screen
            size = (screen.width, screen.height)
            yield ServedDesktop(stage.address, None, size, transport, _unknown, _unknown, _plain_timer, guest)
        finally:
            if guest is not None:
                await guest.close()
            await transport.close()
        return
    if isinstance(stage, ServedStage):
        client = stage.client
        if not client.address.startswith("http://"):
            raise SetupFailed(f"{client.address}: the public evaluators ask a server by http://HOST:PORT only")

        async def windows() -> int:
            return len(await client.windows())

        async def at_work() -> bool | None:
            """The tree says who works, and not whether anybody knows: at rest the screen must stay the same too."""
            return False if (await client.tree()).working else None

        transport = Transport(client.address, client.token, limit_s=ANSWER_S)
        try:
            size = client.status.screen
            yield ServedDesktop(client.address, client.token, size, transport, windows, at_work, _plain_timer)
        finally:
            await transport.close()
        return
    from eval.desktops.display.program_sleep import ServedTime, SleepWatch
    from eval.desktops.server.app import listening, make_app
    from eval.desktops.server.service import DesktopService, Permissions

    if not isinstance(stage, LocalStage):
        raise SetupFailed("only a real desktop has a server")
    session = stage.session

    async def managed() -> int:
        session.check()
        return session.window_count

    watch = SleepWatch(session.drawing)

    async def asleep() -> bool | None:
        session.check()
        found = await asyncio.to_thread(watch.asleep)
        return found if watch.works else None

    def timer() -> Callable[[], float]:
        return ServedTime(watch).seconds if watch.works else _plain_timer()

    apart = session.own_network or session.own_user
    service = await DesktopService.open(session, Permissions(files="guest", browser=apart))
    token = secrets.token_urlsafe(24)
    try:
        async with listening(make_app(service, token), "127.0.0.1:0") as address:
            transport = Transport(address, token, limit_s=ANSWER_S)
            try:
                size = session.options.screen
                if not apart:
                    yield ServedDesktop(address, token, size, transport, managed, asleep, timer)
                    return
                async with BrowserPort.of(session.browser_socket()) as browser:
                    yield ServedDesktop(address, token, size, transport, managed, asleep, timer, browser)
            finally:
                await transport.close()
    finally:
        await service.close()


async def _unknown() -> None:
    return None


def _plain_timer() -> Callable[[], float]:
    began = time.monotonic()
    return lambda: time.monotonic() - began
