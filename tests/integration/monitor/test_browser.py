"""The monitor in Debian's Chromium: every page at three widths, live, by keyboard, over a restart, in eight tabs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser

from launcher.protocol.records import Beat
from launcher.results.read import open_output
from launcher.spec.hashing import run_id
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.conftest import Watched
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits, holds
from tests.support.fakerun import FakeAttempt, fake_job, loss_curve, write_attempt, write_run
from tests.support.screens import screens
from tests.support.waiting import until

PAGES = (
    "now",
    "run",
    "live",
    "evaluations",
    "evaluation",
    "rollout",
    "output",
    "search",
    "trainings",
    "filtered",
    "missing",
)


@pytest.fixture
def visitor(browser: Browser, watched: Watched) -> Iterator[Visitor]:
    made = Visitor(browser, watched.monitor)
    yield made
    made.close()


def address(visitor: Visitor, watched: Watched, name: str) -> str:
    base, page = visitor.monitor.base, visitor.page
    if name in ("run", "live"):
        return f"{base}/runs/{watched.pipeline.sft if name == 'run' else watched.live}"
    if name == "output":
        page.goto(f"{base}/runs/{watched.evaluation}")
        return f"{page.url}/outputs/results"
    if name in ("evaluation", "rollout"):
        page.goto(f"{base}/evaluations")
        page.get_by_role("link", name="eval-agents", exact=True).click()
        page.wait_for_selector("table.matrix")
        return page.url if name == "evaluation" else f"{base}{page.locator('a.try').first.get_attribute('href')}"
    paths = {
        "now": "",
        "evaluations": "evaluations",
        "search": "search?q=alice",
        "trainings": "trainings",
        "filtered": "?name=sft&state=running",
        "missing": "runs/nothing",
    }
    return f"{base}/{paths[name]}"


@pytest.mark.parametrize(("width", "theme"), screens(400, 1280, 2560))
def test_nothing_sticks_out_and_axe_finds_nothing(browser: Browser, watched: Watched, width: int, theme: str) -> None:
    visitor = Visitor(browser, watched.monitor, width, theme)
    for name in PAGES:
        page = visitor.page
        page.goto(address(visitor, watched, name))
        if name == "missing":
            assert "404" in visitor.said.pop()  # the browser says so itself
        visitor.live()
        if name in ("run", "live"):
            page.wait_for_selector("pre.log, #log .note")
            page.wait_for_selector("#plots canvas")
            page.wait_for_selector("details")
            page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
        if name == "rollout":
            holds(page, "document.querySelector('.stage img').naturalWidth > 0")
        fits(page, name)
    assert visitor.said == []
    visitor.close()


def test_the_numbers_are_the_store_s(visitor: Visitor, watched: Watched) -> None:
    from launcher.protocol.fold import fold
    from launcher.protocol.read import read_run

    visitor.live()
    for run in (watched.live, watched.pipeline.sft):
        status = fold(read_run(watched.store, run))
        row = visitor.page.locator(f"tr[data-run='{run}']").inner_text()
        assert str(status.state) in row
        if not status.state.final:
            assert f"{status.step:g} of {status.total:g}" in row
            assert "3 min 49 s" in row  # 160 steps at 140 in 200 s
            assert "83 % of 2" in row
    visitor.page.goto(address(visitor, watched, "evaluation"))
    heads = visitor.page.locator("table.matrix thead th").all_inner_texts()
    assert [" ".join(head.split()) for head in heads] == [
        "Task", "tiny 3 of 6 solved", "random baseline 3 of 6 solved"
    ]  # fmt: skip


def test_runs_are_filtered_and_found_from_the_first_page(visitor: Visitor, watched: Watched) -> None:
    page = visitor.page
    page.get_by_label("Name").fill("sft")
    page.get_by_label("State").select_option("running")
    page.get_by_role("button", name="Show").click()
    page.wait_for_selector(f"tr[data-run='{watched.live}']")
    assert page.locator("tr[data-run]").count() == 1
    assert page.locator("#runs").get_attribute("hx-get") == "/now/runs?name=sft&state=running"  # as it stays
    page.get_by_label("Search").fill(watched.live)
    page.get_by_label("Search").press("Enter")
    page.get_by_role("link", name="sft-live", exact=True).click()
    assert visitor.page.locator("h1").inner_text().startswith("sft-live")
    page.goto(f"{visitor.monitor.base}/trainings")
    row = page.locator(f"tr[data-run='{watched.live}']").inner_text()
    assert "step 140 of 300" in " ".join(row.split())
    assert visitor.said == []


def test_outputs_are_listed_opened_and_downloaded(visitor: Visitor, watched: Watched) -> None:
    page = visitor.page
    page.goto(f"{visitor.monitor.base}/runs/{watched.evaluation}")
    page.get_by_role("link", name="results", exact=True).click()
    page.get_by_role("link", name="tasks.jsonl", exact=True).wait_for()
    base = page.url.removeprefix(visitor.monitor.base)
    stored = open_output(watched.store, watched.evaluation, 1)
    assert stored is not None
    for path, kind in (("tasks.jsonl", "text/plain"), ("episodes/e-1/000.png", "image/png")):
        answer = visitor.monitor.ask(f"{base}/file?path={path}")
        assert (answer.status, answer.body) == (200, stored.read(path))
        assert answer.headers["content-type"].startswith(kind)
    assert visitor.monitor.ask(f"{base}/file?path=../job.json").status == 404
    assert visitor.monitor.ask(f"{base[:-1]}/file?path=tasks.jsonl").status == 404
    assert visitor.said == []


def test_hostile_texts_in_a_browser(visitor: Visitor, watched: Watched) -> None:
    page = visitor.page
    page.goto(address(visitor, watched, "live"))
    page.wait_for_selector("pre.log")
    assert "over <img src=x onerror=alert(1)>" in page.locator("pre.log").inner_text()
    page.goto(f"{visitor.monitor.base}/search?q=%3Cimg")
    page.locator("main tbody a").first.click()
    page.wait_for_selector(".said")
    assert "<script>alert(2)</script>" in page.locator(".said").inner_text()
    assert page.locator("main script, main img[src=x]").count() == 0
    assert visitor.said == []


def test_replay_by_keyboard_links_and_back(visitor: Visitor, watched: Watched) -> None:
    page = visitor.page
    start = address(visitor, watched, "rollout")
    page.goto(start)
    holds(page, "document.querySelector('.stage img').naturalWidth > 0")
    marks = page.locator(".stage .mark")
    assert marks.count() == 1
    box, stage = marks.first.bounding_box(), page.locator(".stage img").bounding_box()
    assert box is not None
    assert stage is not None
    x, y = page.locator(".said li").first.inner_text().removeprefix("click ").split(", ")
    assert abs((box["x"] + box["width"] / 2 - stage["x"]) / stage["width"] - float(x)) < 0.01
    assert abs((box["y"] + box["height"] / 2 - stage["y"]) / stage["height"] - float(y)) < 0.01
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**turn=1")
    assert "type “alice”" in page.locator(".said").inner_text()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**turn=2")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**turn=1")
    page.go_back()
    page.wait_for_url("**turn=2")
    page.go_back()
    page.go_back()
    page.wait_for_url(start)
    deep = visitor.tab()
    deep.goto(f"{start}?turn=4")
    assert "final screen of 4" in deep.locator(".turns").inner_text()
    deep.goto(f"{start}?turn=400")
    assert "final screen of 4" in deep.locator(".turns").inner_text()
    deep.locator("#q").fill("alice")
    deep.locator("#q").press("ArrowLeft")  # in a field the keys are the field's
    assert deep.url.endswith("turn=400")
    deep.locator("#q").press("Enter")
    deep.wait_for_url("**/search?q=alice")
    assert visitor.said == []


def test_curves(visitor: Visitor, watched: Watched) -> None:
    page = visitor.page
    page.goto(address(visitor, watched, "live"))
    page.wait_for_selector("#plots canvas")
    last = [value for name, step, value in loss_curve(140) if name == "loss"][-1]
    captions = page.locator("figcaption").all_inner_texts()
    assert f"loss: {last:.6g} at step 139" in captions
    page.locator("#log-scale").check()
    page.locator("#smooth").fill("0.9")
    assert page.locator("#plots canvas").count() == len(captions) == 3
    with page.expect_download() as download:
        page.get_by_text("values as CSV").click()
    lines = download.value.path().read_text().splitlines()
    assert lines[0] == "metric,step,value"
    assert f'"loss",139.0,{last!r}' in lines
    page.goto(
        page.url
        + "?with="
        + page.request.get(f"{visitor.monitor.base}/runs/{watched.pipeline.sft}").url.rpartition("/")[2]
    )
    page.wait_for_selector(".u-legend")
    assert watched.pipeline.sft in page.locator(".u-legend").first.inner_text()
    assert visitor.said == []


def test_a_curve_of_zeros_is_drawn_from_0_to_1(browser: Browser, apart: tuple[Monitor, Store]) -> None:
    """Not to 100, beside which any real value would look like nothing."""
    monitor, store = apart
    lines = [(name, float(step), value) for step in range(20) for name, value in (("void", 0.0), ("won", 0.25))]
    run = write_run(store, fake_job("zeros"), [FakeAttempt(metrics=lines)])
    until(lambda: run in monitor.ask("/").text)
    visitor = Visitor(browser, monitor)
    visitor.page.goto(f"{monitor.base}/runs/{run}")
    visitor.page.wait_for_selector("#plots figure[data-high]")
    drawn = visitor.page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('#plots figure')].map(each => "
        "[each.querySelector('figcaption').innerText.split(':')[0], [+each.dataset.low, +each.dataset.high]]))"
    )
    assert drawn["void"] == [0, 1]
    low, high = drawn["won"]
    assert low <= 0.25 <= high <= 1
    assert visitor.said == []
    visitor.close()


def test_a_job_and_its_difference(visitor: Visitor, watched: Watched) -> None:
    page = visitor.page
    page.goto(address(visitor, watched, "live"))
    page.get_by_text("The resolved job").click()
    assert '"gpus": 2' in page.locator("#job pre").inner_text()
    page.get_by_label("Compare with run").fill(watched.pipeline.sft)
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("#job table")
    assert "resources.gpus" in page.locator("#job table").inner_text()
    page.get_by_label("Compare with run").fill("nothing-here")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("#job p[role=status]")
    assert "no run `nothing-here`" in page.locator("#job").inner_text()
    assert visitor.said == []


def test_what_happens_is_seen_without_a_reload(browser: Browser, apart: tuple[Monitor, Store]) -> None:
    monitor, store = apart
    visitor = Visitor(browser, monitor)
    visitor.live()
    page = visitor.page
    page.evaluate("window.same = true")
    job = fake_job("train")
    run = run_id(job)
    write_run(store, job, [], outcome=None)
    page.wait_for_selector(f"tr[data-run='{run}']")
    beat = Beat(1, "running", step=10, total=100, first_step=0, running=20.0)
    write_attempt(store, job, run, 1, FakeAttempt(ended=None, beat=beat, logs={"main-0": {0: b"hello\n"}}))
    holds(page, f"document.querySelector(\"tr[data-run='{run}']\").innerText.includes('10 of 100')")
    second = visitor.tab()
    second.goto(f"{monitor.base}/runs/{run}")
    second.evaluate("window.same = true")
    holds(second, "document.querySelector('pre.log')?.innerText.includes('hello')")
    store.put(RunKeys(run).attempt(1).beat("main-0"), msgspec.json.encode(Beat(2, "running", step=60, total=100)))
    store.put(RunKeys(run).attempt(1).log_piece("main-0", 6), b"world\n")
    store.put(RunKeys(run).attempt(1).metrics_piece("main-0", 0), b"".join(
        msgspec.json.encode({"name": "loss", "step": step, "value": 1 / step, "time": 0}) + b"\n" for step in (1, 2, 3)
    ))  # fmt: skip
    holds(second, "document.querySelector('#facts').innerText.includes('60 of 100')")
    holds(second, "document.querySelector('pre.log').innerText.includes('world')")
    holds(second, "document.querySelector('figcaption')?.innerText.includes('at step 3')")
    holds(page, f"document.querySelector(\"tr[data-run='{run}']\").innerText.includes('60 of 100')")
    assert page.evaluate("window.same")
    assert second.evaluate("window.same")
    assert visitor.said == []
    visitor.close()


def test_cancel_asks_first(browser: Browser, apart: tuple[Monitor, Store]) -> None:
    monitor, store = apart
    run = write_run(store, fake_job("waits"), [], outcome=None)
    until(lambda: run in monitor.ask("/").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    page.goto(f"{monitor.base}/runs/{run}")
    visitor.live()
    page.get_by_role("button", name="Cancel").click()
    until(lambda: visitor.said)
    assert visitor.said == [f"dialog: Cancel {run}?"]
    assert store.head(RunKeys(run).cancel) is None
    page.close()
    page = visitor.context.new_page()
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"{monitor.base}/runs/{run}")
    page.get_by_role("button", name="Cancel").click()
    holds(page, "document.querySelector('#facts .badge').innerText === 'cancelled'")
    assert store.head(RunKeys(run).result) is not None
    visitor.close()


def test_killed_and_started_again_under_an_open_page(browser: Browser, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    write_run(store, fake_job("first"))
    monitor = Monitor(tmp_path / "home", store.url)
    visitor = Visitor(browser, monitor)
    visitor.live()
    page = visitor.page
    page.wait_for_selector("tr[data-run^=first-]")
    page.evaluate("window.same = true")
    monitor.stop(signal.SIGKILL)
    page.wait_for_selector("#live[data-live=no]")
    run = write_run(store, fake_job("second"))
    again = Monitor(tmp_path / "home", store.url, port=monitor.port)
    try:
        visitor.live()
        page.wait_for_selector(f"tr[data-run='{run}']")
        assert page.evaluate("window.same")
        assert (again.base, again.token) == (monitor.base, monitor.token)  # the open page's cookie is good
    finally:
        visitor.close()
        again.stop()


def test_eight_tabs_share_one_stream(browser: Browser, apart: tuple[Monitor, Store]) -> None:
    """HTTP/1.1 allows a browser six connections: with a stream for each page, the seventh would never load."""
    monitor, store = apart
    visitor = Visitor(browser, monitor)
    tabs = [visitor.page, *(visitor.tab() for _ in range(7))]
    for tab in tabs[1:]:
        tab.goto(f"{monitor.base}/", wait_until="domcontentloaded")
    for tab in tabs:
        visitor.live(tab)
    run = write_run(store, fake_job(f"seen-{int(time.time())}"), [], outcome=None)
    for tab in tabs:
        tab.wait_for_selector(f"tr[data-run='{run}']")
    assert visitor.said == []
    visitor.close()


def test_the_log_of_the_process_that_was_chosen(browser: Browser, apart: tuple[Monitor, Store]) -> None:
    """It stays the chosen one when the run changes and the log grows."""
    monitor, store = apart
    job = fake_job("pair", replicas=2)
    run = run_id(job)
    logs = {f"main-{rank}": {0: f"I am {rank}\n".encode()} for rank in (0, 1)}
    write_run(store, job, [FakeAttempt(ended=None, beat=Beat(1, "running", step=1, total=9), logs=logs)], outcome=None)
    until(lambda: run in monitor.ask("/").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    page.goto(f"{monitor.base}/runs/{run}")
    visitor.live()
    holds(page, "document.querySelector('pre.log')?.innerText.includes('I am 0')")
    page.get_by_role("link", name="main-1, attempt 1").click()
    holds(page, "document.querySelector('pre.log').innerText.includes('I am 1')")
    store.put(RunKeys(run).attempt(1).log_piece("main-1", 7), b"still 1\n")
    store.put(RunKeys(run).attempt(1).beat("main-0"), msgspec.json.encode(Beat(2, "running", step=2, total=9)))
    holds(page, "document.querySelector('pre.log').innerText.includes('still 1')")
    holds(page, "document.querySelector('#facts').innerText.includes('2 of 9')")
    assert "I am 1" in page.locator("pre.log").inner_text()
    assert visitor.said == []
    visitor.close()


def test_what_a_reader_selected_in_a_log_stays(browser: Browser, apart: tuple[Monitor, Store]) -> None:
    monitor, store = apart
    attempt = FakeAttempt(ended=None, beat=Beat(1, "running", step=1, total=9), logs={"main-0": {0: b"a line\n"}})
    run = write_run(store, fake_job("speaks"), [attempt], outcome=None)
    until(lambda: run in monitor.ask("/").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    page.goto(f"{monitor.base}/runs/{run}")
    holds(page, "document.querySelector('pre.log')?.innerText.includes('a line')")
    asked: list[str] = []
    page.on("requestfinished", lambda request: asked.append(request.url))
    page.evaluate("getSelection().selectAllChildren(document.querySelector('pre.log'))")
    until(lambda: page.evaluate("1") and sum(url.endswith("/log") for url in asked) >= 2)
    assert page.evaluate("getSelection().toString()").strip() == "a line"
    store.put(RunKeys(run).attempt(1).log_piece("main-0", 7), b"another\n")
    holds(page, "document.querySelector('pre.log').innerText.includes('another')")
    visitor.close()
