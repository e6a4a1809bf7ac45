"""What YAML texts mean, and where things stand in them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.spec.hashing import canonical
from launcher.spec.values.problems import Problems
from launcher.spec.values.source import MAX_BYTES, read_file, read_text

SCALARS = {
    "on": "on",
    "off": "off",
    "yes": "yes",
    "no": "no",
    "y": "y",
    "true": True,
    "True": True,
    "FALSE": False,
    "tRue": "tRue",
    "null": None,
    "Null": None,
    "~": None,
    "": None,
    "none": "none",
    "1e-5": 1e-5,
    "1.e3": 1000.0,
    ".5": 0.5,
    "+1": 1,
    "-0": 0,
    "1.0": 1.0,
    "0777": 777,
    "0o17": 15,
    "0x1F": 31,
    "0b11": "0b11",
    "1_000": "1_000",
    "1:30": "1:30",
    "2026-11-21": "2026-11-21",
    "2026-11-21T10:00:00Z": "2026-11-21T10:00:00Z",
    "1.2.3": "1.2.3",
    ".": ".",
    "1e": "1e",
    "6h": "6h",
    "'1'": "1",
    '"true"': "true",
    "!!str 1": "1",
    "!!float 1": 1.0,
    "<<": "<<",
    "=": "=",
}


def value(text: str) -> Any:
    problems = Problems()
    documents = read_text(text, "f.yaml", problems)
    problems.check()
    return documents[0].value if documents else None


@pytest.mark.parametrize(("text", "meant"), SCALARS.items())
def test_core_schema(text: str, meant: object) -> None:
    got = value(f"- {text}\n")[0]
    assert got == meant
    assert type(got) is type(meant)


def test_anchors_and_merge_keys() -> None:
    text = "a: &x {p: 1, q: 2}\nb: {<<: *x, q: 3}\nc: {<<: [*x, {q: 9, z: 1}]}\nd: *x\n"
    one = {"p": 1, "q": 2}
    assert value(text) == {"a": one, "b": {"p": 1, "q": 3}, "c": {**one, "z": 1}, "d": one}


def test_an_anchor_may_be_set_again() -> None:
    assert value("a: &x 1\nb: &x 2\nc: *x\n") == {"a": 1, "b": 2, "c": 2}


def test_places_are_those_of_the_text() -> None:
    problems = Problems()
    first, second = read_text("a:\n  b: [x, {c: y}]\n---\n\nd: 1\n", "f.yaml", problems)
    assert first.place(("a", "b", 1, "c")) == ("f.yaml", 2, 14)
    assert first.place(("a", "b", 1, "c"), key=True) == ("f.yaml", 2, 11)
    assert first.place(("a", "b", "nowhere")) == ("f.yaml", 2, 6)
    assert second.place(("d",), key=True) == ("f.yaml", 5, 1)


def test_columns_count_characters_after_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("\ufeffé: 'ü', x: 1".encode())
    problems = Problems()
    assert read_file(tmp_path / "f", "f", problems) == []
    assert [(p.line, p.col) for p in problems.found] == [(1, 7)]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"#" * (MAX_BYTES + 1))
    problems = Problems()
    assert read_file(tmp_path / "f", "f", problems) == []
    assert [str(p) for p in problems.found] == ["f: too large for a job; allowed: at most 1 MiB"]


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_ends_with_a_message(opening: str) -> None:
    problems = Problems()
    assert read_text(opening * 100_000, "f", problems) == []
    assert "nested too deeply" in str(next(iter(problems.found)))


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


def as_yaml(data: Any) -> str:
    """Double-quoted texts with every special character escaped the YAML way; JSON writes pairs of surrogates."""
    if isinstance(data, str):
        return '"' + "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in data) + '"'
    if isinstance(data, dict):
        # `?` before the key: without it YAML allows a key at most 1024 characters
        return "{" + ", ".join(f"? {as_yaml(key)} : {as_yaml(item)}" for key, item in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(as_yaml(item) for item in data) + "]"
    return "null" if data is None else str(data).lower() if isinstance(data, bool) else repr(data)


@given(PLAIN)
def test_what_is_written_is_read_back(data: Any) -> None:
    got = value(f"data: {as_yaml(data)}\n")["data"]
    assert got == data
    assert canonical(got) == canonical(data)


@given(st.binary(max_size=60) | st.text(alphabet="ab:-[]{},&*!|>'\"%@` \n\t#?<0.~", max_size=60).map(str.encode))
def test_any_bytes_give_values_or_problems(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    problems = Problems()
    documents = read_file(path, "f", problems)
    assert all(math.isfinite(document.place(())[1]) for document in documents)


@given(st.lists(st.sampled_from(["a", "b", "c"]), unique=True, min_size=1), PLAIN)
def test_block_style_of_another_writer_is_read_alike(keys: list[str], data: Any) -> None:
    text = yaml.safe_dump({key: {"x": 1, "t": "on", "f": 0.5} for key in keys}, sort_keys=False)
    assert value(text) == {key: {"x": 1, "t": "on", "f": 0.5} for key in keys}
