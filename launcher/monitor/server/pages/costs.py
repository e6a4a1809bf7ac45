"""What runs cost: by team, job, backend or label and by day, what runs now and may cost, and which GPUs are idle. The
amounts are those of `launcher cost`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from sqlalchemy import RowMapping, or_, select
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from launcher.decoding import decode
from launcher.monitor import tables as t
from launcher.monitor.rows import GOING_ON
from launcher.monitor.server.queries.runs import OF_RUN, Queries
from launcher.reasons import Reason
from launcher.results.run_cost import HeldTime, MachineTime, bill
from launcher.spec.model import Limits
from launcher.spec.prices.rates import PricedRun, Prices, any_rate, worst_case
from launcher.verbs.cost import TEAM, RunCost, days, group_key
from launcher.verbs.status import Line

DAYS: Final = 7  # of the table, unless the address asks for others
MOST_DAYS: Final = 92
IN_COLUMNS: Final = 14  # days that have a column each
KINDS: Final = (TEAM, "job", "backend")
IDLE: Final = 0.05  # a GPU whose use is below this is idle
NEAR: Final = Decimal("0.8")  # of what a run may cost


class CostRow(NamedTuple):
    """Runs with the same value of what they are grouped by, in one currency. `by_day`: the cost of each day, the
    oldest first; `unknown`: how many of the runs have no known price and are not in the amounts."""

    key: str
    currency: str
    runs: int
    by_day: Sequence[Decimal]
    unknown: int

    @property
    def total(self) -> Decimal:
        return sum(self.by_day, Decimal())


class RunningCost(NamedTuple):
    """A run that goes on. `gpu`: the mean use of its GPUs, None where nobody tells; `near`: it has cost most of what it
    may."""

    run: RowMapping
    cost: RunCost
    gpu: float | None
    near: bool

    @property
    def idle(self) -> bool:
        return bool(self.run["gpus"]) and self.gpu is not None and self.gpu < IDLE


@dataclass
class CostPages:
    """`page` renders a template."""

    queries: Queries
    page: Callable[..., HTMLResponse]
    prices: Prices

    def cost(self, request: Request) -> Response:
        return self.page("cost.html", **self._asked(request))

    def table(self, request: Request) -> Response:
        return self.page("cost_table.html", **self._asked(request))

    def _asked(self, request: Request) -> dict[str, Any]:
        what = request.query_params.get("by", "").strip()[:200] or TEAM
        given = request.query_params.get("days", "")
        count = min(MOST_DAYS, max(1, int(given))) if given.isascii() and given.isdecimal() and len(given) < 5 else DAYS
        now = time.time()
        names = [
            (datetime.fromtimestamp(now, UTC) - timedelta(days=before)).strftime("%Y-%m-%d")
            for before in range(count - 1, -1, -1)
        ]
        begins = datetime.fromisoformat(f"{names[0]}T00:00:00+00:00").timestamp()
        found = self._costs(begins, now)
        rows = grouped((cost for _, cost in found), what, names)
        sums: dict[str, Decimal] = {}
        for row in rows:
            sums[row.currency] = sums.get(row.currency, Decimal()) + row.total
        return {
            "by": what,
            "days": count,
            "kinds": KINDS,
            "names": names if count <= IN_COLUMNS else [],
            "rows": rows,
            "sums": {name: value for name, value in sorted(sums.items()) if name},
            "running": self._running(found),
            "over": [(row, cost) for row, cost in found if row["reason"] == Reason.BUDGET],
        }

    def _costs(self, begins: float, now: float) -> list[tuple[RowMapping, RunCost]]:
        """The runs that may have held machines since `begins`, with their cost."""
        ended = t.runs.c.ended
        query = select(*OF_RUN).where(t.runs.c.priced != "", or_(ended.is_(None), ended >= begins))
        return [
            (row, _cost(row, self.prices, now)) for row in self.queries.all(query.order_by(t.runs.c.created.desc()))
        ]

    def _running(self, found: Sequence[tuple[RowMapping, RunCost]]) -> list[RunningCost]:
        goes_on = [(row, cost) for row, cost in found if row["state"] in GOING_ON and cost.line.held]
        usage = self.queries.usage(row["id"] for row, _ in goes_on)
        running = []
        for row, cost in goes_on:
            gpu = usage[row["id"]]["gpu"] if row["id"] in usage else None
            running.append(RunningCost(row, cost, gpu, _near(cost.bill.cost, cost.worst)))
        return sorted(
            running, key=lambda each: (-(each.cost.rate.high if each.cost.rate.known else 0), each.run["run"])
        )


def _cost(row: RowMapping, prices: Prices, now: float) -> RunCost:
    priced, limits = decode(row["priced"], PricedRun), decode(row["limits"], Limits)
    held, machines = decode(row["held"], tuple[HeldTime, ...]), decode(row["machines"], tuple[MachineTime, ...])
    line = Line(
        run=row["run"],
        name=row["name"],
        state=row["state"],
        backend=row["backend"],
        labels=json.loads(row["labels"] or "{}"),
        priced=priced,
        held=held,
        limits=limits,
    )
    rate = any_rate(priced, prices)
    return RunCost(line, bill(priced, held, machines, prices, now), rate, worst_case(rate, limits))


def _near(cost: Decimal | None, worst: Decimal | None) -> bool:
    return cost is not None and worst is not None and cost > NEAR * worst > 0


def grouped(costs: Iterable[RunCost], what: str, names: Sequence[str]) -> list[CostRow]:
    """The cost on each of these days (UTC) in groups, by what `launcher cost --by` takes; the dearest first."""
    place = {name: at for at, name in enumerate(names)}
    parts: dict[tuple[str, str], list[Decimal]] = {}
    runs: dict[tuple[str, str], dict[str, bool]] = {}
    for one in costs:
        key = group_key(one.line, what), one.bill.currency
        for charge in one.bill.charges:
            for day, _, cost in days(charge):
                if day in place:
                    parts.setdefault(key, [Decimal()] * len(names))[place[day]] += cost or Decimal()
                    runs.setdefault(key, {})[one.line.run] = cost is None
    rows = [CostRow(*key, len(runs[key]), values, sum(runs[key].values())) for key, values in parts.items()]
    return sorted(rows, key=lambda row: (-row.total, row.key, row.currency))
