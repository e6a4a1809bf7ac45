"""The YAML writer: read alike by everybody, and the same for ever."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from launcher.spec.hashing import canonical
from launcher.spec.values.problems import Problems
from launcher.spec.values.source import read_text
from launcher.spec.values.yaml_text import dump
from tests.unit.spec.test_source import PLAIN

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r")) | st.text(
    alphabet="aAeEnoy019 .:#-_+~=<>|\n\t'\"\\$/{}[],&*!%@`\u2028\x85\ufeff", max_size=12
)


@given(PLAIN | TEXTS | st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS)))
def test_both_versions_of_yaml_read_what_was_written(data: Any) -> None:
    text = dump(data)
    problems = Problems()
    documents = read_text(text, "f", problems)
    problems.check()
    assert canonical(documents[0].value if documents else None) == canonical(data)
    assert canonical(yaml.load(text, yaml.CSafeLoader)) == canonical(data)
    assert canonical(yaml.safe_load(text)) == canonical(data)


def test_golden() -> None:
    data = {
        "name": "a b-c",
        "url": "hf://Qwen/x@1",
        "words": [
            "yes",
            "no",
            "null",
            "1",
            "1e-5",
            "0x1",
            "",
            " a",
            "a ",
            "a: b",
            "a #b",
            "-",
            "x:",
            "é",
            "\x7f\u2028",
        ],
        "numbers": [1, -0.5, 1e-5, 1e22, 1.0, True, None],
        "empty": {"list": [], "map": {}},
        "nested": [[1, [2]], {"a": 1, "b": [{"c": 2}]}],
        "script": "set -e\n\n  echo hi\n",
        "open": "two\nlines",
    }
    assert dump(data) == GOLDEN


GOLDEN = """\
name: a b-c
url: hf://Qwen/x@1
words:
- "yes"
- "no"
- "null"
- "1"
- "1e-5"
- "0x1"
- ""
- " a"
- "a "
- "a: b"
- "a #b"
- "-"
- "x:"
- "é"
- "\\U0000007f\\U00002028"
numbers:
- 1
- -0.5
- 1.0e-05
- 1.0e+22
- 1.0
- true
- null
empty:
  list: []
  map: {}
nested:
- - 1
  - - 2
- a: 1
  b:
  - c: 2
script: |
  set -e

    echo hi
open: |-
  two
  lines
"""


def test_sorted_keys_give_the_same_text_for_any_order() -> None:
    one = {"b": [{"q": 1, "p": 2}], "a": {"d": 1, "c": 2}}
    other = {"a": {"c": 2, "d": 1}, "b": [{"p": 2, "q": 1}]}
    assert dump(one, sort=True) == dump(other, sort=True) == "a:\n  c: 2\n  d: 1\nb:\n- p: 2\n  q: 1\n"
    assert dump(one).startswith("b:\n- q: 1\n  p: 2\n")


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"x"])
def test_what_is_no_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        dump({"a": value})
