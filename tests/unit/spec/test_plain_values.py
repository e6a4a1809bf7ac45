"""A job as a mapping of Python: what no file could hold is refused at its place, and nothing passes unread."""

from __future__ import annotations

import datetime
import enum
from collections import OrderedDict, defaultdict
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import BadInput
from launcher.spec.read.load import load_value

TOKEN = "hf_" + "Ab3dEf6h" * 4


class Size(enum.IntEnum):
    SMALL = 3


class Name(enum.StrEnum):
    FIRST = "first"


class Text(str):
    pass


HOLDS_ITSELF: list[Any] = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


def config(value: Any) -> Any:
    job = {"name": "a", "image": "x", "command": ("x",), "config": {"v": value}}
    return load_value(job, {}, cwd=Path("/")).jobs[0].variants[0].values["config"]["v"]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (("a", [1, (2,)]), ["a", [1, [2]]]),
        (OrderedDict(a=OrderedDict(b=1)), {"a": {"b": 1}}),
        (defaultdict(int, a=1), {"a": 1}),
        (Text("x"), "x"),
        (Name.FIRST, "first"),
        (Size.SMALL, 3),
        ({Text("k"): True}, {"k": True}),
        (None, None),
    ],
)
def test_is_read_as_a_file_would_give_it(value: Any, read: Any) -> None:
    found = config(value)
    assert (found, type(found)) == (read, type(read))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"id2label": {0: "a"}}, r"the job: config.v.id2label: the key 0 is not a text; allowed: texts"),
        ([{None: 1}], r"config.v\[0\]: the key None is not a text"),
        ({True: 1}, "config.v: the key True is not a text"),
        ({1.5: 1}, "config.v: the key 1.5 is not a text"),
        ({b"x": 1}, "config.v: the key of type bytes is not a text"),
        ({(1, 2): 1}, "config.v: the key of type tuple is not a text"),
        ({"a"}, "config.v: a value of type set stands in no file; allowed: texts, numbers"),
        (Path("x"), "config.v: a value of type PosixPath stands in no file"),
        (datetime.date(2026, 1, 1), "config.v: a value of type date"),
        (b"x", "config.v: a value of type bytes"),
        (object(), "config.v: a value of type object"),
        ("\ud800", "config.v: holds half of a character"),
        ({"\ud800": 1}, "config.v: holds half of a character"),
        (HOLDS_ITSELF, "is nested deeper than 100 levels, or holds itself"),
        ((TOKEN,), r"config.v\[0\]: looks like a secret"),
        (OrderedDict(a=TOKEN), "config.v.a: looks like a secret"),
        (Text(TOKEN), "config.v: looks like a secret"),
    ],
)
def test_or_refused_at_its_place(value: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        config(value)
    assert TOKEN not in str(caught.value)
