"""Rows: any episode comes back equal, through Arrow and Parquet."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.desktop import Expected
from eval.episodes import Episode, Step
from tests.unit.eval.strategies import TEXT, UNIT, actions
from training.data.faults import BadSample
from training.data.packed import store

FLOAT = st.floats(allow_nan=False)
BOXES = st.tuples(UNIT, UNIT, UNIT, UNIT)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOAT | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def steps(draw: st.DrawFn, index: int) -> Step:
    return Step(
        index=index,
        screenshot=draw(TEXT),
        action=draw(maybe(actions())),
        response=draw(maybe(TEXT)),
        thought=draw(maybe(TEXT)),
        parse_error=draw(maybe(TEXT)),
        reward=draw(FLOAT),
        done=draw(st.booleans()),
        time=draw(maybe(FLOAT)),
        metrics=draw(st.dictionaries(TEXT, FLOAT, max_size=2)),
        token_ids=draw(maybe(st.lists(st.integers(0, 2**40), max_size=3))),
        logprobs=draw(maybe(st.lists(FLOAT, max_size=3))),
        expected=draw(maybe(st.builds(Expected, actions(), maybe(BOXES)))),
        marks=draw(st.dictionaries(st.integers(0, 2**40), BOXES, max_size=2)),
    )


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    return Episode(
        episode_id=draw(TEXT),
        task_id=draw(TEXT),
        instruction=draw(TEXT),
        screen=draw(st.tuples(st.integers(1, 9999), st.integers(1, 9999))),
        goal=draw(TEXT),
        seed=draw(st.integers(-(2**63), 2**63 - 1)),
        success=draw(maybe(st.booleans())),
        score=draw(maybe(FLOAT)),
        outcome=draw(st.sampled_from(["scored", "infra"])),
        error=draw(maybe(TEXT)),
        steps=tuple(draw(steps(index)) for index in range(draw(st.integers(1, 3)))),
        agent=draw(TEXT),
        environment=draw(TEXT),
        source=draw(TEXT),
        started=draw(maybe(TEXT)),
        duration_ms=draw(maybe(st.integers(0, 2**40))),
        tags=tuple(draw(st.lists(TEXT, max_size=2))),
        metadata=draw(st.dictionaries(TEXT, JSON, max_size=2)),
    )


def through_parquet(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, store.schema()), buffer)
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(buffer.getvalue())).to_pylist()
    return found


@settings(deadline=None)
@given(st.lists(episodes(), min_size=1, max_size=3))
def test_an_episode_comes_back_equal(made: list[Episode]) -> None:
    rows = [store.to_row(one, [f"{i}" for i in range(len(one.steps))]) for one in made]
    for one, row in zip(made, through_parquet(rows), strict=True):
        found = store.from_row(row)
        assert found == one
        assert found.to_json() == one.to_json()
        assert [step.to_json() for step in found.steps] == [step.to_json() for step in one.steps]


def episode(**changes: Any) -> Episode:
    step = Step(index=0, screenshot="000.png")
    return Episode(
        **{"episode_id": "e", "task_id": "t", "instruction": "i", "screen": (1, 1), "steps": (step,)} | changes
    )


def test_what_the_schema_does_not_know_is_kept_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "STEP_FIELDS", store.STEP_FIELDS - {"parse_error"})
    monkeypatch.setattr(store, "PLAIN_STEP", tuple(name for name in store.PLAIN_STEP if name != "parse_error"))
    made = episode(steps=(Step(index=0, screenshot="000.png", parse_error="no action"),))
    row = store.to_row(made, ["a"])
    assert json.loads(row["steps"][0]["extra"]) == {"parse_error": "no action"}
    assert store.from_row(row | {"steps": [{**row["steps"][0], "expected": None}]}) == made


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"instruction": "half \ud800"}, "not_unicode"), ({"seed": 2**63}, "out_of_range")],
)
def test_what_parquet_can_not_hold_is_a_bad_sample(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSample) as caught:
        store.to_row(episode(**changes), ["a"])
    assert caught.value.reason == reason


def test_a_row_that_is_no_episode_is_a_bad_sample() -> None:
    row = through_parquet([store.to_row(episode(), ["a"])])[0]
    row["steps"][0]["action"] = {"type": "click", "x": 1.5, "y": 0.5}
    with pytest.raises(BadSample, match=r"x must be a number from 0 to 1, not 1\.5"):
        store.from_row(row)


def test_the_schema_knows_every_field_of_today() -> None:
    """A field that is added to an episode works through `extra`; it should get a column of its own here."""
    assert set(Step.__struct_fields__) == store.STEP_FIELDS
    assert set(Episode.__struct_fields__) == store.EPISODE_FIELDS
    arguments = {"type", "path", *store.NUMBERS, *store.WHOLE, *store.LISTS, *store.TEXTS}
    from eval.actions import Action

    assert set(Action.__dataclass_fields__) == arguments
    assert msgspec.structs.fields(Step)


def test_rows_that_were_packed_before_schema_1_1_are_read() -> None:
    """The file was written by the packer of 2026-11-23 before `path`, `distance` and `further_actions` had columns."""
    (row,) = pq.read_table(Path(__file__).parent / "stored/rows-1.0.0.parquet").to_pylist()
    assert "further_actions" not in row["steps"][0]
    read = store.from_row(row)
    assert read.schema_version == "1.0.0"
    assert [step.action and step.action.to_json() for step in read.steps] == [
        {"type": "drag", "x": 0.1, "y": 0.2, "x2": 0.3, "y2": 0.4, "button": "right", "duration": 0.5},
        None,
        {"type": "hotkey", "keys": ["ctrl", "c"]},
    ]
    assert [step.further_actions for step in read.steps] == [(), (), ()]
    packed_again = through_parquet([store.to_row(read, ["a", "b", "c", "d"], "folder")])
    assert store.from_row(packed_again[0]) == read
