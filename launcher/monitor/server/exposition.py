"""The monitor's numbers for Prometheus, on a port of their own (`--metrics`): what the records tell of runs that live.

No token protects them, as is usual for such a port: whoever can reach it reads the names and the numbers of runs. It
answers nothing else, so it may listen where the pages must not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from launcher import exposition, safe_text
from launcher.decoding import decode
from launcher.errors import BadInput
from launcher.exposition import MetricFamily, Sample
from launcher.monitor import tables as t
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.rows import ENDED
from launcher.monitor.server.queries.runs import Queries
from launcher.results.run_cost import HeldTime
from launcher.spec.model import Limits

MOST: Final = 2000  # runs that have not ended; more would burden Prometheus


def families(queries: Queries, followers: Sequence[StoreFollower]) -> Iterator[MetricFamily]:
    now = time.time()
    counts = queries.all(select(t.runs.c.state, func.count().label("count")).group_by(t.runs.c.state))
    yield MetricFamily("slipway_runs", [({"state": row["state"]}, row["count"]) for row in counts])
    columns = (
        "id",
        "run",
        "name",
        "backend",
        "state",
        "seen",
        "stale_after",
        "running",
        "step",
        "total",
        "limits",
        "held",
    )
    goes_on = ~t.runs.c.state.in_(ENDED)
    # of too many, those that run come before those that wait, the longest silent first: alerts are about them
    first = (t.runs.c.seen.is_(None), t.runs.c.seen, t.runs.c.created)
    rows = queries.all(select(*(t.runs.c[name] for name in columns)).where(goes_on).order_by(*first).limit(MOST))
    left = sum(row["count"] for row in counts if row["state"] not in ENDED) - len(rows)
    yield MetricFamily("slipway_runs_left_out", [({}, max(left, 0))])
    usage = queries.usage(row["id"] for row in rows)
    found: dict[str, list[Sample]] = {}
    for row in rows:
        run = {"run": safe_text.line(row["run"])}
        limits, held = decode(row["limits"], Limits), decode(row["held"], tuple[HeldTime, ...])
        started = row["seen"] is not None
        values: dict[str, Any] = {
            "seen_timestamp_seconds": row["seen"],
            "stale_seconds": row["stale_after"] if started else None,
            "running_seconds": row["running"] if started else None,
            "deadline_seconds": limits.deadline,
            "held_seconds": sum(one.until(now) for one in held) if held else None,
            "paid_seconds": limits.paid_seconds,
            "progress_ratio": row["step"] / row["total"] if row["step"] is not None and row["total"] else None,
            "gpu_ratio": usage[row["id"]]["gpu"] if row["id"] in usage else None,
        }
        info = {"job": row["name"], "backend": row["backend"], "state": row["state"]}
        values_of_run = [("info", {**run, **{name: safe_text.line(text) for name, text in info.items()}}, 1.0)]
        values_of_run += [(name, run, value) for name, value in values.items()]
        for name, labels, value in values_of_run:
            found.setdefault(f"slipway_run_{name}", []).append((labels, value))
    yield from (MetricFamily(name, samples) for name, samples in found.items())
    stores = [(one, {"store": safe_text.line(one.store.url)}) for one in followers]
    yield MetricFamily("slipway_monitor_pass_timestamp_seconds", [(labels, one.passed) for one, labels in stores])
    yield MetricFamily("slipway_monitor_problems", [(labels, one.problems) for one, labels in stores])


class MetricsServer:
    """Answers GET /metrics at `where`, HOST:PORT, from a thread of its own. Raises BadInput for a port in use."""

    def __init__(self, where: str, text: Callable[[], str]) -> None:
        host, _, port = where.rpartition(":")
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(text))
        except OSError as error:
            raise BadInput(f"--metrics {where}: {error.strerror}") from None
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def exposed(queries: Queries, followers: Sequence[StoreFollower]) -> Callable[[], str]:
    return lambda: exposition.text(families(queries, followers))


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 30
        server_version, sys_version = "slipway", ""

        def do_GET(self) -> None:
            status, body = 404, b"only /metrics is here\n"
            if self.path.partition("?")[0] == "/metrics":
                try:
                    status, body = 200, text().encode(errors="replace")
                except SQLAlchemyError:
                    status, body = 503, b"the database does not answer\n"
            self.send_response(status)
            self.send_header("Content-Type", exposition.TYPE if status == 200 else "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            return

    return Handler
