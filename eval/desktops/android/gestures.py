"""Actions as commands of Android's `input`: a finger's gestures, texts and keys.

A click is a tap, and a click with the right button a long press, which opens the same menus. A drag is a swipe; one
that ends where it begins is a long press. A scroll is a swipe the other way, as long as it has to be. `input` types
what a keyboard has; ADBKeyBoard types the rest.
"""

from __future__ import annotations

import base64
import math
import re
import shlex
import string
from typing import Final

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from eval.actions.keys import key_name
from eval.desktop import ActionRefused

TAPS: Final = {
    ActionType.CLICK: 1,
    ActionType.DOUBLE_CLICK: 2,
    ActionType.TRIPLE_CLICK: 3,
    ActionType.CLICK_AND_TYPE: 1,
}
LONG_S: Final = 0.5  # from here on a key is held: Android's ViewConfiguration.getLongPressTimeout is 400 ms
PRESS_MS: Final = 1000  # of a long press without a duration
SWIPE_MS: Final = 500  # of a drag without a duration
SCROLL_MS: Final = 600  # slow enough that the screen does not roll on
CLICKS: Final = 5  # of a scroll that names no amount
CLICK_SHARE: Final = 0.1  # of the screen, per click of a wheel
REACH: Final = 0.6  # of the screen, at most, in one swipe: its edges are the system's own
EDGE: Final = 0.2
MOST_SWIPES: Final = 50


def of(action: Action, screen: Screen) -> list[str]:
    """The commands of an action with a place. Raises ActionRefused."""
    if action.type in TAPS:
        return [f"input tap {_spot(action, screen)}"] * TAPS[action.type]
    if action.type is ActionType.RIGHT_CLICK:
        spot = _spot(action, screen)
        return [f"input swipe {spot} {spot} {PRESS_MS}"]
    if action.type is ActionType.DRAG:
        return _drag(action, screen)
    if action.type is ActionType.SCROLL:
        return _scroll(action, screen)
    raise ActionRefused(f"{action.type}: a phone cannot do it")


def _pixels(point: tuple[float, float], screen: Screen) -> str:
    x, y = screen.from_norm(*point)
    return f"{x} {y}"


def _spot(action: Action, screen: Screen) -> str:
    if action.point is None:
        raise ActionRefused(f"{action.type}: a touch screen has no pointer; give x and y")
    return _pixels(action.point, screen)


def _drag(action: Action, screen: Screen) -> list[str]:
    start, end = _spot(action, screen), _pixels(action.end or (0.0, 0.0), screen)
    if not action.path:
        otherwise = PRESS_MS if start == end else SWIPE_MS
        duration = otherwise if action.duration is None else max(1, round(action.duration * 1000))
        return [f"input swipe {start} {end} {duration}"]
    corners = [_pixels(point, screen) for point in action.path]
    pause = (action.duration or 0.0) / (len(corners) + 1)
    rest = [f"sleep {pause:.3f}"] if pause else []
    commands = [f"input motionevent DOWN {start}"]
    for corner in (*corners, end):
        commands += [*rest, f"input motionevent MOVE {corner}"]
    return [*commands, f"input motionevent UP {end}"]


def _scroll(action: Action, screen: Screen) -> list[str]:
    """Swipes through the point, or the middle: to see what is below, the finger goes up."""
    share = action.distance if action.distance is not None else (action.amount or CLICKS) * CLICK_SHARE
    swipes = math.ceil(share / REACH)
    if swipes > MOST_SWIPES:
        raise ActionRefused(f"scroll: more than {MOST_SWIPES * REACH:g} screens at once")
    direction = action.direction or "down"
    x, y = action.point or (0.5, 0.5)
    along = x if direction in ("left", "right") else y
    length = share / swipes
    middle = min(max(along, EDGE + length / 2), 1 - EDGE - length / 2)
    near, far = middle - length / 2, middle + length / 2
    first, last = (far, near) if direction in ("down", "right") else (near, far)
    ends = [(first, y), (last, y)] if direction in ("left", "right") else [(x, first), (x, last)]
    start, end = (_pixels(point, screen) for point in ends)
    return [f"input swipe {start} {end} {SCROLL_MS}"] * swipes


PIECE: Final = 400  # characters of one command: the device's own commands have an end
IME: Final = "com.android.adbkeyboard/.AdbIME"  # github.com/senzhk/ADBKeyBoard
ENTER, TAB = 66, 61
# android.view.KeyEvent; a phone's own buttons come first, and `home` is its button, not the key of a keyboard
BUTTONS: Final = {"home": 3, "back": 4, "recents": 187, "appswitch": 187, "search": 84, "menu": 82}
KEYCODES: Final = {
    **{"enter": ENTER, "tab": TAB, "space": 62, "backspace": 67, "delete": 112, "esc": 111, "insert": 124, "end": 123},
    **{"pageup": 92, "pagedown": 93, "up": 19, "down": 20, "left": 21, "right": 22, "capslock": 115, "numlock": 143},
    **{"scrolllock": 116, "pause": 121, "apps": 82, "help": 259, "clear": 28, "volumeup": 24, "volumedown": 25},
    **{"volumemute": 164, "playpause": 85, "nexttrack": 87, "prevtrack": 88, "stop": 86, "browserback": 4},
    **{"browserforward": 125, "browserrefresh": 285, "browserhome": 3, "decimal": 158, "fn": 119},
    **{"ctrl": 113, "ctrlleft": 113, "ctrlright": 114, "alt": 57, "altleft": 57, "altright": 58},
    **{"shift": 59, "shiftleft": 59, "shiftright": 60, "win": 117, "winleft": 117, "winright": 118, "command": 117},
    **{f"f{number}": 130 + number for number in range(1, 13)},
    **{f"num{digit}": 144 + digit for digit in range(10)},
    **{str(digit): 7 + digit for digit in range(10)},
    **{letter: 29 + place for place, letter in enumerate(string.ascii_lowercase)},
    **{",": 55, ".": 56, "`": 68, "-": 69, "=": 70, "[": 71, "]": 72, "\\": 73, ";": 74, "'": 75, "/": 76, "@": 77},
    **{"+": 81, "*": 17, "#": 18},
}


def keycode(name: str) -> int | None:
    """Android's number of a key or button; None for one that it has not."""
    if (button := BUTTONS.get(name.lower())) is not None:
        return button
    known = key_name(name)
    return None if known is None else KEYCODES.get(known.lower())


def typing_commands(text: str) -> list[str]:
    """The commands that type a text, one after the other. A line break is the enter key, a tab the tab key."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    commands = []
    for run in re.findall(r"\n|\t|[ -~]+|[^\n\t -~]+", text):
        if run in "\n\t":
            key = ENTER if run == "\n" else TAB
            commands.append(f"input keyevent {key}")
            continue
        for start in range(0, len(run), PIECE):
            part = run[start : start + PIECE]
            commands += _keyed(part) if part.isascii() and part.isprintable() else [_committed(part)]
    return commands


def needs_keyboard(text: str) -> str | None:
    """The first character that `input` cannot type; None where it can type all."""
    return next((each for each in text if not (" " <= each <= "~" or each in "\n\t\r")), None)


def _keyed(text: str) -> list[str]:
    """`input text` reads %s as a blank, and has no way to write these two characters: they go in two commands."""
    pieces = re.split(r"(?<=%)(?=s)", text)
    return [f"input text {shlex.quote(piece.replace(' ', '%s'))}" for piece in pieces]


def _committed(text: str) -> str:
    """The keyboard takes a text in base64, which no shell between here and there can change."""
    return f"am broadcast -a ADB_INPUT_B64 --es msg {base64.b64encode(text.encode()).decode()}"
