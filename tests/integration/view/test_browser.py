"""The report in Debian's Chromium, from the disk: seen at three widths, by keyboard, with hostile texts, and by axe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, Request, sync_playwright

from launcher.report.page import write
from launcher.selection.select import select
from launcher.spec.model import Output
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, episode_files, eval_files, fake_job, login_pipeline, write_run
from tests.support.needs import marked
from tests.support.screens import screens
from tests.support.waiting import until

BROWSER = shutil.which("chromium")
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202e<b>"
pytestmark = marked("chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


def record(task_id: str, **fields: Any) -> dict[str, Any]:
    told = {"benchmark": "login", "version": "1", "agent": "tiny", "score": 0.0, "success": False, "outcome": "scored"}
    return {**told, "task_id": task_id, **fields}


def report(folder: Path, name: str = "eval", word: str = "") -> Path:
    """The page of an evaluation with six kept episodes, a baseline and an infrastructure failure."""
    store = FileStore(folder / "store", sync=False)
    why = {"kind": f"loop{word}", "rule": f"The last answers repeat.{word}", "why": f"the same answer 4 times{word}"}
    records, files = [], eval_files([True], agent=f"tiny{word}")
    for index in range(6):
        files |= episode_files(
            f"e-{index}", index % 2 == 0, index, thought=f"I click.{word}", instruction=f"Log in.{word}"
        )
        fields: dict[str, Any] = {"difficulty": ("easy", "hard")[index % 2], "programs": [f"editor{word}"], "steps": 4}
        fields |= {"success": True, "score": 1.0} if index % 2 == 0 else {"failure": why}
        records.append(record(f"task-{index}{word}", episode=f"episodes/e-{index}", agent=f"tiny{word}", **fields))
    infra = {"success": None, "score": None, "outcome": "infra", "error": f"the desktop is gone{word}"}
    records.append(record("task-6", programs=["shell"], agent=f"tiny{word}", **infra))
    others = [record(f"task-{index}{word}", agent="random", steps=9, programs=["shell"]) for index in range(6)]
    files["tasks.jsonl"] = b"".join(json.dumps(one).encode() + b"\n" for one in records)
    files["baselines/random/tasks.jsonl"] = b"".join(json.dumps(one).encode() + b"\n" for one in others)
    run = write_run(store, fake_job(name, outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])
    write(store, select(store, [run]), folder / "report.html")
    return folder / "report.html"


def visit(browser: Browser, path: Path, width: int = 1000, theme: Any = "light") -> tuple[Page, list[str]]:
    """The page, and all that it said or asked for beside its own files."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
    said: list[str] = []

    def asked(request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            said.append(request.url)

    def asks(dialog: Dialog) -> None:
        said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", asks)
    page.on("request", asked)
    page.goto(path.as_uri())
    return page, said


def open_all(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(line => { line.open = true; })")
    until(lambda: all(width > 0 for width in each_screen(page, "naturalWidth")))


def each_screen(page: Page, field: str) -> list[Any]:
    """A field of the picture of every replay."""
    found: list[Any] = page.evaluate(
        f"[...document.querySelectorAll('.stage img:first-child')].map(one => one.{field})"
    )
    return found


@pytest.mark.parametrize(("width", "theme"), screens(400, 1000, 2000))
def test_nothing_sticks_out_and_axe_finds_nothing(browser: Browser, tmp_path: Path, width: int, theme: str) -> None:
    paths = [report(tmp_path)]
    if (width, theme) == (400, "light"):  # a pipeline's other sections, once
        store = FileStore(tmp_path / "p" / "store", sync=False)
        pipeline = login_pipeline(store, n=12, thought="I click.")
        paths.append(tmp_path / "p" / "report.html")
        write(store, select(store, [pipeline.group]), paths[-1])
    for path in paths:
        page, said = visit(browser, path, width, theme)
        open_all(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page).response
        assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]] == []
        assert said == []
        page.close()


# the smallest text that is seen: its size in pixels of the screen, and the text
SMALLEST = """[...document.querySelectorAll('body *')]
  .filter((each) => each.getClientRects().length)
  .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
  .map((each) => [parseFloat(getComputedStyle(each).fontSize) * (each.getScreenCTM?.().a ?? 1), each.textContent])
  .sort((one, other) => one[0] - other[0])[0]"""


@pytest.mark.parametrize("width", [390, 700, 1280])
def test_no_text_is_smaller_than_eleven_pixels(browser: Browser, tmp_path: Path, width: int) -> None:
    store = FileStore(tmp_path / "store", sync=False)
    pipeline = login_pipeline(store, n=12, thought="I click.")
    write(store, select(store, [pipeline.group]), tmp_path / "pipeline.html")
    for path in (report(tmp_path / "evaluation"), tmp_path / "pipeline.html"):
        page, said = visit(browser, path, width)
        assert page.locator("svg text").count()
        size, text = page.evaluate(SMALLEST)
        assert size >= 11, text
        assert said == []
        page.close()


def test_filters_show_what_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    page, said = visit(browser, report(tmp_path))
    shown = page.locator(".episode:visible")
    assert page.locator(".episode").count() == 13  # of the agent 7, of the baseline 6
    assert shown.count() == 12  # folds but those of failures are closed; a choice opens them
    page.get_by_label("agent").select_option("tiny")
    assert shown.count() == 7
    page.get_by_label("outcome").select_option("failed")
    assert shown.count() == 3
    assert page.locator(".filters output").inner_text() == "3 shown"
    page.get_by_label("words").fill("TASK-3 repeat")
    assert [one.split("\n")[0] for one in shown.locator("summary b").all_inner_texts()] == ["task-3"]
    page.get_by_label("words").fill("nothing like it")
    assert shown.count() == 0
    page.get_by_label("words").fill("")
    page.get_by_label("outcome").select_option("")
    page.get_by_label("program").select_option("shell")
    assert shown.count() == 1
    page.get_by_label("agent").select_option("")
    assert shown.count() == 7
    assert said == []
    page.close()


def test_a_replay_is_moved_by_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    page, said = visit(browser, report(tmp_path))
    line = page.locator(".episode:not([open])").filter(has=page.locator("[data-replay]")).first
    name = line.locator("summary b").inner_text()
    for _ in range(200):
        page.keyboard.press("Tab")
        if name in page.evaluate("document.activeElement.matches('summary') ? document.activeElement.innerText : ''"):
            break
    page.keyboard.press("Enter")
    row = page.locator(".episode[open]").filter(has_text=name)
    place = row.locator(".controls output")
    assert place.inner_text() == "1 / 5"
    assert row.locator(".stage img").first.evaluate("one => one.naturalWidth") == 320
    page.keyboard.press("Tab")  # Back can do nothing at the beginning: the slider
    page.keyboard.press("ArrowRight")
    assert place.inner_text() == "2 / 5"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # the button after Next
    assert row.locator(".after").is_hidden()
    page.keyboard.press("Enter")
    assert row.locator(".after").is_visible()
    assert row.get_by_role("button", name="What changed").get_attribute("aria-pressed") == "true"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert place.inner_text() == "3 / 5"
    assert said == []
    page.close()


def test_pictures_beside_the_page_are_shown_from_the_disk(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launcher.report.pictures.ROOM", 100)
    page, said = visit(browser, report(tmp_path))
    open_all(page)
    sources = each_screen(page, "src")
    assert len(sources) == 6
    assert all("/report-pictures/" in source for source in sources)
    assert said == []
    page.close()


def test_texts_of_agents_stay_texts(browser: Browser, tmp_path: Path) -> None:
    page, said = visit(browser, report(tmp_path, word=EVIL))
    open_all(page)
    page.get_by_label("why it failed").select_option(index=1)
    page.get_by_label("words").fill("onerror")
    for button in page.get_by_role("button", name="Next").all()[:3]:
        if button.is_visible() and button.is_enabled():
            button.click()
    assert page.locator("img[onerror], main script:not([type='application/json'])").count() == 0
    assert page.locator(".episode:visible").count() > 0
    assert said == []
    page.close()
