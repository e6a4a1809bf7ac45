"""MCP over standard input and output, a message a line: for a client that starts the server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import BinaryIO, Final

import msgspec

from eval.serve.http import BODY_LIMIT
from eval.serve.mcp import McpClient
from eval.serve.sessions import ClientSessions
from eval.serve.streams import serve_stream

PATIENCE_S: Final = 5.0  # seconds for the requests that were sent before the input ended


def own_output() -> BinaryIO:
    """Standard output, for messages alone: whatever else this process and those that it starts print goes to standard
    error from now on."""
    sys.stdout.flush()
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return output


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The client's messages. Ends with the input, and at a line that is too long."""
    while line := await reader.readline():
        if line.strip():
            yield line


async def serve(sessions: ClientSessions, output: BinaryIO) -> None:
    """Serves the one client until its input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=BODY_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    session = sessions.session()
    client = McpClient(sessions, session)

    def write(answer: dict[str, object]) -> None:
        output.write(msgspec.json.encode(answer) + b"\n")
        output.flush()

    async def handle(line: bytes) -> None:
        if (answer := await client.handle(line)) is not None:
            await asyncio.to_thread(write, answer)

    await serve_stream(_lines(reader), handle, session, patience=PATIENCE_S)
