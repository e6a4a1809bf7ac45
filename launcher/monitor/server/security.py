"""Who may ask the monitor, and the headers of every answer.

The server listens on the loopback address only, but every page that the user's browser shows, from anywhere, can send
requests there. So the name in Host must be one of this machine (a foreign name that resolves to 127.0.0.1 is refused),
an Origin must be the server's own, and the request must carry the token, as a cookie that no script can read.

Behind a proxy that asks who somebody is (`--behind NAME`), the name is also the proxy's, its Origin is https, and the
proxy gives the token in a header: browsers have none.
"""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from launcher.monitor.server.entry import EntryCodes

NAMES: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))
ENTER: Final = "/enter"
TOKEN_HEADER: Final = "X-Slipway-Token"  # only a proxy sends it
READING: Final = ("GET", "HEAD")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; worker-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
WITHOUT: Final = "Open the address that `launcher monitor` printed: this browser was not let in yet.\n"


class RequestGuard:
    """Answers what may not be asked, and passes the rest on."""

    def __init__(
        self, app: ASGIApp, token: str, codes: EntryCodes, port: int, allow_changes: bool = False, behind: str = ""
    ) -> None:
        self.app, self.token, self.codes, self.allow_changes = app, token, codes, allow_changes
        self.behind = behind.lower()
        self.cookie = f"slipway-monitor-{port}"  # cookies do not tell ports apart

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._answer(scope)
        await (answer if answer is not None else self.app)(scope, receive, guarded)

    def _answer(self, scope: Scope) -> Response | None:
        headers, method, path = Headers(scope=scope), str(scope["method"]), str(scope["path"])
        host = headers.getlist("host")
        proxied = len(host) == 1 and self.behind != "" and _name(host[0]) == self.behind
        if len(host) != 1 or (_name(host[0]) not in NAMES and not proxied):
            return PlainTextResponse("this is not an address of the monitor\n", 421)
        origin = headers.get("origin")
        if origin is not None and origin != f"{'https' if proxied else 'http'}://{host[0]}":
            return PlainTextResponse("asked by another site\n", 403)
        if headers.get("sec-fetch-site", "none") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("asked by another site\n", 403)
        if method not in READING:
            if method != "POST" or not self.allow_changes:
                return PlainTextResponse("the monitor only reads; see --allow-changes\n", 405)
            if origin is None:
                return PlainTextResponse("a change needs an Origin\n", 403)
        if path == ENTER and not proxied:
            return self._enter(scope)
        if proxied:
            given = headers.getlist(TOKEN_HEADER)
            return None if len(given) == 1 and self._right(given[0]) else PlainTextResponse(WITHOUT, 401)
        if not self._known(headers):
            return PlainTextResponse(WITHOUT, 401)
        return None

    def _enter(self, scope: Scope) -> Response:
        """Gives the token as a cookie for the code of the first address, and leaves that address at once."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("code", [""])[-1]
        if not self.codes.take(given):
            return PlainTextResponse(WITHOUT, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax", path="/", max_age=30 * 86400)
        return answer

    def _known(self, headers: Headers) -> bool:
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        return self.cookie in cookies and self._right(cookies[self.cookie].value)

    def _right(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())


def of_this_machine(host: str) -> bool:
    """Whether a Host header names this machine, and not a proxy's name."""
    return _name(host) in NAMES


def _name(host: str) -> str:
    """The name in a Host header, without the port; "" for anything odd."""
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        return host.lower()
    return name.lower() if port.isdecimal() else ""
