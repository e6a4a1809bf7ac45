"""Hypothesis strategies for actions, and small doubles that several tests share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from eval.actions import DIRECTIONS, FIELDS, Action, ActionType
from eval.actions.action import BUTTONS, CLICK_BUTTONS

UNIT = st.floats(0, 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAME = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
KEY = st.sampled_from(["ctrl", "shift", "enter", "esc", "pagedown", "left", "a", "+", "win", "f5", "space"])
POSITIVE = st.floats(0, 1e6, exclude_min=True)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(["x", "y", "x2", "y2", "width", "height"], UNIT),
    "text": TEXT,
    "url": TEXT,
    "app_name": TEXT,
    "window_title": TEXT,
    "keys": st.lists(KEY | NAME, min_size=2, max_size=3),
    "modifiers": st.lists(KEY | NAME, min_size=1, max_size=2),
    "direction": st.sampled_from(DIRECTIONS),
    "amount": POSITIVE,
    "button": st.sampled_from(BUTTONS),
    "path": st.lists(st.tuples(UNIT, UNIT), min_size=1, max_size=3),
    "distance": st.floats(0, 100, exclude_min=True),
    "duration": st.floats(0, 1e6),
    "monitor_id": st.integers(0, 9),
    "element": st.integers(0, 10**6),
}


@st.composite
def actions(draw: st.DrawFn, *, marks: bool | None = None) -> Action:
    """Any valid action; marks True never uses coordinates where a mark can stand, False never a mark."""
    kind = draw(st.sampled_from(list(ActionType)))
    must, may = FIELDS[kind]
    names = set(must) | {name for name in sorted(may) if draw(st.booleans())}
    if "element" in names and ("point" in names or marks is False):
        names.discard("element")
    if "point" in names:
        names.discard("point")
        by_mark = draw(st.booleans()) if marks is None else marks
        names |= {"element"} if by_mark else {"x", "y"}
    if {"x", "y"} & names:  # of a drag, which may start where the pointer is
        names |= {"x", "y"}
    if {"amount", "distance"} <= names:
        names.discard(draw(st.sampled_from(["amount", "distance"])))
    values = {name: draw(VALUES[name]) for name in sorted(names)}
    if "button" in values and kind in CLICK_BUTTONS:
        values["button"] = draw(st.sampled_from(CLICK_BUTTONS[kind]))
    if "keys" in values and kind is not ActionType.HOTKEY:
        values["keys"] = values["keys"][:1]
    return Action(kind, **values)
