"""examples/rl-login, with few episodes and steps, watched in a browser from its first record to its last."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from launcher.protocol.fold import fold
from launcher.protocol.read import read_run
from launcher.results.read import open_output, read_tasks
from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.test_trainings import numbers_of_a_training
from tests.integration.monitor.visitor import Visitor, holds
from tests.integration.rl.test_example import EXAMPLES, SMALL
from tests.support.verbs import launcher
from tests.support.waiting import until

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
    states: dict[str, set[str]] = {name: set() for name in NAMES}

    def look() -> bool:
        """What the open page says now, never loaded again."""
        rows = page.evaluate("[...document.querySelectorAll('tr[data-run]')].map(row => "
                             "[row.dataset.run, row.querySelector('.badge').innerText])")  # fmt: skip
        for run, state in rows:
            states[run.rpartition("-")[0]].add(state)
        return all("succeeded" in seen for seen in states.values()) or any("failed" in s for s in states.values())

    try:
        visitor.live()
        page.evaluate("window.same = true")
        training = visitor.tab()
        training.goto(f"{monitor.base}/trainings")
        while not look():  # minutes; pytest's timeout ends it
            time.sleep(0.1)
        assert {name: "succeeded" in seen for name, seen in states.items()} == dict.fromkeys(NAMES, True), states
        assert "running" in states["rl-train"] | states["rl-start"]
        assert page.evaluate("window.same")
        runs = {run["name"]: run["run"] for run in json.loads(launcher(tmp_path, "status", "-o", "json"))}
        for name, run in runs.items():
            status = fold(read_run(store, run))
            page.goto(f"{monitor.base}/runs/{run}")
            holds(page, f"document.querySelector('#facts .badge').innerText === '{status.state}'")
            if name in ("rl-before", "rl-after"):
                output = open_output(store, run, status.attempt)
                assert output is not None
                tasks = read_tasks(output)
                solved = sum(bool(task.success) for task in tasks)
                until(lambda run=run: run in monitor.ask("/evaluations").text)
                page.goto(f"{monitor.base}/evaluations")
                row = page.locator("tr", has_text=run).inner_text()
                assert f"{solved} of {len(tasks)}" in row
        numbers_of_a_training(visitor, store, runs["rl-train"])
        assert visitor.said == []
    finally:
        launcher(tmp_path, "local", "stop", "--runs")
        visitor.close()
        monitor.stop()
