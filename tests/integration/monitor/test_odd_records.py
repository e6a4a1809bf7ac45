"""Records as they are when something went wrong or somebody writes from right to left: every page is still a page."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser

from launcher.protocol.records import Beat, Deleted
from launcher.spec.model import Output
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits, holds
from tests.support.fakerun import FakeAttempt, episode_files, eval_files, fake_job, write_run
from tests.support.waiting import until

LONG = "a-very-long-name-" * 10
WORDS = "سجّل الدخول باسم 👩‍👩‍👧 alice ثم اضغط «دخول»"


def odd_evaluation(store: FileStore) -> str:
    """A try whose instruction runs from right to left, one that ended before its first turn, and one of no episode."""
    files = {**eval_files([True]), **episode_files("e-0", True, instruction=WORDS, thought=WORDS)}
    none = episode_files("e-1", False, instruction="Nothing.")
    head = json.loads(none["episodes/e-1/episode.json"])
    files |= {"episodes/e-1/episode.json": json.dumps({**head, "steps": 0}).encode(), "episodes/e-1/steps.jsonl": b""}
    told = {"benchmark": "login", "version": "1", "agent": "tiny", "score": 0.0, "success": False, "outcome": "scored"}
    lines = [
        {**told, "task_id": f"task-{LONG}", "seed": number, "episode": episode, "steps": steps}
        for number, (episode, steps) in enumerate((("episodes/e-0", 4), ("episodes/e-1", 0), (None, 0)))
    ]
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return write_run(store, fake_job("odd", outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])


@dataclass
class Odd:
    monitor: Monitor
    store: FileStore
    evaluation: str
    nothing: str
    diverged: str
    long: str
    back: str


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Odd]:
    folder = tmp_path_factory.mktemp("odd")
    store = FileStore(folder / "store", sync=False)
    outputs = {"results": {**eval_files([]), "tasks.jsonl": b""}}
    nothing = write_run(store, fake_job("nothing", outputs={"results": Output()}), [FakeAttempt(outputs=outputs)])
    model = {"results": {"history.json": b"[]"}}
    losses = [("loss", float(step), 1.0 if step < 3 else float("nan")) for step in range(10)]
    trained = FakeAttempt(metrics=losses, outputs=model)
    diverged = write_run(store, fake_job("diverged", outputs={"results": Output()}), [trained])
    beat = Beat(3, "running", step=140, total=100, first_step=0, running=-3600.0, message=WORDS)
    now = time.time()
    back = FakeAttempt(started=now + 3600, ended=now, beat=beat)  # the clock was set back by an hour
    made = Odd(
        Monitor(folder / "home", store.url),
        store,
        odd_evaluation(store),
        nothing,
        diverged,
        write_run(store, fake_job(LONG), [FakeAttempt(started=now, ended=None, beat=beat)], outcome=None),
        write_run(store, fake_job("back"), [back]),
    )
    try:
        until(lambda: all(run in made.monitor.ask("/").text for run in (diverged, made.long, made.back)))
        until(lambda: made.evaluation in made.monitor.ask("/evaluations").text)
        yield made
    finally:
        made.monitor.stop()


@pytest.fixture
def visitor(browser: Browser, odd: Odd) -> Iterator[Visitor]:
    made = Visitor(browser, odd.monitor, 400)
    yield made
    made.close()


@pytest.mark.nightly
def test_every_page_fits_and_axe_finds_nothing(visitor: Visitor, odd: Odd) -> None:
    page, base = visitor.page, visitor.monitor.base
    page.goto(base)
    fits(page, "now")
    assert "140 of 100" in page.locator("main").inner_text()
    for run in (odd.evaluation, odd.nothing, odd.diverged, odd.long, odd.back):
        page.goto(f"{base}/runs/{run}")
        holds(page, "!document.querySelector('#charts-note').innerText.includes('are read from')")
        fits(page, run)
        assert not re.search(r"(?m)^-|\t-", page.locator("#parts").inner_text()), "nothing took less than no time"
        key = page.url.rpartition("/")[2]
        page.goto(f"{base}/evaluations/{key}")
        fits(page, f"evaluation of {run}")
    page.goto(f"{base}/evaluations")
    fits(page, "evaluations")
    assert visitor.said == []


def test_a_training_that_diverged_says_so(visitor: Visitor, odd: Odd) -> None:
    page = visitor.page
    page.goto(f"{visitor.monitor.base}/runs/{odd.diverged}")
    page.wait_for_selector("#plots figcaption")
    assert page.locator("#plots figcaption").inner_text() == "loss: 1 at step 2"
    assert f"not finite, and so are not drawn: loss (7) of {odd.diverged}" in page.locator("#charts-note").inner_text()
    # an output of that name alone is no evaluation
    assert page.locator("#facts a", has_text="evaluation").count() == 0
    page.goto(f"{visitor.monitor.base}/runs/{odd.evaluation}")
    assert page.locator("#facts a", has_text="evaluation").count() == 1


def test_words_from_right_to_left_and_tries_without_turns(visitor: Visitor, odd: Odd) -> None:
    page, base = visitor.page, visitor.monitor.base
    page.goto(f"{base}/search?q=alice")
    assert page.locator("#q").input_value() == "alice"
    page.locator("main tbody a").first.click()
    said = page.locator("main p.block").first
    assert said.inner_text() == WORDS
    assert said.evaluate("each => getComputedStyle(each).direction") == "rtl"
    fits(page, "from right to left")
    page.goto(f"{base}/evaluations")
    page.get_by_role("link", name="odd", exact=True).click()
    tries = [each.get_attribute("href") for each in page.locator("a.try").all()]
    assert len(tries) == 3
    found = []
    for each in tries[1:]:
        page.goto(f"{base}{each}")
        fits(page, "without turns")
        found.append(page.locator("main").inner_text())
    assert "It ended before its first turn." in found[0]
    assert "Its episode was not kept." in found[1]
    page.goto(f"{base}/search?q=nobody-wrote-this")
    assert "No run or try has these words" in page.locator("main").inner_text()
    assert visitor.said == []


@pytest.mark.nightly
def test_a_page_of_a_run_that_is_deleted(browser: Browser, tmp_path: Path) -> None:
    """One whose deletion is recorded is told of; of one that is just gone there is no page, and the way back is."""
    store = FileStore(tmp_path / "store", sync=False)
    told, gone = write_run(store, fake_job("told")), odd_evaluation(store)
    monitor = Monitor(tmp_path / "home", store.url)
    visitor = Visitor(browser, monitor)
    page, other, rollout = visitor.page, visitor.tab(), visitor.tab()
    try:
        until(lambda: told in monitor.ask("/").text and gone in monitor.ask("/evaluations").text)
        page.goto(f"{monitor.base}/runs/{told}")
        other.goto(f"{monitor.base}/runs/{gone}")
        rollout.goto(f"{monitor.base}/search?q=alice")
        rollout.locator("main tbody a").first.click()
        holds(rollout, "document.querySelector('.stage img')?.naturalWidth > 0")
        visitor.live()
        keys = RunKeys(told)
        store.create(keys.deleted, msgspec.json.encode(Deleted("me", 1.0, "n", "rm")))
        for run in (told, gone):
            store.delete([meta.key for meta in store.scan(RunKeys(run).prefix) if meta.key not in keys.tombstone])
        holds(page, "document.querySelector('#facts').innerText.includes('were deleted from the store')")
        until(lambda: monitor.ask(other.url.removeprefix(monitor.base)).status == 404)
        for each in (other, rollout):
            each.reload()
            assert "no longer in its store" in each.locator("main").inner_text()
        rollout.get_by_role("link", name="Now").first.click()
        rollout.wait_for_url(f"{monitor.base}/")
    finally:
        visitor.close()
        monitor.stop()


def test_a_picture_that_is_gone_is_told(browser: Browser, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    run = odd_evaluation(store)
    monitor = Monitor(tmp_path / "home", store.url)
    visitor = Visitor(browser, monitor)
    try:
        until(lambda: run in monitor.ask("/evaluations").text)
        store.delete([meta.key for meta in store.scan(RunKeys(run).prefix) if meta.key.endswith(".png")])
        page = visitor.page
        page.goto(f"{monitor.base}/search?q=alice")
        page.locator("main tbody a").first.click()
        holds(page, "document.querySelector('.stage')?.innerText.includes('cannot be read from the store')")
    finally:
        visitor.close()
        monitor.stop()
