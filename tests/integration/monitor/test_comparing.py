"""Evaluations as a list with their rates, and two of them on one page: the figures are `launcher compare`'s."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from launcher.cli.printing.results import comparison_text
from launcher.results.compare import compare
from launcher.results.read import TaskResult, open_output, read_tasks_of
from launcher.results.text import difference, interval, probability
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits
from tests.support.fakerun import FakeAttempt, episode_files, eval_files, fake_job, write_run
from tests.support.screens import screens
from tests.support.waiting import until

TASKS = 14
SOLVED = {"before": range(4), "after": range(2, 12)}
CHANGED = {"before": {0, 1}, "after": {*range(4, 12)}}  # which side alone solved them


def evaluation(store: Store, name: str) -> str:
    """An evaluation of the agent `policy` and of a baseline, with the pictures of the first six tasks."""
    files, lines = eval_files([index in SOLVED[name] for index in range(TASKS)], agent="policy"), []
    for index in range(TASKS):
        solved = index in SOLVED[name]
        if index < 6:
            files |= episode_files(f"e-{index}", solved, index)
        line: dict[str, Any] = {"benchmark": "login", "version": "1", "agent": "policy", "task_id": f"task-{index}"}
        line |= {"seed": index, "score": float(solved), "success": solved, "steps": 4}
        line |= {"programs": ("calc",) if index % 3 else ("calc", "writer")}
        lines.append(line | {"episode": f"episodes/e-{index}" if index < 6 else None})
    random = [{**line, "agent": "random", "episode": None, "success": False, "score": 0.0} for line in lines]
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    files["baselines/random/tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in random)
    return write_run(store, fake_job(name, outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])


def tasks(store: Store, run: str, path: str = "tasks.jsonl") -> list[TaskResult]:
    output = open_output(store, run, 1)
    assert output is not None
    return read_tasks_of(output, path, TaskResult)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.store = FileStore(folder / "store", sync=False)
        self.runs = {name: evaluation(self.store, name) for name in SOLVED}
        self.monitor = Monitor(folder / "home", self.store.url, "--allow-changes")
        until(lambda: self.monitor.ask("/evaluations").body.count(b"data-agent") == 4)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(tmp_path_factory.mktemp("comparing"))
    yield made
    made.monitor.stop()


def opened(visitor: Visitor, scene: Scene) -> str:
    """Follows two links from the first page; the address of the comparison of `after` with `before`, or of the other
    way round: both runs are of the same second."""
    page = visitor.page
    page.goto(scene.monitor.base)
    page.get_by_role("link", name="Evaluations").click()
    page.get_by_role("link", name=re.compile("compared with the evaluation before it")).click()
    page.wait_for_selector("#difference")
    return page.url


def test_a_or_b_and_how_sure_in_two_clicks(visitor: Visitor, scene: Scene) -> None:
    opened(visitor, scene)
    page = visitor.page
    first = page.locator("h1").inner_text().split(" compared with ")[0]
    newer = next(name for name, run in scene.runs.items() if run in first)
    older = next(name for name in scene.runs if name != newer)
    (expected,) = compare("A", tasks(scene.store, scene.runs[older]), "B", tasks(scene.store, scene.runs[newer]))
    assert expected.difference is not None
    assert expected.p is not None
    said = page.locator("#difference").inner_text()
    assert difference(expected.difference, "success") in said
    assert probability(expected.p) in said
    assert difference(expected.difference, "success") in comparison_text(expected)  # what the command prints
    assert f"{expected.gained} gained, {expected.lost} lost" in page.locator("main").inner_text()
    changed = page.locator("section.changed")
    shown = {changed.nth(at).get_attribute("data-task") for at in range(changed.count())}
    assert shown == {f"task-{index}" for index in CHANGED["before"] | CHANGED["after"]}
    gained = page.locator("section.changed", has=page.locator(".badge.good", has_text="gained"))
    assert {gained.nth(at).get_attribute("data-task") for at in range(gained.count())} == {
        f"task-{index}" for index in CHANGED[newer]
    }
    assert visitor.said == []


def test_a_task_that_changed_side_has_both_tries_side_by_side(visitor: Visitor, scene: Scene) -> None:
    opened(visitor, scene)
    page = visitor.page
    section = page.locator("section.changed[data-task=task-0]")
    assert section.locator("img").count() == 2
    assert page.locator("section.changed[data-task=task-9] img").count() == 0  # no picture was kept
    section.locator("h3 a").click()
    page.wait_for_selector(".pair.head")
    heads = page.locator(".pair.head h2")
    assert {heads.nth(at).locator(".try").inner_text() for at in range(2)} == {"solved", "failed"}
    assert {run for run in scene.runs.values() if run in page.locator(".pair.head").inner_text()} == {
        *scene.runs.values()
    }
    assert visitor.said == []


def test_the_list_has_rates_and_intervals_and_baselines_apart(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/evaluations")
    for name, run in scene.runs.items():
        output = open_output(scene.store, run, 1)
        assert output is not None
        (metric,) = json.loads(output.read("summary.json"))
        row = " ".join(page.locator(f"tr[data-run='{run}'][data-agent=policy]").inner_text().split())
        assert f"{100 * len(SOLVED[name]) / TASKS:.1f} %" in row
        assert " ".join(interval(metric["ci_low"], metric["ci_high"], "success").split()) in row
        assert "baseline" in page.locator(f"tr[data-run='{run}'][data-agent=random]").inner_text()


def test_any_two_agents_are_chosen_on_an_evaluation_s_page(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/evaluations")
    page.get_by_role("link", name="after", exact=True).click()
    form = page.get_by_role("form", name="Compare two agents")
    form.get_by_label("with").select_option(label="random of this run")
    form.get_by_role("button").click()
    page.wait_for_selector("#difference")
    run = scene.runs["after"]
    (expected,) = compare("A", tasks(scene.store, run, "baselines/random/tasks.jsonl"), "B", tasks(scene.store, run))
    assert expected.difference is not None
    assert difference(expected.difference, "success") in page.locator("#difference").inner_text()


def test_tasks_by_outcome_and_by_failure_class(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/evaluations")
    page.get_by_role("link", name="before", exact=True).click()
    page.wait_for_selector("table.matrix")
    names = "rows => rows.map(row => row.textContent)"
    page.get_by_role("link", name="solved", exact=True).first.click()
    page.wait_for_url("**outcome=solved*")
    shown = page.eval_on_selector_all("table.matrix tbody th", names)
    assert set(shown) == {f"task-{index}" for index in SOLVED["before"]}
    page.get_by_role("link", name="show all").click()
    page.get_by_role("link", name="not classified").first.click()  # of the agent, and of the baseline
    page.wait_for_url("**failure=*")
    assert len(page.eval_on_selector_all("table.matrix tbody th", names)) == TASKS
    answer = scene.monitor.ask(f"{page.url.removeprefix(scene.monitor.base).partition('?')[0]}?failure=none")
    assert b"shown are 0" in answer.body


def test_tasks_by_program(visitor: Visitor, scene: Scene) -> None:
    page = visitor.page
    page.goto(f"{scene.monitor.base}/evaluations")
    page.get_by_role("link", name="before", exact=True).click()
    page.get_by_role("link", name="calc + writer", exact=True).click()
    page.wait_for_url("**program=calc*")
    shown = page.eval_on_selector_all("table.matrix tbody th", "rows => rows.map(row => row.textContent)")
    assert set(shown) == {f"task-{index}" for index in range(0, TASKS, 3)}


def test_blind_mode_hides_the_comparison(browser: Browser, scene: Scene, visitor: Visitor) -> None:
    address = opened(visitor, scene)
    page = visitor.page
    page.goto(f"{scene.monitor.base}/verdicts")
    page.get_by_role("button", name="Begin blind mode").click()
    page.wait_for_selector("#blind")
    page.goto(address)
    assert page.locator("#difference").count() == page.locator("section.changed").count() == 0
    assert "Blind mode" in page.locator("main").inner_text()
    page.goto(f"{scene.monitor.base}/evaluations")
    assert " %" not in page.locator("tbody").inner_text()


@pytest.mark.parametrize("query", ["", "a=1&b=2", "a=x&b=y", "a=99999999999999999999&b=1"])
def test_an_address_that_names_no_two_sides(scene: Scene, query: str) -> None:
    assert scene.monitor.ask(f"/compare?{query}").status == 404
    assert scene.monitor.ask(f"/pair?{query.replace('a=', 'left=').replace('b=', 'right=')}").status == 404


@pytest.mark.parametrize(("width", "theme"), screens(390, 800, 1280))
def test_nothing_sticks_out_and_axe_finds_nothing(browser: Browser, scene: Scene, width: int, theme: str) -> None:
    visitor = Visitor(browser, scene.monitor, width, theme)
    try:
        page = visitor.page
        page.goto(f"{scene.monitor.base}/evaluations")
        fits(page, "evaluations")
        page.goto(opened(visitor, scene))
        fits(page, "comparison")
        page.locator("section.changed h3 a").first.click()
        page.wait_for_selector(".pair.head")
        fits(page, "pair")
        assert visitor.said == []
    finally:
        visitor.close()
