"""The server's HTTP: who may ask, how it answers failures, on which sockets it listens, and our own protocol under /v1.
A request of that protocol is a batch of actions, its answer also has the look after them (eval.desktops.wire)."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from eval.desktop import BrokenByAgent, DesktopGone, InfraError
from eval.desktops.server import commands, public
from eval.desktops.server.errors import NotAllowed, Refused, TooLarge
from eval.desktops.server.requests import (
    SERVICE,
    Settings,
    json_object,
    list_files,
    read_file,
    seconds_field,
    text_field,
    write_file,
)
from eval.desktops.server.service import DesktopService
from eval.desktops.wire import FILE_LIMIT, MSGPACK, UNREADABLE, ActionBatch, ErrorReply, Ran, WantedPicture

BODY_LIMIT: Final = FILE_LIMIT + (1 << 20)
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_log = logging.getLogger(__name__)


def error_reply(status: int, kind: str, message: str) -> web.Response:
    """An answer that is no success."""
    body = msgspec.json.encode(ErrorReply(kind=kind, message=message, error=message))
    return web.Response(status=status, body=body, content_type="application/json")


@web.middleware
async def _failures(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure as an answer with its kind; a bug is logged here and not shown."""
    try:
        return await handler(request)
    except Refused as error:
        return error_reply(error.status, error.kind, str(error))
    except BrokenByAgent as error:
        return error_reply(500, "broken_by_agent", str(error))
    except DesktopGone as error:
        return error_reply(503, "desktop_gone", str(error))
    except InfraError as error:
        return error_reply(503, "infrastructure", f"{type(error).__name__}: {error}")
    except web.HTTPRequestEntityTooLarge as error:
        return error_reply(413, "too_large", str(error.text))
    except web.HTTPException as error:
        return error_reply(error.status, "bad_request", error.reason)
    except Exception:
        _log.exception("%s %s failed", request.method, request.path)
        return error_reply(500, "bug", "the server failed; its log says why")


def _asks_with(token: str) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "")
        # a header may hold any bytes
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {token}".encode()):
            return error_reply(401, "unauthorized", "the token is missing or wrong (Authorization: Bearer TOKEN)")
        return await handler(request)

    return check


@web.middleware
async def _no_browser(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Without a token, a web page in a browser of this machine must not get through. A page's pictures and links bring
    no Origin: then the other headers tell that a browser asks, and every browser calls itself Mozilla."""
    host = request.host.rsplit(":", 1)[0].strip("[]")
    told = request.headers
    browser = any(name in told for name in ("Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode"))
    if browser or told.get("User-Agent", "").startswith("Mozilla/") or host not in LOOPBACK:
        return error_reply(403, "not_allowed", "this port answers programs of this machine only")
    return await handler(request)


def make_app(
    service: DesktopService,
    token: str | None,
    settings: Settings | None = None,
    numbers: DesktopMetrics | None = None,
) -> web.Application:
    """The application. Without a token anyone who can connect may do everything."""
    guard = _asks_with(token) if token is not None else _no_browser
    counting = [numbers.counting()] if numbers is not None else []
    app = web.Application(middlewares=[guard, *counting, _failures], client_max_size=BODY_LIMIT)
    app[SERVICE] = service
    if numbers is not None:
        app.router.add_get("/metrics", numbers.answer)
    public.add_routes(app, settings or Settings())
    add_routes(app)
    if numbers is not None:
        numbers.begin(app)
    return app


@contextlib.asynccontextmanager
async def listening(app: web.Application, where: str) -> AsyncIterator[str]:
    """Serves until the block ends. `where`: unix:PATH, or HOST:PORT, 0 for any free port. Gives the address.

    A Unix socket can be opened by its own user only. Raises OSError.
    """
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        if where.startswith("unix:"):
            path = Path(where.removeprefix("unix:"))
            before = os.umask(0o177)
            try:
                await web.UnixSite(runner, str(path)).start()
            finally:
                os.umask(before)
            yield where
            path.unlink(missing_ok=True)
        else:
            host, _, port = where.rpartition(":")
            await web.TCPSite(runner, host.strip("[]"), int(port)).start()
            yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


T = TypeVar("T")
BATCH_LIMIT: Final = 4 << 20
COMMAND_LIMIT_S: Final = 600.0
TYPES: Final = {"png": "image/png", "webp": "image/webp", "jpeg": "image/jpeg", "rgb": "application/octet-stream"}


def add_routes(app: web.Application) -> None:
    """Adds the routes of /v1."""
    app.router.add_get("/v1/status", _status)
    app.router.add_post("/v1/act", _act)
    app.router.add_get("/v1/frame", _frame)
    app.router.add_get("/v1/tree", _tree)
    app.router.add_post("/v1/release", _release)
    app.router.add_post("/v1/answers", _answers)
    app.router.add_post("/v1/reset", _reset)
    app.router.add_post("/v1/run", _run)
    app.router.add_post("/v1/start", _start)
    app.router.add_post("/v1/windows", _windows)
    app.router.add_get("/v1/file", _read)
    app.router.add_put("/v1/file", _write)
    app.router.add_get("/v1/files", _list)


def _answer(request: web.Request, value: object) -> web.Response:
    if MSGPACK in request.headers.get("Accept", ""):
        return web.Response(body=msgspec.msgpack.encode(value), content_type=MSGPACK)
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


async def _decoded(request: web.Request, kind: type[T]) -> T:
    if (request.content_length or 0) > BATCH_LIMIT:
        raise TooLarge(f"a batch has at most {BATCH_LIMIT} bytes")
    body = await request.read()
    if len(body) > BATCH_LIMIT:
        raise TooLarge(f"a batch has at most {BATCH_LIMIT} bytes")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except UNREADABLE as error:
        raise Refused(str(error)) from None


async def _status(request: web.Request) -> web.Response:
    return _answer(request, request.app[SERVICE].status())


async def _act(request: web.Request) -> web.Response:
    batch = await _decoded(request, ActionBatch)
    return _answer(request, await request.app[SERVICE].act(batch))


async def _frame(request: web.Request) -> web.Response:
    """The picture alone, as a browser or curl asks for it; 304 where `If-None-Match` names the frame."""
    known = request.headers.get("If-None-Match", "").strip('"') or None
    try:
        wanted = msgspec.convert(
            {name: request.query[name] for name in ("form", "quality", "settle") if name in request.query},
            WantedPicture,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise Refused(str(error)) from None
    wanted.known = known
    seen = await request.app[SERVICE].look(wanted)
    headers = {"ETag": f'"{seen.frame}"', "Cache-Control": "no-store"}
    if seen.picture is None:
        return web.Response(status=304, headers=headers)
    return web.Response(body=seen.picture, content_type=TYPES[seen.form], headers=headers)


async def _tree(request: web.Request) -> web.Response:
    return _answer(request, await request.app[SERVICE].tree(whole="whole" in request.query))


async def _release(request: web.Request) -> web.Response:
    await request.app[SERVICE].release()
    return _answer(request, {})


async def _answers(request: web.Request) -> web.Response:
    """Whether the X server answers, after an action that was given up."""
    return _answer(request, {"answers": await request.app[SERVICE].answers()})


async def _reset(request: web.Request) -> web.Response:
    # done to its end also when the client goes away: half a reset is no desktop
    await asyncio.shield(asyncio.ensure_future(request.app[SERVICE].reset()))
    return _answer(request, request.app[SERVICE].status())


async def _run(request: web.Request) -> web.Response:
    """A command, run to its end, at most `limit` seconds."""
    service, data = request.app[SERVICE], await json_object(request)
    service.commands_allowed()
    argv = _argv(data)
    limit = seconds_field(data, "limit", 120.0, COMMAND_LIMIT_S)
    folder = PurePosixPath(text_field(data, "folder", str(service.session.place.home_inside)))
    output = await service.on_guest(commands.run(service.session, argv, limit_s=limit, folder=folder))
    return _answer(request, Ran(output.stdout, output.stderr, output.status))


async def _start(request: web.Request) -> web.Response:
    """A program that stays, as those of the task's start state."""
    service, data = request.app[SERVICE], await json_object(request)
    if not service.permissions.commands:
        raise NotAllowed("this server starts no programs")
    program = await service.on_guest(service.session.run(_argv(data)))
    return _answer(request, {"pid": program.pid})


async def _windows(request: web.Request) -> web.Response:
    """The windows, the oldest first; with `count` once there are so many, at most `limit` seconds later."""
    service, data = request.app[SERVICE], await json_object(request)
    count = data.get("count")
    if count is not None:
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise Refused("count must be a whole number from 0")
        await service.session.windows(count, seconds_field(data, "limit", 60.0, COMMAND_LIMIT_S))
    listed = await service.call(lambda executor: executor.windows.listed())
    return _answer(request, {"windows": [{"title": window.title, "box": window.box} for window in listed]})


async def _read(request: web.Request) -> web.Response:
    data = await read_file(request, request.query.get("path", ""))
    return web.Response(body=data, content_type="application/octet-stream")


async def _list(request: web.Request) -> web.Response:
    """What lies below a folder of the home, at any depth: path from there -> kind, mode, size."""
    return _answer(request, await list_files(request, request.query.get("path") or "~"))


async def _write(request: web.Request) -> web.Response:
    await write_file(request, request.query.get("path", ""), await request.read())
    return _answer(request, {})


def _argv(data: dict[str, object]) -> list[str]:
    argv = data.get("argv")
    if not isinstance(argv, list) or not argv or not all(isinstance(part, str) and "\0" not in part for part in argv):
        raise Refused("argv is required, a list of texts")
    return argv


TYPE: Final = "text/plain; version=0.0.4"
METRICS: Final = {
    # name: (kind, what it is)
    "slipway_desktop_started_timestamp_seconds": ("gauge", "When the desktop's server started."),
    "slipway_desktop_requests_total": ("counter", "Answered requests by route and status."),
    "slipway_desktop_request_seconds_total": ("counter", "Seconds that they took together, by route."),
}


class DesktopMetrics:
    def __init__(self) -> None:
        self._started = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def begin(self, app: web.Application) -> None:
        """Sets the numbers of every route to 0: increase() does not see a value that appears with the first event."""
        for resource in app.router.resources():
            for status in (200, 500):
                self._requests[resource.canonical, status] += 0
            self._seconds[resource.canonical] += 0.0

    def counting(self) -> Middleware:
        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            resource = request.match_info.route.resource
            route = resource.canonical if resource is not None else "none"  # not the path: anybody may ask for anything
            began = time.monotonic()
            status = 500
            try:
                answer = await handler(request)
                status = answer.status
                return answer
            finally:
                self._requests[route, status] += 1
                self._seconds[route] += time.monotonic() - began

        return count

    async def answer(self, request: web.Request) -> web.Response:
        return web.Response(body=self.text().encode(), headers={"Content-Type": TYPE})

    def text(self) -> str:
        values = {
            "slipway_desktop_started_timestamp_seconds": {"": self._started},
            "slipway_desktop_requests_total": {
                f'{{route="{route}",status="{status}"}}': float(count)
                for (route, status), count in sorted(self._requests.items())
            },
            "slipway_desktop_request_seconds_total": {
                f'{{route="{route}"}}': seconds for route, seconds in sorted(self._seconds.items())
            },
        }
        lines = []
        for name, samples in values.items():
            kind, meaning = METRICS[name]
            lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{labels} {value!r}" for labels, value in samples.items()]
        return "\n".join(lines) + "\n"
