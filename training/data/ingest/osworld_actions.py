"""OSWorld's two action spaces, in pixels, as Actions: PyAutoGUI code, and computer_13's objects.

Both become calls of the PyAutoGUI dialect, so that the same rules hold for both. Where a click or drag names no place,
it happens where the pointer is, and that is known when an earlier action put it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.calls import CLICKS, CodeCall, calls, key_names
from eval.actions.dialects.pyautogui import merged
from eval.actions.geometry import Screen
from training.data.ingest.source import normalised
from training.data.ingest.tally import Lost, shorten

BUTTON: Final = ("button",)
POINT: Final = ("x", "y")
# computer_13's action -> (the dialect's function, the parameters it knows)
COMPUTER_13: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "MOVE_TO": ("moveTo", POINT),
    "CLICK": ("click", ("button", "x", "y", "num_clicks")),
    "MOUSE_DOWN": ("mouseDown", BUTTON),
    "MOUSE_UP": ("mouseUp", BUTTON),
    "RIGHT_CLICK": ("rightClick", POINT),
    "DOUBLE_CLICK": ("doubleClick", POINT),
    "DRAG_TO": ("dragTo", POINT),
    "SCROLL": ("scroll", ("dx", "dy")),
    "TYPING": ("write", ("text",)),
    "PRESS": ("press", ("key",)),
    "KEY_DOWN": ("keyDown", ("key",)),
    "KEY_UP": ("keyUp", ("key",)),
    "HOTKEY": ("hotkey", ("keys",)),
    "WAIT": ("wait", ()),
    "DONE": ("terminate", ()),
    "FAIL": ("terminate", ()),
}


WRITTEN: Final = {"enter": "\n", "return": "\n", "tab": "\t", "space": " "}  # keys that a text holds as characters


@dataclass
class Cursor:
    """Where the pointer is (fractions of the screen); None when no action has told."""

    at: tuple[float, float] | None = None


def one_action(action: Any, screen: Screen, cursor: Cursor, notes: Counter[str]) -> Action:
    """The only Action of a row; moves the cursor. Raises Lost, or BadSample for a point off the screen.

    Sleeps beside an action change nothing on the screen: they are left out, and counted in `notes`, as is an enter that
    was joined with the text before it.
    """
    here, cursor.at = cursor.at, None  # stays unknown if the action cannot be read
    try:
        normal = [_normal(call, screen, notes) for call in _calls(action)]
        told = [call.point for call in normal if call.point is not None]
        cursor.at = told[-1] if told else here
        acts = [call for call in normal if call.name != "wait"]
        if acts and len(acts) < len(normal):
            notes["sleeps_left_out"] += len(normal) - len(acts)
        calls = _joined(_placed(acts or normal, here), notes)
    except ParseError as error:
        raise Lost("not_understood", f"{error}: {shorten(action)}") from None
    except Unrepresentable as error:
        raise Lost("unrepresentable", f"{error}: {shorten(action)}") from None
    if len(calls) != 1:
        raise Lost("several_actions", shorten(action))
    return calls[0]


def _joined(code: list[CodeCall], notes: Counter[str]) -> list[Action]:
    """What the agents of OSWorld write as several calls and mean as one action: a text and then enter (UI-TARS: `type`
    whose text ends with a line break), a text key by key (Claude: `type`), keys that go down and up again (Claude:
    `key`, and clicks with `text`)."""
    if (written := _pressed_text(code)) is not None:
        notes["keys_joined"] += 1
        return merged([CodeCall("write", {"message": written})])
    if [call.name for call in code] == ["write", "press"] and code[1].arguments == {"keys": ["enter"]}:
        text = code[0].arguments.get("message")
        if isinstance(text, str):
            notes["enter_joined"] += 1
            return merged([CodeCall("write", {"message": f"{text}\n"})])
    keys, within = _held(code)
    if keys and not within:
        return merged([CodeCall("hotkey", {"keys": keys})])
    if keys and len(within) == 1 and (within[0].name in CLICKS or within[0].name in ("scroll", "hscroll")):
        (action,) = merged(within)
        return [replace(action, modifiers=tuple(keys))]
    return merged(code)


def _pressed_text(code: list[CodeCall]) -> str | None:
    """The text that presses of single characters, and of enter and tab between them, write; None for any other code."""
    keys = [key for call in code if call.name == "press" for key in call.arguments["keys"]]
    plain = all(call.name == "press" and call.arguments.get("presses", 1) == 1 for call in code)
    if not plain or len(keys) < 2 or not any(len(key) == 1 for key in keys):
        return None
    text = [key if len(key) == 1 else WRITTEN.get(key) for key in keys]
    return None if None in text else "".join(filter(None, text))


def _held(code: list[CodeCall]) -> tuple[list[str], list[CodeCall]]:
    """(the keys that are held, the calls meanwhile); no keys for any other code. Raises ParseError."""
    count = 0
    while count < len(code) // 2 and code[count].name == "keyDown":
        count += 1
    down, up = code[:count], code[len(code) - count :][::-1]
    if not count or any(call.name != "keyUp" for call in up):
        return [], code
    keys = [key_names([call.arguments.get("key")])[0] for call in down]
    if keys != [key_names([call.arguments.get("key")])[0] for call in up]:
        return [], code
    return keys, code[count : len(code) - count]


def _calls(action: Any) -> list[CodeCall]:
    if isinstance(action, dict) and "action_type" not in action:  # some agents wrap the code
        action = next((action[name] for name in ("action", "command", "code") if name in action), action)
    if isinstance(action, str):
        return calls(action)
    if not isinstance(action, dict) or not isinstance(action.get("action_type"), str):
        raise ParseError("neither code nor an action of computer_13")
    return _computer_13(action["action_type"], action)


def _computer_13(kind: str, action: dict[str, Any]) -> list[CodeCall]:
    if kind not in COMPUTER_13:
        raise ParseError(f"unknown action {kind[:40]}")
    name, known = COMPUTER_13[kind]
    given = action.get("parameters", {k: v for k, v in action.items() if k != "action_type"})
    given = {k: v for k, v in (given or {}).items() if v is not None} if isinstance(given, dict | None) else None
    if given is None or not set(given) <= set(known):
        raise ParseError(f"{kind} with {shorten(action)}")
    return _MAKERS.get(name, _plain)(name, kind, given)


def _plain(name: str, kind: str, given: dict[str, Any]) -> list[CodeCall]:
    renamed = {"num_clicks": "clicks", "text": "message"}
    return [CodeCall(name, {renamed.get(key, key): value for key, value in given.items()})]


def _end(name: str, kind: str, given: dict[str, Any]) -> list[CodeCall]:
    return [CodeCall(name, {"status": "success" if kind == "DONE" else "failure"})]


def _scroll(name: str, kind: str, given: dict[str, Any]) -> list[CodeCall]:
    moves = {axis: clicks for axis, clicks in given.items() if clicks != 0}
    if len(moves) != 1:
        raise Unrepresentable("a scroll both ways, or none")
    ((axis, clicks),) = moves.items()
    return [CodeCall("scroll" if axis == "dy" else "hscroll", {"clicks": clicks})]


def _keys(name: str, kind: str, given: dict[str, Any]) -> list[CodeCall]:
    keys = given.get("keys", [given.get("key")])
    if not isinstance(keys, list) or not keys or not all(isinstance(key, str) and key for key in keys):
        raise ParseError(f"not a list of key names: {keys!r}")
    keys = [key.lower() if len(key) > 1 else key for key in keys]
    return [CodeCall(name, {"keys": keys} if name in ("press", "hotkey") else {"key": keys[0]})]


_MAKERS: Final[dict[str, Callable[[str, str, dict[str, Any]], list[CodeCall]]]] = {
    "terminate": _end,
    "scroll": _scroll,
    **dict.fromkeys(("press", "hotkey", "keyDown", "keyUp"), _keys),
}


def _normal(call: CodeCall, screen: Screen, notes: Counter[str]) -> CodeCall:
    """The call with its point in fractions of the screen. Raises ParseError, BadSample.

    Agents that scale a model's 0 to 999 reach `width` and `height` themselves, one pixel beyond the last: the desktop
    leaves the pointer on the last pixel, so that is where the action was (counted in `notes`).
    """
    if call.point is None:
        return call
    x, y = call.arguments["x"], call.arguments["y"]
    if x == screen.width or y == screen.height:
        notes["points_at_the_edge"] += 1
        x, y = screen.width - 1 if x == screen.width else x, screen.height - 1 if y == screen.height else y
    x, y = normalised(x, y, screen)
    return CodeCall(call.name, {**call.arguments, "x": x, "y": y})


def _placed(calls: list[CodeCall], here: tuple[float, float] | None) -> list[CodeCall]:
    """Calls that need a place get that of the pointer: `moveTo(x, y)` and then `click()` is a click at (x, y)."""
    placed: list[CodeCall] = []
    for call in calls:
        if call.name in CLICKS and call.point is None:
            if placed and placed[-1].name == "moveTo":
                here = placed.pop().point
            if here is not None:
                call = CodeCall(call.name, {**call.arguments, "x": here[0], "y": here[1]})
        elif call.name == "dragTo" and here is not None and (not placed or placed[-1].name != "moveTo"):
            placed.append(CodeCall("moveTo", {"x": here[0], "y": here[1]}))
        here = call.point or here
        placed.append(call)
    return placed
