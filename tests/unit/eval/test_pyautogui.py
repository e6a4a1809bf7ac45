from __future__ import annotations

import contextlib

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.calls import MAX_CODE, calls
from eval.actions.dialects.pyautogui import PyAutoGui, actions
from tests.support.cases import every_case
from tests.unit.eval.strategies import actions as any_action

KIND = ActionType


@every_case(
    ("code", "action"),
    [
        ("pyautogui.click(x=0.9722, y=0.9701)", Action(KIND.CLICK, x=0.9722, y=0.9701)),
        ("pyautogui.click(0.5, 0.25)", Action(KIND.CLICK, x=0.5, y=0.25)),
        ("pyautogui.click(x=0.5, y=0.25, clicks=2)", Action(KIND.DOUBLE_CLICK, x=0.5, y=0.25)),
        ("pyautogui.click(x=0.5, y=0.25, button='right')", Action(KIND.RIGHT_CLICK, x=0.5, y=0.25)),
        ("pyautogui.doubleClick(x=0.5, y=0.25)", Action(KIND.DOUBLE_CLICK, x=0.5, y=0.25)),
        ("pyautogui.rightClick(x=0.5, y=0.25)", Action(KIND.RIGHT_CLICK, x=0.5, y=0.25)),
        ("pyautogui.middleClick(x=0.5, y=0.25)", Action(KIND.MIDDLE_CLICK, x=0.5, y=0.25)),
        ("computer.triple_click(x=0.5, y=0.25)", Action(KIND.TRIPLE_CLICK, x=0.5, y=0.25)),
        ("pyautogui.moveTo(x=0.5, y=0.25)", Action(KIND.HOVER, x=0.5, y=0.25)),
        (
            "pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.dragTo(x=0.3, y=0.4, button='left')",
            Action(KIND.DRAG, x=0.1, y=0.2, x2=0.3, y2=0.4),
        ),
        (
            "pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.scroll(-3)",
            Action(KIND.SCROLL, x=0.1, y=0.2, direction="down", amount=3),
        ),
        ("pyautogui.scroll(5)", Action(KIND.SCROLL, direction="up", amount=5)),
        ("pyautogui.hscroll(-2)", Action(KIND.SCROLL, direction="left", amount=2)),
        ("pyautogui.write(message='CardPhotoForm')", Action(KIND.TYPE, text="CardPhotoForm")),
        ("pyautogui.typewrite('it\\'s')", Action(KIND.TYPE, text="it's")),
        ("pyautogui.write('C:\\d')", Action(KIND.TYPE, text="C:\\d")),
        ("pyautogui.press('Enter')", Action(KIND.KEY, keys=("enter",))),
        ("pyautogui.press(['enter'])", Action(KIND.KEY, keys=("enter",))),
        ("pyautogui.hotkey('ctrl', 'C')", Action(KIND.HOTKEY, keys=("ctrl", "C"))),
        ("pyautogui.hotkey(['ctrl', 'c'])", Action(KIND.HOTKEY, keys=("ctrl", "c"))),
        # as AgentNet's data and AgentNetBench's samples write them (xlang-ai/OpenCUA, AgentNetBench/sample_data)
        ("pyautogui.hotkey(keys=['ctrl', 'F'])", Action(KIND.HOTKEY, keys=("ctrl", "F"))),
        ("pyautogui.press(keys=['enter'])", Action(KIND.KEY, keys=("enter",))),
        ("pyautogui.press(keys='enter')", Action(KIND.KEY, keys=("enter",))),
        ("computer.tripleClick(x=0.5, y=0.25)", Action(KIND.TRIPLE_CLICK, x=0.5, y=0.25)),
        ("computer.wait(duration=3)", Action(KIND.WAIT, duration=3)),
        # as OSWorld's and UI-TARS's agents write them (bytedance/UI-TARS, codes/ui_tars/action_parser.py)
        ("pyautogui.hotkey('ctrl', 'c', interval=0.1)", Action(KIND.HOTKEY, keys=("ctrl", "c"))),
        ("pyautogui.leftClick(0.5, 0.25)", Action(KIND.CLICK, x=0.5, y=0.25)),
        ("pyautogui.click(0.5, 0.25, button='right')", Action(KIND.RIGHT_CLICK, x=0.5, y=0.25)),
        ("pyautogui.doubleClick(0.5, 0.25, button='left')", Action(KIND.DOUBLE_CLICK, x=0.5, y=0.25)),
        (
            "pyautogui.moveTo(0.1, 0.2)\n\npyautogui.dragTo(0.3, 0.4, duration=1.0)\n",
            Action(KIND.DRAG, x=0.1, y=0.2, x2=0.3, y2=0.4, duration=1.0),
        ),
        ("pyautogui.scroll(-5, x=0.5, y=0.25)", Action(KIND.SCROLL, x=0.5, y=0.25, direction="down", amount=5)),
        ('pyautogui.typewrite("""two\nlines""", interval=0.01)', Action(KIND.TYPE, text="two\nlines")),
        (
            "import pyautogui\nimport time\n'''\nObservation:\n\nThought:\nThe folder is C:\\Users. It's open.\n'''\n"
            "\nimport pyperclip\npyperclip.copy('it\\'s')\npyautogui.hotkey('ctrl', 'v')",
            Action(KIND.TYPE, text="it's"),
        ),
        ("computer.terminate(status='success')", Action(KIND.DONE)),
        ("computer.terminate(status='failure', answer='no')", Action(KIND.FAIL, text="no")),
        ("WAIT", Action(KIND.WAIT)),
        ("DONE", Action(KIND.DONE)),
        ("FAIL", Action(KIND.FAIL)),
        ("import pyautogui\ntime.sleep(2)", Action(KIND.WAIT, duration=2)),
    ],
)
def test_code_becomes_the_action(code: str, action: Action) -> None:
    assert actions(code) == [action]


def test_several_calls_are_several_actions() -> None:
    code = "pyautogui.click(x=0.1, y=0.2)\npyautogui.write('a')\npyautogui.press('tab', presses=2)"
    assert [action.type.value for action in actions(code)] == ["click", "type", "key", "key"]
    with pytest.raises(ParseError, match="4 actions instead of one"):
        PyAutoGui().parse(code)


def test_an_answer_with_several_calls_is_a_turn_with_several_actions() -> None:
    """As OSWorld runs an answer of OpenCUA: the code as a whole, in one step."""
    answer = (
        "## Thought:\nName, then save.\n\n## Action:\nName the file.\n\n## Code:\n```python\n"
        "pyautogui.click(x=0.1, y=0.2)\npyautogui.write(message='report')\npyautogui.press('enter')\n```"
    )
    turn = PyAutoGui().parse_turn(answer)
    assert turn.thought == "Name, then save."
    assert list(turn.actions) == [
        Action(KIND.CLICK, x=0.1, y=0.2),
        Action(KIND.TYPE, text="report"),
        Action(KIND.KEY, keys=("enter",)),
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("computer.terminate(status='success')\npyautogui.click(x=0.1, y=0.2)", "an action after computer.terminate"),
        ("\n".join(["pyautogui.press('a', presses=1000)"] * 500), "more than 1000 actions"),
    ],
    ids=["after the end", "half a million keys"],
)
def test_a_turn_that_is_none(code: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        PyAutoGui().parse_turn(f"## Code:\n{code}")


def test_a_turn_that_would_read_back_as_another_is_not_written() -> None:
    moved = [Action(KIND.HOVER, x=0.5, y=0.5), Action(KIND.SCROLL, direction="up", amount=3)]
    with pytest.raises(Unrepresentable, match="read back as others"):
        PyAutoGui().format_turn(moved)


@every_case(
    "code",
    [
        "",
        "# nothing",
        "click(x=0.1, y=0.2)",
        "x = 1",
        "import os",
        "import os as pyautogui",
        "__import__('os').system('true')",
        "pyautogui.click(x=open('f'), y=0.2)",
        "pyautogui.click(x=1 if True else 0, y=0.2)",
        "pyautogui.click(x=0.1 * 2, y=0.2)",
        "pyautogui.click(x='a', y=0.2)",
        "pyautogui.click(x=True, y=0.2)",
        "pyautogui.click(x=0.1)",
        "pyautogui.click(x=0.1, y=0.2, z=3)",
        "pyautogui.click(0.1, x=0.1, y=0.2)",
        "pyautogui.click(*[0.1, 0.2])",
        "pyautogui.click(**{'x': 0.1, 'y': 0.2})",
        "pyautogui.click(x=0.1, y=0.2",
        "pyautogui.click(x=0.1, y=0.2, clicks=0)",
        "pyautogui.press('a', presses=10**9)",
        "pyautogui.press('')",
        "pyautogui.press()",
        "pyautogui.scroll()",
        "pyautogui.scroll('down')",
        "computer.terminate()",
        "computer.terminate(status='perhaps')",
        "pyautogui.write(f'{1}')",
        "pyautogui.write(b'a')",
        "pyautogui.screenshot()",
        "for i in range(3): pyautogui.press('a')",
        "(" * 3000,
        "-" * (MAX_CODE - 1) + "1",
        "pyperclip.copy('a')",
        "pyperclip.copy('a')\npyautogui.hotkey('ctrl', 'c')",
        "pyautogui.hotkey(keys=['ctrl', 'c'], key='a')",
        "pyautogui.hotkey('ctrl', keys=['c'])",
        "pyautogui.press('a')\n  pyautogui.press('b')",
        "'a'",
        "'a' pyautogui.press('a')",
        "pyautogui.write('" + "a" * MAX_CODE + "')",
        "pyautogui.write('\x00')",
    ],
)
def test_what_is_not_known_is_an_error_and_never_a_click(code: str) -> None:
    with pytest.raises(ParseError):
        actions(code)


@pytest.mark.parametrize(
    "code",
    [
        "pyautogui.click()",
        "pyautogui.click(x=500, y=300)",
        "pyautogui.click(x=0.1, y=0.2, clicks=4)",
        "pyautogui.click(x=0.1, y=0.2, button='right', clicks=2)",
        "pyautogui.doubleClick(x=0.1, y=0.2, button='right')",
        "pyautogui.dragTo(x=0.1, y=0.2)",
        "pyautogui.scroll(0)",
        "pyautogui.press([])",
        "pyautogui.hotkey()",
        "pyautogui.hotkey(keys=[])",
        "pyautogui.write(message=['a'])",
    ],
)
def test_what_no_action_holds_is_unrepresentable(code: str) -> None:
    with pytest.raises(Unrepresentable):
        actions(code)


@given(st.text(max_size=80) | st.text(max_size=40).map("pyautogui.click({})".format))
def test_any_text_is_calls_or_a_parse_error(code: str) -> None:
    with contextlib.suppress(ParseError):
        assert calls(code)


@given(any_action(marks=False))
def test_round_trip(action: Action) -> None:
    dialect = PyAutoGui(decimals=400)
    try:
        code = dialect.format(action)
    except Unrepresentable:
        return
    keys = [*(action.keys or ()), *(action.modifiers or ())]
    assume(all(key == key.lower() or len(key) == 1 for key in keys))
    assume(action.button != "left" or action.type is not KIND.DRAG)
    assert dialect.parse(code) == action
    response = dialect.parse_response(dialect.format_response(action, "Why not?"))
    assert (response.action, response.thought) == (action, "Why not?")


def test_a_response_has_sections() -> None:
    text = (
        "## Observation:\nA page.\n\n## Thought\nClick it.\n## Action:\nClick.\n"
        "## Code:\n```python\npyautogui.click(x=0.1, y=0.2)\n```"
    )
    response = PyAutoGui().parse_response(text)
    assert response.thought == "Click it."
    assert response.action == Action(KIND.CLICK, x=0.1, y=0.2)


@pytest.mark.parametrize(
    "text",
    [
        "pyautogui.click(x=0.1, y=0.2)",
        "## Thought:\nx",
        "Hi\n## Code:\nDONE",
        "## Code:\nDONE\n## Code:\nDONE",
        "## Code:\nDONE\n## Thought:\nx",
        "## Code:\n```python\nDONE",
        "## Code:\n```bash\nDONE\n```",
        "## Code:\n",
    ],
)
def test_what_is_not_one_response_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        PyAutoGui().parse_response(text)
