"""Trainings in Debian's Chromium: every page, the numbers of the store, live over a resume and a restart."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser

from launcher.protocol.records import Beat
from launcher.results.read import open_output
from launcher.results.training_records import RlGroup, RlRollout, RlStep, RlTurn, read_output
from launcher.spec.hashing import run_id
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.conftest import EVIL
from tests.integration.monitor.served import Monitor
from tests.integration.monitor.visitor import Visitor, fits, holds
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.faketraining import group_lines, piece, step_line, write_live
from tests.support.screens import screens
from tests.support.waiting import until
from tests.unit.monitor.test_trainings import OUTPUTS, training, versions


@dataclass
class Trained:
    monitor: Monitor
    store: Store
    run: str

    def open(self, visitor: Visitor) -> None:
        """The training's page, by the links."""
        visitor.page.goto(f"{self.monitor.base}/trainings")
        visitor.page.get_by_role("link", name="rl", exact=True).click()
        visitor.page.wait_for_selector("tr[data-moment=evals-2]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    folder = tmp_path_factory.mktemp("trained")
    store = FileStore(folder / "store", sync=False)
    run = training(store)
    monitor = Monitor(folder / "home", store.url, "--allow-changes")
    try:
        until(lambda: run in monitor.ask("/trainings").text)
        yield Trained(monitor, store, run)
    finally:
        monitor.stop()


@pytest.fixture
def visitor(browser: Browser, trained: Trained) -> Iterator[Visitor]:
    made = Visitor(browser, trained.monitor)
    yield made
    made.close()


@pytest.mark.parametrize(("width", "theme"), screens(400, 1280, 2560))
def test_nothing_sticks_out_and_axe_finds_nothing(browser: Browser, trained: Trained, width: int, theme: str) -> None:
    visitor = Visitor(browser, trained.monitor, width, theme)
    page = visitor.page
    trained.open(visitor)
    base, line = trained.monitor.base, page.url
    page.goto(f"{line}/steps/1")
    group = page.locator("a[href^='/groups/']").first.get_attribute("href")
    tries = [link.get_attribute("href") for link in page.locator("a.try").all()]
    paths = [f"{base}/trainings", line, f"{line}/steps/1", f"{line}/evals/2", f"{line}/baselines/0", f"{base}{group}"]
    paths += [f"{base}{tries[0]}?turn=1", f"{base}{tries[2]}", f"{base}{tries[0]}?blind=1", f"{base}/verdicts"]
    for path in paths:
        page.goto(path)
        visitor.live()
        fits(page, path)
    assert visitor.said == []
    visitor.close()


def test_every_number_is_the_store_s(visitor: Visitor, trained: Trained) -> None:
    numbers_of_a_training(visitor, trained.store, trained.run)
    assert visitor.said == []


def numbers_of_a_training(visitor: Visitor, store: Store, run: str) -> None:
    """Compares every step, group, rollout and turn that the pages show with the records in the store."""
    output = open_output(store, run, 1)
    assert output is not None
    lines = read_output(output)
    rollouts = [line for line in lines if isinstance(line, RlRollout)]
    figures: dict[tuple[str, int], dict[str, float | None]] = {}
    for line in lines:
        if isinstance(line, RlStep):
            figures.setdefault((line.phase, line.step), {}).update(line.metrics)
    page = visitor.page
    page.goto(f"{visitor.monitor.base}/trainings")
    page.locator("tr", has_text=run).get_by_role("link").first.click()
    page.wait_for_selector("tr[data-moment]")
    here = page.url
    kinds = {"train": "steps", "eval": "evals", "baseline": "baselines"}
    heads = page.locator(".scroll thead th").all_inner_texts()
    moments = {(line.phase, line.step) for line in rollouts} | set(figures)
    assert page.locator("tr[data-moment]").count() == len(moments)
    for phase, step in sorted(moments):
        mine = [line for line in rollouts if (line.phase, line.step) == (phase, step)]
        scored = [line for line in mine if line.success is not None]
        totals = [line.total for line in mine if line.total is not None]
        cells = page.locator(f"tr[data-moment={kinds[phase]}-{step}] td").all_inner_texts()
        shown = dict(zip(heads, cells, strict=True))
        assert shown["Solved"] == (f"{sum(bool(x.success) for x in scored)} of {len(scored)}" if mine else "")
        assert shown["Mean return"] == (f"{sum(totals) / len(totals):.6g}" if totals else "")
        assert shown["Void"] == (str(sum(line.outcome == "void" for line in mine) or ""))
        groups = [x for x in lines if isinstance(x, RlGroup) and (x.phase, x.step) == (phase, step)]
        assert shown["Groups"] == (str(len(groups)) if groups else "")
        if phase == "train":
            assert shown["Not learnt from"] == (str(sum(x.dropped is not None for x in groups) or ""))
        for name in ("loss", "grad_norm", "learning_rate", "entropy"):
            value = figures.get((phase, step), {}).get(name)
            if name in shown:
                assert shown[name] == ("" if value is None else f"{value:.6g}")
    for phase, step in sorted({(line.phase, line.step) for line in rollouts}):
        page.goto(f"{here}/{kinds[phase]}/{step}")
        facts = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
        for name, value in figures.get((phase, step), {}).items():
            if value is not None:
                assert facts[name] == f"{value:.6g}"
        tries = page.locator("a.try").all_inner_texts()
        mine = [line for line in rollouts if (line.phase, line.step) == (phase, step)]
        assert sorted(tries) == sorted(f"{line.rollout}: {told(line)}" for line in mine)
    first = next(line for line in rollouts if line.outcome == "scored" and line.episode)
    page.goto(f"{here}/steps/{first.step}")
    page.get_by_role("link", name=f"{first.rollout}: {told(first)}").first.click()
    page.wait_for_selector(".said")
    place = (first.phase, first.step, first.group, first.rollout)
    turns = [x for x in lines if isinstance(x, RlTurn) and (x.phase, x.step, x.group, x.rollout) == place]
    for number, turn in enumerate(turns):
        page.goto(f"{page.url.partition('?')[0]}?turn={number}")
        tokens, unsure = page.locator(".said > .tokens span"), page.locator(".by-entropy .tokens span")
        texts = [text or "·" for text in turn.texts or []]
        assert texts == [t or "·" for t in tokens.all_text_contents()]
        entropies = [f"{x:.6g}" for x in turn.entropies or [] if x is not None]
        likely = [f"{x:.6g}" for x in turn.logprobs or [] if x is not None]
        titles = [f"{a}, entropy {b}" for a, b in zip(likely, entropies, strict=True)] if entropies else likely
        assert titles == [one.get_attribute("title") for one in tokens.all()]
        assert entropies == [one.get_attribute("title") for one in unsure.all()]
        assert unsure.all_text_contents() == (texts if entropies else [])
        assert ("The entropy of its tokens was not told." in page.locator(".said").inner_text()) == (not entropies)
        said = page.locator(".said").inner_text()
        assert turn.advantage is None or f"advantage {turn.advantage:.6g}" in said
        assert turn.entropy is None or f"entropy {turn.entropy:.6g}" in said
        assert f"{turn.tokens} written" in said
        holds(page, "document.querySelector('.stage img').naturalWidth > 0")
    facts = dict(zip(page.locator("dt").all_inner_texts(), page.locator("dd").all_inner_texts(), strict=True))
    assert facts["Return"].startswith(f"{first.total:.6g}")
    assert facts["Tokens"] == str(first.tokens)
    for name, value in first.parts.items():
        assert f"{name} {value:.6g}" in facts["Return"]


def told(line: RlRollout) -> str:
    if line.outcome == "void":
        return "void"
    return f"{'solved' if line.success else 'failed'}, {line.total:.6g}"


def test_steps_groups_rollouts_and_back_by_links_and_keys(visitor: Visitor, trained: Trained) -> None:
    page = visitor.page
    trained.open(visitor)
    line = page.url
    page.get_by_role("link", name="step 1").click()
    page.wait_for_url("**/steps/1")
    text = page.locator("main").inner_text()
    assert "2 is void: DesktopGone: the cable" in text
    assert "no: all rollouts have the same return" in text
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/steps/2")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**/evals/2")
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**/steps/2")
    page.go_back()
    page.go_back()
    page.wait_for_url("**/steps/2")
    page.go_back()
    page.wait_for_url("**/steps/1")
    page.get_by_role("link", name="2: void").click()
    page.wait_for_url("**/rollouts/*")
    assert "no: it is void" in page.locator("main").inner_text()
    with page.expect_navigation():  # the page before it looks alike and has the same keys
        page.get_by_role("link", name="1: failed, -0.04").click()
    page.wait_for_selector(".said")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**turn=1")
    said = page.locator("main").inner_text()
    assert "refused: outside of the window" in said
    assert "not in the loss: not among the turns with the most entropy (entropy_share)" in said
    assert '{"screen":"form"}' in said
    for path in ("steps/77", "steps/x", "steps/1e1", "rooms/1", "evals/1"):
        assert page.request.get(f"{line}/{path}").status == 404
    assert visitor.said == []


def test_two_rollouts_side_by_side_from_where_they_part(visitor: Visitor, trained: Trained) -> None:
    page = visitor.page
    trained.open(visitor)
    page.goto(f"{page.url}/steps/1")
    page.locator("a[href^='/groups/']").first.click()
    page.wait_for_selector(".pair .stage img")
    assert "The first turn is the same in both; they part at turn 2." in page.locator("main").inner_text()
    assert page.locator(".pair section").count() == 2
    for side, x in ((0, 0.75), (1, 0.25)):
        stage = page.locator(".pair .stage").nth(side)
        mark, picture = stage.locator(".mark").bounding_box(), stage.locator("img").bounding_box()
        assert mark is not None
        assert picture is not None
        assert abs((mark["x"] + mark["width"] / 2 - picture["x"]) / picture["width"] - x) < 0.01
    page.get_by_label("Right").select_option(label="2: void")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**right=*")
    assert page.locator(".pair").get_by_text("It had ended.").count() == 2
    deep = visitor.tab()
    deep.goto(page.url)
    assert deep.locator("main").inner_text() == page.locator("main").inner_text()
    assert visitor.said == []


def test_a_training_is_seen_as_it_runs(browser: Browser, tmp_path: Path) -> None:
    """Piece by piece, without a reload: what a crash had told goes at the resume. The server is killed and started
    again under the open page."""
    store = FileStore(tmp_path / "store", sync=False)
    job = fake_job("rl", outputs=OUTPUTS)
    run = run_id(job)
    write_run(store, job, [FakeAttempt(ended=None, beat=Beat(1, "running"))], outcome=None)
    parts = versions()
    kept = write_live(store, run, 1, parts[0])
    beat = RunKeys(run).attempt(1).beat("main-0")
    store.put(beat, msgspec.json.encode(Beat(2, "running", outputs={"results": 1})))
    monitor = Monitor(tmp_path / "home", store.url)
    until(lambda: run in monitor.ask("/trainings").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    page.goto(f"{monitor.base}/trainings")
    page.get_by_role("link", name="rl", exact=True).click()
    visitor.live()
    page.evaluate("window.same = true")
    # after which version of the results, in which row, what is there to see; the fifth is the one that a crash ends
    wanted = {3: ("steps-1", "1 of 4"), 5: ("steps-2", "2 of 3"), 7: ("steps-2", "0.25"), 9: ("evals-2", "2 of 2")}
    for number, files in enumerate(parts[1:], 2):
        kept = write_live(store, run, number, files, kept)
        store.put(beat, msgspec.json.encode(Beat(number + 1, "running", outputs={"results": number})))
        if number in wanted:
            moment, text = wanted[number]
            holds(page, f"document.querySelector('tr[data-moment={moment}]')?.innerText.includes('{text}')")
        if number == 5:
            monitor.stop(signal.SIGKILL)
            page.wait_for_selector("#live[data-live=no]")
            monitor = Monitor(tmp_path / "home", store.url, port=monitor.port)
            visitor.live()
    holds(page, "document.querySelector('main').innerText.includes('resumed, step 1')")
    assert page.evaluate("window.same")
    visitor.close()
    monitor.stop()


def test_hostile_records_are_shown_and_not_obeyed(browser: Browser, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    lines = group_lines("train", 1, 0, (True, False, None))
    for line in lines:
        for name in ("instruction", "response", "error", "dropped", "by"):
            if line.get(name):
                line[name] = f"{EVIL}\x1b[31m"
        if "texts" in line:
            line["texts"] = [EVIL, "\x1b[31m", ""]
        if "action" in line:
            line["action"] = {"type": "type", "text": EVIL}
        if "detail" in line:
            line["detail"] = {EVIL: EVIL}
        if "parts" in line:
            line["parts"] = {EVIL: 1.0}
    files = {"records/000001.jsonl": piece(1, [*lines, step_line("train", 1, **{EVIL: 1.0})])}
    job = fake_job("odd", outputs={"results": Output()})
    write_run(store, job, [FakeAttempt(outputs={"results": files})])
    monitor = Monitor(tmp_path / "home", store.url, "--allow-changes")
    until(lambda: "odd" in monitor.ask("/trainings").text)
    visitor = Visitor(browser, monitor)
    page = visitor.page
    page.goto(f"{monitor.base}/trainings")
    page.get_by_role("link", name="odd", exact=True).click()
    page.get_by_role("link", name="step 1").click()
    page.wait_for_selector("a.try")
    step = page.url
    pages = [step, *(f"{monitor.base}{link.get_attribute('href')}" for link in page.locator("main a.try").all())]
    group = page.locator("a[href^='/groups/']").first.get_attribute("href")
    pages.append(f"{monitor.base}{group}")
    for path in pages:
        page.goto(path)
        visitor.live()
        assert "<img src=x onerror=alert(1)>" in page.locator("main").inner_text(), path
        assert page.locator("main script, main img[src=x]").count() == 0
        assert "\x1b" not in page.content()
        assert "\u202e" not in page.content()
    assert visitor.said == []
    visitor.close()
    monitor.stop()


def test_a_verdict_by_keyboard_is_a_record_and_is_shown(visitor: Visitor, trained: Trained) -> None:
    page = visitor.page
    trained.open(visitor)
    page.goto(f"{page.url}/steps/1")
    step = page.url
    page.get_by_role("link", name="0: solved, 0.96").click()
    page.wait_for_selector("form.judge")
    page.get_by_label("failed", exact=True).focus()
    page.keyboard.press("Space")
    page.keyboard.press("Tab")
    page.keyboard.type(f"It only looks solved. {EVIL}")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("ul .try")
    (record,) = [json.loads(trained.store.get(meta.key)) for meta in trained.store.scan("verdicts/")]
    assert (record["place"], record["success"], record["checker"]) == ("train/1/0/0", False, True)
    assert not record.get("blind")
    text = page.locator("main").inner_text()
    assert record["by"] in text
    assert "It only looks solved. <img src=x" in text
    assert "Return" in text  # and the checker's word is there as before
    assert page.locator(".badge").first.inner_text() == "solved"
    page.goto(step)
    assert f"{record['by']}: failed" in page.locator("main").inner_text()
    assert page.locator("a.try").first.inner_text() == "0: solved, 0.96"
    page.goto(f"{visitor.monitor.base}/verdicts")
    shown = page.locator("main").inner_text()
    assert "0 of 1" in shown
    assert "0.0 to 79.3 %" in shown  # Wilson's interval of 0 of 1
    assert "train/1/0/0" in shown
    assert visitor.said == []
