"""Blind mode: what checkers said of a rollout is not shown until the person has judged it.

A browser is in it by a cookie, so every page of it is. It holds only where a person can judge: on this machine, with
`--allow-changes`. What is a figure over rollouts (so many of so many) tells of those that are hidden, too, and is not
shown while any of them is.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from http.cookies import CookieError, SimpleCookie
from typing import Final

from sqlalchemy import RowMapping
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from launcher.monitor.server.queries.verdicts import Judged
from launcher.monitor.server.security import of_this_machine

COOKIE: Final = "slipway-blind"
_ON: ContextVar[bool] = ContextVar("blind", default=False)


class BlindMode:
    """Notes for each request whether its browser is in blind mode."""

    def __init__(self, app: ASGIApp, possible: bool) -> None:
        self.app, self.possible = app, possible

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            here = self.possible and of_this_machine(headers.get("host", ""))
            _ON.set(here and _asked(headers.get("cookie", ""), cookie_of(scope)))
        await self.app(scope, receive, send)


def _asked(text: str, name: str) -> bool:
    try:
        cookies = SimpleCookie(text)
    except CookieError:
        return False
    return name in cookies and cookies[name].value == "1"


def cookie_of(scope: Scope) -> str:
    """The name of the cookie, with the server's port: cookies do not tell ports apart."""
    return f"{COOKIE}-{scope['server'][1]}"


def blind() -> bool:
    """Whether the present request's browser is in blind mode."""
    return _ON.get()


class Hiding:
    """What one page hides from `person`; `judged`: what people say of the rollouts that it shows."""

    def __init__(self, person: str, judged: Judged) -> None:
        self.on, self._person, self._judged = blind(), person, judged

    def hides(self, row: RowMapping) -> bool:
        """Whether a checker judged this rollout and the person has not."""
        if not self.on or row["success"] is None:
            return False
        said = self._judged.get((row["run_id"], row["place"]), ())
        return all(one["person"] != self._person for one in said)

    def any(self, rows: Iterable[RowMapping]) -> bool:
        return self.on and any(self.hides(row) for row in rows)
