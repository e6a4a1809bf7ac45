"""examples/login, with few episodes and steps, watched in a browser from its first record to its last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from launcher.protocol.fold import fold
from launcher.protocol.read import read_run
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.docker.test_login import JOBS, LOGIN, SHORT
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, holds
from tests.integration.monitor.watching import curves_are_the_store_s, evaluation_is_the_store_s, watch_to_the_end
from tests.support.verbs import launcher


@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(3000)
def test_the_login_example_is_watched_from_start_to_end(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "slipway.yaml").write_text("store: store\nlocal: {state: state, cpus: 2}\n")
    launcher(tmp_path, "submit", LOGIN, "--backend", "local", *(f"--set={each}" for each in SHORT))
    store = FileStore(tmp_path / "store", sync=False)
    monitor = Monitor(tmp_path / "home", store.url)
    visitor = Visitor(browser, monitor)
    try:
        visitor.live()
        states = watch_to_the_end(visitor.page, JOBS)
        assert "running" in states["login-before"] | states["login-sft"] | states["login-after"]
        runs = {run["name"]: run["run"] for run in json.loads(launcher(tmp_path, "status", "-o", "json"))}
        assert set(runs) == set(JOBS)
        everything_is_the_store_s(visitor, store, runs)
        assert visitor.said == []
    finally:
        launcher(tmp_path, "local", "stop", "--runs")
        visitor.close()
        monitor.stop()


def everything_is_the_store_s(visitor: Visitor, store: FileStore, runs: dict[str, str]) -> None:
    page = visitor.page
    for name, run in runs.items():
        status = fold(read_run(store, run))
        page.goto(f"{visitor.monitor.base}/runs/{run}")
        holds(page, f"document.querySelector('#facts .badge').innerText === '{status.state}'")
        shown = [
            each.locator("td").all_inner_texts() for each in page.get_by_label("Outputs").locator("tbody tr").all()
        ]
        keys = RunKeys(run).attempt(1)
        for output, files, _, state in shown:
            manifest = json.loads(store.get(keys.output_manifest(output)))
            assert (int(files), state) == (len(manifest["files"]), "complete"), (name, output)
        if name == "login-sft":
            made = [meta.key for meta in store.scan(keys.checkpoints) if meta.key.endswith("/complete.json")]
            steps = sorted(int(key.removeprefix(keys.checkpoints).partition("/")[0]) for key in made)
            assert steps == [2, 4]
            assert "Checkpoints\n2, 4" in "\n".join(filter(None, page.locator("#parts").inner_text().splitlines()))
            assert curves_are_the_store_s(visitor, store, run) > 0
    assert evaluation_is_the_store_s(visitor, store, runs["login-before"]) == 12  # an agent and two baselines, 4 tasks
    assert evaluation_is_the_store_s(visitor, store, runs["login-after"]) == 4
