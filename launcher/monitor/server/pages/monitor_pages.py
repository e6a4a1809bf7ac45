"""The addresses of the monitor and what they answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy import RowMapping
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from launcher import safe_text
from launcher.deleting.guard import user
from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable
from launcher.monitor.rows import ENDED, GOING_ON
from launcher.monitor.server.blind_mode import Hiding
from launcher.monitor.server.live.desktops import LiveDesktops
from launcher.monitor.server.logs import read_tail
from launcher.monitor.server.pages import formats
from launcher.monitor.server.pages.comparisons import ComparisonPages
from launcher.monitor.server.pages.costs import CostPages
from launcher.monitor.server.pages.desktops import DesktopPages, screens_of
from launcher.monitor.server.pages.formats import attempt_bars, labels_of, row_id
from launcher.monitor.server.pages.metrics import as_csv, charts, curves, notes, run_metrics
from launcher.monitor.server.pages.outputs import OutputPages
from launcher.monitor.server.pages.run_groups import RunGroupPages
from launcher.monitor.server.pages.trainings import TrainingPages, tokens_of
from launcher.monitor.server.pages.verdicts import VerdictPages
from launcher.monitor.server.pictures import NoPicture, read_picture
from launcher.monitor.server.queries.runs import Queries, RunFilters
from launcher.monitor.server.queries.trainings import figures_of
from launcher.monitor.server.stream import Hub, TooMany
from launcher.monitor.server.waiting_reasons import WaitingReasons
from launcher.results.facts import Facts, load_facts
from launcher.results.text import FEW_CLUSTERS
from launcher.spec.hashing import decode_job
from launcher.spec.prices.rates import Prices
from launcher.spec.resolve.explain import MISSING, differences
from launcher.store.base import Store

STATIC: Final = {
    "icon.svg": "image/svg+xml",
    "monitor.css": "text/css",
    "monitor.js": "text/javascript",
    "morph.js": "text/javascript",
    "charts.js": "text/javascript",
    "stream.js": "text/javascript",
    "desktop.js": "text/javascript",
    "vendor/htmx-2.0.11.min.js": "text/javascript",
    "vendor/uPlot-1.6.32.iife.min.js": "text/javascript",
    "vendor/uPlot-1.6.32.min.css": "text/css",
}
STATES: Final = (*GOING_ON, *ENDED)
OVERLAID: Final = 6  # runs in one chart


@dataclass
class MonitorPages:
    """`changes`: the changes that are allowed, by name; each takes a run of a store."""

    queries: Queries
    hub: Hub
    stores: Mapping[str, Store]
    waiting: WaitingReasons
    prices: Prices
    changes: Mapping[str, Callable[[Store, str], str]]
    live: LiveDesktops

    def __post_init__(self) -> None:
        # every text of a page is escaped; what would act on a reader (control characters, writing direction) is shown
        self.templates = Environment(
            loader=PackageLoader("launcher.monitor.server"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=lambda value: safe_text.block(value) if type(value) is str else value,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals.update(shown=formats, ended=ENDED, changes=sorted(self.changes), tokens_of=tokens_of)
        self.templates.globals.update(offered=self._offered, labels_of=labels_of)
        self.templates.globals.update(few_clusters=FEW_CLUSTERS)
        self.person = safe_text.line(user())
        self.trainings = TrainingPages(self.queries, self._judged, self._found)
        self.verdicts = VerdictPages(self.queries, self.page, self._found, self._store, self.hub.changed, self.person)
        self.comparisons = ComparisonPages(self.queries, self.verdicts.of, self.page, self._store, self.person)
        self.run_groups = RunGroupPages(self.queries, self.page, self._store, self.prices)
        self.costs = CostPages(self.queries, self.page, self.prices)
        self.outputs = OutputPages(self.queries, self.page, self._found, self._store)
        self.desktops = DesktopPages(self.page, self._found, self._store, self.live)
        folder = files("launcher.monitor.server") / "static"
        self._static = {name: (folder / name).read_bytes() for name in STATIC}

    def page(self, name: str, status: int = 200, /, **values: Any) -> HTMLResponse:
        judged = values.setdefault("judged", {})
        hiding = Hiding(self.person, judged)
        return HTMLResponse(self.templates.get_template(name).render(now=time.time(), hiding=hiding, **values), status)

    def _judged(self, name: str, **values: Any) -> HTMLResponse:
        """A page that shows rollouts of one run, with what people say of them."""
        run = values["run"]["id"] if "run" in values else values["left"]["run_id"] if "left" in values else None
        return self.page(name, judged=self.verdicts.of.of([run]) if run is not None else {}, **values)

    def _offered(self, run: RowMapping) -> list[str]:
        """The changes that a run may have now."""
        wanted = {"failed": "retry", "cancelled": "retry", "succeeded": ""}.get(run["state"], "cancel")
        return [wanted] if wanted in self.changes else []

    # -- Now

    def now(self, request: Request) -> Response:
        return self.page("now.html", **self._now(request), states=STATES)

    def now_part(self, request: Request) -> Response:
        return self.page("now_runs.html", **self._now(request))

    def _now(self, request: Request) -> dict[str, Any]:
        given = {name: request.query_params.get(name, "").strip()[:200] for name in RunFilters._fields}
        filters = RunFilters(**given)
        asked = {name: value for name, value in given.items() if value}
        overview = self.queries.overview(filters)
        now = time.time()
        runs = [*overview.open, *overview.ended]
        costs = {run["id"]: formats.cost(run, self.prices, now) for run in runs}
        why = {run["id"]: self.waiting.why(run["id"]) for run in overview.open}
        usage = self.queries.usage(run["id"] for run in runs)
        return {
            "overview": overview,
            "costs": costs,
            "why": why,
            "usage": usage,
            "told": [] if asked else self.queries.told(),
            "filters": filters,
            "filtered": bool(asked),
            "asked": f"?{urlencode(asked)}" if asked else "",
        }

    # -- Run

    def run(self, request: Request) -> Response:
        name = request.path_params["run"]
        if not name.isdecimal():
            keys = self.queries.named(name)
            if not keys:
                raise HTTPException(404)
            return RedirectResponse(f"/runs/{keys[0]}", 303)
        return self.page("run.html", **self._run(request))

    def run_facts(self, request: Request) -> Response:
        return self.page("run_facts.html", **self._run(request))

    def run_parts(self, request: Request) -> Response:
        return self.page("run_parts.html", **self._run(request))

    def _found(self, request: Request) -> RowMapping:
        run = self.queries.run(row_id(request.path_params["run"]))
        if run is None:
            raise HTTPException(404)
        return run

    def _store(self, url: str) -> Store:
        if url not in self.stores:
            raise HTTPException(404, "the monitor does not follow the store of this run now")
        return self.stores[url]

    def _run(self, request: Request) -> dict[str, Any]:
        run = self._found(request)
        key = run["id"]
        names = ("attempts", "members", "status_history", "events", "checkpoints", "outputs", "eval_metrics")
        parts = {name: self.queries.parts(name, key) for name in names}
        source = self.queries.named(run["source_run"]) if run["source_run"] not in ("", run["run"]) else []
        return {
            "run": run,
            "parts": parts,
            "cost": formats.cost(run, self.prices, time.time()),
            "why": self.waiting.why(key),
            "usage": self.queries.usage([key]).get(key),
            "bars": attempt_bars(parts["attempts"], run, time.time()),
            "source": source[0] if source else None,
            "training": self.trainings.of.training(key) is not None,
            "told": self.queries.told(key),
            "screens": screens_of(run["state"], run["job"]),
            "evaluated": bool(parts["eval_metrics"]) or self.queries.tried(key),
        }

    def job(self, request: Request) -> Response:
        run = self._found(request)
        against = request.query_params.get("against", "").strip()
        changed: list[tuple[str, str, str]] | None = None
        problem = ""
        if against:
            other = next(iter(self.queries.named(against)), None)
            found = self.queries.run(other) if other is not None else None
            if found is None or not found["job"] or not run["job"]:
                problem = f"no run `{against}` with a job is known here"
            else:
                changed = _differences(found["job"], run["job"])
        text = json.dumps(json.loads(run["job"]), indent=2, ensure_ascii=False) if run["job"] else ""
        values = {"text": text, "against": against, "changed": changed, "problem": problem}
        return self.page("job.html", run=run, made_from=self._made_from(run), **values)

    def _made_from(self, run: RowMapping) -> Facts | None:
        """The commit and the data of a run; None where its records cannot be read any more."""
        try:
            return load_facts(self._store(run["url"]), [run["run"]])[0]
        except (BadInput, NotFound, HTTPException):
            return None

    def log(self, request: Request) -> Response:
        run = self._found(request)
        members = self.queries.parts("members", run["id"])
        attempt = row_id(request.query_params.get("attempt") or str(run["attempt"]))
        named = request.query_params.get("member")
        mine = [row for row in members if row["attempt"] == attempt and named in (None, row["member"])]
        tail = None
        if mine:
            store = self._store(run["url"])
            told = (mine[0]["log"] or 0) if mine[0]["reason"] else 0
            tail = read_tail(store, run["run"], attempt, mine[0]["member"], told)
        chosen = {name: value for name, value in request.query_params.items() if name in ("attempt", "member")}
        return self.page(
            "log.html",
            run=run,
            attempt=attempt,
            member=mine[0] if mine else None,
            members=members,
            tail=tail,
            asked=f"?{urlencode(chosen)}" if chosen else "",
        )

    def metrics(self, request: Request) -> Response:
        """The curves of a run, and of up to five others (`with`), for the charts."""
        run = self._found(request)
        others = [self.queries.run(row_id(key)) for key in request.query_params.getlist("with")[: OVERLAID - 1]]
        runs = [run, *(other for other in others if other is not None)]
        found = [(one["run"], run_metrics(self._store(one["url"]), one["run"])) for one in runs]
        names = [{"run": one["run"], "name": one["name"]} for one in runs]
        drawn = curves(found[0][1])
        return JSONResponse({"charts": charts(found, drawn), "notes": notes(found, drawn), "runs": names})

    def metrics_csv(self, request: Request) -> Response:
        run = self._found(request)
        body = as_csv(run_metrics(self._store(run["url"]), run["run"]))
        name = {"Content-Disposition": f'attachment; filename="metrics-{run["id"]}.csv"'}
        return Response(body, media_type="text/csv; charset=utf-8", headers=name)

    def change(self, request: Request) -> Response:
        run = self._found(request)
        act = self.changes.get(request.path_params["change"])
        if act is None:
            raise HTTPException(404)
        try:
            text = act(self._store(run["url"]), run["run"])
        except (BadInput, SlipwayError) as error:  # htmx shows no answer that says of itself that it failed
            text = str(error)
        self.hub.changed(run["id"])
        return self.page("changed.html", run=run, text=text)

    # -- Evaluation

    def evaluation(self, request: Request) -> Response:
        return self.page("evaluation.html", **self._evaluation(request))

    def evaluation_part(self, request: Request) -> Response:
        return self.page("evaluation_table.html", **self._evaluation(request))

    def _evaluation(self, request: Request) -> dict[str, Any]:
        run = self._found(request)
        metrics = self.queries.parts("eval_metrics", run["id"])
        judged = self.verdicts.of.of([run["id"]])
        evaluation = self.queries.evaluation(run["id"])
        given = {name: request.query_params.get(name, "")[:200] for name in ("outcome", "failure", "program")}
        chosen = given if not Hiding(self.person, judged).any(evaluation.rows) else dict.fromkeys(given, "")
        return {
            "run": run,
            "evaluation": evaluation.only(**chosen),
            "chosen": chosen,
            "asked": urlencode({name: value for name, value in given.items() if value}),
            "examples": self.comparisons.of.examples(evaluation),
            "metrics": metrics,
            "judged": judged,
            "screens": screens_of(run["state"], run["job"]),
            "offered_sides": self.comparisons.of.offered(run["id"]),
        }

    def rollout(self, request: Request) -> Response:
        rollout = self.queries.rollout(row_id(request.path_params["rollout"]))
        if rollout is None:
            raise HTTPException(404)
        turns = self.queries.turns(rollout["id"])
        at = min(row_id(request.query_params.get("turn") or "0"), max(0, len(turns) - 1))
        return self.page(
            "rollout.html",
            rollout=rollout,
            turns=turns,
            at=at,
            turn=turns[at] if turns else None,
            validations=self.queries.validations(rollout["id"]),
            parts=figures_of(rollout["parts"]),
            judged=self.verdicts.of.of([rollout["run_id"]]),
            **self.verdicts.of_page(rollout, request),
            others=self.trainings.of.members(rollout["group_id"]) if rollout["group_number"] is not None else [],
        )

    def picture(self, request: Request) -> Response:
        found = self.queries.observation(row_id(request.path_params["rollout"]), row_id(request.path_params["turn"]))
        if found is None:
            raise HTTPException(404)
        try:
            body, kind = read_picture(self._store(found["url"]), found["key"], found["sha256"])
        except NoPicture as error:
            return PlainTextResponse(f"{error}\n", 415)
        return Response(body, media_type=kind, headers={"Cache-Control": "private, max-age=3600"})

    def search(self, request: Request) -> Response:
        words = request.query_params.get("q", "").strip()[:200]
        found = self.queries.search(words) if words else []
        runs = self.queries.runs_with(words) if words else []
        judged = self.verdicts.of.of(row["run_id"] for row in found)
        return self.page("search.html", words=words, found=found, runs=runs, judged=judged)

    # -- what every page needs

    def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise HTTPException(404)
        return Response(self._static[name], media_type=STATIC[name], headers={"Cache-Control": "no-cache"})

    async def stream(self, request: Request) -> Response:
        events = self.hub.listen()
        try:
            first = await anext(events)
        except TooMany:
            return PlainTextResponse("too many browsers watch already\n", 503)

        async def rest() -> Any:
            yield first
            async for event in events:
                yield event

        return StreamingResponse(rest(), media_type="text/event-stream")

    def failed(self, request: Request, error: Exception) -> Response:
        """One line for a person; what is not expected is not told."""
        if isinstance(error, HTTPException):
            known = error.detail != "Not Found"
            text = error.detail if known else "there is no such page, or its run is no longer in its store"
            status = error.status_code
        elif isinstance(error, NotFound):
            status, text = 404, str(error)
        elif isinstance(error, Unreachable):
            status, text = 503, str(error)
        elif isinstance(error, SlipwayError | BadInput):
            status, text = 500, str(error)
        else:
            status, text = 500, "a fault of the monitor itself"
        return self.page("failed.html", status, text=text)


def _differences(old: str, new: str) -> list[tuple[str, str, str]]:
    def text(value: Any) -> str:
        return "" if value is MISSING else json.dumps(value, ensure_ascii=False, default=str)

    before, after = decode_job(old.encode()), decode_job(new.encode())
    return [(each.field, text(each.a), text(each.b)) for each in differences(before, after)]
