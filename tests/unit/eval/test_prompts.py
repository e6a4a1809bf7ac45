from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.desktop import Expected, Observation
from eval.dsl import Dsl
from eval.episodes import Step
from eval.prompts import PastStep, PromptBuilder, PromptConfig

CLICK = Action(ActionType.CLICK, x=0.5, y=0.25)
TYPED = Action(ActionType.TYPE, text="bob")


def image(shade: int) -> Image.Image:
    return Image.new("RGB", (4, 4), (shade, 0, 0))


def seen(shade: int = 9) -> Observation:
    return Observation(image(shade), (4, 4), expected=Expected(Action(ActionType.FAIL)))


def text_of(messages: list[dict[str, object]]) -> str:
    return json.dumps(messages)


def test_a_first_step_shows_the_goal_and_the_screenshot() -> None:
    messages, images = PromptBuilder(Dsl(2), system="Act.").messages("Log in", [], seen())
    assert messages == [
        {"role": "system", "content": [{"type": "text", "text": "Act."}]},
        {"role": "user", "content": [{"type": "text", "text": "Goal: Log in\n"}, {"type": "image"}]},
    ]
    assert [i.getpixel((0, 0)) for i in images] == [(9, 0, 0)]


def test_history_is_what_was_done_the_latest_of_it() -> None:
    past = [PastStep(CLICK), PastStep(None), PastStep(TYPED)]
    messages, _ = PromptBuilder(Dsl(2), system="", history=2).messages("g", past, seen())
    assert messages[0]["content"][0]["text"] == (
        'Goal: g\nActions so far:\n2. (no valid action)\n3. TYPE(text="bob")\n'
    )
    without, _ = PromptBuilder(Dsl(2), system="", history=0).messages("g", past, seen())
    assert without[0]["content"][0]["text"] == "Goal: g\n"


def test_earlier_screenshots_stand_before_their_actions() -> None:
    past = [PastStep(CLICK, image(1)), PastStep(CLICK, image(2)), PastStep(TYPED, image(3))]
    messages, images = PromptBuilder(Dsl(2), system="", images=3).messages("g", past, seen())
    content = messages[0]["content"]
    assert [part["type"] for part in content] == ["text", "image", "text", "image", "text", "image"]
    assert content[0]["text"].endswith("1. CLICK(x=0.50, y=0.25)\n")
    assert content[2]["text"] == "\n2. CLICK(x=0.50, y=0.25)\n"
    assert content[4]["text"] == '\n3. TYPE(text="bob")\n'
    assert [i.getpixel((0, 0))[0] for i in images] == [2, 3, 9]  # type: ignore[index]


def test_neither_the_expected_action_nor_the_number_of_steps_leaks() -> None:
    for config in (PromptConfig(), PromptConfig(marks=True), PromptConfig(dialect="pyautogui")):
        messages, _ = config.builder().messages("g", [], seen())
        user = text_of(messages[1:])
        assert "FAIL" not in user
        assert "of" not in user.split()


def test_targets_hold_the_thought_only_when_asked() -> None:
    step = Step(index=0, screenshot="000.png", action=CLICK, thought="  The field.\n")
    assert PromptBuilder(Dsl(2)).target(step) == "Action: CLICK(x=0.50, y=0.25)"
    target = PromptBuilder(Dsl(2), thought=True).target(step)
    assert target == "Thought: The field.\nAction: CLICK(x=0.50, y=0.25)"
    with pytest.raises(ValueError, match="no target"):
        PromptBuilder(Dsl(2)).target(Step(index=0, screenshot="000.png"))


@pytest.mark.parametrize("values", [{"history": -1}, {"images": 0}])
def test_nonsense_is_refused(values: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="history starts at 0"):
        PromptBuilder(Dsl(), **values)


def test_configurations_of_before_keep_their_bytes() -> None:
    """golden_prompts.json was written by the builder as it was before it knew turns, marks and demonstrations."""
    past = [(CLICK, 1), (None, 2), (TYPED, 3), (Action(ActionType.KEY, keys=("enter",)), None)]
    cases = json.loads((Path(__file__).parent / "golden_prompts.json").read_text())
    assert len(cases) == 35
    for case in cases:
        builder = PromptConfig(**case["config"]).builder()
        steps = [PastStep(action, None if n is None else image(n)) for action, n in past[: case["past"]]]
        messages, images = builder.messages("Log in", steps, seen())
        assert messages == case["messages"]
        assert [i.getpixel((0, 0)) for i in images] == [(n, 0, 0) for n in case["images"]]
        assert builder.target(Step(index=0, screenshot="", action=CLICK, thought=" The field. ")) == case["target"]
