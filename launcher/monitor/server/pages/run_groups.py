"""The page of runs that were submitted together: a pipeline in the order of its stages, a sweep by what differs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import RowMapping, select
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from launcher import safe_text
from launcher.decoding import decode
from launcher.errors import NotFound
from launcher.monitor import tables as t
from launcher.monitor.server.blind_mode import blind
from launcher.monitor.server.pages import formats
from launcher.monitor.server.pages.metrics import charts, curves, last_values, notes, run_metrics
from launcher.monitor.server.queries.evaluations import EvaluatedAgent, EvaluationQueries
from launcher.monitor.server.queries.runs import OF_RUN, Queries
from launcher.report.metrics import RunMetrics
from launcher.spec.prices.rates import Prices
from launcher.store.base import Store

LINES: Final = 24  # runs in one chart
SHOWN: Final = 1000  # runs of one page
COLUMNS: Final = ("run", "state", "solved", "ran", "cost")  # that a table can be sorted by, besides the parameters


class GroupRun(NamedTuple):
    """A run of a group. `stage`: how many stages come before it; `label`: what tells it apart from the others;
    `parameters`: the values of its matrix; `agent`: what its evaluation measured, None for another run."""

    run: RowMapping
    stage: int
    label: str
    parameters: Mapping[str, Any]
    agent: EvaluatedAgent | None
    spent: tuple[Decimal | None, str]


class RunGroup(NamedTuple):
    """`parameters`: those whose values differ between the runs."""

    name: str
    runs: Sequence[GroupRun]
    parameters: Sequence[str]

    @property
    def counts(self) -> Mapping[str, int]:
        return Counter(each.run["state"] for each in self.runs)

    @property
    def spent(self) -> Sequence[str]:
        """What the runs cost so far, in each currency."""
        sums: dict[str, Decimal] = {}
        for value, currency in (each.spent for each in self.runs):
            if value is not None:
                sums[currency] = sums.get(currency, Decimal()) + value
        return [text for name, value in sorted(sums.items()) if (text := formats.amount(value, name))]


class _Input(msgspec.Struct):
    work: str | None = None
    works: dict[str, str] = {}
    run: str | None = None


class _Job(msgspec.Struct):
    """What the page needs of a job.json."""

    inputs: dict[str, _Input] = {}
    variant: dict[str, Any] = {}


@dataclass
class RunGroupPages:
    """`page` renders a template, `store` gives the store of a URL or raises 404."""

    queries: Queries
    page: Callable[..., HTMLResponse]
    store: Callable[[str], Store]
    prices: Prices

    def __post_init__(self) -> None:
        self.evaluations = EvaluationQueries(self.queries)

    def group(self, request: Request) -> Response:
        return self.page("run_group.html", **self._asked(request))

    def table(self, request: Request) -> Response:
        return self.page("run_group_table.html", **self._asked(request))

    def _asked(self, request: Request) -> dict[str, Any]:
        group = self._found(request)
        given = {name: request.query_params.get(name, "")[:200] for name in ("sort", "state")}
        runs = [each for each in group.runs if given["state"] in ("", each.run["state"])]
        column, descending = given["sort"].removeprefix("-"), given["sort"].startswith("-")
        known = column in (*COLUMNS, *(f"parameter:{name}" for name in group.parameters))
        if known and not (column == "solved" and blind()):  # the order would tell
            runs.sort(key=lambda each: _place(each, column), reverse=descending)
            runs.sort(key=lambda each: _value(each, column) is None)  # what has no value stays last
        columns = [("run", "Run"), *((f"parameter:{name}", name) for name in group.parameters)]
        columns += [("solved", "Solved")] if any(each.agent is not None for each in group.runs) else []
        columns += [("cost", "Cost")] if group.spent else []
        columns += [("state", "State"), ("ran", "Ran")]
        return {"group": group, "rows": runs, "sort": given["sort"], "state": given["state"], "columns": columns}

    def metrics(self, request: Request) -> Response:
        """The curves of the runs, each line named by what tells its run apart."""
        found, more = self._metrics(request)
        names = curves(*(metrics for _, metrics in found))
        told = (
            [f"The curves are those of the first {LINES} runs with metrics; {more} more are not read."] if more else []
        )
        return JSONResponse({"charts": charts(found, names), "notes": told + notes(found, names), "runs": []})

    def values(self, request: Request) -> Response:
        """The last values of the runs' metrics."""
        found, _ = self._metrics(request)
        return self.page("run_group_values.html", **last_values(found))

    def _metrics(self, request: Request) -> tuple[list[tuple[str, RunMetrics]], int]:
        group = self._found(request)
        found: list[tuple[str, RunMetrics]] = []
        for number, each in enumerate(group.runs):
            if len(found) == LINES:
                return found, len(group.runs) - number
            try:
                metrics = run_metrics(self.store(each.run["url"]), each.run["run"])
            except NotFound:  # deleted since
                continue
            if metrics.values:
                found.append((safe_text.line(each.label), metrics))
        return found, 0

    def _found(self, request: Request) -> RunGroup:
        name = request.path_params["group"]
        query = select(*OF_RUN, t.runs.c.job, t.stores.c.url).join(t.stores, t.stores.c.id == t.runs.c.store_id)
        query = query.where(t.runs.c.group_name == name).order_by(t.runs.c.created, t.runs.c.run).limit(SHOWN)
        rows = self.queries.all(query) if name else ()
        if not rows:
            raise HTTPException(404)
        return self._grouped(name, rows)

    def _grouped(self, name: str, rows: Sequence[RowMapping]) -> RunGroup:
        jobs = {row["id"]: _job(row) for row in rows}
        parameters = _differing([job.variant for job in jobs.values()])
        stages, now = _stages(rows, jobs), time.time()
        agents = self.evaluations.agents(row["id"] for row in rows)
        several = len({row["name"].partition("[")[0] for row in rows}) > 1
        runs = [
            GroupRun(
                row,
                stages[row["id"]],
                _label(row, jobs[row["id"]], parameters, several),
                jobs[row["id"]].variant,
                next((agent for agent in agents.get(row["id"], ()) if not agent.baseline), None),
                formats.spent(row, self.prices, now),
            )
            for row in rows
        ]
        return RunGroup(name, sorted(runs, key=lambda each: each.stage), parameters)


def _job(row: RowMapping) -> _Job:
    try:
        return decode(row["job"], _Job) if row["job"] else _Job()
    except msgspec.MsgspecError:
        return _Job()


def _differing(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """The parameters whose values differ between some that have them."""
    names = dict.fromkeys(name for variant in variants for name in variant)
    return [name for name in names if len({str(each[name]) for each in variants if name in each}) > 1]


def _label(row: RowMapping, job: _Job, parameters: Sequence[str], several: bool) -> str:
    values = ", ".join(f"{name}={job.variant[name]}" for name in parameters if name in job.variant)
    return row["name"] if several or not values else values


def _stages(rows: Sequence[RowMapping], jobs: Mapping[int, _Job]) -> dict[int, int]:
    """Run -> the length of the longest chain of runs before it."""
    by_work = {row["work"]: row["id"] for row in rows if row["work"]}
    by_name = {row["run"]: row["id"] for row in rows}
    above = {}
    for key, job in jobs.items():
        wanted = [work for each in job.inputs.values() for work in (each.work, *each.works.values())]
        found = {*(by_work.get(work) for work in wanted), *(by_name.get(each.run) for each in job.inputs.values())}
        above[key] = {other for other in found if other is not None and other != key}
    stages: dict[int, int] = {}
    while len(stages) < len(rows):
        ready = [key for key in above if key not in stages and above[key] <= stages.keys()]
        if not ready:  # a circle, which no submit makes: its records are not what they claim
            ready = [key for key in above if key not in stages]
        stages |= {key: max((stages[other] + 1 for other in above[key] if other in stages), default=0) for key in ready}
    return stages


def _value(each: GroupRun, column: str) -> Any:
    if column.startswith("parameter:"):
        return each.parameters.get(column.removeprefix("parameter:"))
    return {
        "run": each.run["name"],
        "state": each.run["state"],
        "solved": each.agent.value if each.agent is not None else None,
        "ran": each.run["running"],
        "cost": each.spent[0],
    }[column]


def _place(each: GroupRun, column: str) -> tuple[bool, float, str]:
    """Numbers before texts, each in their order."""
    value = _value(each, column)
    try:
        return False, float(value), ""
    except (TypeError, ValueError):
        return True, 0.0, str(value)
