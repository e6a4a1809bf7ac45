"""Plain data -> YAML text: the same bytes on any machine and with any version of PyYAML, with the same meaning in YAML
1.1 (PyYAML, Kubernetes) and 1.2.

Block style. Unambiguous texts are plain, texts of several lines are literal blocks, all others double-quoted.
"""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, Final

_WORD: Final = r"[A-Za-z0-9_/.@+=$-]+(?::[A-Za-z0-9_/.@+=$-]+)*"
_PLAIN: Final = rf"(?:[A-Za-z_/$](?::?[A-Za-z0-9_/.@+=$-])*)(?: {_WORD})*"
_WORDS: Final = frozenset("y yes n no on off true false null".split())  # noqa: SIM905 - YAML 1.1 reads these as booleans or null
_ODD: Final = "[^\n\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"


def dump(value: Any, *, sort: bool = False) -> str:
    """The text of one document, with a newline at its end. Keys keep their order, or are sorted at every level. Raises
    TypeError for a value that is not plain data."""
    if sort:
        value = _sorted(value)
    lines: list[str] = []
    if (isinstance(value, dict | list | tuple)) and value:
        _block(value, "", lines)
    else:
        lines.append(_scalar(value, "  "))
    return "\n".join(lines) + "\n"


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def _block(value: Any, indent: str, lines: list[str], lead: str | None = None) -> None:
    """Adds the lines of a mapping or list. `lead` begins the first line (`- ` of the outer list)."""
    opening = indent if lead is None else lead
    items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
    for key, item in items:
        start = f"{opening}- " if key is None else f"{opening}{_text(key)}:"
        opening = indent
        if item and isinstance(item, dict | list | tuple):
            if key is None:
                _block(item, f"{indent}  ", lines, start)
            else:
                lines.append(start)
                _block(item, f"{indent}  " if isinstance(item, dict) else indent, lines)
        else:
            lines.append(
                f"{start}{_scalar(item, indent + '  ')}" if key is None else f"{start} {_scalar(item, indent + '  ')}"
            )


def _scalar(value: Any, indent: str) -> str:
    kind = type(value)
    if kind is str:
        if "\n" in value and value[0] not in " \n\t" and not value.endswith("\n\n") and not _odd(value):
            return _literal(value, indent)
        return _text(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return str(value)
    if kind is float and isfinite(value):
        text = repr(value)
        # YAML 1.1 reads `1e-05` as a text
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    if kind is dict:
        return "{}"
    if kind is list or kind is tuple:
        return "[]"
    raise TypeError(f"no plain data: {value!r}")


def _odd(text: str) -> bool:
    """Whether a text holds a character that YAML must escape. The pattern is slow to compile and seldom needed."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return False
    return re.search(_ODD, text) is not None


def _text(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"no text: {value!r}")
    if re.fullmatch(_PLAIN, value) and value.lower() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return re.sub(_ODD, lambda match: f"\\U{ord(match[0]):08x}", quoted) if _odd(quoted) else quoted


def _literal(value: str, indent: str) -> str:
    chomp = "" if value.endswith("\n") else "-"
    lines = value.removesuffix("\n").split("\n")
    return "\n".join([f"|{chomp}", *(f"{indent}{line}" if line else "" for line in lines)])
