"""Twenty questions of a team lead: each is answered within two clicks from the first page, by a value of the store."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.results.compare import compare
from launcher.results.facts import load_facts
from launcher.results.text import difference
from launcher.spec.model import Budget, Limits, Output, Resources
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.test_comparing import CHANGED, evaluation, tasks
from tests.integration.monitor.test_run_groups import RATES, swept
from tests.integration.monitor.visitor import Visitor, holds
from tests.integration.view.test_cost import scripted
from tests.support.fakerun import FakeAttempt, eval_files, fake_job, login_pipeline, loss_curve, write_group, write_run
from tests.support.waiting import until

H100 = Resources(gpus=2, gpu="H100")
BEGAN = time.time()
NIGHT = BEGAN - 9 * 3600


class Scene:
    """A pipeline, a sweep, evaluations; what runs, waits, was retried, was ended by its budget."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, FileStore(folder / "store", sync=False)
        self.pipeline = login_pipeline(self.store, n=40)
        self.before, self.after = evaluation(self.store, "before"), evaluation(self.store, "after")
        rates = {rate: swept(self.store, at, rate, solved) for at, (rate, solved) in enumerate(RATES.items())}
        self.best = rates[max(RATES, key=lambda rate: RATES[rate])]
        self.sweep = write_group(self.store, list(rates.values()))
        labels = {"team": "agents", "owner": "kim"}
        limits = Limits(deadline=7200.0)
        self.live = self._going_on("train-live", 0.92, labels=labels, limits=limits, metrics=loss_curve(30))
        self.idle = self._going_on("train-idle", 0.0, limits=limits)
        self.waits = write_run(self.store, fake_job("waits"), [], outcome=None)
        self.week = scripted(self.store, "week", [(time.time() - 86400, 3600.0)], resources=H100, labels=labels)
        self.night = scripted(self.store, "night", [(NIGHT, 600.0)])
        over = FakeAttempt(started=time.time() - 7200, ended=time.time() - 3600, reason=Reason.BUDGET)
        dear = Limits(budget=Budget(5.0, hourly=4.8))
        self.over = write_run(self.store, fake_job("dear", resources=H100, limits=dear), [over], outcome="failed")
        few = {**eval_files([True] * 3, agent="policy")}
        summary = json.loads(few["summary.json"]) if isinstance(few["summary.json"], bytes) else []
        few["summary.json"] = json.dumps([{**summary[0], "clusters": 3}]).encode()
        lines = [json.loads(line) | {"agent": "policy", "version": "1"} for line in few["tasks.jsonl"].splitlines()]
        few["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self.few = write_run(
            self.store, fake_job("few", outputs={"results": Output()}), [FakeAttempt(outputs={"results": few})]
        )
        home = folder / "home"
        home.mkdir()
        (home / "slipway.yaml").write_text("prices: {H100: 2.40 USD}\n")
        self.monitor = Monitor(home, self.store.url, "--allow-changes")
        until(lambda: self.monitor.ask("/evaluations").body.count(b"data-agent") >= 8)
        until(lambda: self.waits.encode() in self.monitor.ask("/").body)

    def _going_on(self, name: str, gpu: float, **more: object) -> str:
        beat = Beat(3, "running", step=30, total=120, first_step=0, running=1800, usage={"gpu": gpu})
        attempt = FakeAttempt(started=time.time() - 1800, ended=None, beat=beat, metrics=more.pop("metrics", ()))  # type: ignore[arg-type]
        run = write_run(self.store, fake_job(name, resources=H100, **more), [attempt], outcome=None)
        claim = self.folder / "store" / RunKeys(run).attempt(1).claim("main-0")
        os.utime(claim, (time.time() - 1800,) * 2)
        return run


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("questions"))
    yield made
    made.monitor.stop()


class Reader:
    """Somebody at the first page who may click twice."""

    def __init__(self, visitor: Visitor, scene: Scene) -> None:
        self.page: Page = visitor.page
        self.page.goto(scene.monitor.base)
        self.left = 2

    def click(self, name: str | re.Pattern[str]) -> Reader:
        assert self.left, "a third click"
        self.left -= 1
        link = self.page.get_by_role("link", name=name, exact=isinstance(name, str)).first
        with self.page.expect_navigation(wait_until="domcontentloaded"):  # or the old page would be read
            link.click()
        return self

    def row(self, run: str) -> str:
        """The row of a run, wherever the page has one."""
        self.page.wait_for_selector(f"[data-run='{run}']")
        return " ".join(self.page.locator(f"[data-run='{run}']").first.inner_text().split())

    def text(self, wanted: str) -> str:
        """What the page says, once it says this, too."""
        holds(self.page, f"document.querySelector('main').innerText.includes({json.dumps(wanted)})")
        return self.page.locator("main").inner_text()


@pytest.fixture
def reader(browser: Browser, scene: Scene) -> Iterator[Reader]:
    visitor = Visitor(browser, scene.monitor)
    yield Reader(visitor, scene)
    assert visitor.said == []
    visitor.close()


def test_is_it_learning(reader: Reader) -> None:
    reader.click("train-live")
    losses = [value for name, _, value in loss_curve(30) if name == "loss"]
    reader.text(f"loss: {losses[-1]:.6g} at step 29")


def test_which_of_my_rates_won(reader: Reader, scene: Scene) -> None:
    reader.click(scene.sweep).click("Solved")
    reader.page.wait_for_selector("th[aria-sort=descending]")
    assert reader.page.locator("#table tbody tr").first.get_attribute("data-run") == scene.best


def test_a_or_b_and_how_sure_and_which_tasks_changed_side(reader: Reader, scene: Scene) -> None:
    reader.click("Evaluations").click(re.compile("^after compared|^before compared"))
    reader.page.wait_for_selector("#difference")
    sides = sorted(
        (scene.before, scene.after), key=lambda run: reader.page.locator("h1").inner_text().index(run), reverse=True
    )
    (expected,) = compare("A", tasks(scene.store, sides[0]), "B", tasks(scene.store, sides[1]))
    assert expected.difference is not None
    assert difference(expected.difference, "success") in reader.page.locator("#difference").inner_text()
    changed = reader.page.eval_on_selector_all(".changed", "all => all.map(one => one.dataset.task)")
    assert set(changed) == {f"task-{index}" for index in CHANGED["before"] | CHANGED["after"]}


def test_why_did_these_fail_with_a_picture(reader: Reader) -> None:
    reader.click("Evaluations").click("before")
    picture = reader.page.locator("figure[data-failure='not classified'] img").first
    picture.wait_for()
    holds(reader.page, "document.querySelector('figure[data-failure] img').naturalWidth > 0")


def test_what_did_the_team_spend_this_week(reader: Reader) -> None:
    reader.click("Cost")
    row = reader.page.locator("tr[data-key=agents]").inner_text()  # an hour of `week`, and what `train-live` had so far
    spent = float(row.split("\t")[1].split()[0])
    live = 4.8 * (1800 + time.time() - BEGAN) / 3600  # at most: it was made after this file was read
    assert 4.8 + 2.4 <= spent <= 4.8 + live + 0.01


def test_which_gpu_is_idle(reader: Reader, scene: Scene) -> None:
    reader.click("Cost")
    assert "0 % used idle" in reader.row(scene.idle)
    assert "idle" not in reader.row(scene.live)


def test_what_waits_and_for_whom(reader: Reader, scene: Scene) -> None:
    row = reader.row(scene.waits)
    assert "queued" in row


def test_what_does_it_cost_if_i_let_it_run(reader: Reader, scene: Scene) -> None:
    assert "9.60 USD" in reader.row(scene.live)  # two hours of two H100


def test_where_is_the_model(reader: Reader, scene: Scene) -> None:
    reader.click("sft").click("model")
    reader.text("m")
    assert scene.pipeline.sft in reader.page.locator("main").inner_text()


def test_which_data_and_commit_made_it(reader: Reader, scene: Scene) -> None:
    reader.click("sft")
    (facts,) = load_facts(scene.store, [scene.pipeline.sft])
    assert facts.git_commit
    reader.text(facts.git_commit)
    reader.text(facts.data["episodes"])


def test_was_it_retried_and_did_it_resume(reader: Reader) -> None:
    reader.click("sft")
    said = reader.text("the machine was reclaimed")
    rows = reader.page.locator("[aria-label=Attempts] tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == ["1", "2"]
    assert "50, 100, 200, 300" in said  # the second one went on from a checkpoint of the first


def test_which_failures_are_infrastructure(reader: Reader, scene: Scene) -> None:
    reader.click("Evaluations").click("eval-after")
    infra = [task for task in tasks(scene.store, scene.pipeline.after) if task.outcome == "infra"]
    reader.text(f"{len(infra)} infra")
    assert reader.page.get_by_role("link", name="the infrastructure broke").count() == 1


def test_is_the_interval_reliable(reader: Reader, scene: Scene) -> None:
    reader.click("Evaluations")
    assert "% *" in reader.row(scene.few)
    assert "*" not in reader.row(scene.before)
    reader.text("the interval cannot be relied on")


def test_what_ran_last_night_and_what_is_new_since_yesterday(reader: Reader, scene: Scene) -> None:
    assert "8 h ago" in reader.row(scene.night) or "9 h ago" in reader.row(scene.night)
    ended = reader.page.locator("[aria-label='Runs that have ended'] tbody tr")
    order = [ended.nth(at).get_attribute("data-run") for at in range(ended.count())]
    assert order.index(scene.over) < order.index(scene.night) < order.index(scene.pipeline.sft)  # the newest first


def test_who_owns_it_and_can_i_stop_it(reader: Reader, scene: Scene) -> None:
    reader.click("train-live")
    assert "owner=kim, team=agents" in reader.text("owner=kim")
    assert reader.page.get_by_role("button", name="Cancel").count() == 1


def test_what_is_over_budget(reader: Reader, scene: Scene) -> None:
    reader.click("Cost")
    reader.text("Ended by their budget")
    assert scene.over in reader.page.locator("ul.plain").inner_text()
