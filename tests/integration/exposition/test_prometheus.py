"""Numbers of a real monitor, supervisor, runtime, reaper and desktop in a real Prometheus: the rules of k8s load, each
alert speaks of what it is for, and every query of the dashboard gives data. Grafana itself is not here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import exposition
from launcher.exposition import MetricFamily
from launcher.protocol.records import Beat
from launcher.spec.model import Budget, Limits
from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.prometheus import Prometheus, prometheus
from tests.support.s3 import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "k8s/components/monitoring"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
ALERTS = {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def fill(store: FileStore) -> dict[str, str]:
    """Runs that live: quiet for long, near their deadline, near the end of their money, and one that is well."""
    budget = Limits(budget=Budget(amount=10.0, hourly=10.0))
    assert budget.paid_seconds is not None
    cases = {
        "quiet": (Limits(), 60.0, 2000.0),
        "late": (Limits(deadline=1000.0), 950.0, 0.0),
        "dear": (budget, 0.9 * budget.paid_seconds, 0.0),
        "well": (Limits(deadline=100_000.0), 60.0, 0.0),
    }
    runs = {}
    for name, (limits, running, silent) in cases.items():
        beat = Beat(3, "running", step=140, total=300, running=running, held=running, usage={"gpu": 0.5})
        attempt = FakeAttempt(started=time.time() - running, ended=None, beat=beat)
        job = fake_job(name, limits=limits)
        runs[name] = write_run(store, job, [attempt], outcome=None)
        for path in Path(store.url.removeprefix("file://")).joinpath("runs", runs[name]).rglob("*.json"):
            os.utime(path, (time.time() - silent,) * 2)
    return runs


def desktop_stand_in(numbers: Any) -> None:
    numbers._requests["/v1/step", 200] += 5
    numbers._seconds["/v1/step"] += 0.4


@pytest.fixture(scope="module")
def textfiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A folder, and the port of a server that shows its files in one answer as node_exporter does."""
    folder = tmp_path_factory.mktemp("textfiles")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"".join(path.read_bytes() for path in sorted(folder.glob("*.prom")))
            self.send_response(200)
            self.send_header("Content-Type", exposition.TYPE)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield folder, server.server_address[1]
    server.shutdown()
    server.server_close()


def launcher(folder: Path, textfiles: Path, *words: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "HOME": str(folder / "home"), "SLIPWAY_TEXTFILES": str(textfiles)}
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "SLIPWAY_STORE"):
        environ.pop(name, None)
    argv = [sys.executable, "-m", "launcher.cli", *words]
    return subprocess.Popen(argv, cwd=folder, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory, textfiles: tuple[Path, int]
) -> Iterator[tuple[Prometheus, dict[str, str]]]:
    base = tmp_path_factory.mktemp("prometheus")
    files, port = textfiles
    store = FileStore(base / "store", sync=False)
    runs = fill(store)
    (base / "work" / "home").mkdir(parents=True)
    (base / "work" / "slipway.yaml").write_text("store: store\nlocal: {state: state}\n")
    # a local run that goes on, with a real supervisor and a real runtime; it sends a heartbeat every second
    (base / "work" / "job.yaml").write_text(
        "name: real\nbackend: local\ncommand: [sleep, '600']\ntiming: {beat: 1s, stale: 60s, fence: 20s}\n"
    )
    done = launcher(base / "work", files, "run", "--name", "short", "--backend", "local", "--", "true")
    assert done.wait(200) == 0
    assert launcher(base / "work", files, "submit", "job.yaml").wait(200) == 0
    assert launcher(base / "work", files, "reap").wait(200) == 0
    app = free_port()
    monitor = Monitor(base / "monitor", store.url, "--metrics", f"127.0.0.1:{app}")
    from eval.desktops.server.app import DesktopMetrics

    numbers = DesktopMetrics()
    desktop_stand_in(numbers)
    (files / "desktop.prom").write_text(numbers.text())
    rules = {"groups": [{**group, "interval": "1s"} for group in RULES["groups"]]}
    jobs = {
        "monitor": {"static_configs": [{"targets": [f"127.0.0.1:{app}"]}]},
        "files": {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]},
    }
    try:
        (base / "server").mkdir()
        with prometheus(base / "server", jobs, rules) as server:
            until(lambda: len(server.query("slipway_run_info")) == 4, lambda: monitor.err.read_text())
            until(lambda: server.query("slipway_runtime_beat_timestamp_seconds"))
            yield server, runs
    finally:
        monitor.stop()
        launcher(base / "work", files, "cancel", "real").wait(200)
        launcher(base / "work", files, "local", "stop", "--runs").wait(200)


def test_every_target_answers_in_the_format(watched: tuple[Prometheus, dict[str, str]]) -> None:
    server, _ = watched
    until(lambda: all(one["value"] == 1 for one in server.query("up")))
    targets = server.ask("targets")["activeTargets"]
    assert {one["labels"]["job"]: one["lastError"] for one in targets} == {"monitor": "", "files": ""}


def test_the_rules_load_and_evaluate(watched: tuple[Prometheus, dict[str, str]]) -> None:
    server, _ = watched

    def rules() -> dict[str, str]:
        found = server.ask("rules")["groups"]
        return {rule["name"]: rule["health"] for group in found for rule in group["rules"]}

    until(lambda: set(rules().values()) == {"ok"}, rules)
    assert set(rules()) == set(ALERTS)


def test_an_alert_speaks_of_its_run_and_of_no_other(watched: tuple[Prometheus, dict[str, str]]) -> None:
    server, runs = watched
    ask = server.query
    until(lambda: {one["run"] for one in ask(ALERTS["SlipwayNoBeat"])} == {runs["quiet"]})
    until(lambda: {one["run"] for one in ask(ALERTS["SlipwayDeadlineNear"])} == {runs["late"]})
    until(lambda: {one["run"] for one in ask(ALERTS["SlipwayBudget"])} == {runs["dear"]})
    for quiet in ("SlipwayReaperSilent", "SlipwayStoreRefusesWrites", "SlipwayMonitorBlind"):
        assert ask(ALERTS[quiet]) == []
    (late,) = ask(ALERTS["SlipwayDeadlineNear"])
    assert late["value"] == pytest.approx(0.95)


def test_a_silent_reaper_and_a_store_that_refuses_are_seen(
    watched: tuple[Prometheus, dict[str, str]], textfiles: tuple[Path, int]
) -> None:
    server, _ = watched
    folder, _ = textfiles
    name = "slipway_reaper_success_timestamp_seconds"
    old = [({"store": "s3://quiet"}, time.time() - 3 * 3600)]
    exposition.write(folder, "quiet", [MetricFamily(name, old)])
    failing = "slipway_runtime_beat_failures_total"
    for count in range(5):
        exposition.write(folder, "failing", [MetricFamily(failing, [({"run": "r", "member": "main-0"}, count)])])
        seen = partial(
            lambda wanted: [one["value"] for one in server.query(f'{failing}{{run="r"}}')] == [wanted], count
        )
        until(seen)
    until(lambda: {one["store"] for one in server.query(ALERTS["SlipwayReaperSilent"])} == {"s3://quiet"})
    until(lambda: {one["run"] for one in server.query(ALERTS["SlipwayStoreRefusesWrites"])} == {"r"})
    for file in ("quiet", "failing"):
        exposition.remove(folder, file)


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_of_the_dashboard_gives_data(watched: tuple[Prometheus, dict[str, str]], query: str) -> None:
    server, _ = watched
    until(lambda: server.query(query), lambda: f"no data: {query}")


def test_every_name_in_rules_and_dashboard_is_one_of_ours() -> None:
    import re

    from eval.desktops.server import app

    known = set(exposition.METRICS) | set(app.METRICS)
    used = set(re.findall(r"slipway_[a-z_]+", " ".join([*QUERIES, *ALERTS.values()])))
    assert used <= known
