from __future__ import annotations

import json
import math

import pytest
from hypothesis import given

from eval.actions import FIELDS, Action, ActionError, ActionType
from tests.support.cases import every_case
from tests.unit.eval.strategies import actions


@given(actions())
def test_json_round_trip(action: Action) -> None:
    assert Action.from_json(json.loads(json.dumps(action.to_json()))) == action


def test_every_type_says_what_it_takes() -> None:
    assert set(FIELDS) == set(ActionType)


@every_case(
    ("values", "what"),
    [
        ({"type": "clack"}, "unknown action type"),
        ({"type": "hover"}, "needs point"),
        ({"type": "drag", "y": 0.1, "x2": 0.2, "y2": 0.2}, "takes x and y together"),
        ({"type": "drag", "x2": 0.2, "y2": 0.2, "path": []}, "path must be a list of points"),
        ({"type": "drag", "x2": 0.2, "y2": 0.2, "path": [[0.1]]}, "path must be a list of points"),
        ({"type": "drag", "x2": 0.2, "y2": 0.2, "path": [0.1, 0.2]}, "path must be a list of points"),
        ({"type": "drag", "x2": 0.2, "y2": 0.2, "path": [[0.1, 1.2]]}, "y of path must be a number from 0 to 1"),
        ({"type": "drag", "x2": 0.2, "y2": 0.2, "path": [[0.1, 0.2]] * 1001}, "at most 1000 points"),
        ({"type": "click", "button": "right"}, "button of click must be one of back, forward, not right"),
        ({"type": "double_click", "button": "left"}, "button of double_click must be one of middle, right, back, forw"),
        ({"type": "scroll", "direction": "up", "amount": 1, "distance": 1}, "takes amount or distance"),
        ({"type": "scroll", "direction": "up", "distance": 0}, "distance must be above 0"),
        ({"type": "zoom", "x": 0.1, "y": 0.1}, "needs x2 and y2"),
        ({"type": "click", "x": 0.5}, "either x and y, or element"),
        ({"type": "click", "x": 0.5, "y": 0.5, "element": 1}, "either x and y, or element"),
        ({"type": "click", "x": 1.5, "y": 0.5}, "x must be a number from 0 to 1"),
        ({"type": "click", "x": math.nan, "y": 0.5}, "x must be a number"),
        ({"type": "click", "x": True, "y": 0.5}, "x must be a number"),
        ({"type": "click", "x": "0.5", "y": 0.5}, "x must be a number"),
        ({"type": "click", "x": 0.5, "y": 0.5, "text": "a"}, "does not take text"),
        ({"type": "click", "element": -1}, "element must be a whole number"),
        ({"type": "type"}, "needs text"),
        ({"type": "type", "text": 5}, "text must be a string"),
        ({"type": "key", "keys": ["ctrl", "c"]}, "takes one key"),
        ({"type": "hotkey", "keys": ["c"]}, "two keys or more"),
        ({"type": "key", "keys": "enter"}, "list of key names"),
        ({"type": "key", "keys": []}, "must not be empty"),
        ({"type": "scroll", "direction": "sideways"}, "direction must be one of"),
        ({"type": "scroll", "direction": "up", "amount": 0}, "amount must be above 0"),
        ({"type": "scroll", "direction": "up", "amount": math.inf}, "amount must be finite"),
        ({"type": "mouse_down", "button": "fourth"}, "button must be one of"),
        ({"type": "drag", "x": 0.1, "y": 0.1, "x2": 0.2}, "needs y2"),
        ({"type": "done", "reason": "x"}, "unknown fields reason"),
        ({"x": 0.5}, "type is missing"),
    ],
)
def test_contradictions_are_refused(values: dict[str, object], what: str) -> None:
    with pytest.raises(ActionError, match=what):
        Action.from_json(values)


@pytest.mark.parametrize(
    "values",
    [
        {"type": "click"},  # where the pointer is
        {"type": "click", "button": "back", "modifiers": ["ctrl"]},
        {"type": "double_click", "x": 0.5, "y": 0.5, "button": "right"},
        {"type": "drag", "x": 0.1, "y": 0.2, "path": [[0.2, 0.2], [0.3, 0.2]], "x2": 0.3, "y2": 0.4},
        {"type": "drag", "x2": 0.3, "y2": 0.4},
        {"type": "scroll", "direction": "down", "distance": 0.25},
        {"type": "hover", "x": 0.5, "y": 0.5, "modifiers": ["shift"]},
        {"type": "hotkey", "keys": ["ctrl", "a"], "duration": 1.5},
        {"type": "zoom", "x": 0.1, "y": 0.1, "x2": 0.9, "y2": 0.9},
        {"type": "cursor_position"},
        {"type": "call_user", "text": "Which account?"},
        {"type": "mouse_down", "button": "forward"},
    ],
)
def test_what_real_agents_do_besides_is_an_action(values: dict[str, object]) -> None:
    assert Action.from_json(values).to_json() == values


def test_numbers_are_floats_without_a_negative_zero() -> None:
    action = Action(ActionType.CLICK, x=-0.0, y=1)
    assert isinstance(action.y, float)
    assert math.copysign(1, action.x or 0.0) == 1.0
