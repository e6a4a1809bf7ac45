"""What a terminal would obey never reaches it; what people write does."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import safe_text

HOSTILE = {
    "clears the screen": "\x1b[2J\x1b[H",
    "a title": "\x1b]0;owned\x07",
    "a link": "\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\",
    "the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "C1": "\x9b2J\x9d0;x\x9c",
    "the direction": "\u202etxt.exe\u202c\u2066\u2069\u200f\u061c",
    "over the line": "fine\rFINE\b\b\b",
    "lines": "a\nb\u2028c\u2029d\x0be\x0cf\x85g",
    "hidden": "\x1b[8mx\x1b[28m",
    "tags": "a\U000e0041\U000e007f",
    "surrogates": "a\udc9b2J",
    "bell and DEL": "\x07\x7f",
}
KEPT = ["plain", "Grüße, 你好, שלום, مرحبا", "👩\u200d💻 e\u0301", "a  b", "50 % ✓ ━╸─ │"]
OBEYED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_that_is_obeyed_is_left(kind: str) -> None:
    text = HOSTILE[kind]
    assert not OBEYED.search(safe_text.line(text))
    assert not OBEYED.search(safe_text.block(text).replace("\n", ""))
    body = safe_text.json_text(json.dumps({"a": text}, ensure_ascii=False, indent=2))
    assert not OBEYED.search(body.replace("\n", ""))
    assert json.loads(body) == {"a": text}


@pytest.mark.parametrize("text", KEPT)
def test_what_people_write_stays(text: str) -> None:
    assert safe_text.line(text) == safe_text.block(text) == safe_text.json_text(text) == text


@given(st.text())
def test_any_text_becomes_one_line(text: str) -> None:
    assert not OBEYED.search(safe_text.line(text))
    assert safe_text.line(safe_text.line(text)) == safe_text.line(text)


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_same_in_logs(kind: str) -> None:
    body = HOSTILE[kind].encode(errors="surrogateescape") + b"\n"
    assert not OBEYED.search(safe_text.log(body, colours=False).replace("\n", ""))
    assert not OBEYED.search(re.sub(r"\x1b\[[0-9;]*m|\n", "", safe_text.log(body)))


@pytest.mark.parametrize("colour", ["\x1b[0m", "\x1b[m", "\x1b[1;31m", "\x1b[38;5;208m", "\x1b[38;2;1;2;3m"])
def test_programs_keep_their_colours_up_to_the_end_of_what_is_printed(colour: str) -> None:
    assert safe_text.log(f"a {colour}b\n".encode()) == f"a {colour}b\x1b[0m\n"
    assert safe_text.log(f"a {colour}b\n".encode(), colours=False) == "a b\n"


def test_no_colour_hides() -> None:
    assert "8" not in safe_text.log(b"\x1b[8ma\x1b[1;8mb\x1b[08;31mc")
    assert safe_text.log(b"\x1b[38;5;8ma") == "\x1b[38;5;8ma\x1b[0m"


def test_of_a_progress_bar_the_last_state_is_shown() -> None:
    assert safe_text.log(b"\r 10 %\r 20 %\r100 %\nnext\r\n") == "100 %\nnext\n"
