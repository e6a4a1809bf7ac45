"""The DevTools port of a browser on a desktop, for the set-up of a task and its judge alone.

A browser that is to be debugged is started with `--remote-debugging-pipe`: it speaks DevTools' protocol on its
descriptors 3 and 4. Here both are one socket, and this process has the other end. So nothing listens on the desktop,
and the agent's programs find no port. While `listening`, other programs of this machine, such as the public evaluators,
get an address in the place of the browser's own (`http://127.0.0.1:PORT/json/version`, and the web socket that it
names).

Who asks there must be this process's user, or the one of the judge: a desktop may share this machine's network.

One client at a time: when it leaves, what it attached to is let go, as a browser does when a connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final, Self

from aiohttp import WSMsgType, web

from eval.desktop import InfraError

PORT: Final = re.compile(r"--remote-debugging-port=\d+")
# The desktop's namespaces keep the browser; its own sandbox would need rights that its user does not have
PIPE: Final = ("--remote-debugging-pipe", "--no-sandbox", "--test-type")
BROWSERS: Final = frozenset({"google-chrome", "google-chrome-stable", "chrome", "chromium"})
ANSWER_S: Final = 30.0
LARGEST: Final = 256 << 20  # bytes of a message: a picture of a long page
FORWARDS: Final = re.compile(r"tcp-listen:\d+", re.IGNORECASE)  # socat's word in OSWorld's set-ups

Message = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class BrowserGone(InfraError):
    """The browser does not answer at its DevTools port."""


def debugged(argv: Sequence[str]) -> list[str] | None:
    """The command that starts a browser with the pipe in the place of a port; None for one that asks for no port."""
    if not argv or PurePosixPath(argv[0]).name not in BROWSERS or not any(map(PORT.fullmatch, argv)):
        return None
    return [*(word for word in argv if not PORT.fullmatch(word)), *PIPE]


def forwards(argv: Sequence[str]) -> bool:
    """Whether a command makes a browser's port known outside the desktop, which `listening` does here."""
    return len(argv) > 1 and PurePosixPath(argv[0]).name == "socat" and FORWARDS.match(argv[1]) is not None


_numbers = itertools.count(1)  # of one process: a late answer to an earlier port is nobody's


class BrowserPort:
    """One end of the socket. The browser goes on when it is closed."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._answers: dict[int, asyncio.Future[Message]] = {}  # of our own commands
        self._asked: dict[int, int] = {}  # number here -> the client's own number
        self._client: web.WebSocketResponse | None = None
        self._attached: set[str] = set()  # sessions of the client
        self._path = f"/devtools/browser/{secrets.token_hex(16)}"

    @classmethod
    @contextlib.asynccontextmanager
    async def of(cls, end: socket.socket) -> AsyncIterator[Self]:
        """The port behind a socket, which is closed with it."""
        port = cls(*await asyncio.open_connection(sock=end, limit=LARGEST))
        reading = asyncio.create_task(port._read())
        try:
            yield port
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            port._writer.close()
            with contextlib.suppress(ConnectionError):
                await port._writer.wait_closed()

    async def ask(self, method: str, limit_s: float = ANSWER_S, session: str | None = None, **params: Any) -> Message:
        """The result of a command. Raises BrowserGone for none within the limit, and for a refusal, with its words."""
        number = next(_numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message: Message = {"id": number, "method": method, "params": params}
        try:
            async with asyncio.timeout(limit_s):
                await self._send(message if session is None else {**message, "sessionId": session})
                found = await answer
        except (TimeoutError, ConnectionError) as error:
            raise BrowserGone(f"the browser did not answer to {method}: {type(error).__name__}") from None
        finally:
            self._answers.pop(number, None)
        if "error" in found:
            raise BrowserGone(f"{method}: {found['error'].get('message', found['error'])}")
        result: Message = found["result"]
        return result

    async def _send(self, message: Message) -> None:
        self._writer.write(json.dumps(message).encode() + b"\0")
        await self._writer.drain()

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                body = await self._reader.readuntil(b"\0")
                with contextlib.suppress(ValueError):  # half a message of a browser that was killed
                    await self._take(json.loads(body[:-1]))

    async def _take(self, message: Message) -> None:
        """An answer goes to who asked, an event to the client."""
        number = message.get("id")
        if number in self._answers:
            if not self._answers[number].done():
                self._answers[number].set_result(message)
            return
        if number is not None:
            if (own := self._asked.pop(number, None)) is None:  # of a client that left
                return
            message = {**message, "id": own}
        params: Mapping[str, Any] = message.get("params") or {}
        if message.get("method") == "Target.attachedToTarget":
            self._attached.add(str(params.get("sessionId")))
        elif message.get("method") == "Target.detachedFromTarget":
            self._attached.discard(str(params.get("sessionId")))
        if self._client is not None:
            with contextlib.suppress(ConnectionError):
                await self._client.send_json(message)

    # For other programs of this machine

    @contextlib.asynccontextmanager
    async def listening(self, judge: int) -> AsyncIterator[int]:
        """Serves the port on the loopback interface until the block ends, to this user and to the user `judge`; gives
        its number."""
        users = {os.geteuid(), judge}

        @web.middleware
        async def known(request: web.Request, handler: Handler) -> web.StreamResponse:
            if await asyncio.to_thread(_user_of, request) not in users:
                raise web.HTTPForbidden(text="this port is for the judge")
            return await handler(request)

        app = web.Application(middlewares=[known])
        app.add_routes([web.get(path, self._version) for path in ("/json/version", "/json/version/")])
        app.add_routes([web.get(path, self._targets) for path in ("/json", "/json/", "/json/list", "/json/list/")])
        app.add_routes([web.get(self._path, self._connected)])
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            if self._client is not None:
                await self._client.close()
            await runner.cleanup()

    async def _version(self, request: web.Request) -> web.Response:
        try:
            found = await self.ask("Browser.getVersion")
        except BrowserGone as error:
            return web.json_response({"error": str(error)}, status=502)
        told = {
            "Browser": found["product"],
            "Protocol-Version": found["protocolVersion"],
            "User-Agent": found["userAgent"],
            "webSocketDebuggerUrl": f"ws://{request.host}{self._path}",
        }
        return web.json_response(told)

    async def _targets(self, request: web.Request) -> web.Response:
        try:
            found = await self.ask("Target.getTargets")
        except BrowserGone as error:
            return web.json_response({"error": str(error)}, status=502)
        names = ("type", "title", "url")
        rows = [{"id": one["targetId"], **{name: one[name] for name in names}} for one in found["targetInfos"]]
        return web.json_response(rows)

    async def _connected(self, request: web.Request) -> web.WebSocketResponse:
        if self._client is not None:
            raise web.HTTPConflict(text="another program is connected to the browser")
        client = self._client = web.WebSocketResponse(max_msg_size=LARGEST)
        try:
            await client.prepare(request)
            async for told in client:
                if told.type is not WSMsgType.TEXT:
                    break
                message = json.loads(told.data)
                number = next(_numbers)
                self._asked[number] = message["id"]
                await self._send({**message, "id": number})
        finally:
            self._client = None
            await self._let_go()
        return client

    async def _let_go(self) -> None:
        """Ends what a client that left had asked the browser for."""
        self._asked.clear()
        attached, self._attached = self._attached, set()
        # so that a page that the client opened does not wait for it
        orders: list[tuple[str, Message]] = []
        orders += [("Target.setAutoAttach", {"autoAttach": False, "waitForDebuggerOnStart": False, "flatten": True})]
        orders += [("Target.setDiscoverTargets", {"discover": False})]
        orders += [("Target.detachFromTarget", {"sessionId": session}) for session in attached]
        for method, params in orders:
            with contextlib.suppress(BrowserGone):  # the target has ended
                await self.ask(method, 5.0, **params)


def _user_of(request: web.Request) -> int | None:
    """The user whose process has the other end of a connection on the loopback interface; None where none is found."""
    assert request.transport is not None
    theirs, ours = (request.transport.get_extra_info(name)[1] for name in ("peername", "sockname"))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, _, _, _, user, *_ = line.split()
        if (int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)) == (theirs, ours):
            return int(user)
    return None
