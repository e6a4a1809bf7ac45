"""Actions of a mouse as those of a finger: the commands of Android's `input` for them.

A click is a tap, and a click with the right button a long press, which opens the same menus. A drag is a swipe; one
that ends where it begins is a long press. A scroll is a swipe the other way, as long as it has to be.
"""

from __future__ import annotations

import math
from typing import Final

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
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
