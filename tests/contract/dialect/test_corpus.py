"""tests/data/dialects: answers as models write them, and what each must be read as (README there: where from)."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, Final

import pytest

from eval.actions import Action, ParseError, Unrepresentable
from eval.actions.dialects.base import Dialect, read_answer
from eval.actions.dialects.registry import DIALECTS, make_dialect
from eval.actions.geometry import Cells
from tests.support.cases import every_case

FOLDER: Final = Path(__file__).resolve().parents[2] / "data/dialects"
ROWS: Final[list[dict[str, Any]]] = [
    json.loads(line)
    for file in sorted(FOLDER.glob("*.jsonl"))
    for line in file.read_text(encoding="utf-8").splitlines()
]
PLACES: Final = ("x", "y", "x2", "y2", "distance", "path")
READ: Final = [row for row in ROWS if "actions" in row]
REFUSED: Final = [row for row in ROWS if "error" in row]


def dialect_of(row: dict[str, Any]) -> Dialect:
    dialect = make_dialect(row["dialect"], 4, row.get("marks", False))
    return dialect.in_frame(Cells(*row["frame"])) if "frame" in row else dialect


def is_as_expected(actions: tuple[Action, ...], expected: list[dict[str, Any]]) -> None:
    assert len(actions) == len(expected)
    for action, fields in zip(actions, expected, strict=True):
        given = action.to_json()
        assert {k: v for k, v in given.items() if k not in PLACES} == {
            k: v for k, v in fields.items() if k not in PLACES
        }
        for name in PLACES:
            assert (name in given) == (name in fields), name
            if name == "path":
                assert [pytest.approx(point) for point in fields.get(name, [])] == given.get(name, [])
            elif name in fields:
                assert given[name] == pytest.approx(fields[name])


@every_case("row", READ, ids=lambda row: row["id"])
def test_an_answer_is_read_as_its_actions(row: dict[str, Any]) -> None:
    dialect = dialect_of(row)
    turn = dialect.parse_turn(row["text"])
    is_as_expected(turn.actions, row["actions"])
    assert turn.thought == row["thought"]
    assert turn.repairs == ()
    assert dialect.parse_turn(row["text"], lenient=True).actions == turn.actions
    try:
        written = dialect.format_turn(turn.actions, turn.thought)
    except Unrepresentable:
        return  # read from a spelling that the dialect does not write, such as two scrolls at once
    again = dialect.parse_turn(written)
    assert dialect.format_turn(again.actions, again.thought) == written


@every_case("row", REFUSED, ids=lambda row: row["id"])
def test_a_wrong_answer_is_refused_for_its_reason_and_repaired_only_where_that_is_known(row: dict[str, Any]) -> None:
    dialect = dialect_of(row)
    with pytest.raises(ParseError, match=re.escape(row["error"])):
        read_answer(dialect.parse_turn, row["text"])
    if "lenient" in row:
        turn = dialect.parse_turn(row["text"], lenient=True)
        is_as_expected(turn.actions, row["lenient"])
        assert list(turn.repairs) == row["repairs"]
    else:
        with pytest.raises(ParseError, match=re.escape(row["error"])):
            dialect.parse_turn(row["text"], lenient=True)


def test_the_corpus_is_large_and_has_every_published_dialect() -> None:
    assert len(ROWS) >= 300
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    assert {row["dialect"] for row in ROWS} | {"dsl"} == set(DIALECTS)
    assert len(REFUSED) >= 100


# what the package ui-tars calls the actions that it read (README: how `reference` was made)
TYPES: Final = {
    "click": "click",
    "left_double": "double_click",
    "right_single": "right_click",
    "hover": "hover",
    "drag": "drag",
    "select": "drag",
    "scroll": "scroll",
    "type": "type",
    "wait": "wait",
    "finished": "done",
    "call_user": "call_user",
    "error_env": "fail",
    "press": "key_down",
    "release": "key_up",
}


@every_case("row", [row for row in READ if "reference" in row], ids=lambda row: row["id"])
def test_the_published_reader_of_ui_tars_says_the_same(row: dict[str, Any]) -> None:
    """Its points are x / width, ours the cell's centre: they differ by half a cell at most."""
    width, height = row.get("frame", (1000, 1000))
    turn = dialect_of(row).parse_turn(row["text"])
    assert len(turn.actions) == len(row["reference"])
    for action, (name, inputs) in zip(turn.actions, row["reference"], strict=True):
        if name == "hotkey":
            assert len(action.keys or ()) == len(inputs["key"].split())
        else:
            assert action.type.value == TYPES[name]
        if name == "type":
            assert action.text == inputs["content"]
        if name == "scroll":
            assert action.direction == inputs["direction"]
        for box, point in (("start_box", action.point), ("end_box", action.end)):
            if box in inputs:
                left, top, right, bottom = ast.literal_eval(inputs[box])
                assert point is not None
                assert abs(point[0] - (left + right) / 2) <= 0.5 / width + 1e-9
                assert abs(point[1] - (top + bottom) / 2) <= 0.5 / height + 1e-9
