"""One Action: what an agent can do on a desktop, independent of any model's way to write it.

Coordinates are normalised floats in [0, 1] of the whole screen (`eval.actions.geometry` converts them). A dialect that
cannot hold an action raises `Unrepresentable`; a text that is not exactly one action raises `ParseError`. Nothing is
guessed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final


class ActionError(ValueError):
    """An invalid action: a field is missing, a field does not belong to its type, or a value is out of range."""


class OutOfRange(ActionError):
    """A number of an action that no screen, wheel or clock has."""


class Unrepresentable(ValueError):
    """An action that a dialect or a file format cannot hold without losing a part of it."""


class ParseError(ValueError):
    """A text that is not exactly one valid action. It counts as the agent's failure, never as the infrastructure's."""


class ImpossibleAction(ParseError):
    """A text that says an action, and nothing can do it as it is written: a point off the screen, a key that no
    keyboard has, a drag of one point. It counts as an action that could not be done (docs/explanation/answers.md)."""


class ActionType(StrEnum):
    """The 24 types of the episode schema 1.0.0, then those that only some dialects know."""

    CLICK = "click"
    DOUBLE_CLICK = "double_click"
    RIGHT_CLICK = "right_click"
    DRAG = "drag"
    SCROLL = "scroll"
    HOVER = "hover"
    TYPE = "type"
    KEY = "key"
    HOTKEY = "hotkey"
    CLICK_AND_TYPE = "click_and_type"
    WAIT = "wait"
    SCREENSHOT = "screenshot"
    GOTO = "goto"
    BACK = "back"
    FORWARD = "forward"
    REFRESH = "refresh"
    OPEN_APP = "open_app"
    CLOSE_APP = "close_app"
    SELECT_MONITOR = "select_monitor"
    WINDOW_FOCUS = "window_focus"
    WINDOW_RESIZE = "window_resize"
    WINDOW_MOVE = "window_move"
    DONE = "done"
    FAIL = "fail"
    MIDDLE_CLICK = "middle_click"
    TRIPLE_CLICK = "triple_click"
    MOUSE_DOWN = "mouse_down"
    MOUSE_UP = "mouse_up"
    KEY_DOWN = "key_down"
    KEY_UP = "key_up"
    ZOOM = "zoom"
    CURSOR_POSITION = "cursor_position"
    CALL_USER = "call_user"


# what tells something, or only asks to look
SILENT: Final = frozenset(
    {
        ActionType.SCREENSHOT,
        ActionType.ZOOM,
        ActionType.CURSOR_POSITION,
        ActionType.DONE,
        ActionType.FAIL,
        ActionType.CALL_USER,
    }
)
WITHOUT_MOUSE: Final = SILENT | {ActionType.WAIT}  # allowed where there are only tools


MAX_NUMBER: Final = 2**53 - 1  # the largest whole number that every reader of JSON keeps
POINTED: Final = frozenset({"x", "y", "element"})
DIRECTIONS: Final = ("up", "down", "left", "right")
BUTTONS: Final = ("left", "middle", "right", "back", "forward")
MAX_PATH: Final = 1000  # points of a drag between its start and its end

# type -> (fields that must be set, fields that may be set). "point" stands for x and y together, or element.
FIELDS: Final[dict[ActionType, tuple[frozenset[str], frozenset[str]]]] = {
    kind: (frozenset(must.split()), frozenset(may.split()))
    for kind, must, may in [
        (ActionType.CLICK, "", "point modifiers button"),
        (ActionType.DOUBLE_CLICK, "", "point modifiers button"),
        (ActionType.RIGHT_CLICK, "", "point modifiers"),
        (ActionType.MIDDLE_CLICK, "", "point modifiers"),
        (ActionType.TRIPLE_CLICK, "", "point modifiers button"),
        (ActionType.DRAG, "x2 y2", "x y path modifiers button duration"),
        (ActionType.SCROLL, "direction", "point amount distance modifiers"),
        (ActionType.HOVER, "point", "modifiers"),
        (ActionType.TYPE, "text", "element"),
        (ActionType.KEY, "keys", "duration"),
        (ActionType.HOTKEY, "keys", "duration"),
        (ActionType.CLICK_AND_TYPE, "point text", ""),
        (ActionType.WAIT, "", "duration"),
        (ActionType.SCREENSHOT, "", ""),
        (ActionType.GOTO, "url", ""),
        (ActionType.BACK, "", ""),
        (ActionType.FORWARD, "", ""),
        (ActionType.REFRESH, "", ""),
        (ActionType.OPEN_APP, "app_name", ""),
        (ActionType.CLOSE_APP, "app_name", ""),
        (ActionType.SELECT_MONITOR, "monitor_id", ""),
        (ActionType.WINDOW_FOCUS, "window_title", ""),
        (ActionType.WINDOW_RESIZE, "width height", "window_title"),
        (ActionType.WINDOW_MOVE, "x y", "window_title"),
        (ActionType.DONE, "", "text"),
        (ActionType.FAIL, "", "text"),
        (ActionType.MOUSE_DOWN, "", "point button"),
        (ActionType.MOUSE_UP, "", "point button"),
        (ActionType.KEY_DOWN, "keys", ""),
        (ActionType.KEY_UP, "keys", ""),
        (ActionType.ZOOM, "x y x2 y2", ""),
        (ActionType.CURSOR_POSITION, "", ""),
        (ActionType.CALL_USER, "", "text"),
    ]
}
# what `button` may say: a click with the right button is a right_click, and no type says the same twice
CLICK_BUTTONS: Final = {
    ActionType.CLICK: ("back", "forward"),
    ActionType.DOUBLE_CLICK: BUTTONS[1:],
    ActionType.TRIPLE_CLICK: BUTTONS[1:],
}


def _shown(value: object) -> str:
    """A value for a message, cut off after 60 characters; a whole number of thousands of digits has no repr."""
    try:
        text = repr(value)
    except ValueError:
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lists(value: Any) -> Any:
    """Tuples as lists, also within tuples."""
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def _checked(name: str, value: Any, low: float, high: float) -> float:
    """The number as a float. Raises ActionError for anything else, and for one out of range."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ActionError(f"{name} must be a number from {low:g} to {high:g}, not {_shown(value)}")
    if not low <= value <= high:
        raise OutOfRange(f"{name} must be a number from {low:g} to {high:g}, not {_shown(value)}")
    if value > sys.float_info.max:  # also a whole number that no float holds
        raise ActionError(f"{name} must be finite")
    return float(value) + 0.0  # + 0.0 turns -0.0 into 0.0


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


@dataclass(frozen=True, repr=False)
class Action:
    """One action of an agent. Fields that do not belong to its type must stay None, or ActionError is raised.

    x, y          the point, or where a drag starts, or where a window goes, or the first corner of a zoom; in [0, 1].
                  A click, a scroll or a drag without them happens or starts where the pointer is
    x2, y2        where a drag ends, or the other corner of a zoom; in [0, 1]
    path          the points of a drag between its start and its end, in their order: (x, y), each in [0, 1]
    width, height of a window; in [0, 1]
    element       the number of a mark (Set-of-Marks), instead of x and y
    keys          lower-case key names; exactly one for key, key_down, key_up; at least two for hotkey
    modifiers     keys that are held during the action
    amount        wheel clicks, positive; None leaves it to the desktop
    distance      how far to scroll instead of the number of clicks: in heights of the screen, or widths for left and
                  right; positive
    button        of a drag, mouse_down and mouse_up: None is the left one. Of a click: back or forward only, as
                  right_click and middle_click are types of their own. Of double_click and triple_click: any but left
    duration      seconds; of key and hotkey: how long they are held
    """

    type: ActionType
    x: float | None = None
    y: float | None = None
    x2: float | None = None
    y2: float | None = None
    element: int | None = None
    text: str | None = None
    keys: tuple[str, ...] | None = None
    direction: str | None = None
    amount: float | None = None
    button: str | None = None
    modifiers: tuple[str, ...] | None = None
    duration: float | None = None
    url: str | None = None
    app_name: str | None = None
    monitor_id: int | None = None
    window_title: str | None = None
    width: float | None = None
    height: float | None = None
    path: tuple[tuple[float, float], ...] | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "type", ActionType(self.type))
        except ValueError:
            raise ActionError(f"unknown action type {self.type!r}") from None
        for name in ("x", "y", "x2", "y2", "width", "height"):
            self._number(name, 0.0, 1.0)
        for name in ("amount", "distance", "duration"):
            self._number(name, 0.0, math.inf)
        for name in ("amount", "distance"):
            if getattr(self, name) == 0:
                raise OutOfRange(f"{name} must be above 0")
        self._path()
        for name in ("element", "monitor_id"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise ActionError(f"{name} must be a whole number from 0, not {_shown(value)}")
            if value is not None and value > MAX_NUMBER:
                raise ActionError(f"{name} must be at most {MAX_NUMBER}")
        for name in ("text", "url", "app_name", "window_title"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ActionError(f"{name} must be a string, not {_shown(value)}")
            if value is not None and not _is_unicode(value):
                raise ActionError(f"{name} holds one half of a surrogate pair, which is no character")
        for name in ("keys", "modifiers"):
            self._names(name)
        if self.direction is not None and self.direction not in DIRECTIONS:
            raise ActionError(f"direction must be one of {', '.join(DIRECTIONS)}, not {_shown(self.direction)}")
        if self.button is not None and self.button not in BUTTONS:
            raise ActionError(f"button must be one of {', '.join(BUTTONS)}, not {_shown(self.button)}")
        self._shape()

    def _number(self, name: str, low: float, high: float) -> None:
        if (value := getattr(self, name)) is not None:
            object.__setattr__(self, name, _checked(name, value, low, high))

    def _path(self) -> None:
        if self.path is None:
            return
        points = list(self.path) if isinstance(self.path, list | tuple) else []
        if not points or not all(isinstance(point, list | tuple) and len(point) == 2 for point in points):
            raise ActionError(f"path must be a list of points [x, y], not {_shown(self.path)}")
        if len(points) > MAX_PATH:
            raise ActionError(f"path must have at most {MAX_PATH} points")
        checked = tuple((_checked("x of path", x, 0.0, 1.0), _checked("y of path", y, 0.0, 1.0)) for x, y in points)
        object.__setattr__(self, "path", checked)

    def _names(self, name: str) -> None:
        value = getattr(self, name)
        if value is None:
            return
        if isinstance(value, str) or not all(isinstance(key, str) and key for key in value):
            raise ActionError(f"{name} must be a list of key names, not {_shown(value)}")
        if not all(map(_is_unicode, value)):
            raise ActionError(f"{name} hold one half of a surrogate pair, which is no character")
        value = tuple(value)
        if not value:
            raise ActionError(f"{name} must not be empty")
        object.__setattr__(self, name, value)

    def _shape(self) -> None:
        must, may = FIELDS[self.type]
        present = {name for name in ARGUMENTS if getattr(self, name) is not None}
        given = set(present)
        if "point" in must | may:
            if given & POINTED and given & POINTED not in ({"x", "y"}, {"element"}):
                raise ActionError(f"{self.type} takes either x and y, or element")
            if given & POINTED:
                given = given - POINTED | {"point"}
        if missing := must - given:
            raise ActionError(f"{self.type} needs {' and '.join(sorted(missing))}")
        if extra := given - must - may:
            raise ActionError(f"{self.type} does not take {' and '.join(sorted(extra))}")
        if (self.x is None) != (self.y is None):
            raise ActionError(f"{self.type} takes x and y together")
        if self.amount is not None and self.distance is not None:
            raise ActionError(f"{self.type} takes amount or distance")
        allowed = CLICK_BUTTONS.get(self.type, BUTTONS)
        if self.button is not None and self.button not in allowed:
            raise ActionError(f"button of {self.type} must be one of {', '.join(allowed)}, not {self.button}")
        if self.keys is not None and (len(self.keys) == 1) == (self.type is ActionType.HOTKEY):
            raise ActionError(f"{self.type} takes {'two keys or more' if len(self.keys) == 1 else 'one key'}")

    def __repr__(self) -> str:
        given = {k: v for k, v in self.to_json().items() if k != "type"}
        return f"Action({self.type.value}{''.join(f', {k}={v!r}' for k, v in given.items())})"

    @property
    def point(self) -> tuple[float, float] | None:
        """(x, y), normalised, or None."""
        return None if self.x is None or self.y is None else (self.x, self.y)

    @property
    def end(self) -> tuple[float, float] | None:
        """(x2, y2) of a drag, normalised, or None."""
        return None if self.x2 is None or self.y2 is None else (self.x2, self.y2)

    def to_json(self) -> dict[str, Any]:
        """Only the fields that are set, as JSON values."""
        out: dict[str, Any] = {"type": self.type.value}
        for name in ARGUMENTS:
            value = getattr(self, name)
            if value is not None:
                out[name] = _lists(value)
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Action:
        """The inverse of `to_json`. Raises ActionError for an unknown key as well."""
        if unknown := set(data) - {"type", *ARGUMENTS}:
            raise ActionError(f"unknown fields {', '.join(sorted(unknown))}")
        if "type" not in data:
            raise ActionError("type is missing")
        return cls(**data)


ARGUMENTS: Final = tuple(field.name for field in fields(Action) if field.name != "type")


WAIT_S: Final = 1.0  # of a wait that names no duration
# A character that the keyboard has no key for took 10 ms (5,000 different CJK characters into Mousepad, busy cores),
# and a program that is slow to read its keys makes it several times as long
SLOW_KEY_S: Final = 0.05


def waits(action: Action) -> float:
    """Seconds that the action itself names: of a wait, of a key that is held, of a drag."""
    if action.type is ActionType.WAIT and action.duration is None:
        return WAIT_S
    return action.duration or 0.0


def asks(action: Action) -> float:
    """Seconds that the action may take because of what it asks for: what it names, its characters, its clicks."""
    pressed = len(action.text or action.url or "") + (action.amount or 0.0)
    return waits(action) + SLOW_KEY_S * pressed
