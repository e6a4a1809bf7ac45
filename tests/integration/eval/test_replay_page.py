"""The page of an episode in a browser: keys, buttons, times, both themes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from eval.actions import Action
from eval.episodes import Episode, Step, write_episode
from eval.replay import main
from tests.support.needs import need

CLICK = Action(type="click", x=0.25, y=0.5)
STEPS = (
    Step(index=0, screenshot="000.png", action=CLICK, response="CLICK(0.25, 0.5)", time=1000.0, cost=0.0125),
    Step(index=1, screenshot="001.png", response="<b>no</b>", parse_error="no action in it", time=1003.5),
    Step(index=2, screenshot="002.png", action=CLICK, response="CLICK(0.25, 0.5)", time=1010.0),
)


def episode(folder: Path, success: bool | None = False) -> Path:
    made = Episode(
        episode_id="e",
        task_id="note",
        instruction='Write "a" & </title><script>alert(1)</script>',
        screen=(64, 48),
        success=success,
        score=None if success is None else float(success),
        steps=STEPS,
        agent="tiny",
        duration_ms=12_500,
    )
    write_episode(folder, made, [Image.new("RGB", (64, 48), colour) for colour in ("red", "green", "blue", "white")])
    return folder


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Page, list[str]]]:
    need("chromium")
    out = tmp_path / "replay.html"
    assert main([str(episode(tmp_path / "episode")), str(out)]) == 0
    theme: Any = getattr(request, "param", "light")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page, said = browser.new_page(viewport={"width": 390, "height": 300}, color_scheme=theme), list[str]()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(out.as_uri())
        yield page, said
        browser.close()


def place(page: Page) -> tuple[str, int]:
    """What the page says of its place, and which step has the focus."""
    focus = page.evaluate("[...document.querySelectorAll('figure')].indexOf(document.activeElement)")
    return page.locator("nav span").inner_text(), focus


def test_keys_and_buttons_go_through_the_steps(opened: tuple[Page, list[str]]) -> None:
    page, said = opened
    page.keyboard.press("ArrowRight")
    assert place(page) == ("2 / 4", 1)
    assert page.evaluate("document.querySelectorAll('figure')[1].getBoundingClientRect().top") < 100
    page.keyboard.press("End")
    assert place(page) == ("4 / 4", 3)
    page.keyboard.press("ArrowRight")  # there is no further one
    assert place(page) == ("4 / 4", 3)
    page.get_by_role("button", name="Back").click()
    assert place(page)[0] == "3 / 4"
    page.keyboard.press("Home")
    assert place(page) == ("1 / 4", 0)
    assert said == []


def test_times_costs_and_what_was_wrong(opened: tuple[Page, list[str]]) -> None:
    page, said = opened
    captions = page.locator("figcaption").all_inner_texts()
    assert captions[0].endswith("0.0 s, 0.0125 USD")
    assert "<b>no</b> no action in it 3.5 s" in captions[1]
    assert captions[2].endswith("10.0 s")
    assert captions[3] == "The end."
    assert "note, seed 0, agent tiny, 12.5 s: not solved, score 0.0" in page.locator("main > p").inner_text()
    assert page.locator("h1").inner_text() == 'Write "a" & </title><script>alert(1)</script>'
    assert said == []


@pytest.mark.parametrize("opened", ["light", "dark"], indirect=True)
def test_it_fits_a_phone_and_axe_finds_nothing(opened: tuple[Page, list[str]]) -> None:
    page, _ = opened
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == []


def test_an_episode_that_nobody_judged_and_one_of_a_single_picture(tmp_path: Path) -> None:
    out = tmp_path / "replay.html"
    assert main([str(episode(tmp_path / "open", None)), str(out)]) == 0
    assert "not judged" in out.read_text()
    only = Episode(episode_id="e", task_id="t", instruction="i", screen=(64, 48), outcome="infra", error="it broke")
    write_episode(tmp_path / "one", only, [Image.new("RGB", (64, 48))])
    assert main([str(tmp_path / "one"), str(out)]) == 0
    assert "infrastructure failure: it broke" in out.read_text()
    assert "<nav>" not in out.read_text()
