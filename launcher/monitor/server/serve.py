"""The monitor's process: one thread for each store that follows it, one that asks backends, and the servers of
its pages and of its numbers."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import uvicorn
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp

from launcher import exposition, safe_text
from launcher.decoding import decode
from launcher.errors import BadInput, SlipwayError
from launcher.exposition import MetricFamily, Sample
from launcher.monitor import tables as t
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.rows import ENDED, run_id
from launcher.monitor.server.blind_mode import BlindMode
from launcher.monitor.server.entry import EntryCodes
from launcher.monitor.server.live.desktops import LiveDesktops
from launcher.monitor.server.pages.monitor_pages import MonitorPages
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.security import ENTER, RequestGuard
from launcher.monitor.server.stream import Hub
from launcher.monitor.server.waiting_reasons import WaitingReasons
from launcher.monitor.tables import identify
from launcher.results.run_cost import HeldTime
from launcher.spec.model import Limits
from launcher.spec.profile import Profile
from launcher.store.base import Store

HOST: Final = "127.0.0.1"
GRACE: Final = 2  # seconds for the last requests when the server ends


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the database and the token are, readable by their owner only."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway" / "monitor"


def kept_token(folder: Path) -> str:
    """The token of this user's monitor: made once, so that an open page goes on when the monitor starts again."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / "token"
    made = folder / f"token.{secrets.token_hex(8)}"
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32))
    with suppress(FileExistsError):  # complete, or another's: two that start at once have the same
        path.hardlink_to(made)
    made.unlink()
    path.chmod(0o600)
    return path.read_text().strip()


def serve(
    stores: Sequence[Store],
    profile: Profile,
    database: str,
    port: int,
    *,
    codes: EntryCodes,
    changes: Mapping[str, Callable[[Store, str], str]],
    ready: Callable[[str], None],
    said: Callable[[str], None],
    metrics: str = "",
    behind: str = "",
    token: str = "",
) -> None:
    """Serves until SIGINT or SIGTERM. `ready` gets, once requests are answered, the address that a code of `codes`
    makes whole; `said` gets what a person should know. `metrics`: HOST:PORT where Prometheus reads numbers; `behind`:
    the name under which a proxy on this machine serves the pages; `token`: that of the pages, else the user's. Raises
    BadInput for a port in use, SlipwayError for a database that cannot be used.
    """
    listening = listen(port)
    port = listening.getsockname()[1]
    engine = open_database(database)
    token = token or kept_token(state_folder())
    hub, queries = Hub(), Queries(engine)
    followers = [StoreFollower(engine, store, _teller(hub, store)) for store in stores]
    by_url = {store.url: store for store in stores}
    waiting = WaitingReasons(queries, by_url, profile, hub.changed)
    desktops = LiveDesktops(profile)
    pages = MonitorPages(queries, hub, by_url, waiting, profile.prices, changes, desktops)
    address = f"http://{HOST}:{port}{ENTER}?code="
    # no access log: it would hold the codes
    config = uvicorn.Config(
        application(pages, token, codes, port, behind), lifespan="off", log_level="error", access_log=False,
        log_config=None, server_header=False, timeout_graceful_shutdown=GRACE, ws="none", http="h11", loop="asyncio",
    )  # fmt: skip
    server = _Server(config, lambda: ready(address), hub.close)
    threads = [threading.Thread(target=one.follow, args=(said,), daemon=True) for one in followers]
    threads.append(threading.Thread(target=waiting.follow, daemon=True))
    numbers = MetricsServer(metrics, exposed(queries, followers)) if metrics else None
    for thread in threads:
        thread.start()
    try:
        server.run(sockets=[listening])
    finally:
        for follower in followers:
            follower.stop()
        waiting.stop()
        desktops.stop()
        if numbers is not None:
            numbers.stop()
        for thread in threads:
            thread.join(5.0)
        engine.dispose()


def listen(port: int) -> socket.socket:
    """The socket on the loopback address. Raises BadInput if something else listens there."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((HOST, port))
    except OSError as error:
        made.close()
        raise BadInput(f"--port {port}: {error.strerror}; another monitor may run. --port 0 takes a free one") from None
    made.listen(128)
    made.set_inheritable(False)
    return made


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready, self._closing = ready, closing

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing()
        await super().shutdown(sockets)


def _teller(hub: Hub, store: Store) -> Callable[[str], None]:
    key = identify("store", store.url)
    return lambda run: hub.changed(run_id(key, run))


def application(pages: MonitorPages, token: str, codes: EntryCodes, port: int, behind: str = "") -> ASGIApp:
    trainings, verdicts, desktops = pages.trainings, pages.verdicts, pages.desktops
    comparisons, run_groups = pages.comparisons, pages.run_groups
    routes = [
        Route("/", pages.now),
        Route("/now/runs", pages.now_part),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/facts", pages.run_facts),
        Route("/runs/{run}/parts", pages.run_parts),
        Route("/runs/{run}/outputs/{output}", pages.outputs.output),
        Route("/runs/{run}/outputs/{output}/file", pages.outputs.file),
        Route("/runs/{run}/log", pages.log),
        Route("/runs/{run}/job", pages.job),
        Route("/runs/{run}/metrics.json", pages.metrics),
        Route("/runs/{run}/metrics.csv", pages.metrics_csv),
        Route("/runs/{run}/desktops/{member}", desktops.desktop),
        Route("/runs/{run}/desktops/{member}/screen", desktops.screen),
        Route("/runs/{run}/desktops/{member}/{number}.png", desktops.picture),
        Route("/runs/{run}/{change}", pages.change, methods=["POST"]),
        Route("/run-groups/{group}/table", run_groups.table),
        Route("/run-groups/{group}/values", run_groups.values),
        Route("/run-groups/{group}/metrics.json", run_groups.metrics),
        Route("/run-groups/{group}", run_groups.group),
        Route("/evaluations", comparisons.evaluations),
        Route("/evaluations/{run}", pages.evaluation),
        Route("/evaluations/{run}/table", pages.evaluation_part),
        Route("/compare", comparisons.compare),
        Route("/pair", comparisons.pair),
        Route("/cost", pages.costs.cost),
        Route("/cost/table", pages.costs.table),
        Route("/trainings", trainings.trainings),
        Route("/trainings/{run}", trainings.training),
        Route("/trainings/{run}/line", trainings.training_part),
        Route("/trainings/{run}/{kind}/{step}", trainings.step),
        Route("/trainings/{run}/{kind}/{step}/groups", trainings.step_part),
        Route("/groups/{group}", trainings.group),
        Route("/verdicts", verdicts.verdicts),
        Route("/judge/{run}", verdicts.judge),
        Route("/blind", verdicts.blind, methods=["POST"]),
        Route("/rollouts/{rollout}", pages.rollout),
        Route("/rollouts/{rollout}/verdict", verdicts.give, methods=["POST"]),
        Route("/rollouts/{rollout}/{turn}.picture", pages.picture),
        Route("/search", pages.search),
        Route("/stream", pages.stream),
        Route("/static/{name:path}", pages.static),
    ]
    handlers = dict.fromkeys((HTTPException, SlipwayError, Exception), pages.failed)
    inside = BlindMode(Starlette(routes=routes, exception_handlers=handlers), bool(pages.changes))
    return RequestGuard(inside, token, codes, port, bool(pages.changes), behind)


# The monitor's numbers for Prometheus, on a port of their own (`--metrics`): what the records tell of runs that live.
# No token protects them, as is usual for such a port: whoever can reach it reads the names and the numbers of runs.
# It answers nothing else, so it may listen where the pages must not.

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
