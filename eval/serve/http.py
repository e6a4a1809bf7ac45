"""HTTP of the faces: who may ask, and how the end of a client is noticed.

Programs ask, browsers do not: a request with an Origin is refused, and on a loopback address one for another host, so
that no page can get through by a name that it controls (DNS rebinding).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import socket
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from eval.desktops.server.app import LOOPBACK, error_reply

BODY_LIMIT: Final = 1 << 20
HEALTH: Final = "/health"
API_KEY: Final = "X-API-Key"  # where clients of the Open Reward Standard have the token
# The kernel asks a silent peer, so a client that only thinks is not taken for a dead one: gone after 8 s at most
KEEPALIVE: Final = (("TCP_KEEPIDLE", 4), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 2), ("TCP_USER_TIMEOUT", 8000))


def given(header: str) -> str:
    """The token of an Authorization header: a Bearer's, or the password of Basic, which clients take from a URL such as
    http://any:TOKEN@HOST:PORT. "" where it holds none."""
    kind, _, value = header.partition(" ")
    if kind == "Bearer":
        return value
    if kind == "Basic":
        try:
            return base64.b64decode(value, validate=True).decode("utf-8", "surrogateescape").partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""


def guarded(token: str | None, *, loopback: bool) -> Middleware:
    """Lets a request through that brings the token, and comes from no page of a browser. token None: on a socket that
    only its own user can open."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if "Origin" in request.headers:
            return error_reply(403, "not_allowed", "pages of browsers are not answered (Origin)")
        host = request.host.rsplit(":", 1)[0].strip("[]") if not request.host.endswith("]") else request.host[1:-1]
        if loopback and host not in LOOPBACK:
            return error_reply(403, "not_allowed", "this address is for programs of this machine (Host)")
        if token is not None and request.path != HEALTH:
            sent = request.headers.get(API_KEY) or given(request.headers.get("Authorization", ""))
            if not hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), token.encode()):
                return error_reply(401, "unauthorized", "the token is missing or wrong (Authorization: Bearer TOKEN)")
        return await handler(request)

    return check


def watch(request: web.Request) -> None:
    """From now on the end of the client's machine ends the connection, too."""
    plain = None if request.transport is None else request.transport.get_extra_info("socket")
    if plain is None or plain.family not in (socket.AF_INET, socket.AF_INET6):
        return
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


async def healthy(request: web.Request) -> web.Response:
    """GET /health, which needs no token: that the server is there."""
    return web.json_response({"status": "healthy"})
