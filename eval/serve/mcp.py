"""The face for MCP: a session as tools of the Model Context Protocol, whatever carries its messages.

The revisions with a handshake are spoken (2024-11-05 to 2025-11-25); a client that begins with the stateless one of
2026 is told that its method is unknown, and falls back to the handshake, as that revision says.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, BinaryIO, Final

import msgspec

from eval.actions.dialects.strict_json import write_json
from eval.actions.geometry import Cells
from eval.agents.base import Decision
from eval.agents.wire import png
from eval.config import ConfigError
from eval.desktop import InfraError
from eval.desktops.mcp.tools import ACTIONS, REVISIONS, listed, release
from eval.desktops.tools import TOOLS
from eval.episodes import ToolCall
from eval.serve.choosing import RequestRefused
from eval.serve.http import BODY_LIMIT
from eval.serve.reading import action_of
from eval.serve.sessions import AfterAnswer, ClientSession, ClientSessions, serve_stream

NOT_JSON, NO_REQUEST, NO_METHOD, NO_ARGUMENTS, FAULT = -32700, -32600, -32601, -32602, -32603  # JSON-RPC 2.0
_log = logging.getLogger(__name__)


class McpRequest(msgspec.Struct):
    """A message of a client; one without an id wants no answer."""

    jsonrpc: str
    method: str | None = None
    id: str | int | float | None = None
    params: dict[str, Any] = {}


class Begun(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of `start`."""

    task: str | None = None
    seed: int | None = None


class WrongRequest(Exception):
    """A request that is none, with JSON-RPC's code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class McpClient:
    """One client: its requests become answers of its session's episode."""

    def __init__(self, sessions: ClientSessions, session: ClientSession) -> None:
        self.sessions = sessions
        self.session = session
        self.config = sessions.config

    async def handle(self, text: str | bytes) -> dict[str, Any] | None:
        """The answer to a message; None to one that wants none."""
        try:
            request = msgspec.json.decode(text, type=McpRequest)
        except msgspec.ValidationError as error:
            return failed(None, NO_REQUEST, f"no request of JSON-RPC 2.0: {error}")
        except msgspec.DecodeError as error:
            return failed(None, NOT_JSON, f"not JSON: {error}")
        return await self.answer(request)

    async def answer(self, request: McpRequest) -> dict[str, Any] | None:
        """The answer to a request; None to a notification, and to an answer."""
        if request.method is None or request.id is None:
            return None
        try:
            result = await self._result(request.method, request.params)
        except WrongRequest as wrong:
            return failed(request.id, wrong.code, str(wrong))
        except Exception:
            _log.exception("%s failed", request.method)
            return failed(request.id, FAULT, "the server failed; its log says why")
        return {"jsonrpc": "2.0", "id": request.id, "result": result}

    async def _result(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return self._initialize(params)
            case "ping":
                return {}
            case "tools/list":
                return {"tools": listed(self.config.interface, tasks=self.config.tasks is not None)}
            case "tools/call":
                return await self._call(params)
            case _:
                raise WrongRequest(NO_METHOD, f"there is no method {method[:60]!r}")

    def _initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        how = "Each result shows the screen; points are pixels of it."
        if self.config.tasks is not None:
            how = f"Call start for a task. {how} Say done or fail at its end."
        return {
            "protocolVersion": asked if asked in REVISIONS else REVISIONS[-1],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "slipway", "version": release()},
            "instructions": how,
        }

    async def _call(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise WrongRequest(NO_ARGUMENTS, "tools/call takes a name and arguments")
        try:
            return await self._shown(await self.perform(name, arguments))
        except RequestRefused as refused:
            return _told(str(refused), {"error": refused.kind})
        except (InfraError, ConfigError) as error:
            why = f"{type(error).__name__}: {error}. This is the desktop's failure, and no score; call start."
            return _told(why, {"error": "infra"})

    async def perform(self, name: str, arguments: dict[str, Any]) -> AfterAnswer:
        """Does a call of a tool. Raises WrongRequest, RequestRefused, ConfigError and InfraError."""
        if name == "start":
            try:
                asked = msgspec.convert(arguments, Begun)
            except msgspec.ValidationError as error:
                raise WrongRequest(NO_ARGUMENTS, f"start: {error}") from None
            return await self.session.start(asked.task, asked.seed, once=self.config.shared)
        known = name in ACTIONS or (name in TOOLS and self.config.interface != "gui")
        if not known and not self.session.active:
            raise WrongRequest(NO_ARGUMENTS, f"there is no tool {name[:60]!r}")
        if not self.session.begun:  # what comes after the end of an episode begins none
            seen = await self.session.start(once=self.config.shared)
            if name == "screenshot":
                return seen
        said = write_json({"name": name, "arguments": arguments})
        if not known:
            return await self.session.answer(Decision(said, None, parse_error=f"there is no tool {name[:60]!r}"))
        if name in TOOLS:
            call = ToolCall(name=name, arguments=arguments)
            return await self.session.call(Decision(said, None, calls=(call,)), call)
        observation = (await self.session.look()).observation
        frame = Cells(*observation.image.size)
        return await self.session.answer(
            action_of(ACTIONS[name].action(arguments), observation.marks, frame=frame, said=said)
        )

    async def _shown(self, seen: AfterAnswer) -> dict[str, Any]:
        """The result of a call: what happened in words, and the screen."""
        record = seen.record
        words = [seen.task.instruction] if seen.steps == 0 and seen.task.instruction else []
        words += [text for text in (seen.result, seen.told) if text]
        told: dict[str, Any] = {"steps": seen.steps, "done": seen.done, "task": seen.task.task_id}
        if record is not None:
            told |= {"success": record.success, "score": record.score}
            verdict = "nothing was judged" if record.success is None else "solved" if record.success else "not solved"
            words.append(f"the episode has ended: {verdict}")
        picture = await asyncio.to_thread(png, seen.observation.image)
        content: list[dict[str, Any]] = [{"type": "text", "text": "\n".join(words) or f"step {seen.steps}"}]
        content.append({"type": "image", "data": picture, "mimeType": "image/png"})
        return {"content": content, "structuredContent": told, "isError": seen.told is not None}


def _told(why: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": why}], "structuredContent": facts, "isError": True}


def failed(identity: str | int | float | None, code: int, message: str) -> dict[str, Any]:
    """An answer of JSON-RPC that is an error."""
    return {"jsonrpc": "2.0", "id": identity, "error": {"code": code, "message": message}}


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
