"""MCP over streamable HTTP: requests are posted to /mcp; a stream that the client holds open tells that it lives.

A client that never held one is gone when it was silent for `idle` seconds of the configuration.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, Final

import msgspec
from aiohttp import web

from eval.desktop import InfraError
from eval.desktops.server.app import error_reply
from eval.serve.choosing import RequestRefused
from eval.serve.http import BODY_LIMIT, HEALTH, guarded, healthy, watch
from eval.serve.mcp import NO_METHOD, NO_REQUEST, McpClient, McpRequest, failed
from eval.serve.sessions import ClientSessions

SESSION: Final = "Mcp-Session-Id"
GRACE_S: Final = 5.0  # seconds in which a client that lost its stream may open another
PULSE_S: Final = 1.0  # so often an open stream is looked at


class HeldClient:
    """One client's session, and the connections that it holds."""

    def __init__(self, client: McpClient) -> None:
        self.client = client
        self.turn = asyncio.Lock()
        self.connections = 0
        self.held = False  # it had a stream: without one it is gone soon
        self.ending: asyncio.TimerHandle | None = None


class McpHttp:
    """The clients of a server."""

    def __init__(self, sessions: ClientSessions) -> None:
        self.sessions = sessions
        self.clients: dict[str, HeldClient] = {}
        self.shared = sessions.session() if sessions.config.shared else None
        self._ends: set[asyncio.Task[None]] = set()

    async def posted(self, request: web.Request) -> web.StreamResponse:
        """POST /mcp: one message, and its answer as JSON."""
        try:
            message = msgspec.json.decode(await request.read(), type=McpRequest)
        except msgspec.DecodeError as error:
            return _answered(400, failed(None, NO_REQUEST, f"no request of JSON-RPC 2.0: {error}"))
        name = request.headers.get(SESSION)
        if message.method == "initialize":
            name = secrets.token_urlsafe(24)
            self.clients[name] = HeldClient(McpClient(self.sessions, self.shared or self.sessions.session()))
        elif name is None:
            known = message.method in ("ping", "tools/list", "tools/call")
            code = NO_REQUEST if known else NO_METHOD
            return _answered(400, failed(message.id, code, f"a session begins with initialize ({SESSION})"))
        if (held := self.clients.get(name)) is None:
            return _answered(404, failed(message.id, NO_REQUEST, "there is no such session, or it has ended"))
        watch(request)
        self._joined(held)
        try:
            async with held.turn:
                answer = await held.client.answer(message)
        finally:
            self._left(name, held)
        if answer is None:
            return web.Response(status=202, headers={SESSION: name})
        return _answered(200, answer, {SESSION: name})

    async def streamed(self, request: web.Request) -> web.StreamResponse:
        """GET /mcp: a stream without events, which the client holds open while it lives."""
        name, held = self._held(request)
        if held is None:
            return web.Response(status=404)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        await response.prepare(request)
        watch(request)
        held.held = True
        self._joined(held)
        try:
            while name in self.clients and request.transport is not None and not request.transport.is_closing():
                await response.write(b":\n\n")
                await asyncio.sleep(PULSE_S)
        except ConnectionError:
            pass
        finally:
            self._left(name, held)
        return response

    async def deleted(self, request: web.Request) -> web.StreamResponse:
        """DELETE /mcp: the client ends its session."""
        name, held = self._held(request)
        if held is None:
            return web.Response(status=404)
        await self._end(name, held)
        return web.Response(status=200)

    def _held(self, request: web.Request) -> tuple[str, HeldClient | None]:
        name = request.headers.get(SESSION, "")
        return name, self.clients.get(name)

    def _joined(self, held: HeldClient) -> None:
        held.connections += 1
        if held.ending is not None:
            held.ending.cancel()
            held.ending = None

    def _left(self, name: str, held: HeldClient) -> None:
        held.connections -= 1
        if held.connections == 0 and name in self.clients:
            patience = GRACE_S if held.held else self.sessions.config.idle
            held.ending = asyncio.get_running_loop().call_later(patience, self._forget, name, held)

    def _forget(self, name: str, held: HeldClient) -> None:
        task = asyncio.create_task(self._end(name, held))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _end(self, name: str, held: HeldClient) -> None:
        self.clients.pop(name, None)
        if self.shared is None:
            await held.client.session.close()

    async def verdict(self, request: web.Request) -> web.Response:
        """GET /verdict: ends the shared episode, as done does, and tells its score. An episode that the infrastructure
        failed has none."""
        if self.shared is None:
            return error_reply(404, "not_shared", "each client has episodes of its own here (shared)")
        try:
            if (record := await self.shared.record()) is None:
                record = (await McpClient(self.sessions, self.shared).perform("done", {})).record
        except (RequestRefused, InfraError) as error:
            return error_reply(503, "infra", str(error))
        if record is None or record.outcome != "scored":
            return error_reply(503, "infra", (record.error if record else None) or "the episode was not judged")
        return web.json_response({"score": record.score, "success": record.success, "steps": record.steps})


def _answered(status: int, answer: dict[str, Any], headers: dict[str, str] | None = None) -> web.Response:
    body = msgspec.json.encode(answer)
    return web.Response(status=status, body=body, content_type="application/json", headers=headers)


def make_app(sessions: ClientSessions, token: str | None, *, loopback: bool) -> web.Application:
    """The application. token None: for a socket that only its own user can open."""
    face = McpHttp(sessions)
    app = web.Application(middlewares=[guarded(token, loopback=loopback)], client_max_size=BODY_LIMIT)
    app.router.add_post("/mcp", face.posted)
    app.router.add_get("/mcp", face.streamed)
    app.router.add_delete("/mcp", face.deleted)
    app.router.add_get("/verdict", face.verdict)
    app.router.add_get(HEALTH, healthy)
    return app
