"""What carries messages of MCP (JSON-RPC 2.0) to a server: a program that this process starts, or HTTP.

A connection `open`s, sends requests with `ask`, notifications with `tell`, and ends with `close`. What keeps a server
from answering is an InfraError.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol

from eval.config import ConfigError
from eval.desktop import DesktopGone, InfraError

MESSAGE_LIMIT: Final = 100 << 20  # bytes
KEPT: Final = 2000  # bytes of what a program wrote to its standard error
CLOSE_S: Final = 5.0  # seconds in which a server has to end
PIPES_S: Final = 2.0  # seconds in which pipes have to close whose program has ended
PASSED: Final = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER")  # of the environment, to each program
SESSION, REVISION = "Mcp-Session-Id", "MCP-Protocol-Version"  # headers
NO_METHOD: Final = -32601  # JSON-RPC's code
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
Message = dict[str, Any]


class RequestFailed(Exception):
    """A server's answer that is an error, with JSON-RPC's code."""

    def __init__(self, error: object) -> None:
        known = error if isinstance(error, dict) else {}
        super().__init__(str(known.get("message", error)))
        self.code = known.get("code")


class McpConnection(Protocol):
    async def open(self) -> None: ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Message: ...

    async def tell(self, method: str) -> None: ...

    async def close(self) -> None: ...


def _message(method: str, params: Mapping[str, Any] | None = None, number: int | None = None) -> Message:
    told = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return {name: value for name, value in told.items() if value is not None}


def _read(text: bytes) -> Message:
    """A message; {} where it is none."""
    try:
        message = json.loads(text)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _result(message: Message) -> Message:
    """The result that an answer holds. Raises RequestFailed and InfraError."""
    if "error" in message:
        raise RequestFailed(message["error"])
    if not isinstance(result := message.get("result"), dict):
        raise InfraError("an answer without a result")
    return result


def _reply(message: Message) -> Message | None:
    """What is answered to a server's message: a ping is, and any other request cannot be done here."""
    if message.get("method") is None or message.get("id") is None:
        return None
    can = {"result": {}} if message["method"] == "ping" else {"error": {"code": NO_METHOD, "message": "not done here"}}
    return {"jsonrpc": "2.0", "id": message["id"], **can}


class ProgramConnection:
    """A program of its own, which reads messages from its standard input and writes them to its output, one a line."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self.command = command
        self.environ = {name: os.environ[name] for name in PASSED if name in os.environ} | dict(environ)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._trouble = b""
        self._ended = ""  # why no more answers come
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Starts the program. Raises ConfigError."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=self.environ,
                limit=MESSAGE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"mcp: {error.strerror}") from None
        listening = asyncio.create_task(self._listen(self._process))
        self._tasks = [listening, asyncio.create_task(self._take(self._process, listening))]

    async def ask(self, method: str, params: Mapping[str, Any]) -> Message:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._write(_message(method, params, number))
            return _result(await answer)
        finally:
            del self._waiting[number]

    async def tell(self, method: str) -> None:
        await self._write(_message(method))

    async def _write(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        if self._ended:
            raise DesktopGone(self._ended)
        with contextlib.suppress(ConnectionError):  # its output, which is read to the end, says why
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            await self._process.stdin.drain()

    async def _take(self, process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> None:
        """Gives the answers to those who wait for them, until there are no more."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                message = _read(line)
                number = message.get("id")
                if (reply := _reply(message)) is not None:
                    await self._write(reply)
                elif isinstance(number, int) and (waiting := self._waiting.get(number)) and not waiting.done():
                    waiting.set_result(message)
            self._ended = await self._end(process, listening)
        except ValueError:  # asyncio's, for a line that is too long
            self._ended = f"a message of more than {MESSAGE_LIMIT >> 20} MiB"
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(DesktopGone(self._ended))

    async def _end(self, process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> str:
        """How it ended, and the last that it said."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PIPES_S / 2):
                await process.wait()
                await asyncio.shield(listening)
        status = process.returncode
        how = "it closed its output" if status is None else f"it ended with status {status}"
        said = self._trouble.decode(errors="replace").split()
        return f"{how}: {' '.join(said)}" if said else how

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keeps the end of what it writes to its standard error."""
        assert process.stderr is not None
        while part := await process.stderr.read(KEPT):
            self._trouble = (self._trouble + part)[-KEPT:]

    async def close(self) -> None:
        """Ends the program, and what it started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        try:
            process.stdin.close()
            await _wait(process, CLOSE_S)
            if process.returncode is None:
                process.terminate()
                await _wait(process, CLOSE_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await asyncio.wait(self._tasks, timeout=PIPES_S)  # until its pipes are closed
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def _wait(process: asyncio.subprocess.Process, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await process.wait()


class WebConnection:
    """Streamable HTTP: each message is posted, and a stream that is held open tells that this client lives."""

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        self.url = url
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._web: Any = None
        self._stream: asyncio.Task[None] | None = None

    async def open(self) -> None:
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout)
        self._web = aiohttp.ClientSession(timeout=limits, read_bufsize=MESSAGE_LIMIT)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Message:
        number = next(self._numbers)
        async with self._posted(_message(method, params, number)) as response:
            if method == "initialize" and SESSION in response.headers:
                self._headers[SESSION] = response.headers[SESSION]
            answer = await self._answer(response, number)
        if method == "initialize":
            self._headers[REVISION] = str(answer.get("protocolVersion"))
        return answer

    async def _answer(self, response: Any, number: int) -> Message:
        if response.content_type != EVENTS:
            return _result(_read(await response.read()))
        async for message in self._messages(response):
            if message.get("id") == number:
                return _result(message)
        raise DesktopGone("its stream ended before the answer")

    async def tell(self, method: str) -> None:
        async with self._posted(_message(method)):
            pass
        if self._stream is None:  # after the handshake
            self._stream = asyncio.create_task(self._hold())

    @contextlib.asynccontextmanager
    async def _posted(self, message: Message) -> AsyncIterator[Any]:
        """The response to a message. Raises RequestFailed, DesktopGone, and ConfigError for a token that is refused."""
        import aiohttp

        try:
            headers = {**self._headers, "Accept": f"{JSON}, {EVENTS}"}
            async with self._web.post(self.url, json=message, headers=headers, allow_redirects=False) as response:
                if response.status in (401, 403):
                    raise ConfigError(f"token: is refused (status {response.status})")
                if response.status >= 300:
                    body = _read(await response.read())
                    if "error" in body and response.status != 404:
                        raise RequestFailed(body["error"])
                    there = response.headers.get("Location")
                    raise DesktopGone(f"status {response.status}" + (f", to {there}" if there else ""))
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise DesktopGone(f"{type(error).__name__}: {error}") from None

    async def _messages(self, response: Any) -> AsyncIterator[Message]:
        """The messages of a stream of events. Requests of the server are answered."""
        data: list[bytes] = []
        async for line in response.content:
            line = line.rstrip(b"\r\n")
            if line.startswith(b"data:"):
                data.append(line.removeprefix(b"data:"))
            elif not line and data:
                message = _read(b"\n".join(data))
                data = []
                if (reply := _reply(message)) is not None:
                    async with self._posted(reply):
                        pass
                else:
                    yield message

    async def _hold(self) -> None:
        """Holds a stream open, where the server has one."""
        import aiohttp

        with contextlib.suppress(aiohttp.ClientError, OSError, ValueError, InfraError, RequestFailed):
            headers = {**self._headers, "Accept": EVENTS}
            async with self._web.get(self.url, headers=headers, allow_redirects=False) as response:
                if response.status == 200:
                    async for _ in self._messages(response):
                        pass

    async def close(self) -> None:
        """Ends the session."""
        import aiohttp

        web, self._web = self._web, None
        if web is None:
            return
        try:
            if SESSION in self._headers:
                with contextlib.suppress(aiohttp.ClientError, OSError):
                    headers = self._headers
                    async with asyncio.timeout(CLOSE_S), web.delete(self.url, headers=headers, allow_redirects=False):
                        pass
        finally:
            if self._stream is not None:
                self._stream.cancel()
                await asyncio.gather(self._stream, return_exceptions=True)
            await web.close()
