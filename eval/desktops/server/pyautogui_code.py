"""PyAutoGUI programs as clients of OSWorld send them, read into Actions for a live screen. No code is run.

A client wraps each action into `python -c "import pyautogui; import time; pyautogui.FAILSAFE = False; CODE"`. `read`
understands such programs where they are plain calls with plain values; any other program is the guest's to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from eval.actions import Action, ActionError, ActionType, ParseError
from eval.actions.dialects.calls import LEXEME, SAME, SIGNATURES, CodeCall, is_number, key_names, plain_calls
from eval.actions.geometry import Screen

PYTHONS: Final = ("python", "python3", "/usr/bin/python", "/usr/bin/python3")
MAX_TIMES: Final = 1000
PREAMBLE: Final = re.compile(r"import pyautogui;\s*import time;\s*(?:pyautogui\.[A-Z_]+\s*=\s*[\w.]+;\s*)*")
MODULE: Final = "pyautogui"  # Python's module of that name
MAX_KEYS: Final = 10  # of one hotkey
LIVE_SIGNATURES: Final[dict[str, tuple[str, ...]]] = {
    **{name: names for name, names in SIGNATURES.items() if name.startswith(("pyautogui.", "time."))},
    "pyautogui.move": ("xOffset", "yOffset", "duration"),
    "pyautogui.moveRel": ("xOffset", "yOffset", "duration"),
    "pyautogui.drag": ("xOffset", "yOffset", "duration", "button"),
    "pyautogui.dragRel": ("xOffset", "yOffset", "duration", "button"),
}
LIVE_SIGNATURES["pyautogui.hotkey"] = (*(f"key{number}" for number in range(MAX_KEYS)), "interval")
# Assignments that change how PyAutoGUI waits; there is nothing here that they would change
SETTINGS: Final = ("FAILSAFE", "PAUSE", "MINIMUM_DURATION", "MINIMUM_SLEEP", "DARWIN_CATCH_UP_TIME")
FLAGS: Final = ("mouseDownUp", "logScreenshot", "_pause")
CLICKS: Final = {
    "click": None,
    "rightClick": "right",
    "middleClick": "middle",
    "doubleClick": None,
    "tripleClick": None,
}
COUNTS: Final = {1: ActionType.CLICK, 2: ActionType.DOUBLE_CLICK, 3: ActionType.TRIPLE_CLICK}
SINGLE: Final = {"right": ActionType.RIGHT_CLICK, "middle": ActionType.MIDDLE_CLICK}


def program_of(command: Sequence[str]) -> str | None:
    """The code of `python -c CODE`; None for any other command."""
    if len(command) == 3 and command[0] in PYTHONS and command[1] == "-c":
        return command[2]
    return None


def without_preamble(code: str) -> str:
    """The program without the client's import of PyAutoGUI, if nothing else uses it: the desktop may not have it."""
    found = PREAMBLE.match(code)
    if found is None or MODULE in code[found.end() :]:
        return code
    return f"import time; {code[found.end() :]}"


def read(code: str, screen: Screen, pointer: Callable[[], tuple[int, int]]) -> list[Action] | None:
    """The actions of a program; [] for one that only imports; None for one that is not understood.

    pointer  gives where the pointer is, in pixels, asked where the first movement is relative
    """
    try:
        calls = list(_read_calls(_plain(code)))
        return list(_Live(screen, pointer).actions(calls))
    except (ParseError, ActionError):
        return None


def _plain(code: str) -> str:
    """The code without assignments to settings and without arguments that change nothing here."""
    tokens = [(str(match.lastgroup), match.group()) for match in LEXEME.finditer(code)]
    solid = [index for index, (kind, _) in enumerate(tokens) if kind != "blank"]
    dropped: set[int] = set()

    def texts(at: int, count: int) -> list[str]:
        return [tokens[index][1] for index in solid[at : at + count]]

    def drop(start: int, end: int) -> None:
        dropped.update(solid[start:end])

    for at in range(len(solid)):
        module, dot, name, equals = (texts(at, 4) + [""] * 4)[:4]
        if module == MODULE and dot == "." and name in SETTINGS and equals == "=":
            drop(at, at + 5)
        if module == ",":
            start = at + 3 if name == "=" and dot == "tween" else at + 1
            if texts(start, 2) == [MODULE, "."] and "".join(texts(start + 2, 1)).startswith("ease"):
                drop(at, start + 3)
            elif dot in FLAGS and name == "=" and equals in ("True", "False"):
                drop(at, at + 4)
    return "".join(text for index, (_, text) in enumerate(tokens) if index not in dropped)


def _read_calls(code: str) -> Iterator[CodeCall]:
    # a `;` that an assignment left alone is no statement
    cleaned = "\n".join(part for part in _statements(code) if part.strip())
    for call in plain_calls(cleaned, LIVE_SIGNATURES):
        short = call.name.split(".")[1]
        short = {"moveRel": "move", "dragRel": "drag"}.get(short, SAME.get(short, short))
        arguments = {name: value for name, value in call.arguments.items() if value is not None}
        yield CodeCall(short, arguments)


def _statements(code: str) -> Iterator[str]:
    """The code cut at each `;` outside of strings."""
    part = ""
    for match in LEXEME.finditer(code):
        if match.lastgroup == "mark" and match.group() == ";":
            yield part
            part = ""
        elif not (match.lastgroup == "blank" and not part):  # blanks after a `;` are no indentation
            part += match.group()
    yield part


class _Live:
    """Makes Actions of calls. It follows the pointer, for movements that start from where it is."""

    def __init__(self, screen: Screen, pointer: Callable[[], tuple[int, int]]) -> None:
        self._screen = screen
        self._pointer = pointer
        self._at: tuple[float, float] | None = None

    def actions(self, calls: Sequence[CodeCall]) -> Iterator[Action]:
        for call in calls:
            yield from self._one(call)

    def _one(self, call: CodeCall) -> Iterator[Action]:
        given, name = call.arguments, call.name
        where = self._where(call)
        if name in CLICKS:
            yield from self._click(call, where)
        elif name == "moveTo":
            if where:
                yield Action(ActionType.HOVER, **where)
        elif name == "move":
            yield Action(ActionType.HOVER, **self._norm(*self._moved(call)))
        elif name in ("dragTo", "drag"):
            x, y = (call.point or self._from()) if name == "dragTo" else self._moved(call)
            self._at = (x, y)
            end = self._norm(x, y)
            button = self._button(given.get("button", "left"))
            yield Action(
                ActionType.DRAG,
                x2=end["x"],
                y2=end["y"],
                button=None if button == "left" else button,
                duration=_number(given.get("duration")),
            )
        elif name in ("scroll", "hscroll"):
            clicks = _number(given.get("clicks"))
            if clicks is None:
                raise ParseError(f"{name} needs a number of clicks")
            forward, back = ("up", "down") if name == "scroll" else ("right", "left")
            if clicks:
                direction = forward if clicks > 0 else back
                yield Action(ActionType.SCROLL, direction=direction, amount=abs(clicks), **where)
        elif name in ("mouseDown", "mouseUp"):
            button = self._button(given.get("button", "left"))
            kind = ActionType.MOUSE_DOWN if name == "mouseDown" else ActionType.MOUSE_UP
            yield Action(kind, button=None if button == "left" else button, **where)
        else:
            yield from _keyboard(call)

    def _click(self, call: CodeCall, where: dict[str, Any]) -> Iterator[Action]:
        button = self._button(call.arguments.get("button", CLICKS[call.name] or "left"))
        times = {"doubleClick": 2, "tripleClick": 3}.get(call.name) or _times(call.arguments.get("clicks", 1))
        if times in COUNTS and button == "left":
            yield Action(COUNTS[times], **where)
        elif times in (2, 3):
            yield Action(COUNTS[times], button=button, **where)
        else:
            for _ in range(times):
                yield Action(SINGLE.get(button, ActionType.CLICK), **where)

    def _where(self, call: CodeCall) -> dict[str, Any]:
        """x and y of an Action, {} where the call names no point. One coordinate alone keeps the other."""
        x, y = call.arguments.get("x"), call.arguments.get("y")
        if x is None and y is None:
            return {}
        if (x is None) != (y is None):
            here = self._from()
            x, y = (here[0] if x is None else x), (here[1] if y is None else y)
        if not is_number(x) or not is_number(y):
            raise ParseError(f"{call.name} needs numbers for x and y")
        self._at = (x, y)
        return self._norm(x, y)

    def _moved(self, call: CodeCall) -> tuple[float, float]:
        here = self._from()
        across, down = (_number(call.arguments.get(name, 0)) or 0.0 for name in ("xOffset", "yOffset"))
        self._at = (here[0] + across, here[1] + down)
        return self._at

    def _from(self) -> tuple[float, float]:
        return self._pointer() if self._at is None else self._at

    def _norm(self, x: float, y: float) -> dict[str, Any]:
        """PyAutoGUI cuts fractions of a pixel off, and the X server keeps the pointer on the screen."""
        column = min(max(int(x), 0), self._screen.width - 1)
        row = min(max(int(y), 0), self._screen.height - 1)
        fractions = self._screen.to_norm(column, row)
        return {"x": fractions[0], "y": fractions[1]}

    def _button(self, value: Any) -> str:
        names = {1: "left", 2: "middle", 3: "right", "primary": "left", "secondary": "right"}
        button = names.get(value, value) if isinstance(value, int | str) else value
        if button not in ("left", "middle", "right"):
            raise ParseError("a button is left, middle or right")
        return str(button)


def _keyboard(call: CodeCall) -> Iterator[Action]:
    given, name = call.arguments, call.name
    if name == "write":
        text = given.get("message")
        if isinstance(text, list):  # a list names keys
            for key in key_names(text):
                yield Action(ActionType.KEY, keys=(key,))
        elif text:
            yield Action(ActionType.TYPE, text=text)
    elif name == "press":
        keys = given.get("keys")
        names = key_names(keys if isinstance(keys, list) else [keys])
        for _ in range(_times(given.get("presses", 1), len(names))):
            for key in names:
                yield Action(ActionType.KEY, keys=(key,))
    elif name == "hotkey":
        pressed = [value for argument, value in given.items() if argument.startswith("key")]
        keys = tuple(key_names(pressed[0] if len(pressed) == 1 and isinstance(pressed[0], list) else pressed))
        if keys:
            yield Action(ActionType.HOTKEY if len(keys) > 1 else ActionType.KEY, keys=keys)
    elif name in ("keyDown", "keyUp"):
        kind = ActionType.KEY_DOWN if name == "keyDown" else ActionType.KEY_UP
        yield Action(kind, keys=tuple(key_names([given.get("key")])))
    elif name == "wait":
        yield Action(ActionType.WAIT, duration=_number(given.get("seconds")))
    else:
        raise ParseError(f"{name} is no action of its own")


def _number(value: Any) -> float | None:
    if value is not None and not is_number(value):
        raise ParseError("not a number")
    return value


def _times(value: Any, each: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value * each <= MAX_TIMES:
        raise ParseError(f"a number of times is whole, from 0 to {MAX_TIMES}")
    return value
