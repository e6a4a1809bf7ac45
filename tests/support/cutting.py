"""A proxy in front of a server that does to whole requests what networks do: it loses them, or their answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field


@dataclass
class Cutting:
    """`faults` are used up one after the other by requests whose path begins with `path`; then all goes through.

    before   the connection ends before the server has seen the request
    after    the server did it, and the answer is lost
    half     half of the answer comes
    garbage  the answer is no HTTP
    rubbish  the answer is HTTP of status 200, its body is not what it should be
    slow     the answer comes after `slow_s` seconds
    """

    address: str = ""
    path: str = "/"
    faults: list[str] = field(default_factory=list)
    slow_s: float = 2.0
    passed: int = 0  # requests that the server has seen


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, str]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    body = await reader.readexactly(length)
    if b"chunked" in head.lower():
        while not body.endswith(b"0\r\n\r\n"):
            body += await reader.read(1 << 16)
    return head + body, head.split(b" ")[1].decode()


async def _asked(host: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    head, rest = request.split(b"\r\n", 1)
    writer.write(head + b"\r\nConnection: close\r\n" + rest)
    try:
        return await reader.read(-1)
    finally:
        await _closed(writer)


@contextlib.asynccontextmanager
async def cutting(address: str, path: str = "/") -> AsyncIterator[Cutting]:
    """Until the block ends. `address`: http://HOST:PORT of the server."""
    host, _, port = address.removeprefix("http://").rpartition(":")
    proxy = Cutting(path=path)

    open_ones: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, where = await _request(reader)
        fault = proxy.faults.pop(0) if proxy.faults and where.startswith(proxy.path) else ""
        if fault == "before":
            return
        proxy.passed += 1
        answer = await _asked(host, int(port), request)
        if fault == "half":
            answer = answer[: len(answer) // 2]
        elif fault == "garbage":
            answer = b"\0\1\2 no HTTP at all\r\n\r\n"
        elif fault == "rubbish":
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\n<html/>"
        elif fault == "slow":
            await asyncio.sleep(proxy.slow_s)
        if fault != "after":
            writer.write(answer)
            await writer.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        open_ones.add(task)
        try:
            await answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            open_ones.discard(task)
            await _closed(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    proxy.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        left = list(open_ones)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
