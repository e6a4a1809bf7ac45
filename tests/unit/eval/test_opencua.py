"""Prompts and answers of OpenCUA models, as the public agent of OSWorld has them (mm_agents/opencua).

Its templates stand here as they are there: they are what a user gives in the configuration, and what is expected.
"""

from __future__ import annotations

from typing import Any

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.actions.geometry import Cells
from eval.config import ConfigError
from eval.desktop import Observation
from eval.episodes import Step
from eval.prompts import PastStep, PromptConfig
from eval.prompts.wording import Level

GOAL = (
    "# Task Instruction:\n{goal}\n\n"
    "Please generate the next move according to the screenshot, task instruction and previous steps (if provided).\n"
)
STEP = "# Step {step_num}:\n"
HISTORY: dict[Level, str] = {
    "l1": "## Action:\n{action}\n",
    "l2": "## Thought:\n{thought}\n\n## Action:\n{action}\n",
    "l3": "## Observation:\n{observation}\n\n## Thought:\n{thought}\n\n## Action:\n{action}\n",
}
CONFIG: dict[str, Any] = {"dialect": "pyautogui", "system": "Act.", "goal": GOAL, "history_style": "opencua"}


def cot(number: int) -> dict[str, str]:
    return {"observation": f"Screen {number}.", "thought": f"Because {number}.", "action": f"Click {number}."}


def answer(number: int, code: str = "pyautogui.click(x=10, y=20)") -> str:
    parts = cot(number)
    return (
        f"# Step: {number + 1}\n## Observation:\n{parts['observation']}\n\n## Thought:\n{parts['thought']}\n\n"
        f"## Action:\n{parts['action']}\n\n## Code:\n```python\n{code}\n```"
    )


def picture(number: int) -> Image.Image:
    return Image.new("RGB", (60, 60), (number, 0, 0))


def past(count: int) -> list[PastStep]:
    click = Action(ActionType.CLICK, x=0.5, y=0.5)
    return [PastStep(click, picture(n), cot(n)["thought"], answer(n)) for n in range(count)]


def public(count: int, level: Level, images: int) -> list[tuple[str, list[str]]]:
    """What the public agent sends at this step: (role, texts, and image:N for the screenshot N)."""
    sent = [("system", ["Act."])]
    older: list[str] = []
    for i in range(count):
        told = STEP.format(step_num=i + 1) + HISTORY[level].format(**cot(i))
        if i > count - images:
            sent += [("user", [f"image:{i}"]), ("assistant", [told])]
        else:
            older.append(told)
            if i == count - images:
                sent.append(("assistant", ["\n".join(older)]))
    return [*sent, ("user", [f"image:{count}", GOAL.replace("{goal}", "Open it.")])]


@pytest.mark.parametrize("level", ["l1", "l2", "l3"])
@pytest.mark.parametrize("images", [1, 3, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_the_prompt_is_that_of_the_public_agent(level: Level, images: int, count: int) -> None:
    builder = PromptConfig(**CONFIG, history_level=level, images=images, history=100).builder()
    seen = Observation(picture(count), (60, 60))
    messages, found = builder.messages("Open it.", past(count), seen)
    shown = iter(found)
    sent = []
    for message in messages:
        parts = []
        for part in message["content"]:
            pixel: Any = next(shown).getpixel((0, 0)) if part["type"] == "image" else None
            parts.append(part["text"] if pixel is None else f"image:{pixel[0]}")
        sent.append((message["role"], parts))
    assert sent == public(count, level, images)


def test_a_step_without_reasoning_tells_what_was_done_and_a_short_history_the_latest() -> None:
    builder = PromptConfig(**CONFIG, images=1, history=2).builder()
    steps = [*past(2), PastStep(Action(ActionType.KEY, keys=("enter",)), picture(2), None, "pyautogui.press('enter')")]
    messages, _ = builder.messages("Open it.", steps, Observation(picture(3), (60, 60)))
    assert messages[1]["content"][0]["text"] == (
        "# Step 2:\n## Action:\nClick 1.\n\n# Step 3:\n## Action:\npyautogui.press('enter')\n"
    )


def test_an_answer_as_the_system_prompt_asks_for_it_is_read() -> None:
    turn = (
        PromptConfig(**CONFIG).builder().in_frame(Cells(1000, 500)).read_turn(answer(3, "pyautogui.click(x=100, y=50)"))
    )
    assert turn.thought == "Because 3."
    assert turn.actions == (Action(ActionType.CLICK, x=100.5 / 1000, y=50.5 / 500),)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ('```code\ncomputer.terminate(status="success")\n```', ActionType.DONE),
        ('```code\ncomputer.terminate(status="failure")\n```', ActionType.FAIL),
        ("```code\ncomputer.wait()\n```", ActionType.WAIT),
        ("```python\npyautogui.hotkey(['ctrl', 's'])\n```", ActionType.HOTKEY),
    ],
)
def test_the_functions_of_the_public_prompt(code: str, kind: ActionType) -> None:
    turn = (
        PromptConfig(**CONFIG)
        .builder()
        .read_turn(f"# Step: 1\n## Thought:\nSo.\n\n## Action:\nDo.\n\n## Code:\n{code}")
    )
    assert [action.type for action in turn.actions] == [kind]


def test_rows_of_training_have_the_same_prompt_and_an_answer_of_the_level() -> None:
    builder = PromptConfig(**CONFIG, thought="l2", images=3).builder()
    step = Step(index=0, screenshot="000.png", action=Action(ActionType.CLICK, x=0.25, y=0.5), response=answer(0))
    assert builder.target(step) == (
        "## Thought:\nBecause 0.\n\n## Action:\nClick 0.\n\n## Code:\npyautogui.click(x=0.25, y=0.5)"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"goal": "Do it"}, r"prompt.goal: it must hold \{goal\} once"),
        ({"observation": "tree"}, "prompt.observation: tree; allowed with history_style opencua: screenshot"),
        ({"dialect": "dsl", "history_level": "l3"}, "prompt.history_level: l3 needs the sections"),
    ],
)
def test_what_does_not_go_together_is_one_line(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        PromptConfig(**{**CONFIG, **given}).builder()
