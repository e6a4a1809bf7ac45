"""Parts of a model's answer: JSON, read with limits that are checked before the parser sees the text, and fences of
three backticks. Every scan here is linear."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

from eval.actions import ParseError

MAX_JSON: Final = 200_000  # characters
MAX_DEPTH: Final = 20  # brackets within brackets
MAX_DIGITS: Final = 400  # of one number; more than any float needs
TOKEN: Final = re.compile(rf'"(?:[^"\\]|\\.)*"?|[\[\]{{}}]|[0-9]{{{MAX_DIGITS + 1},}}', re.DOTALL)


def read_json(text: str) -> Any:
    """The value of one JSON text. Raises ParseError, also for NaN, a key that comes twice, and what is too deep."""
    if len(text) > MAX_JSON:
        raise ParseError(f"more than {MAX_JSON} characters")
    depth = 0
    for match in TOKEN.finditer(text):
        token = match.group()
        if token[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise ParseError(f"more than {MAX_DEPTH} brackets within brackets")
        elif token[0] in "]}":
            depth -= 1
        elif token[0] != '"':
            raise ParseError(f"a number of more than {MAX_DIGITS} digits")
    try:
        return json.loads(text, parse_constant=_constant, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ParseError(f"not JSON: {error.msg} at character {error.pos}") from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {str(error)[:100]}") from None


def write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _constant(name: str) -> NoReturn:
    raise ParseError(f"not JSON: {name}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ParseError("an object with a name that comes twice")
    return value


def shown(value: object) -> str:
    """A value for a message, cut off after 60 characters."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return f"a {type(value).__name__} too long to show"
    return text if len(text) <= 60 else f"{text[:57]}..."


def text_of(value: Mapping[str, Any], name: str, where: str) -> str:
    """A field that must be a text. Raises ParseError."""
    if not isinstance(given := value.get(name), str):
        raise ParseError(f"{where}: {name} must be a text, not {shown(given)}")
    return given


TICKS: Final = "```"


class Fence(NamedTuple):
    """One fenced text; `language` is the word after the opening backticks, in lower case, or ""."""

    language: str
    body: str


def split_fences(text: str) -> tuple[str, list[Fence], str]:
    """(the text before the first fence, the fences, all text between and after them).

    Raises ParseError for a fence that is not closed. Backticks count at the beginning of a line, alone or, where they
    open a fence, with a word.
    """
    before: list[str] = []
    after: list[str] = []
    fences: list[Fence] = []
    language: str | None = None  # of the open fence
    body: list[str] = []
    for line in text.split("\n"):
        word = line.strip().removeprefix(TICKS).strip() if line.strip().startswith(TICKS) else None
        if language is None and word is not None and (not word or word.isidentifier()):
            language, body = word.lower(), []
        elif language is not None and word == "":
            fences.append(Fence(language, "\n".join(body).strip()))
            language = None
        elif language is not None:
            body.append(line)
        else:
            (after if fences else before).append(line)
    if language is not None:
        raise ParseError("a fence that is not closed")
    return "\n".join(before).strip(), fences, "\n".join(after).strip()
