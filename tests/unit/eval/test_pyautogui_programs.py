"""PyAutoGUI programs as clients of OSWorld send them, read for a live screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.desktops.server.pyautogui_code import program_of, read, without_preamble

SCREEN = Screen(1920, 1080)
PREFIX = "import pyautogui; import time; pyautogui.FAILSAFE = False; "


def at(x: int, y: int) -> dict[str, float]:
    return {"x": (x + 0.5) / 1920, "y": (y + 0.5) / 1080}


def programs(code: str) -> list[Action] | None:
    return read(PREFIX + code, SCREEN, lambda: (50, 60))


# what OSWorld's controller sends for the actions of computer_13, and what agents of OSWorld write
UNDERSTOOD = {
    "pyautogui.moveTo(10, 20, 0.73, pyautogui.easeInOutQuad)": [Action(ActionType.HOVER, **at(10, 20))],
    "pyautogui.moveTo()": [],
    "pyautogui.click()": [Action(ActionType.CLICK)],
    "pyautogui.click(button='left', x=10, y=20, clicks=2)": [Action(ActionType.DOUBLE_CLICK, **at(10, 20))],
    "pyautogui.click(button='right')": [Action(ActionType.RIGHT_CLICK)],
    "pyautogui.click(10, 20, clicks=4)": [Action(ActionType.CLICK, **at(10, 20))] * 4,
    "pyautogui.click(10.9, 20.2)": [Action(ActionType.CLICK, **at(10, 20))],
    "pyautogui.click(5000, -3)": [Action(ActionType.CLICK, **at(1919, 0))],
    "pyautogui.doubleClick(x=10, y=20)": [Action(ActionType.DOUBLE_CLICK, **at(10, 20))],
    "pyautogui.tripleClick(10, 20)": [Action(ActionType.TRIPLE_CLICK, **at(10, 20))],
    "pyautogui.mouseDown(button='right')": [Action(ActionType.MOUSE_DOWN, button="right")],
    "pyautogui.dragTo(10, 20, duration=1.0, button='left', mouseDownUp=True)": [
        Action(ActionType.DRAG, x2=at(10, 20)["x"], y2=at(10, 20)["y"], duration=1.0)
    ],
    "pyautogui.moveRel(10, -5); pyautogui.dragRel(0, 5)": [
        Action(ActionType.HOVER, **at(60, 55)),
        Action(ActionType.DRAG, x2=at(60, 60)["x"], y2=at(60, 60)["y"]),
    ],
    "pyautogui.hscroll(-3)": [Action(ActionType.SCROLL, direction="left", amount=3)],
    "pyautogui.vscroll(3)": [Action(ActionType.SCROLL, direction="up", amount=3)],
    "pyautogui.scroll(0)": [],
    "pyautogui.typewrite('it\\'s; pyautogui.PAUSE = 1, pyautogui.easeIn')": [
        Action(ActionType.TYPE, text="it's; pyautogui.PAUSE = 1, pyautogui.easeIn")
    ],
    "pyautogui.write(['enter', 'a'], interval=0.1)": [
        Action(ActionType.KEY, keys=("enter",)),
        Action(ActionType.KEY, keys=("a",)),
    ],
    "pyautogui.press('tab', presses=2)": [Action(ActionType.KEY, keys=("tab",))] * 2,
    "pyautogui.hotkey('ctrl', 'shift', 't')": [Action(ActionType.HOTKEY, keys=("ctrl", "shift", "t"))],
    "pyautogui.hotkey(['ctrl', 'c'])": [Action(ActionType.HOTKEY, keys=("ctrl", "c"))],
    "pyautogui.PAUSE = 0.2\npyautogui.keyDown('shift')\ntime.sleep(0.5)": [
        Action(ActionType.KEY_DOWN, keys=("shift",)),
        Action(ActionType.WAIT, duration=0.5),
    ],
    "": [],
}
NOT_OURS = [
    "import os; os.remove('x')",
    "__import__('os').system('x')",
    "print(pyautogui.position())",
    "pyautogui.click(x)",
    "pyautogui.click(*[1, 2])",
    "for i in range(3): pyautogui.click(1, 2)",
    "pyautogui.screenshot('x.png')",
    "pyautogui.press('a', presses=10**9)",
    "pyautogui.press('a', presses=1000000000)",
    "pyautogui.click(1, 2, clicks=True)",
    "pyautogui.click(1, 2, button='wheel')",
    "x = pyautogui.click(1, 2)",
    "(" * 5000,
]


@pytest.mark.parametrize("code", UNDERSTOOD)
def test_what_is_understood(code: str) -> None:
    assert programs(code) == UNDERSTOOD[code]


@pytest.mark.parametrize("code", NOT_OURS, ids=range(len(NOT_OURS)))
def test_what_is_left_to_the_guest(code: str) -> None:
    assert programs(code) is None


@given(st.text())
def test_no_text_does_more_than_be_left(text: str) -> None:
    programs(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_text_is_typed_as_it_was_written(text: str) -> None:
    """The controller writes texts with `repr`."""
    assert programs(f"pyautogui.typewrite({text!r})") == [Action(ActionType.TYPE, text=text)]


def test_the_import_of_pyautogui_goes_where_nothing_uses_it() -> None:
    rest = "import platform; print(platform.system())"
    assert without_preamble(PREFIX + rest) == f"import time; {rest}"
    assert without_preamble(rest) == rest
    assert without_preamble(PREFIX + "print(pyautogui.size())") == PREFIX + "print(pyautogui.size())"


def test_only_python_s_own_form_is_a_program() -> None:
    assert program_of(["python", "-c", "x"]) == "x"
    assert program_of(["python", "x.py"]) is None
    assert program_of(["sh", "-c", "x"]) is None
