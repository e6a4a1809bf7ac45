"""One monitor over a store with finished, running and waiting runs, for the tests that only read."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from launcher.protocol.records import Beat
from launcher.spec.model import Resources
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor
from tests.support.fakerun import FakeAttempt, Pipeline, fake_job, login_pipeline, loss_curve, write_run
from tests.support.needs import need
from tests.support.waiting import until
from tests.unit.monitor.test_ingest import evaluation

BROWSER = shutil.which("chromium")
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202e{{ 7*7 }}"


@dataclass
class Watched:
    monitor: Monitor
    store: Store
    pipeline: Pipeline
    evaluation: str
    live: str


def fill(store: Store) -> tuple[Pipeline, str, str]:
    """(the pipeline, an evaluation of two agents, a run that is running and whose texts are hostile)."""
    pipeline = login_pipeline(store, n=8, thought=f"I click. {EVIL}")
    evaluated = evaluation(store, "eval-agents", episodes=6)
    beat = Beat(3, "running", step=140, total=300, first_step=0, running=200, message=EVIL, usage={"gpu": 0.83})
    log = f"step 1\n\x1b[31mred\x1b[0m {EVIL}\rover {EVIL}\n".encode() + b"x" * 5000 + b"\n"
    attempt = FakeAttempt(
        started=time.time() - 300, ended=None, beat=beat, logs={"main-0": {0: log}}, metrics=loss_curve(140)
    )
    live = write_run(store, fake_job("sft-live", resources=Resources(cpus=2.0, gpus=2)), [attempt], outcome=None)
    write_run(store, fake_job("waits"), [], outcome=None)
    return pipeline, evaluated, live


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("monitor")
    store = FileStore(folder / "store", sync=False)
    pipeline, evaluated, live = fill(store)
    monitor = Monitor(folder / "home", store.url)
    try:
        until(lambda: b"waits-" in monitor.ask("/").body and b"eval-agents" in monitor.ask("/evaluations").body)
        yield Watched(monitor, store, pipeline, evaluated, live)
    finally:
        monitor.stop()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[tuple[Monitor, Store]]:
    """A monitor of the test's own, over an empty store; changes are allowed."""
    store = FileStore(tmp_path / "store", sync=False)
    evaluation(store, "first")
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
    try:
        yield monitor, store
    finally:
        monitor.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visitor(browser: Browser, scene: Any) -> Iterator[Visitor]:
    """In front of the monitor of the test file's own `scene`."""
    made = Visitor(browser, scene.monitor)
    yield made
    made.close()
