"""The server's HTTP: who may ask, how failures are answered, and on which sockets it listens."""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from eval.desktop import BrokenByAgent, DesktopGone, InfraError
from eval.desktops.server import fast, public
from eval.desktops.server.errors import Refused
from eval.desktops.server.metrics import DesktopMetrics
from eval.desktops.server.requests import SERVICE, Settings
from eval.desktops.server.service import DesktopService
from eval.desktops.wire import FILE_LIMIT, ErrorReply

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
    fast.add_routes(app)
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
