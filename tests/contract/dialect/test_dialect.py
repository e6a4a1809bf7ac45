"""What every dialect promises. A new one is a line in DIALECTS; it is then a parameter of everything below."""

from __future__ import annotations

import ast
import contextlib
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect
from eval.actions.dialects.registry import DIALECTS, make_dialect
from eval.actions.keys import key_name
from eval.config import ConfigError
from tests.unit.eval.strategies import actions

DECIMALS = 3
NAMES = [*DIALECTS, "tests.contract.dialect.own:JsonLines"]
PLACES = ("x", "y", "x2", "y2", "width", "height")
CLICK = Action(ActionType.CLICK, x=0.25, y=0.5)
# what an agent needs for any task at all; every dialect must be able to say it
NEEDED = [
    CLICK,
    Action(ActionType.DOUBLE_CLICK, x=0.0, y=1.0),
    Action(ActionType.RIGHT_CLICK, x=1.0, y=0.0),
    Action(ActionType.DRAG, x=0.1, y=0.2, x2=0.3, y2=0.4),
    Action(ActionType.SCROLL, direction="down", amount=3.0),
    Action(ActionType.TYPE, text='two lines,\n"quotes", \\ and \t'),
    Action(ActionType.KEY, keys=("enter",)),
    Action(ActionType.HOTKEY, keys=("ctrl", "c")),
    Action(ActionType.WAIT),
    Action(ActionType.DONE),
    Action(ActionType.FAIL),
]


# what a published form has no way to say of it: nothing is lost in silence, `format` refuses it
LACKS = {
    "anthropic-20241022": {"scroll", "wait"},
    "anthropic-20250124": {"wait"},
    "anthropic-20251124": {"wait"},
    "anthropic-20260801": {"wait"},
    "openai-preview": {"scroll"},
    "openai": {"scroll"},
    "ui-tars": {"scroll"},
    "ui-tars-1.5": {"scroll"},
    "qwen2.5-vl": {"wait"},
    "qwen3-vl": {"wait"},
    "waa": {"scroll"},
    **dict.fromkeys(("place", "place-1000"), {action.type for action in NEEDED} - {ActionType.CLICK}),
}
GRIDS = {"ui-tars", "qwen3-vl", "place-1000"}  # whose coordinates are whole numbers of a grid of 1000 by 1000


@pytest.fixture(params=NAMES)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return make_dialect(request.param, DECIMALS, False)


def without_places(action: Action) -> Action:
    """The action with every coordinate that it has set to 0.5, and in one form: names of keys in lower case, and no
    button where it is the left one, which is the default."""
    places = {name: 0.5 for name in PLACES if getattr(action, name) is not None}
    keys, modifiers = (
        names and tuple(key_name(key) or (key.lower() if len(key) > 1 else key) for key in names)
        for names in (action.keys, action.modifiers)
    )
    path = action.path and ((0.5, 0.5),) * len(action.path)
    button = None if action.button == "left" else action.button
    distance = None if action.distance is None else 0.5
    return replace(action, **places, keys=keys, modifiers=modifiers, path=path, button=button, distance=distance)


@pytest.mark.parametrize("action", NEEDED, ids=lambda action: action.type.value)
@pytest.mark.parametrize("name", NAMES)
def test_what_every_task_needs_is_written_and_read_back(name: str, action: Action) -> None:
    dialect = make_dialect(name, DECIMALS, False)
    if action.type in LACKS.get(name, ()):
        with pytest.raises(Unrepresentable):
            dialect.format(action)
        return
    if name in GRIDS:
        assert dialect.format(dialect.parse(dialect.format(action))) == dialect.format(action)
        assert dialect.parse_response(dialect.format_response(action)).action.type == action.type
        return
    assert dialect.parse(dialect.format(action)) == action
    assert dialect.parse_response(dialect.format_response(action)).action == action


@pytest.mark.parametrize("name", NAMES)
@given(action=actions(marks=False))
@settings(max_examples=300)  # some forms can write one action of seven
def test_an_action_is_kept_or_refused_never_changed(name: str, action: Action) -> None:
    dialect = make_dialect(name, DECIMALS, False)
    try:
        text = dialect.format(action)
    except Unrepresentable:
        return
    read = dialect.parse(text)
    assert without_places(read) == without_places(action)
    for place in PLACES:
        if (value := getattr(action, place)) is not None:
            assert math.isclose(getattr(read, place), value, abs_tol=0.51 * 10**-DECIMALS)
    assert dialect.parse(dialect.format(read)) == read


@pytest.mark.parametrize("name", NAMES)
@given(text=st.text(max_size=60) | st.sampled_from(["", "hello", "(", "{}", "[]", "## Code:", "Action:", "1"]))
def test_a_text_that_is_no_action_is_a_parse_error_and_nothing_else(name: str, text: str) -> None:
    dialect = make_dialect(name, DECIMALS, False)
    for parse in (dialect.parse, dialect.parse_response):
        with contextlib.suppress(ParseError):
            parse(text)
    assert isinstance(dialect.sections(text), dict)


@pytest.mark.parametrize("text", ["", "hello", "click", "{}", "##", "Action: CLICK"])
def test_nothing_is_guessed(dialect: Dialect, text: str) -> None:
    for parse in (dialect.parse, dialect.parse_response):
        with pytest.raises(ParseError):
            parse(text)


@pytest.mark.parametrize("name", NAMES)
def test_two_actions_are_none(name: str) -> None:
    dialect = make_dialect(name, DECIMALS, False)
    second = replace(CLICK, x=0.75) if "done" in LACKS.get(name, ()) else Action(ActionType.DONE)
    with pytest.raises(ParseError):
        dialect.parse(f"{dialect.format(CLICK)}\n{dialect.format(second)}")
    with pytest.raises(ParseError):
        dialect.parse_response(f"{dialect.format_response(CLICK)}\n{dialect.format_response(second)}")


@pytest.mark.parametrize("name", NAMES)
def test_coordinates_have_the_decimals_that_were_asked_for_or_are_cells_of_a_grid(name: str) -> None:
    dialect = make_dialect(name, DECIMALS, False)
    precise = replace(CLICK, x=0.123456789, y=0.987654321)
    read = dialect.parse(dialect.format(precise))
    expected = (0.1235, 0.9875) if name in GRIDS else (0.123, 0.988)
    assert read.point == expected


@pytest.mark.parametrize("name", NAMES)
@given(thought=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_a_thought_reads_back_as_it_was_or_is_refused(name: str, thought: str) -> None:
    dialect = make_dialect(name, DECIMALS, False)
    try:
        text = dialect.format_response(CLICK, thought)
    except Unrepresentable:
        assume(False)
    response = dialect.parse_response(text)
    assert (response.thought, response.action) == (thought, dialect.parse(dialect.format(CLICK)))


def test_a_plain_thought_is_always_held(dialect: Dialect) -> None:
    text = dialect.format_response(CLICK, "The field is empty.")
    assert dialect.parse_response(text).thought == "The field is empty."


def test_the_sections_of_reasoning_that_it_claims_are_those_it_holds(dialect: Dialect) -> None:
    assert "Thought" in dialect.reasoning
    reasons = {name: f"About {name}." for name in dialect.reasoning}
    text = dialect.format_sections(CLICK, reasons)
    response = dialect.parse_response(text)
    assert (response.thought, response.action) == ("About Thought.", dialect.parse(dialect.format(CLICK)))
    if len(reasons) > 1:
        assert dialect.sections(text) == reasons
    with pytest.raises(Unrepresentable):
        dialect.format_sections(CLICK, {"Weather": "Rain."})


def test_no_reasoning_is_the_answer_alone(dialect: Dialect) -> None:
    assert dialect.format_sections(CLICK, {}) == dialect.format_response(CLICK)


@pytest.mark.parametrize("name", NAMES)
def test_marks_are_spoken_or_refused(name: str) -> None:
    on_mark = Action(ActionType.CLICK, element=7)
    plain = make_dialect(name, DECIMALS, False)
    assert not plain.marks
    with pytest.raises(Unrepresentable):
        plain.format(on_mark)
    try:
        marked = make_dialect(name, DECIMALS, True)
    except ConfigError as error:
        assert "has no form with marks" in str(error)  # noqa: PT017 the two outcomes are the contract
        return
    assert marked.marks
    assert marked.parse(marked.format(on_mark)) == on_mark
    with pytest.raises(Unrepresentable):
        marked.format(CLICK)
    assert not marked.without_marks().marks
    assert marked.without_marks().format(CLICK) == plain.format(CLICK)


def test_without_marks_it_stays_as_it_is(dialect: Dialect) -> None:
    assert dialect.without_marks().format(CLICK) == dialect.format(CLICK)


def test_code_is_told_as_calls_by_those_that_write_code(dialect: Dialect) -> None:
    calls = dialect.calls(dialect.format_response(CLICK))
    if calls is not None:
        assert [call.name for call in calls] == ["click"]
        assert calls[0].point == CLICK.point
        with pytest.raises(ParseError):
            dialect.calls("hello")


def test_it_says_how_to_answer(dialect: Dialect) -> None:
    assert len(dialect.instructions()) > 40


def _files() -> list[Path]:
    """Every module of eval and training but those of the dialects."""
    root = Path(__file__).parents[3]
    files = [*root.glob("eval/**/*.py"), *root.glob("training/**/*.py")]
    return [file for file in files if "dialects" not in file.parts]


def test_nobody_asks_a_dialect_for_its_name_or_its_class() -> None:
    classes = {"Dsl", "PyAutoGui"}
    asked = []
    for file in _files():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                values = [node.left, *node.comparators]
                hit = any(isinstance(value, ast.Constant) and value.value in DIALECTS for value in values)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                hit = any(isinstance(name, ast.Name) and name.id in classes for name in ast.walk(node.args[1]))
            elif isinstance(node, ast.MatchClass):
                hit = ast.unparse(node.cls) in classes
            else:
                continue
            if hit:
                asked.append(f"{file}:{node.lineno if hasattr(node, 'lineno') else 0}")
    assert len(_files()) > 80
    assert asked == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latin", "'latin' is unknown; allowed: dsl, pyautogui, computer_13, anthropic-20241022, "),
        ("tests.contract.dialect.own:Nothing", "tests.contract.dialect.own has no Nothing"),
        ("tests.contract.dialect.own:json", "is a module; needed: a class or a function"),
        ("builtins:complex", "has no method format; needed: format(action)"),
    ],
)
def test_what_is_no_dialect_is_one_clear_error(name: str, expected: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make_dialect(name, DECIMALS, False)
    assert str(refused.value).startswith("prompt.dialect")
    assert expected in str(refused.value)
