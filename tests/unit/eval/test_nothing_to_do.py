"""What an answer counts as in each dialect (docs/explanation/answers.md): one that asks for nothing is done, and one
that nothing can do could not be done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.actions.dialects.registry import make_dialect
from eval.actions.geometry import Cells
from eval.agents.base import Decision, History, decide
from eval.desktop import Observation, Task
from eval.rollout.loop import RolloutLimits, rollout
from tests.support.cases import every_case
from tests.unit.eval.doubles import CLICK, DONE, Counting

NOTHING = Action(ActionType.WAIT, duration=0.0)


def answered(dialect: str, said: str) -> Decision:
    spoken = make_dialect(dialect, 4, False)
    if dialect != "waa":  # it has no form with pixels
        spoken = spoken.in_frame(Cells(1000, 1000))
    return decide(partial(spoken.parse_turn), said)


def openai(**action: Any) -> tuple[str, str]:
    return "openai", json.dumps([{"type": "computer_call", "call_id": "c", "actions": [action]}])


def claude(name: str, **given: Any) -> tuple[str, str]:
    block = {"type": "tool_use", "id": "t", "toolset_name": "computer", "name": name, "input": given}
    return "anthropic-20260801", json.dumps([block])


def qwen(**arguments: Any) -> tuple[str, str]:
    return "qwen3-vl", f"<tool_call>\n{json.dumps({'name': 'computer_use', 'arguments': arguments})}\n</tool_call>"


def osworld(kind: str, **given: Any) -> tuple[str, str]:
    return "computer_13", f"```json\n{json.dumps({'action_type': kind, **given})}\n```"


def code(line: str) -> tuple[str, str]:
    return "pyautogui", f"## Code:\n{line}"


def ui_tars(line: str) -> tuple[str, str]:
    return "ui-tars-1.5", f"Thought: so\nAction: {line}"


NOTHINGS = [
    openai(type="keypress", keys=[]),
    openai(type="scroll", x=1, y=1, scroll_x=0, scroll_y=-0.0),
    claude("scroll", scroll_direction="up", scroll_amount=0),
    qwen(action="key", keys=[]),
    qwen(action="scroll", pixels=0),
    osworld("HOTKEY", keys=[]),
    osworld("SCROLL", dx=0, dy=0),
    osworld("CLICK", num_clicks=0),
    osworld("CLICK", num_clicks=0, x=5, y=5),
    ui_tars("hotkey(key='')"),
    code("pyautogui.press([])"),
    code("pyautogui.press('a', presses=0)"),
    code("pyautogui.hotkey()"),
    code("pyautogui.hotkey([])"),
    code("pyautogui.hscroll(0)"),
    code("pyautogui.click(clicks=0)"),
    code("pyautogui.click(x=5, y=5, clicks=0)"),
    code("pyautogui.moveTo(x=5, y=5)\npyautogui.scroll(0)"),
]


@every_case(("dialect", "said"), NOTHINGS)
def test_what_asks_for_nothing_is_done(dialect: str, said: str) -> None:
    decision = answered(dialect, said)
    assert (decision.parse_error, decision.refused) == (None, None)
    assert all(action == NOTHING or action.type is ActionType.HOVER for action in decision.actions)


IMPOSSIBLE = [
    openai(type="keypress", keys=["NO_SUCH_KEY"]),
    openai(type="keypress", keys=[""]),
    openai(type="scroll", x=1, y=1, scroll_x=0, scroll_y=1e300),
    openai(type="drag", path=[]),
    claude("key", text=""),
    claude("key", text="ctrl+nokey"),
    claude("key", text="a", repeat=101),
    claude("scroll", scroll_direction="down", scroll_amount=-1),
    claude("wait", duration=1e300),
    claude("wait", duration=-1),
    qwen(action="key", keys=["nokey"]),
    qwen(action="wait", time=10**40),
    osworld("PRESS", key=""),
    osworld("PRESS", key="nokey"),
    osworld("CLICK", num_clicks=4),
    osworld("CLICK", num_clicks=-1),
    ui_tars("hotkey(key='ctrl nokey')"),
    ("waa", "```python\ncomputer.keyboard.press('ctrl+nokey')\n```"),
    ("dsl", 'Action: KEY(key="nokey")'),
    ("dsl", 'Action: HOTKEY(keys=["ctrl", "nokey"])'),
    code("pyautogui.press('nokey')"),
    code("pyautogui.press('')"),
    code("pyautogui.hotkey('ctrl', 'nokey')"),
    code("pyautogui.keyDown('nokey')"),
    code("pyautogui.click(x=5, y=5, clicks=4)"),
    code("pyautogui.click(x=5, y=5, clicks=-1)"),
    code("pyautogui.press('a', presses=-1)"),
    code("pyautogui.sleep(-1)"),
]


@every_case(("dialect", "said"), IMPOSSIBLE)
def test_what_nothing_can_do_could_not_be_done(dialect: str, said: str) -> None:
    decision = answered(dialect, said)
    assert decision.parse_error is None
    assert decision.refused
    assert not decision.actions


@pytest.mark.parametrize("where", [0, 1])
def test_nothing_is_done_of_an_answer_with_an_unknown_key(where: int) -> None:
    lines = ["pyautogui.click(x=5, y=5)"]
    lines.insert(where, "pyautogui.press('nokey')")
    decision = answered(*code("\n".join(lines)))
    assert (decision.actions, decision.parse_error) == ((), None)
    assert "unknown key 'nokey'" in str(decision.refused)


class Own:
    """An agent of a user's own, which makes its actions itself: the second is on a key that there is not."""

    name = "own"
    parallel = 1

    async def act(self, observations: Sequence[Observation], histories: Sequence[History]) -> list[Decision]:
        said = [CLICK, Action(ActionType.KEY, keys=("nokey",)), CLICK, CLICK, DONE]
        return [Decision("", said[len(history.past)]) for history in histories]


def test_an_unknown_key_could_not_be_done_on_a_desktop_that_takes_any(tmp_path: Path) -> None:
    told: dict[str, Any] = {"benchmark": "b", "environment": "e", "limits": RolloutLimits(attempts=1)}
    (result,) = asyncio.run(rollout(Own(), Counting, [Task("t", "go", max_steps=9)], out=tmp_path, **told))
    record = result.record
    assert (record.outcome, record.refused, record.parse_failures, record.steps) == ("scored", 1, 0, 5)
    assert record.success
