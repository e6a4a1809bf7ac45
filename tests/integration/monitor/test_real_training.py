"""examples/rl-login, with few episodes and steps, watched in a browser from its first record to its last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from launcher.protocol.fold import fold
from launcher.protocol.read import read_run
from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.test_trainings import numbers_of_a_training
from tests.integration.monitor.visitor import Visitor, holds
from tests.integration.monitor.watching import curves_are_the_store_s, evaluation_is_the_store_s, watch_to_the_end
from tests.integration.rl.test_example import EXAMPLES, SMALL
from tests.support.verbs import launcher

NAMES = ("rl-episodes", "rl-model", "rl-start", "rl-before", "rl-train", "rl-after")


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_a_real_training_is_watched_from_start_to_end(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    options = [f"--set=rl-{name}={value}" for name, value in SMALL.items()]
    launcher(tmp_path, "submit", str(EXAMPLES / "rl-login"), "--backend", "local", *options)
    store = FileStore(tmp_path / "store", sync=False)
    monitor = Monitor(tmp_path / "home", store.url)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    try:
        visitor.live()
        states = watch_to_the_end(page, NAMES)
        assert "running" in states["rl-train"] | states["rl-start"]
        runs = {run["name"]: run["run"] for run in json.loads(launcher(tmp_path, "status", "-o", "json"))}
        for run in runs.values():
            status = fold(read_run(store, run))
            page.goto(f"{monitor.base}/runs/{run}")
            holds(page, f"document.querySelector('#facts .badge').innerText === '{status.state}'")
        for name in ("rl-before", "rl-after"):
            assert evaluation_is_the_store_s(visitor, store, runs[name]) == 10
        assert curves_are_the_store_s(visitor, store, runs["rl-train"]) > 0
        numbers_of_a_training(visitor, store, runs["rl-train"])
        assert visitor.said == []
    finally:
        launcher(tmp_path, "local", "stop", "--runs")
        visitor.close()
        monitor.stop()
