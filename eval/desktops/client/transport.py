"""Requests to a desktop server: which may be repeated, how far one came, and what its failures mean."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import msgspec

from eval.desktop import BrokenByAgent, DesktopGone
from eval.desktops.client.failures import (
    ANSWER_LIMIT,
    PAUSES_S,
    AccessRefused,
    AnswerTooLarge,
    BadAnswer,
    Delivery,
    DesktopServerFailed,
    DesktopServerGone,
    ServerReset,
    ServerTimeout,
)
from eval.desktops.wire import MSGPACK, UNREADABLE, ErrorReply

BUSY: Final = frozenset({429, 502, 504})  # what a proxy in between answers


@dataclass(frozen=True)
class Reply:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """One server. `address`: unix:PATH or http://HOST:PORT.

    limit_s     seconds that an answer may take
    patience_s  seconds in which a request that may be repeated is tried again
    """

    def __init__(
        self, address: str, token: str | None = None, *, limit_s: float = 90.0, patience_s: float = 10.0
    ) -> None:
        self.address, self.token = address, token
        self.limit_s = limit_s
        self.patience_s = patience_s
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._base = "http://desktop" if address.startswith("unix:") else address.rstrip("/")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Closes the connections."""
        session, self._session = self._session, None
        if session:
            await session.close()

    def _http(self) -> aiohttp.ClientSession:
        if self._session is None:
            unix = self.address.startswith("unix:")
            connector = aiohttp.UnixConnector(self.address.removeprefix("unix:")) if unix else None
            self._session = aiohttp.ClientSession(connector=connector, headers=self._headers)
        return self._session

    async def ask(self, method: str, path: str, *, repeat: bool, limit_s: float | None = None, **request: Any) -> Reply:
        """One answer of the server, of whatever status. `repeat`: doing it twice does no harm.

        A request that never reached the server is always tried again. Raises DesktopServerGone, ServerTimeout and
        BadAnswer.
        """
        end = time.monotonic() + self.patience_s
        tries, sent = 0, False
        while True:
            try:
                reply = await self._once(method, path, limit_s or self.limit_s, request)
                if not (repeat and reply.status in BUSY):
                    return reply
                trouble: DesktopServerGone | ServerTimeout | None = None
            except (DesktopServerGone, ServerTimeout) as error:
                sent = sent or error.delivery is Delivery.SENT
                if sent and not repeat:
                    raise
                if sent:  # the last try may not have reached the server; one before it may have
                    error.delivery = Delivery.SENT
                trouble = error
            pause = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            tries += 1
            if time.monotonic() + pause > end:
                if trouble is None:
                    raise BadAnswer(f"{self.address}{path}: status {reply.status}, {tries} times")
                raise trouble
            await asyncio.sleep(pause)

    async def _once(self, method: str, path: str, limit_s: float, request: dict[str, Any]) -> Reply:
        where = f"{self.address} {path}"
        timeout = aiohttp.ClientTimeout(total=limit_s)
        if isinstance(data := request.get("data"), bytes):
            request = {**request, "data": io.BytesIO(data)}  # a stream is sent piece by piece
        try:
            async with self._http().request(method, self._base + path, timeout=timeout, **request) as answer:
                body = await answer.content.read(ANSWER_LIMIT)
                if not answer.content.at_eof():
                    body += await _rest(answer, ANSWER_LIMIT - len(body), where)
                return Reply(answer.status, dict(answer.headers), body)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise DesktopServerGone(f"{where}: {error}", Delivery.NOT_SENT) from None
        except TimeoutError:
            raise ServerTimeout(f"{where}: no answer within {limit_s:g} s", Delivery.SENT) from None
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise DesktopServerGone(f"{where}: {error or type(error).__name__}", Delivery.SENT) from None
        except aiohttp.ClientError as error:
            raise BadAnswer(f"{where}: {type(error).__name__}: {error}") from None


async def _rest(answer: aiohttp.ClientResponse, left: int, where: str) -> bytes:
    """What is still to come of a body. Raises BadAnswer for more than `left` bytes."""
    pieces = bytearray()
    async for piece in answer.content.iter_any():
        pieces += piece
        if len(pieces) > left:
            raise BadAnswer(f"{where}: the answer has more than {ANSWER_LIMIT} bytes")
    return bytes(pieces)


def decoded(reply: Reply, kind: Any) -> Any:
    """The body of an answer of our server. Raises BadAnswer."""
    decoder = msgspec.msgpack if MSGPACK in reply.headers.get("Content-Type", "") else msgspec.json
    try:
        return decoder.decode(reply.body, type=kind)
    except UNREADABLE as error:
        raise BadAnswer(f"an answer that cannot be read: {error}") from None


def failure(reply: Reply, where: str) -> Exception:
    """What an answer of our server means that is no success."""
    try:
        trouble = msgspec.json.decode(reply.body, type=ErrorReply)
    except UNREADABLE:
        return BadAnswer(f"{where}: status {reply.status}, and not in the form of a desktop server")
    message = f"{where}: {trouble.message}"
    if trouble.kind == "broken_by_agent":
        return BrokenByAgent(trouble.message)
    if trouble.kind == "desktop_gone":
        return DesktopGone(message)
    if trouble.kind == "conflict":
        return ServerReset(message)
    if trouble.kind == "not_found":
        return FileNotFoundError(message)
    if trouble.kind in ("unauthorized", "not_allowed", "no_plain_file", "not_offered"):
        return AccessRefused(message)
    if trouble.kind == "too_large":
        return AnswerTooLarge(f"{message} (status {reply.status})")
    return DesktopServerFailed(f"{message} (status {reply.status})")
