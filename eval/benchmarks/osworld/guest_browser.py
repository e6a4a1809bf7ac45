"""The DevTools port of a browser in a virtual machine, which the set-up and the judge reach by the network.

Windows Agent Arena's tasks start the browser with `--remote-debugging-port`. The port is open to the programs in the
machine too, as in the public harness; outside it, to whoever reaches the machine's ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from eval.desktops.server.browser_port import LARGEST, BrowserGone, BrowserPort, Message

START_S: Final = 30.0  # so long a browser has to open its port
POLL_S: Final = 0.2


class GuestBrowserPort(BrowserPort):
    """`at`: HOST:PORT. It connects with the first command, and again where the browser was started anew."""

    def __init__(self, at: str) -> None:
        self._at = at
        self._http: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._answers = {}
        self._asked = {}
        self._client = None
        self._attached = set()

    @contextlib.asynccontextmanager
    async def listening(self, judge: int) -> AsyncIterator[int]:
        """The port itself: the judge asks it there."""
        port = urlsplit(f"//{self._at}").port
        assert port is not None
        yield port

    async def close(self) -> None:
        await self._leave()
        if self._http is not None:
            await self._http.close()

    async def _leave(self) -> None:
        """Ends the connection: a session's end alone does not end a web socket."""
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        if self._socket is not None:
            await self._socket.close()

    async def _send(self, message: Message) -> None:
        async with self._connecting:
            if self._socket is None or self._socket.closed:
                await self._connect()
        assert self._socket is not None
        await self._socket.send_json(message)

    async def _connect(self) -> None:
        """Raises BrowserGone for a browser that has opened no port after a while."""
        await self._leave()
        self._http = self._http or aiohttp.ClientSession()
        end = time.monotonic() + START_S
        while True:
            try:
                # a browser answers to no name but these in the header
                named = {"Host": "localhost"}
                async with self._http.get(f"http://{self._at}/json/version", headers=named) as answer:
                    told = await answer.json(content_type=None)
                place = urlsplit(str(told["webSocketDebuggerUrl"]))
                where = place._replace(netloc=self._at).geturl()
                self._socket = await self._http.ws_connect(where, headers=named, max_msg_size=LARGEST)
                break
            except (aiohttp.ClientError, OSError, ValueError, KeyError, TypeError) as error:
                if time.monotonic() > end:
                    raise BrowserGone(f"no browser at {self._at}: {type(error).__name__}") from None
                await asyncio.sleep(POLL_S)
        self._reading = asyncio.create_task(self._take_all(self._socket))

    async def _take_all(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        async for told in socket:
            if told.type is aiohttp.WSMsgType.TEXT:
                with contextlib.suppress(ValueError):
                    await self._take(told.json())
