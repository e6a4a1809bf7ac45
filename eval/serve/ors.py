"""The face for the Open Reward Standard (ors-sdk): one environment, whose tools are those of the face for MCP.

A session is named by the client in X-Session-ID, and made by /create. The result of a call comes as a stream of events,
which a client that lost its connection asks for again. A client lives while one of its connections does, or while it
pings.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from eval.agents.wire import png
from eval.config import ConfigError
from eval.desktop import InfraError
from eval.desktops.mcp.tools import listed
from eval.serve.choosing import RequestRefused
from eval.serve.http import BODY_LIMIT, HEALTH, guarded, healthy, watch
from eval.serve.mcp import McpClient, WrongRequest
from eval.serve.sessions import AfterAnswer, ClientSessions

T = TypeVar("T")
NAME: Final = "desktops"
SESSION: Final = "X-Session-ID"
SPLITS: Final = ("train", "validation", "test")
GRACE_S: Final = 5.0  # seconds in which a client that lost its connections may open another
SILENT_S: Final = 25.0  # seconds after which a client is gone that neither asks nor pings; the official one pings at 10
PULSE_S: Final = 1.0  # so often clients are looked at
CHUNK: Final = 4096  # characters of an event, which is a line that the client reads whole


class OrsTask(msgspec.Struct, forbid_unknown_fields=True):
    """A task as clients see it, and give it back."""

    task_id: str
    seed: int
    instruction: str = ""


class OrsCreate(msgspec.Struct, forbid_unknown_fields=True):
    """The body of /create: a task, or its place in the split."""

    env_name: str | None = None
    task_spec: OrsTask | None = None
    split: str | None = None
    index: int | None = None


class OrsSplit(msgspec.Struct, forbid_unknown_fields=True):
    """What asks for tasks: all of a split, one, or some of them."""

    split: str
    index: int | None = None
    start: int | None = None
    stop: int | None = None


class OrsCall(msgspec.Struct, forbid_unknown_fields=True):
    """A call of a tool. task_id: of an earlier call, whose result is asked for again."""

    name: str
    input: dict[str, Any] = {}
    task_id: str | None = None


class OrsClient:
    """One session: its episode, its last call, and the connections by which its client came."""

    def __init__(self, client: McpClient, task: OrsTask) -> None:
        self.client = client
        self.begun = asyncio.create_task(client.session.start(task.task_id, task.seed))
        self.call: tuple[str, asyncio.Task[dict[str, Any]]] | None = None
        self.connections: set[asyncio.BaseTransport] = set()
        self.heard = time.monotonic()

    def note(self, request: web.Request) -> None:
        """Notes that the client asked something."""
        self.heard = time.monotonic()
        self.connections = {each for each in self.connections if not each.is_closing()}
        if request.transport is not None and request.keep_alive:
            watch(request)
            self.connections.add(request.transport)

    @property
    def gone(self) -> bool:
        """Whether the client has left without a word."""
        silent = time.monotonic() - self.heard
        connected = any(not each.is_closing() for each in self.connections)
        if connected and not (self.begun.done() and (self.call is None or self.call[1].done())):
            return False  # it waits for its desktop, or for a result
        return silent > (GRACE_S if self.connections and not connected else SILENT_S)

    async def close(self) -> None:
        """Gives the desktop back."""
        await self.client.session.close()
        tasks = [self.begun] if self.call is None else [self.begun, self.call[1]]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class OrsServer:
    """The clients of a server."""

    def __init__(self, sessions: ClientSessions) -> None:
        self.sessions = sessions
        self.clients: dict[str, OrsClient] = {}
        split = str(sessions.config.options.get("split", "test"))
        self.split = split if split in SPLITS else "test"
        self.tasks = [OrsTask(task.task_id, task.seed, task.instruction) for task in sessions.offered.tasks]
        known = [tool for tool in listed(sessions.config.interface, tasks=False) if tool["name"] != "start"]
        self.tools = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"]}
            for tool in known
        ]

    async def looking(self, app: web.Application) -> AsyncIterator[None]:
        """While the server runs, the sessions of clients that have gone are ended."""

        async def look() -> None:
            while True:
                await asyncio.sleep(PULSE_S)
                for name in [name for name, client in self.clients.items() if client.gone]:
                    await self._end(name)

        task = asyncio.create_task(look())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for name in list(self.clients):
            await self._end(name)

    async def _end(self, name: str) -> None:
        if (client := self.clients.pop(name, None)) is not None:
            await client.close()

    def _client(self, request: web.Request) -> OrsClient:
        """The client of a request. Raises HTTPNotFound."""
        client = self.clients.get(request.headers.get(SESSION, ""))
        if client is None:
            raise web.HTTPNotFound(text=_detail(f"there is no such session ({SESSION}), or it has ended"))
        client.note(request)
        return client

    async def environments(self, request: web.Request) -> web.Response:
        return web.json_response([NAME])

    async def splits(self, request: web.Request) -> web.Response:
        return web.json_response([{"name": self.split, "type": self.split}])

    async def listed_tools(self, request: web.Request) -> web.Response:
        return web.json_response({"tools": self.tools})

    async def listed_tasks(self, request: web.Request) -> web.Response:
        """POST /ENV/tasks, num_tasks, task and task_range."""
        asked = await _body(request, OrsSplit)
        self._check_split(asked.split)
        answer: dict[str, Any]
        match request.match_info["what"]:
            case "tasks":
                answer = {"tasks": self.tasks, "env_name": NAME}
            case "num_tasks":
                answer = {"num_tasks": len(self.tasks)}
            case "task":
                answer = {"task": self._at(asked.index)}
            case _:
                answer = {"tasks": self.tasks[asked.start : asked.stop]}
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    def _check_split(self, split: str | None) -> None:
        if split != self.split:
            raise web.HTTPBadRequest(text=_detail(f"split {split!r}; allowed: {self.split}"))

    def _at(self, index: int | None) -> OrsTask:
        if index is None or not 0 <= index < len(self.tasks):
            raise web.HTTPBadRequest(text=_detail(f"index {index}; allowed: 0 to {len(self.tasks) - 1}"))
        return self.tasks[index]

    async def new_session(self, request: web.Request) -> web.StreamResponse:
        """POST /create_session: a name for a session, which /create then makes."""
        stream = await _stream(request)
        await _event(stream, "task_id", uuid.uuid4().hex)
        await _event(stream, "end", "")
        return stream

    async def create(self, request: web.Request) -> web.Response:
        """POST /create: begins the episode. What fails in it is told by what the client asks next."""
        name = request.headers.get(SESSION, "")
        asked = await _body(request, OrsCreate)
        if not name or name in self.clients:
            why = f"{SESSION} is missing" if not name else "there is a session of this name"
            raise web.HTTPBadRequest(text=_detail(why))
        if asked.env_name not in (None, NAME):
            raise web.HTTPNotFound(text=_detail(f"environment {asked.env_name!r}; allowed: {NAME}"))
        if (asked.task_spec is None) == (asked.index is None):
            raise web.HTTPBadRequest(text=_detail("either task_spec, or split and index"))
        if asked.task_spec is None:
            self._check_split(asked.split)
        task = asked.task_spec or self._at(asked.index)
        client = self.clients[name] = OrsClient(McpClient(self.sessions, self.sessions.session()), task)
        client.note(request)
        return web.json_response({"sid": name})

    async def delete(self, request: web.Request) -> web.Response:
        """POST /delete and /delete_session: the client ends its session."""
        name = request.headers.get(SESSION, "")
        await self._end(name)
        return web.json_response({"sid": name})

    async def ping(self, request: web.Request) -> web.Response:
        self._client(request)
        return web.json_response({"status": "ok"})

    async def session_tools(self, request: web.Request) -> web.Response:
        self._client(request)
        return await self.listed_tools(request)

    async def prompt(self, request: web.Request) -> web.Response:
        """GET /ENV/prompt: the instruction, and the first screen."""
        begun = self._client(request).begun
        try:
            seen = await asyncio.shield(begun)
        except RequestRefused as refused:
            raise web.HTTPBadRequest(text=_detail(str(refused))) from None
        except (InfraError, ConfigError) as error:
            raise web.HTTPInternalServerError(text=_detail(_infra(error))) from None
        return web.json_response(await _blocks(seen, seen.task.instruction))

    async def called(self, request: web.Request) -> web.StreamResponse:
        """POST /ENV/call: does a call, or tells the result of one whose client lost its connection."""
        client = self._client(request)
        asked = await _body(request, OrsCall)
        if asked.task_id is None:
            client.call = uuid.uuid4().hex, asyncio.create_task(_done(client, asked))
        stream = await _stream(request)
        if client.call is None or asked.task_id not in (None, client.call[0]):
            await _event(stream, "error", "there is no such call")
            return stream
        name, call = client.call
        await _event(stream, "task_id", name)
        while not call.done():
            await asyncio.wait({call}, timeout=PULSE_S)
            await stream.write(b":\n\n")
        try:
            text = msgspec.json.encode(call.result()).decode()
        except (InfraError, ConfigError) as error:
            await _event(stream, "error", _infra(error))
            return stream
        pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
        for piece in pieces[:-1]:
            await _event(stream, "chunk", piece)
        await _event(stream, "end", pieces[-1])
        client.note(request)
        return stream


async def _done(client: OrsClient, asked: OrsCall) -> dict[str, Any]:
    """The result of a call. Raises InfraError and ConfigError, which are no result."""
    try:
        await asyncio.shield(client.begun)
        seen = await client.client.perform(asked.name, asked.input)
    except (RequestRefused, WrongRequest) as refused:
        return {"ok": False, "error": str(refused)}
    record = seen.record
    told: dict[str, Any] = {"steps": seen.steps, "told": seen.told}
    if record is not None:
        told["success"] = record.success
    return {
        "ok": True,
        "output": {
            "blocks": await _blocks(seen, seen.words),
            "metadata": told,
            "reward": None if record is None else record.score,
            "finished": seen.done,
        },
    }


async def _blocks(seen: AfterAnswer, text: str) -> list[dict[str, Any]]:
    """A text, and the screen."""
    picture = await asyncio.to_thread(png, seen.observation.image)
    return [
        {"type": "text", "text": text, "detail": None},
        {"type": "image", "data": picture, "mimeType": "image/png", "detail": None},
    ]


async def _body(request: web.Request, kind: type[T]) -> T:
    """The body of a request. Raises HTTPBadRequest."""
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except msgspec.MsgspecError as error:
        raise web.HTTPBadRequest(text=_detail(str(error))) from None


async def _stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
    await response.prepare(request)
    return response


async def _event(stream: web.StreamResponse, event: str, data: str) -> None:
    await stream.write(f"event: {event}\ndata: {data}\n\n".encode())


def _infra(error: Exception) -> str:
    return f"{type(error).__name__}: {error}. This is the desktop's failure, and no score"


def _detail(text: str) -> str:
    """As its clients look for what is wrong."""
    return msgspec.json.encode({"detail": text}).decode()


def make_app(sessions: ClientSessions, token: str | None, *, loopback: bool) -> web.Application:
    """The application. token None: for a socket that only its own user can open."""
    face = OrsServer(sessions)
    app = web.Application(middlewares=[guarded(token, loopback=loopback)], client_max_size=BODY_LIMIT)
    app.cleanup_ctx.append(face.looking)
    routes: list[tuple[str, str, Callable[[web.Request], Awaitable[web.StreamResponse]]]] = [
        ("GET", HEALTH, healthy),
        ("GET", "/list_environments", face.environments),
        ("POST", "/create_session", face.new_session),
        ("POST", "/delete_session", face.delete),
        ("POST", "/create", face.create),
        ("POST", "/delete", face.delete),
        ("POST", "/ping", face.ping),
        ("GET", f"/{NAME}/splits", face.splits),
        ("GET", f"/{NAME}/tools", face.listed_tools),
        ("GET", f"/{NAME}/task_tools", face.session_tools),
        ("GET", f"/{NAME}/prompt", face.prompt),
        ("POST", f"/{NAME}/{{what:tasks|num_tasks|task|task_range}}", face.listed_tasks),
        ("POST", f"/{NAME}/call", face.called),
    ]
    for method, path, handler in routes:
        app.router.add_route(method, path, handler)
    return app
