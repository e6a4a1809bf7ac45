"""The cost page: the amounts are those of `launcher cost` on the same store, and of a bill made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.spec.model import Budget, Limits, Resources
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits
from tests.integration.view.test_cost import scripted
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.screens import screens
from tests.support.waiting import until

DAY = 86400.0
H100 = Resources(gpus=2, gpu="H100")
PROFILE = "prices: {H100: 2.40 USD, cpu: 0.10 EUR}\n"


class Scene:
    """`train`, team a: an hour two days ago and half an hour yesterday, 4.80 + 2.40 USD. `eval`, team b: half an hour
    yesterday, 2.40 USD. `small`: two cores for half an hour, .10 EUR. `dear`: ended by its budget, 20 days ago."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FileStore(folder / "store", sync=False)
        noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0).timestamp()
        self.days = [datetime.fromtimestamp(noon - back * DAY, UTC).strftime("%m-%d") for back in range(7)]
        spans = [(noon - 2 * DAY, 3600.0), (noon - DAY, 1800.0)]
        self.train = scripted(self.store, "train", spans, resources=H100, labels={"team": "a"})
        self.eval = scripted(self.store, "eval", [(noon - DAY, 1800.0)], resources=H100, labels={"team": "b"})
        self.small = scripted(self.store, "small", [(noon - DAY, 1800.0)])
        self.unknown = scripted(self.store, "unknown", [(noon - DAY, 60.0)], resources=Resources(gpus=1, gpu="A10"))
        started = time.time() - 3400
        limits = Limits(deadline=3600.0, budget=Budget(5.0, hourly=4.8))
        self.live = self._live("live", 0.9, started, limits=limits, labels={"team": "b"})
        self.idle = self._live("idle", 0.01, time.time() - 60)
        then = noon - 20 * DAY
        spent = FakeAttempt(started=then, ended=then + 3000, reason=Reason.BUDGET)
        self.dear = write_run(self.store, fake_job("dear", resources=H100, limits=limits), [spent], outcome="failed")
        self._claimed(self.dear, then)
        home = folder / "home"
        home.mkdir()
        (home / "slipway.yaml").write_text(PROFILE)
        self.monitor = Monitor(home, self.store.url)
        until(lambda: all(run.encode() in self.monitor.ask("/search?q=a").body for run in [self.train]))
        until(lambda: self.monitor.ask("/").body.count(b"data-run") >= 7)

    def _live(self, name: str, gpu: float, started: float, **job: object) -> str:
        beat = Beat(3, "running", step=1, total=3, usage={"gpu": gpu})
        attempt = FakeAttempt(started=started, ended=None, beat=beat)
        run = write_run(self.store, fake_job(name, resources=H100, **job), [attempt], outcome=None)
        self._claimed(run, started)
        return run

    def _claimed(self, run: str, when: float) -> None:
        """The store's clock counts: without this, what begins in the last hour of a day would end on the next one."""
        os.utime(self.folder / "store" / RunKeys(run).attempt(1).claim("main-0"), (when, when))

    def command(self, *words: str) -> list[dict[str, object]]:
        argv = [sys.executable, "-m", "launcher.cli", "cost", *words, "-o", "json", "--store", self.store.url]
        done = subprocess.run(argv, cwd=self.folder / "home", capture_output=True, text=True, check=True)
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("cost"))
    yield made
    made.monitor.stop()


def cells(visitor: Visitor, key: str) -> dict[str, str]:
    """Column -> what the row of this key has there."""
    page = visitor.page
    heads = page.eval_on_selector_all("#table table >> nth=0 >> thead th", "all => all.map(one => one.textContent)")
    row = page.locator("#table table").first.locator(f"tr[data-key='{key}']")
    return dict(zip(heads, row.locator("th, td").all_inner_texts(), strict=True))


def test_what_did_the_team_spend_this_week_in_one_click(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.get_by_role("link", name="Cost").click()
    page.wait_for_selector("#sum")
    found = cells(visitor, "a")
    assert (found["Together"], found[scene.days[2]], found[scene.days[1]]) == ("7.20 USD", "4.80 USD", "2.40 USD")
    assert found[scene.days[0]] == ""
    assert found["Runs"] == "1"
    told = {one["key"]: one for one in scene.command("--by", "team") if one["currency"] == "USD"}
    assert told["a"]["cost"] == 7.2
    assert "0.1000 EUR" in page.locator("#sum").inner_text()
    assert "not known" in " ".join(page.locator("tr[data-key='-']").all_inner_texts())
    assert visitor.said == []


def test_by_job_and_for_more_days(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/cost")
    assert "Ended by their budget" not in page.locator("main").inner_text()  # not in these days
    page.get_by_role("combobox", name="By").fill("job")
    page.get_by_label("Days").fill("30")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**days=30*")
    assert cells(visitor, "train")["Together"] == "7.20 USD"
    assert cells(visitor, "dear")["Together"] == "4.00 USD"  # 3,000 s at 4.80 USD
    assert scene.dear in page.locator("ul.plain").inner_text()
    (told,) = (one for one in scene.command("--by", "job") if one["key"] == "dear")
    assert told["cost"] == 4.0


def test_what_runs_now_and_which_gpu_is_idle(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/cost")
    live, idle = (page.locator(f"tr[data-run='{run}']").inner_text() for run in (scene.live, scene.idle))
    assert "90 % used" in live
    assert "4.80 USD" in live  # an hour, and at most: the deadline is nearer than the budget
    assert "nearly reached" in live
    assert "idle" not in live.replace(scene.live, "")
    assert "1 % used" in idle
    assert "idle" in idle.replace(scene.idle, "").replace("idle\n", "", 1)
    assert "no limit" in idle


@pytest.mark.parametrize("query", ["by=%3Cb%3E", "days=0", "days=99999999999", "days=x", "by=&days="])
def test_odd_addresses(scene: Scene, query: str) -> None:
    answer = scene.monitor.ask(f"/cost?{query}")
    assert answer.status == 200
    assert b"<b>" not in answer.body


@pytest.mark.parametrize(("width", "theme"), screens(390, 800, 1280))
def test_nothing_sticks_out_and_axe_finds_nothing(browser: Browser, scene: Scene, width: int, theme: str) -> None:
    visitor = Visitor(browser, scene.monitor, width, theme)
    try:
        for query in ("", "?by=job&days=30"):
            visitor.page.goto(f"{scene.monitor.base}/cost{query}")
            fits(visitor.page, f"cost{query}")
        assert visitor.said == []
    finally:
        visitor.close()
