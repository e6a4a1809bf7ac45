"""What the tests share that watch whole runs in a browser: the loop over an open page, and the numbers of evaluations
and curves, compared with the files in the store as they stand there."""

from __future__ import annotations

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from playwright.sync_api import Page

from launcher.results.read import open_output
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from tests.integration.monitor.visitor import Visitor, holds
from tests.support.waiting import until

ROWS = """[...document.querySelectorAll("tr[data-run]")].map(
  (row) => [row.dataset.run, row.querySelector(".badge").innerText]
)"""


def watch_to_the_end(page: Page, names: Sequence[str]) -> dict[str, set[str]]:
    """The states of each run by its name, as the open page tells them until all have succeeded or one has failed. The
    page is never loaded again; pytest's timeout ends it."""
    states: dict[str, set[str]] = {name: set() for name in names}
    page.evaluate("window.same = true")
    while not all("succeeded" in seen for seen in states.values()) and not any("failed" in s for s in states.values()):
        for run, state in page.evaluate(ROWS):
            states[run.rpartition("-")[0]].add(state)
        time.sleep(0.1)
    assert {name: "succeeded" in seen for name, seen in states.items()} == dict.fromkeys(names, True), states
    assert page.evaluate("window.same")
    return states


def lines(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in body.decode().splitlines()]


def curves_are_the_store_s(visitor: Visitor, store: Store, run: str) -> int:
    """Compares every value of a run's curves with the lines of its one attempt; returns how many."""
    told: dict[tuple[str, float], float] = {}
    for meta in store.scan(RunKeys(run).attempt(1).prefix + "metrics/"):
        told |= {(row["name"], row["step"]): row["value"] for row in lines(store.get(meta.key))}
    page = visitor.page
    page.goto(f"{visitor.monitor.base}/runs/{run}")
    path = page.url.removeprefix(visitor.monitor.base)
    body = visitor.monitor.ask(f"{path}/metrics.csv").text
    shown = {(row["metric"], float(row["step"])): float(row["value"]) for row in csv.DictReader(io.StringIO(body))}
    assert shown == told
    counts = Counter(name for name, _ in told)
    curves = [name for name, count in counts.items() if count > 1]
    if curves:
        page.wait_for_selector("#plots figcaption")
    captions = page.locator("#plots figcaption").all_inner_texts()
    assert {caption.partition(": ")[0] for caption in captions} == set(curves)
    for caption in captions:
        name, _, rest = caption.partition(": ")
        value, _, step = rest.partition(" at step ")
        last = max(at for metric, at in told if metric == name)
        assert float(step) == last
        assert float(value) == float(f"{told[name, last]:.6g}"), caption
    return len(told)


def told_as(text: str) -> tuple[float, float]:
    """(the number that a cell shows, half of its last digit)."""
    return (float(text.removesuffix(" %")) / 100, 0.000501) if text.endswith("%") else (float(text), 0.000501)


def evaluation_is_the_store_s(visitor: Visitor, store: Store, run: str) -> int:
    """Compares the evaluation's pages with summary.json, tasks.jsonl and an episode; returns how many tries."""
    output = open_output(store, run, 1)
    assert output is not None
    paths = json.loads(store.get(RunKeys(run).attempt(1).output_manifest("results")))["files"]
    files = [path for path in paths if path.rpartition("/")[2] == "tasks.jsonl"]  # the agent's and each baseline's
    tasks, page = [task for path in files for task in lines(output.read(path))], visitor.page
    until(lambda: run in visitor.monitor.ask("/evaluations").text)
    page.goto(f"{visitor.monitor.base}/evaluations")
    row = page.locator("tr", has_text=run)
    solved = sum(task["success"] is True for task in tasks)
    assert f"{solved} of {sum(task['success'] is not None for task in tasks)}" in row.inner_text()
    row.get_by_role("link").first.click()
    page.wait_for_selector("table.matrix")
    figures = {(one["agent"], one["metric"]): one for one in json.loads(output.read("summary.json"))}
    cells = [each.locator("td").all_inner_texts() for each in page.get_by_label("Results").locator("tbody tr").all()]
    assert {(agent, metric) for _, agent, metric, *_ in cells} == set(figures)
    for _, agent, metric, value, interval, count, infra in cells:
        figure = figures[agent, metric]
        shown, close = told_as(value)
        assert abs(shown - figure["value"]) < close, (agent, metric)
        low, _, high = interval.removesuffix(" %").partition(" – ")
        scale = 100 if interval.endswith("%") else 1
        ends = figure.get("ci_low"), figure.get("ci_high")
        assert ends == (None, None) if interval in ("-", "") else (
            abs(float(low) / scale - ends[0]) < close and abs(float(high) / scale - ends[1]) < close
        ), (agent, metric, interval)  # fmt: skip
        assert (count, infra) == (str(figure["n"]), str(figure["infra_failures"] or "")), (agent, metric)
    heads = [text.splitlines() for text in page.locator("table.matrix thead th").all_inner_texts()][1:]
    agents = [head[0] for head in heads]
    assert sorted(agents) == sorted({task["agent"] for task in tasks})
    for head in heads:
        mine = [task for task in tasks if task["agent"] == head[0]]
        wanted = f"{sum(task['success'] is True for task in mine)} of {len(mine)} solved"
        assert head[-1] == wanted, head
    rows = page.locator("table.matrix tbody tr").all()
    assert {each.locator("th").inner_text() for each in rows} == {task["task_id"] for task in tasks}
    for each in rows:
        task_id = each.locator("th").inner_text()
        for agent, cell in zip(agents, each.locator("td").all(), strict=True):
            mine = [task for task in tasks if (task["agent"], task["task_id"]) == (agent, task_id)]
            shown_tries = cell.locator("a.try").all_inner_texts()
            assert Counter(shown_tries) == Counter("solved" if task["success"] else "failed" for task in mine)
    kept = next(task for task in tasks if task.get("episode"))
    place = page.locator("table.matrix tbody tr", has=page.get_by_text(kept["task_id"], exact=True))
    place.locator("td").nth(agents.index(kept["agent"])).locator("a.try").first.click()
    page.wait_for_selector(".said")
    steps = lines(output.read(f"{kept['episode']}/steps.jsonl"))
    head = json.loads(output.read(f"{kept['episode']}/episode.json"))
    assert head["instruction"] in page.locator("main").inner_text()
    for number, step in enumerate(steps):
        assert f"turn {number + 1} of {len(steps)}" in page.locator(".turns").inner_text()
        holds(page, "document.querySelector('.stage img').naturalWidth > 0")
        if step.get("response"):
            assert step["response"] in page.locator(".said").inner_text()
        with page.expect_navigation():
            page.keyboard.press("ArrowRight")
    return len(tasks)
