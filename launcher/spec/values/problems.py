"""Collects problems: the form of a message, "did you mean", and masking, so that no message shows a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from launcher import safe_text
from launcher.errors import BadInput, Problem
from launcher.spec.secrets.tokens import mask

_CONTROL: Final = r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_WHOLE: Final = 1 << 16  # characters of a part of a message; the rest is cut before masking
_LONGEST_WORD: Final = 100  # characters; longer words are not compared: the cost grows with the square of the length
_MOST_NAMES: Final = 1000


def near(word: str, known: Iterable[str]) -> str:
    """` (did you mean `x`?)`, or an empty text."""
    if len(word) > _LONGEST_WORD:
        return ""
    # imported here, because most commands need no suggestion
    from difflib import get_close_matches
    from itertools import islice

    by_lower = {name.lower(): name for name in islice(known, _MOST_NAMES) if len(name) <= _LONGEST_WORD}
    matches = get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean `{by_lower[matches[0]]}`?)" if matches else ""


def show(value: object) -> str:
    """A value inside a message: short, on one line, masked."""
    if isinstance(value, str):
        text = mask(value)
        return f"`{text if len(text) <= 60 else text[:57] + '...'}`".replace("\n", " ").replace("\0", "\\0")
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return f"`{value}`"


def one_line(text: str, longest: int) -> str:
    """A text as part of one line of a message: masked, no control characters, no longer than `longest` characters."""
    text = mask(text) if len(text) <= _WHOLE else mask(text[:_WHOLE])
    if len(text) > longest:
        text = f"{text[: longest - 3]}..."
    return (
        text if text.isprintable() else safe_text.line(re.sub(_CONTROL, lambda match: f"\\x{ord(match[0]):02x}", text))
    )


class Problems:
    """The problems of all files, collected before any error is raised."""

    def __init__(self) -> None:
        self.found: set[Problem] = set()

    def add(self, file: str, line: int, col: int, field: str, what: str, allowed: str = "") -> None:
        shown = (one_line(field, 300), one_line(what, 1000), one_line(allowed, 2000))
        self.found.add(Problem(one_line(file, 300), line, col, *shown))

    def check(self) -> None:
        """Raises BadInput with everything found so far, ordered by place."""
        if self.found:
            raise BadInput(sorted(self.found))
