"""JSON of a model, read with limits that are checked before the parser sees the text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

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
