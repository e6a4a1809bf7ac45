from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.dsl import PLACED, Dsl, quote, unquote
from eval.actions.geometry import Screen
from tests.support.cases import every_case
from tests.unit.eval.strategies import TEXT, actions

COORDINATES = ("x", "y", "x2", "y2", "width", "height")


def rounded(action: Action, decimals: int) -> Action:
    values = {k: round(v, decimals) if k in COORDINATES else v for k, v in action.to_json().items()}
    if action.path is not None:
        values["path"] = [[round(x, decimals), round(y, decimals)] for x, y in action.path]
    return Action.from_json(values)


def is_written(action: Action, dsl: Dsl) -> bool:
    """Whether the DSL holds the action: all but clicks and drags that say no place."""
    placed = not {"x", "element"} & set(action.to_json()) and (action.type in PLACED)
    if placed:
        with pytest.raises(Unrepresentable, match="where the pointer is"):
            dsl.format(action)
    return not placed


@given(actions(marks=False), st.integers(1, 6))
def test_round_trip_with_coordinates(action: Action, decimals: int) -> None:
    dsl = Dsl(decimals)
    assume(is_written(action, dsl))
    text = dsl.format(action)
    assert "\n" not in text
    parsed = dsl.parse(text)
    assert parsed == dsl.parse(dsl.format(parsed))
    for name, value in rounded(action, decimals).to_json().items():
        if name == "path":
            assert [list(point) for point in parsed.path or ()] == [pytest.approx(point, abs=1e-9) for point in value]
        else:
            expected = tuple(value) if isinstance(value, list) else pytest.approx(value, abs=1e-9)
            assert getattr(parsed, name) == expected
    assert set(parsed.to_json()) == set(action.to_json())


@given(actions(marks=True))
def test_round_trip_with_marks(action: Action) -> None:
    dsl = Dsl(marks=True)
    if set(action.to_json()) & {*COORDINATES, "path"}:
        with pytest.raises(Unrepresentable):
            dsl.format(action)
    elif is_written(action, dsl):
        assert dsl.parse(dsl.format(action)) == action


@given(actions(marks=False), TEXT)
def test_responses_round_trip(action: Action, thought: str) -> None:
    dsl = Dsl()
    assume(is_written(action, dsl))
    action = dsl.parse(dsl.format(action))
    thought = thought.strip()
    assume(thought)
    response = dsl.parse_response(dsl.format_response(action, thought))
    assert (response.thought, response.action) == (thought, action)
    assert dsl.parse_response(dsl.format_response(action)).thought is None


@given(TEXT)
def test_quoting_is_undone_by_unquoting(text: str) -> None:
    literal = quote(text)
    assert literal[0] == literal[-1] == '"'
    assert unquote(literal[1:-1]) == text


@pytest.mark.parametrize(("decimals", "size"), [(1, 9), (2, 99), (3, 999), (4, 3840)])
def test_enough_decimals_keep_every_pixel(decimals: int, size: int) -> None:
    """Half a unit of the last place is less than half a pixel."""
    dsl, screen = Dsl(decimals), Screen(size, size)
    for pixel in range(size):
        x, y = screen.to_norm(pixel, pixel)
        action = dsl.parse(dsl.format(Action(ActionType.CLICK, x=x, y=y)))
        assert action.point is not None
        assert screen.from_norm(*action.point) == (pixel, pixel)


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action(ActionType.CLICK, x=0.42, y=1.0), "CLICK(x=0.42, y=1.00)"),
        (Action(ActionType.TYPE, text="a\"b\\c'd"), 'TYPE(text="a\\"b\\\\c\'d")'),
        (Action(ActionType.TYPE, text="two\nlines"), 'TYPE(text="two\\nlines")'),
        (Action(ActionType.WAIT), "WAIT()"),
        (Action(ActionType.DONE), "DONE()"),
        (Action(ActionType.KEY, keys=("+",)), 'KEY(key="+")'),
        (Action(ActionType.HOTKEY, keys=("ctrl", "+")), 'HOTKEY(keys=["ctrl", "+"])'),
        (Action(ActionType.SCROLL, direction="down", amount=3), 'SCROLL(direction="down", amount=3)'),
        (Action(ActionType.DRAG, x=0, y=0, x2=1, y2=0.5), "DRAG(x=0.00, y=0.00, x2=1.00, y2=0.50)"),
    ],
)
def test_forms(action: Action, text: str) -> None:
    assert Dsl(2).format(action) == text
    assert Dsl(2).parse(text) == action


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Action(ActionType.CLICK, element=1), "CLICK([1])"),
        (Action(ActionType.TYPE, element=2, text="alice"), 'TYPE([2], "alice")'),
        (Action(ActionType.TYPE, text="alice"), 'TYPE("alice")'),
        (Action(ActionType.CLICK_AND_TYPE, element=2, text="a"), 'CLICK_AND_TYPE([2], "a")'),
        (Action(ActionType.SCROLL, element=3, direction="up"), 'SCROLL([3], direction="up")'),
        (Action(ActionType.DONE), "DONE()"),
    ],
)
def test_forms_with_marks(action: Action, text: str) -> None:
    assert Dsl(marks=True).format(action) == text
    assert Dsl(marks=True).parse(text) == action


@every_case(
    "text",
    [
        "",
        "CLICK",
        "CLICK(",
        "CLICK()",
        "CLICK(x=0.5)",
        "CLICK(x=0.5, y=1.5)",
        "CLICK(x=0.5, y=-0.5)",
        "CLICK(x=0.5, y=.5)",
        "CLICK(x=0.5, y=5e-1)",
        "CLICK(x=0.5, x=0.5, y=0.5)",
        "CLICK(x=0.5, y=0.5,)",
        "CLICK(x=0.5 y=0.5)",
        "CLICK(0.5, 0.5)",
        "CLICK(x=0.5, y=0.5, z=0.5)",
        'CLICK(x="0.5", y=0.5)',
        "CLICK([1])",
        "CLICK(x=0.5, y=0.5) CLICK(x=0.5, y=0.5)",
        "CLICK(x=0.5, y=0.5)\nDONE()",
        "CLICK(x=0.5, y=0.5).",
        "click(x=0.5, y=0.5)",
        "ACTION(type=click)",
        "POKE()",
        'TYPE("alice")',
        'TYPE(text="a',
        'TYPE(text="a\\")',
        'TYPE(text="a\\\'b")',
        "TYPE(text='a')",
        'KEY(keys=["a"])',
        'KEY(key=["a"])',
        'HOTKEY(keys=["a"])',
        "HOTKEY(keys=[])",
        "SELECT_MONITOR(monitor_id=1.5)",
        "WAIT(duration=" + "9" * 5000 + ")",
        'WAIT(duration="1")',
    ],
)
def test_what_is_not_exactly_one_action_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        Dsl().parse(text)


@pytest.mark.parametrize(
    "text", ["CLICK(x=0.5, y=0.5)", 'TYPE("a", [1])', "CLICK([1.5])", "CLICK([-1])", "CLICK([1], [2])"]
)
def test_errors_with_marks(text: str) -> None:
    with pytest.raises(ParseError):
        Dsl(marks=True).parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "DONE()",
        "Thought: done",
        "Action: DONE()\nAction: DONE()",
        "Action: DONE()\nThought: x",
        "Thought: x\nAction: DONE()\nAction: DONE()",
        "Sure!\nAction: DONE()",
        "Action: DONE() DONE()",
        "Action:",
    ],
)
def test_what_is_not_one_response_is_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        Dsl().parse_response(text)


@given(st.text(max_size=60))
def test_any_text_is_one_action_or_a_parse_error(text: str) -> None:
    for dsl in (Dsl(), Dsl(marks=True)):
        try:
            response = dsl.parse_response(text)
        except ParseError:
            continue
        assert isinstance(response.action, Action)


@pytest.mark.parametrize("thought", ["", " a", "a ", "a\nAction: DONE()", "Action: x"])
def test_a_thought_that_would_not_read_back_is_refused(thought: str) -> None:
    with pytest.raises(Unrepresentable):
        Dsl().format_response(Action(ActionType.DONE), thought)


def test_a_mark_has_no_coordinate_form() -> None:
    with pytest.raises(Unrepresentable):
        Dsl().format(Action(ActionType.CLICK, element=1))


def test_the_instructions_are_themselves_valid() -> None:
    for dsl in (Dsl(2), Dsl(4), Dsl(marks=True)):
        examples = dsl.instructions().split(": ", 1)[1].split(", DONE() when")[0]
        for example in examples.replace("), ", ")\n").split("\n"):
            dsl.parse(example.replace("[n]", "[7]"))
