"""The files that a supervisor and a runtime leave for node_exporter's textfile collector, and the endpoints."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
from pathlib import Path
from typing import Any, cast

import pytest

from eval.desktops.server.app import DesktopMetrics, listening, make_app
from launcher import exposition
from launcher.protocol.records import Beat
from launcher.spec.hashing import run_id
from launcher.spec.model import Timing
from launcher.store.file import FileStore
from launcher.verbs.cancel import cancel
from tests.integration.local.machine import machine, wait_for
from tests.integration.monitor.served import Monitor
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.s3 import free_port
from tests.support.waiting import until

QUICK = Timing(beat=0.2, stale=60.0, fence=20.0)


def test_a_run_of_this_machine_shows_its_numbers_while_it_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "textfiles"
    files.mkdir()
    monkeypatch.setenv(exposition.TEXTFILES, str(files))
    with machine(tmp_path) as here:
        goes_on = here.job("goes-on", "time.sleep(600)", timing=QUICK)
        here.submit(goes_on)
        runtime = f"slipway-runtime-{run_id(goes_on)}-main-0"
        supervisor = f"slipway-supervisor-{here.state.id}"
        wait_for(lambda: exposition.value(files, runtime, "slipway_runtime_running_seconds"), explain=here.explain)
        first = exposition.value(files, runtime, "slipway_runtime_beat_timestamp_seconds")
        assert first is not None
        wait_for(lambda: exposition.value(files, runtime, "slipway_runtime_beat_timestamp_seconds") != first)
        wait_for(lambda: (files / f"{supervisor}.prom").exists(), explain=here.explain)
        assert exposition.value(files, runtime, "slipway_runtime_beat_failures_total") == 0
        # before anything has ended: increase() does not see a counter that appears with its first event
        written = (files / f"{supervisor}.prom").read_text()
        for outcome in ("succeeded", "failed", "cancelled", "elsewhere"):
            assert f'ended_total{{queue="{here.state.id}",outcome="{outcome}"}} 0.0\n' in written
        # killed: the file stays, so that an alert sees its heartbeat grow old, until the run leaves the queue
        (record,) = here.runtimes().values()
        os.kill(record.pid, signal.SIGKILL)
        assert (files / f"{runtime}.prom").exists()
        cancel(here.store, run_id(goes_on), here.backend)
        here.wait(goes_on)
        wait_for(lambda: not (files / f"{runtime}.prom").exists(), explain=here.explain)


def test_nothing_is_written_without_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(exposition.TEXTFILES, raising=False)
    with machine(tmp_path) as here:
        short = here.job("short", "pass")
        here.submit(short)
        here.wait(short)
        assert list(tmp_path.rglob("*.prom")) == []


def ask(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_monitor_answers_only_where_it_was_asked_to(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    beat = Beat(3, "running", step=150, total=300, running=20.0, usage={"gpu": 0.25})
    run = write_run(store, fake_job("odd"), [FakeAttempt(ended=None, beat=beat)], outcome=None)
    port = free_port()
    monitor = Monitor(tmp_path / "home", store.url, "--metrics", f"127.0.0.1:{port}")
    try:
        until(lambda: f'slipway_run_progress_ratio{{run="{run}"}} 0.5\n' in ask(port, "/metrics")[1])
        assert f'slipway_run_gpu_ratio{{run="{run}"}} 0.25\n' in ask(port, "/metrics")[1]
        assert ask(port, "/")[0] == ask(port, "/metrics/x")[0] == ask(port, "/runs/1")[0] == 404  # no page is here
        assert monitor.ask("/metrics").status == 404  # and none of this among the pages
    finally:
        monitor.stop()


def test_a_proxy_gives_the_token_and_the_name(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    write_run(store, fake_job("one"))
    monitor = Monitor(tmp_path / "home", store.url, "--behind", "slipway.example.com", "--allow-changes")
    name, token = "slipway.example.com", monitor.token

    def status(method: str = "GET", **headers: str) -> int:
        return monitor.ask("/" if method == "GET" else "/runs/1/cancel", method, known=False, **headers).status

    try:
        assert status(host=name, X_Slipway_Token=token) == 200
        assert status(host=name) == status(host=name, X_Slipway_Token="wrong") == 401
        assert status(host=name, Cookie=monitor.cookie) == 401  # a browser that got past the proxy has no cookie
        assert status(host="evil.example.com", X_Slipway_Token=token) == 421
        assert status(X_Slipway_Token=token) == 401  # without the proxy's name the header is nothing
        assert monitor.ask(f"/enter?code={monitor.code}", known=False, host=name).status == 401
        assert status("POST", host=name, X_Slipway_Token=token, Origin="https://evil.example.com") == 403
        assert status("POST", host=name, X_Slipway_Token=token, Origin=f"http://{name}") == 403
        assert status("POST", host=name, X_Slipway_Token=token, Origin=f"https://{name}") == 404  # there is no such run
        assert monitor.ask("/").status == 200  # on the machine itself all is as before
    finally:
        monitor.stop()


def test_a_desktops_numbers_need_its_token() -> None:
    async def check() -> None:
        numbers = DesktopMetrics()
        async with listening(make_app(cast(Any, object()), "word", numbers=numbers), "127.0.0.1:0") as address:
            port = int(address.rpartition(":")[2])

            async def get(path: str, **headers: str) -> tuple[int, str]:
                return await asyncio.to_thread(lambda: ask(port, path, **headers))

            assert (await get("/metrics"))[0] == 401
            assert (await get("/no/such/path", Authorization="Bearer word"))[0] == 404
            status, text = await get("/metrics", Authorization="Bearer word")
            assert status == 200
            assert 'slipway_desktop_requests_total{route="none",status="404"} 1.0\n' in text
            assert 'slipway_desktop_requests_total{route="/screenshot",status="500"} 0.0\n' in text
            assert 'route="/no/such' not in text
        async with listening(make_app(cast(Any, object()), "word"), "127.0.0.1:0") as address:
            port = int(address.rpartition(":")[2])
            assert (await get("/metrics", Authorization="Bearer word"))[0] == 404

    asyncio.run(check())
