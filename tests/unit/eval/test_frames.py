"""Coordinates in pixels: read in the frame that the configuration names, or a parse failure; never a silent 0."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval import agentnetbench as entry
from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.registry import make_dialect
from eval.actions.geometry import Cells
from eval.agents.base import Agent, Decision, decide
from eval.agents.config import AgentConfig
from eval.config import ConfigError
from eval.desktop import Observation, Task
from eval.prompts import PastStep, PromptBuilder
from tests.integration.agentnet.material import SIZE, bench

SCREEN = Cells(1920, 1080)
ANSWER = {"dsl": "Action: CLICK(x={}, y={})", "pyautogui": "## Code:\npyautogui.click(x={}, y={})"}
NAMES = list(ANSWER)


@pytest.mark.parametrize("name", NAMES)
def test_a_pixel_is_read_as_its_centre_and_a_place_between_pixels_as_it_is(name: str) -> None:
    dialect = make_dialect(name, 4, False).in_frame(SCREEN)
    for (x, y), point in [
        ((960, 540), (960.5 / 1920, 540.5 / 1080)),
        ((0, 0), (0.5 / 1920, 0.5 / 1080)),
        ((1919, 1079), (1919.5 / 1920, 1079.5 / 1080)),
        (("960.0", "540.0"), (0.5, 0.5)),
    ]:
        assert dialect.parse_response(ANSWER[name].format(x, y)).action.point == pytest.approx(point)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("x", "y"), [(1920, 5), (5, 1080), (-1, 5), ("9" * 400, 5), (1920.5, 5)])
def test_a_pixel_off_the_frame_is_a_parse_failure(name: str, x: object, y: object) -> None:
    with pytest.raises(ParseError, match=r"off the frame of 1920x1080|too large|not a plain value"):
        make_dialect(name, 4, False).in_frame(SCREEN).parse_response(ANSWER[name].format(x, y))


@pytest.mark.parametrize("name", NAMES)
def test_without_a_frame_pixels_are_a_parse_failure(name: str) -> None:
    with pytest.raises(ParseError, match="x must be a number from 0 to 1, not 960"):
        make_dialect(name, 4, False).parse_response(ANSWER[name].format(960, 540))


@pytest.mark.parametrize("name", NAMES)
def test_every_pixel_is_written_as_it_is_read(name: str) -> None:
    dialect = make_dialect(name, 4, False).in_frame(Cells(37, 23))
    for x in range(37):
        for y in (0, 11, 22):
            action = dialect.parse_response(ANSWER[name].format(x, y)).action
            assert dialect.format_response(action) == ANSWER[name].format(x, y)
    drag = Action(ActionType.DRAG, x=0.5 / 37, y=0.5 / 23, x2=36.5 / 37, y2=22.5 / 23)
    read = dialect.parse(dialect.format(drag))
    assert (read.point, read.end) == (pytest.approx(drag.point), pytest.approx(drag.end))
    assert dialect.in_frame(SCREEN).parse(dialect.in_frame(SCREEN).format(drag)).type is ActionType.DRAG


@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_speaks_of_pixels_and_tells_the_history_in_them(name: str) -> None:
    builder = PromptBuilder(make_dialect(name, 4, False)).in_frame(SCREEN)
    click = Action(ActionType.CLICK, x=0.5, y=0.5)
    image = Image.new("RGB", (4, 4))
    messages, _ = builder.ask(Task("t", "Click", 0), [PastStep(click)], Observation(image, image.size))
    text = json.dumps(messages)
    assert "pixels of the screenshot, which is 1920 wide and 1080 high" in text
    assert "x=960, y=540" in text
    assert "0.42" not in text
    assert builder.frame == (1920, 1080)


def test_a_dialect_without_pixels_says_so() -> None:
    own = make_dialect("tests.contract.dialect.own:JsonLines", 4, False)
    for dialect in (own, make_dialect("dsl", 4, True)):
        with pytest.raises(Unrepresentable, match="no form with pixels"):
            dialect.in_frame(SCREEN)
        with pytest.raises(ConfigError, match=r"agent\.frame: .*; allowed with this dialect: normalised"):
            PromptBuilder(dialect).in_frame(SCREEN)


@pytest.mark.parametrize(("framed", "value", "failures"), [(True, 1.0, 0.0), (False, 0.0, 1.0)])
def test_the_offline_benchmark_reads_pixels_in_their_frame_also_from_stored_answers(
    framed: bool, value: float, failures: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench(tmp_path / "bench")

    class Pixels:
        name = "pixels"
        parallel = 1

        def __init__(self, builder: PromptBuilder) -> None:
            self.builder = builder.in_frame(Cells(*SIZE)) if framed else builder

        async def act(self, observations: Any, histories: Any) -> list[Decision]:
            text = "## Code:\npyautogui.click(x=80, y=100)"  # of 320 x 200: a quarter and a half
            return [replace(decide(self.builder.read, text), frame=self.builder.frame) for _ in observations]

    def make(config: AgentConfig, builder: PromptBuilder) -> Agent:
        return Pixels(builder)

    monkeypatch.setattr(entry, "make_deciding", make)
    config = {
        "bench": str(tmp_path / "bench"),
        "agent": {"kind": "commonest", "episodes": str(tmp_path), "name": "pixels"},
        "prompt": {"dialect": "pyautogui", "system": ""},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    for _ in range(2):  # the second time from the stored answers
        assert entry.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]) == 0
        rows = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert {row["value"] for row in rows if row["metric"] == "type/click"} == {value}
        assert {row["value"] for row in rows if row["metric"] == "parse_failures"} == {failures}
