from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.actions import Action, ActionType
from eval.actions.geometry import Screen
from tests.support.cases import every_case
from tests.unit.training.ingest.material import START, click, down, key, scroll, stroke, typed, up
from training.data.faults import BadSample
from training.data.ingest.openadapt.events import InputEvent, Rules, derive
from training.data.ingest.openadapt.importer import action
from training.data.ingest.tally import Lost


def event(row: dict[str, Any]) -> InputEvent:
    pressed = row.get("mouse_pressed")
    return InputEvent(
        name=row["name"],
        time=row["timestamp"],
        x=row.get("mouse_x"),
        y=row.get("mouse_y"),
        dx=row.get("mouse_dx"),
        dy=row.get("mouse_dy"),
        button=row.get("mouse_button_name"),
        pressed=None if pressed is None else bool(pressed),
        key=row.get("canonical_key_name") or row.get("key_name"),
        char=row.get("key_char"),
        plain=row.get("canonical_key_char"),
    )


def derived(rows: list[dict[str, Any]], **rules: Any) -> list[tuple[Any, ...]]:
    """(kind or reason, what matters of it) of each action."""
    found = []
    for one in derive(map(event, rows), Rules(**rules)):
        if one.kind is None:
            found.append((one.reason,))
        else:
            values = [
                one.fields[name] for name in ("text", "keys", "direction", "amount", "modifiers") if name in one.fields
            ]
            found.append((one.kind.value, *values))
    return found


def hold(modifier: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first, last = rows[0]["timestamp"] - START, rows[-1]["timestamp"] - START
    return [key("press", first - 0.01, modifier), *rows, key("release", last + 0.01, modifier)]


@every_case(
    ("rows", "expected"),
    [
        (click(0, 5, 5), [("click",)]),
        (click(0, 5, 5, "right"), [("right_click",)]),
        (click(0, 5, 5, "middle"), [("middle_click",)]),
        (click(0, 5, 5, "x1"), [("unknown_event",), ("unknown_event",)]),
        ([*click(0, 5, 5), *click(0.3, 7, 5)], [("double_click",)]),
        ([*click(0, 5, 5), *click(0.6, 5, 5)], [("click",), ("click",)]),
        ([*click(0, 5, 5), *click(0.3, 15, 5)], [("click",), ("click",)]),
        ([*click(0, 5, 5, "right"), *click(0.3, 5, 5, "right")], [("right_click",), ("right_click",)]),
        ([*click(0, 5, 5), *stroke(0.1, "a"), *click(0.3, 5, 5)], [("click",), ("type", "a"), ("click",)]),
        ([row for t in (0, 0.2, 0.4) for row in click(t, 5, 5)], [("triple_click",)]),
        ([row for t in (0, 0.2, 0.4, 0.6) for row in click(t, 5, 5)], [("triple_click",), ("click",)]),
        ([down(0, 5, 5), up(0.4, 5, 14)], [("click",)]),
        ([down(0, 5, 5), up(0.4, 5, 15)], [("drag",)]),
        ([up(0, 5, 5)], [("unmatched_release",)]),
        ([down(0, 5, 5)], [("unmatched_press",)]),
        ([down(0, 5, 5), *click(1, 5, 5)], [("unmatched_press",), ("click",)]),
        (hold("ctrl_l", click(0, 5, 5)), [("click", ("ctrl",))]),
        (hold("shift", [down(0, 5, 5), up(0.4, 50, 15)]), [("drag", ("shift",))]),
        ([scroll(0, 5, 5, 0, 1), scroll(0.1, 5, 5, 0, 2)], [("scroll", "up", 3)]),
        ([scroll(0, 5, 5, 0, 1), scroll(0.1, 5, 5, 0, -2)], [("scroll", "up", 1), ("scroll", "down", 2)]),
        ([scroll(0, 5, 5, 0, 1), scroll(1.5, 5, 5, 0, 1)], [("scroll", "up", 1), ("scroll", "up", 1)]),
        ([scroll(0, 5, 5, 0, 1), scroll(0.1, 50, 5, 0, 1)], [("scroll", "up", 1), ("scroll", "up", 1)]),
        ([scroll(0, 5, 5, -3, 0), scroll(0.1, 5, 5, 1, 0)], [("scroll", "left", 3), ("scroll", "right", 1)]),
        ([scroll(0, 5, 5, 1, 1), scroll(0.1, 5, 5, 0, 0)], [("scroll", "right", 1), ("scroll", "up", 1)]),
        ([scroll(0, 5, 5, 0, 0), scroll(0.1, 5, 5, 0, 0)], [("unclear_scroll",)]),
        ([scroll(0, 5, 5, 0, 9), scroll(0.1, 5, 5, 1, 0), scroll(0.15, 5, 5, 0, 9)], [("scroll", "up", 18)]),
        ([scroll(0, 5, 5, 0, 9), scroll(0.2, 5, 5, 1, 0)], [("scroll", "up", 9), ("scroll", "right", 1)]),
        (hold("ctrl", [scroll(0, 5, 5, 0, 1), scroll(0.1, 5, 5, 0, 1)]), [("scroll", "up", 2, ("ctrl",))]),
        (typed(0, "ab c"), [("type", "ab c")]),
        (hold("shift", typed(0, "A!")), [("type", "A!")]),
        ([*typed(0, "a"), *hold("shift_r", typed(1, "B")), *typed(2, "c")], [("type", "aBc")]),
        ([*typed(0, "a"), key("press", 1, "shift"), key("release", 1.1, "shift"), *typed(2, "b")], [
            ("type", "ab"), ("lone_modifier",)]),
        ([key("press", 0, "a"), key("press", 0.1, "a"), key("release", 0.2, "a")], [("type", "aa")]),
        ([*typed(0, "a"), *stroke(1, "space"), *typed(2, "b")], [("type", "a b")]),
        (stroke(0, "space"), [("key", ("space",))]),
        ([*stroke(0, "space"), *typed(1, "b")], [("type", " b")]),
        (stroke(0, "page_up"), [("key", ("pageup",))]),
        (stroke(0, "f5"), [("key", ("f5",))]),
        (stroke(0, "unheard_of"), [("unknown_key",)]),
        (hold("shift", stroke(0, "tab")), [("hotkey", ("shift", "tab"))]),
        (hold("ctrl_l", stroke(0, "space")), [("hotkey", ("ctrl", "space"))]),
        (hold("ctrl_l", stroke(0, "s", key_char="\x13")), [("hotkey", ("ctrl", "s"))]),
        (hold("ctrl_l", stroke(0, "s", key_char="\x13", canonical_key_char=None)), [("hotkey", ("ctrl", "s"))]),
        (hold("shift", hold("ctrl", stroke(0, "S"))), [("hotkey", ("ctrl", "shift", "s"))]),
        (hold("ctrl", [*stroke(0, "c"), *stroke(1, "v")]), [("hotkey", ("ctrl", "c")), ("hotkey", ("ctrl", "v"))]),
        (hold("alt_gr", stroke(0, "@")), [("type", "@")]),
        (hold("ctrl_l", hold("alt_gr", stroke(0, "@"))), [("type", "@")]),
        (hold("cmd", stroke(0, "l")), [("hotkey", ("win", "l"))]),
        ([key("press", 0, "cmd"), key("release", 0.1, "cmd")], [("key", ("win",))]),
        ([key("press", 0, "ctrl"), key("release", 0.1, "ctrl")], [("lone_modifier",)]),
        (hold("alt", [key("press", 0, "shift"), key("release", 0.1, "shift")]), [("lone_modifier",)] * 2),
        ([{"name": "teleport", "timestamp": START, "mouse_x": 5, "mouse_y": 5}], [("unknown_event",)]),
        ([{"name": "click", "timestamp": START, "mouse_x": 5, "mouse_y": 5}], [("unknown_event",)]),
        ([{"name": "press", "timestamp": START}], [("unknown_key",)]),
    ],
)  # fmt: skip
def test_events_become_actions(rows: list[dict[str, Any]], expected: list[tuple[Any, ...]]) -> None:
    assert derived(rows) == expected


def test_the_command_key_of_a_mac_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert derived(hold("cmd", stroke(0, "l")), platform="darwin") == [("hotkey", ("command", "l"))]


TIMES = st.floats(0, 0.6).map(lambda t: round(t, 2))
NUMBERS = st.one_of(st.none(), st.integers(-50, 400))
EVENTS = st.builds(
    InputEvent,
    name=st.sampled_from(["click", "scroll", "press", "release", "move", "mouse.drag", ""]),
    time=TIMES,
    x=NUMBERS,
    y=NUMBERS,
    dx=NUMBERS,
    dy=NUMBERS,
    button=st.sampled_from(["left", "right", "middle", "x2", None]),
    pressed=st.sampled_from([True, False, None]),
    key=st.sampled_from([None, None, "ctrl_l", "shift", "alt_gr", "cmd", "enter", "space", "strange"]),
    char=st.sampled_from([None, "a", "B", "\x03", "é", "ab", ""]),
    plain=st.sampled_from([None, "a", "b"]),
)


@given(st.lists(EVENTS, max_size=30))
def test_any_events_give_valid_actions_or_reasons_and_clicks_only_from_buttons(events: list[InputEvent]) -> None:
    clock = 0.0
    timed = []
    for one in events:
        clock += one.time
        timed.append(InputEvent(**{**one.__dict__, "time": clock}))
    found = derive(timed, Rules())
    assert [one.begin for one in found] == sorted(one.begin for one in found)
    screen = Screen(320, 200)
    clicks = 0
    for one in found:
        if one.kind is None:
            assert one.reason
        try:
            made: Action | None = action(one, screen)
        except (Lost, BadSample):
            made = None
        if one.kind is not None and one.kind.value.endswith("click"):
            clicks += {ActionType.DOUBLE_CLICK: 2, ActionType.TRIPLE_CLICK: 3}.get(one.kind, 1)
            assert made is None or one.start in {(e.x, e.y) for e in timed if e.name == "click" and e.pressed}
    assert clicks <= sum(one.name == "click" and one.pressed is False for one in timed)
