"""What people say of rollouts: all of it on one page, and the two addresses by which somebody says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs

from sqlalchemy import RowMapping
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from launcher.errors import BadInput
from launcher.monitor.database import written
from launcher.monitor.notice_ingest import put_verdict, verdict_row
from launcher.monitor.server.blind_mode import blind as is_blind
from launcher.monitor.server.blind_mode import cookie_of
from launcher.monitor.server.pages.formats import chosen_page
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.queries.verdicts import SHOWN, VerdictQueries
from launcher.monitor.server.security import of_this_machine
from launcher.monitor.tables import identify
from launcher.results.verdicts import give_verdict
from launcher.store.base import Store

SAID: Final[Mapping[str, bool | None]] = {"solved": True, "failed": False, "unclear": None}
LARGEST: Final = 64 * 1024  # bytes of what a form sends


@dataclass
class VerdictPages:
    """`person`: who judges; `changed` is told the id of a run; the rest as of `TrainingPages`."""

    queries: Queries
    page: Callable[..., HTMLResponse]
    found: Callable[[Request], RowMapping]
    store: Callable[[str], Store]
    changed: Callable[[int], None]
    person: str

    def __post_init__(self) -> None:
        self.of = VerdictQueries(self.queries)

    def verdicts(self, request: Request) -> Response:
        count = self.of.count()
        at = chosen_page(request, count, SHOWN)
        runs = [(row, self.of.agreement(row["id"]), self.of.agreement(row["id"], blind=True)) for row in self.of.runs()]
        trail = self.of.trail(at)
        return self.page(
            "verdicts.html",
            overall=self.of.agreement(),
            blind=self.of.agreement(blind=True),
            runs=runs,
            trail=trail,
            judged=self.of.of(row["run_id"] for row in trail if row["run_id"] is not None),
            at=at,
            pages=max(1, -(-count // SHOWN)),
        )

    def judge(self, request: Request) -> Response:
        """Leads to a rollout that the person has not judged, without what the checker said of it."""
        run = self.found(request)
        rollout = self.of.unjudged(run["id"], self.person)
        if rollout is None:
            return self.page("judged.html", run=run, agreement=self.of.agreement(run["id"], blind=True))
        return RedirectResponse(f"/rollouts/{rollout}?blind=1", 303)

    def of_page(self, rollout: RowMapping, request: Request) -> dict[str, Any]:
        """What a rollout's page shows of verdicts. `hidden`: the checker's is not shown."""
        said = self.of.of_rollout(rollout["run_id"], rollout["place"])
        blind = request.query_params.get("blind") == "1" or is_blind()
        mine = any(row["person"] == self.person for row in said)
        # behind a proxy it is not known who judges
        person = self.person if of_this_machine(request.headers.get("host", "")) else ""
        return {"said": said, "blind": blind, "hidden": blind and not mine, "person": person}

    async def blind(self, request: Request) -> Response:
        """Turns this browser's blind mode on or off."""
        given = await form_of(request)
        if given is None:
            return PlainTextResponse("too long\n", 413)
        if given.get("on") not in ("0", "1"):
            return PlainTextResponse("on: allowed: 0, 1\n", 422)
        answer = PlainTextResponse("done\n", headers={"HX-Refresh": "true"})
        name = cookie_of(request.scope)
        answer.set_cookie(name, given["on"], httponly=True, samesite="lax", path="/", max_age=30 * 86400)
        return answer

    async def give(self, request: Request) -> Response:
        given = await form_of(request)
        if given is None:
            return PlainTextResponse("too long\n", 413)
        return await run_in_threadpool(self._give, request, given)

    def _give(self, request: Request, given: Mapping[str, str]) -> Response:
        key = request.path_params["rollout"]
        if not key.isascii() or not key.isdecimal() or len(key) > 19 or int(key) >= 2**63:
            raise HTTPException(404)
        rollout = self.queries.rollout(int(key))
        run = self.queries.run(rollout["run_id"]) if rollout is not None else None
        if rollout is None or run is None:
            raise HTTPException(404)
        if not of_this_machine(request.headers.get("host", "")):
            return PlainTextResponse("behind a proxy it is not known who judges\n", 403)
        if given.get("verdict") not in SAID:
            return PlainTextResponse(f"verdict: allowed: {', '.join(SAID)}\n", 422)
        before = self.of.of_rollout(run["id"], rollout["place"])
        # who has seen the checker's verdict once is not blind any more
        blind = given.get("blind") == "1" and all(row["person"] != self.person for row in before)
        checker = None if rollout["success"] is None else bool(rollout["success"])
        store = self.store(run["url"])
        try:
            name, made = give_verdict(
                store, run["run"], rollout["place"], SAID[given["verdict"]], given.get("reason", ""), self.person,
                blind=blind, checker=checker,
            )  # fmt: skip
        except BadInput as error:
            return PlainTextResponse(f"{error}\n", 422)
        row = verdict_row(identify("store", store.url), run["run"], name, made)
        written(self.queries.engine, lambda connection: put_verdict(connection, row))  # the follower finds it as well
        self.changed(run["id"])
        return PlainTextResponse("said\n", headers={"HX-Refresh": "true"})


async def form_of(request: Request) -> dict[str, str] | None:
    """The fields that a form sends; None if it sends too much."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            return None
    return {name: values[-1] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
