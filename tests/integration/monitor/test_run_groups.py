"""The page of runs that were submitted together: a sweep by what differs, a pipeline by its stages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from launcher.monitor.server.pages.run_groups import LINES
from launcher.protocol.records import Beat
from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits, holds
from tests.support.fakerun import (
    FakeAttempt,
    Pipeline,
    eval_files,
    fake_job,
    login_pipeline,
    loss_curve,
    write_group,
    write_run,
)  # fmt: skip
from tests.support.screens import screens
from tests.support.waiting import until

RATES = {"1e-05": 3, "3e-05": 9, "0.0001": 6}  # learning rate -> how many of 12 tasks were solved


def swept(store: FileStore, number: int, rate: str, solved: int | None) -> str:
    """A run of a sweep over the learning rate; `solved` None: it still runs."""
    points = [(name, step, value + number) for name, step, value in loss_curve(20)]
    job = fake_job("train", variant={"lr": float(rate), "seed": 1}, labels={"lr": rate}, outputs={"results": Output()})
    if solved is None:
        beat = Beat(3, "running", step=5, total=20, first_step=0, running=9)
        return write_run(store, job, [FakeAttempt(ended=None, beat=beat, metrics=points[:8])], outcome=None)
    files = eval_files([index < solved for index in range(12)], agent="policy")
    lines = [json.loads(line) | {"agent": "policy", "version": "1"} for line in files["tasks.jsonl"].splitlines()]
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return write_run(store, job, [FakeAttempt(metrics=points, outputs={"results": files})])


class Scene:
    def __init__(self, folder: Path) -> None:
        self.store = FileStore(folder / "store", sync=False)
        self.runs = {rate: swept(self.store, at, rate, solved) for at, (rate, solved) in enumerate(RATES.items())}
        self.runs["0.0003"] = swept(self.store, 3, "0.0003", None)
        names = {run: f"train[lr={rate}]" for rate, run in self.runs.items()}
        self.group = write_group(self.store, list(self.runs.values()), names)
        self.pipeline: Pipeline = login_pipeline(self.store, n=8)
        self.monitor = Monitor(folder / "home", self.store.url, "--allow-changes")
        until(lambda: self.monitor.ask(f"/run-groups/{self.group}").body.count(b"data-stage") == 4)
        until(lambda: self.monitor.ask(f"/run-groups/{self.pipeline.group}").body.count(b"data-stage") == 4)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("groups"))
    yield made
    made.monitor.stop()


def order(visitor: Visitor) -> list[str]:
    return [str(each) for each in visitor.page.eval_on_selector_all(
        "#table tbody tr", "rows => rows.map(row => row.dataset.run)")]  # fmt: skip


def test_which_of_my_rates_won(visitor: Visitor, scene: Scene) -> None:
    """Two clicks from the first page: the group, then its column."""
    page = visitor.page
    page.get_by_role("link", name=scene.group, exact=True).first.click()
    page.wait_for_selector("#table")
    heads = page.locator("#table thead th")
    assert [heads.nth(at).inner_text() for at in range(heads.count())] == ["Run", "lr", "Solved", "State", "Ran"]
    page.get_by_role("link", name="Solved").click()
    page.wait_for_selector("th[aria-sort=descending]")
    won = [scene.runs[rate] for rate in sorted(RATES, key=lambda rate: -RATES[rate])]
    assert order(visitor) == [*won, scene.runs["0.0003"]]  # what has no value stays last
    assert "75.0 %" in page.locator(f"tr[data-run='{won[0]}']").inner_text()
    page.get_by_role("link", name="lr", exact=True).click()
    page.wait_for_url("**sort=parameter*")
    assert order(visitor) == [scene.runs[rate] for rate in ("1e-05", "3e-05", "0.0001", "0.0003")]  # as numbers
    assert visitor.said == []


def test_all_curves_in_one_chart_named_by_what_differs(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/run-groups/{scene.group}")
    holds(page, "document.querySelectorAll('#plots figure .u-legend').length > 0")
    figure = page.locator("#plots figure", has=page.locator("figcaption", has_text="loss")).first
    legend = figure.locator(".u-legend").inner_text()
    for rate in scene.runs:
        assert f"lr={float(rate)}" in legend
    assert "seed" not in legend  # it is the same in all of them
    page.wait_for_selector("#values table")
    last = {name: value for name, _, value in loss_curve(20)}["loss"]
    row = page.locator("#values tr", has=page.get_by_role("rowheader", name="lr=3e-05", exact=True)).inner_text()
    assert f"{last + 1:.6g}" in row
    assert visitor.said == []


def test_a_state_is_chosen_and_the_order_stays(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/run-groups/{scene.group}?sort=-solved")
    page.get_by_label("State").select_option("succeeded")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**state=succeeded*")
    assert order(visitor) == [scene.runs[rate] for rate in sorted(RATES, key=lambda rate: -RATES[rate])]


def test_a_pipeline_stands_in_the_order_of_its_stages(visitor: Visitor, scene: Scene) -> None:
    page, made = visitor.page, scene.pipeline
    page.goto(f"{scene.monitor.base}/runs/{made.sft}")
    page.get_by_role("link", name=made.group).click()
    page.wait_for_selector("#table")
    stages = dict(page.eval_on_selector_all(
        "#table tbody tr", "rows => rows.map(row => [row.dataset.run, row.dataset.stage])"))  # fmt: skip
    assert stages == {made.data: "0", made.before: "0", made.sft: "1", made.after: "2"}
    assert order(visitor)[2:] == [made.sft, made.after]
    heads = page.locator("#table thead").inner_text()
    assert "lr" not in heads
    assert "Cost" not in heads  # no price is known
    assert "so far" not in page.locator("#table").inner_text()


def test_blind_mode_tells_no_rate_and_no_order_by_it(visitor: Visitor, scene: Scene) -> None:
    page, address = visitor.page, f"{scene.monitor.base}/run-groups/{scene.group}?sort=-solved"
    page.goto(address)
    best = order(visitor)
    page.goto(f"{scene.monitor.base}/verdicts")
    page.get_by_role("button", name="Begin blind mode").click()
    page.wait_for_selector("#blind")
    page.goto(address)
    assert " %" not in page.locator("#table").inner_text()
    assert order(visitor) == [scene.runs[rate] for rate in (*RATES, "0.0003")] != best


def test_what_is_no_group_and_what_is_no_column(scene: Scene) -> None:
    assert scene.monitor.ask("/run-groups/none").status == 404
    assert scene.monitor.ask("/run-groups/").status == 404
    answer = scene.monitor.ask(f"/run-groups/{scene.group}?sort=%3Cb%3E&state=%3Cb%3E")
    assert answer.status == 200
    assert b"<b>" not in answer.body


def test_of_many_runs_the_first_curves_are_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    runs = [swept(store, 0, f"{at}e-05", 1) for at in range(1, LINES + 4)]
    group = write_group(store, runs)
    monitor = Monitor(tmp_path / "home", store.url)
    try:
        until(lambda: monitor.ask(f"/run-groups/{group}").body.count(b"data-stage") == len(runs))
        told = json.loads(monitor.ask(f"/run-groups/{group}/metrics.json").body)
        assert {len(chart["lines"]) for chart in told["charts"]} == {LINES}
        assert told["notes"] == [f"The curves are those of the first {LINES} runs with metrics; 3 more are not read."]
    finally:
        monitor.stop()


@pytest.mark.parametrize(("width", "theme"), screens(390, 800, 1280))
def test_nothing_sticks_out_and_axe_finds_nothing(browser: Browser, scene: Scene, width: int, theme: str) -> None:
    visitor = Visitor(browser, scene.monitor, width, theme)
    try:
        page = visitor.page
        for group in (scene.group, scene.pipeline.group):
            page.goto(f"{scene.monitor.base}/run-groups/{group}")
            holds(page, "document.querySelectorAll('#plots figure').length > 0")
            page.wait_for_selector("#values table")
            fits(page, group)
        assert visitor.said == []
    finally:
        visitor.close()
