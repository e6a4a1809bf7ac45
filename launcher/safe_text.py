"""Makes text from other sources safe to print: messages, names, labels, phases, evidence.

Whoever can write into a store decides what its readers see on their terminals.

Characters with an effect become escapes (`\\x1b`, `\\u202e`): control characters, the C1 set, changes of the writing
direction, line separators, invisible tags, lone surrogates.
"""

from __future__ import annotations

import re
from typing import Any, Final, TextIO

_MARKS: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f"
_ODD: Final = f"[\x00-\x1f\x7f-\x9f{_MARKS}]"
_ODD_IN_BLOCK: Final = f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_MARKS}]"
# the launcher's own colours, which may reach the terminal
_ODD_ON_TERMINAL: Final = f"\x1b(?!\\[(?:[0124]?|3[0-7]|9[0-7])m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f{_MARKS}]"
# colours of a program's output, which stay
_ODD_IN_LOG: Final = f"\x1b(?!\\[[0-9;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f{_MARKS}]"
_COLOURS: Final = "\x1b\\[([0-9;]*)m"
_BY_NUMBER: Final = "[34]8;(?:5;[0-9]*|2;[0-9]*;[0-9]*;[0-9]*)"


def line(text: str) -> str:
    """The text made safe, for use within a line: line breaks and tabs become spaces."""
    if text.isprintable():
        return text
    return re.sub(_ODD, _escaped, re.sub(r"[\t\n\r]+", " ", text))


def block(text: str) -> str:
    """The text made safe; its line breaks stay."""
    return text if text.isprintable() else re.sub(_ODD_IN_BLOCK, _escaped, text.replace("\r\n", "\n"))


def json_text(text: str) -> str:
    """Equivalent JSON without characters that a terminal obeys."""
    return text if text.isprintable() else re.sub(_ODD_IN_BLOCK, _escaped_in_json, text)


def log(body: bytes, *, colours: bool = True) -> str:
    """A program's output (complete lines) made safe for a terminal; only its colours stay. Of a line that was
    overwritten, as progress bars do, the last text stays."""
    text = body.decode("utf-8", "replace")
    if "\r" in text:
        text = "\n".join(one.rstrip("\r").rpartition("\r")[2] for one in text.split("\n"))
    if "\x1b" in text:
        end = "\n" if text.endswith("\n") else ""
        text = re.sub(_COLOURS, _visible if colours else "", text)
        text = f"{text.removesuffix(end)}\x1b[0m{end}" if colours else text
    return text if text.isprintable() else re.sub(_ODD_IN_LOG, "\ufffd", text)


def _visible(found: re.Match[str]) -> str:
    """A colour unchanged, except the one that hides text."""
    numbers = re.sub(_BY_NUMBER, "", found[1]).split(";")
    return "" if any(number.lstrip("0") == "8" for number in numbers) else found[0]


def is_interpreted(text: str) -> bool:
    """Whether `block` would escape anything in this text."""
    return not text.isprintable() and re.search(_ODD_IN_BLOCK, text) is not None


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def _escaped_in_json(found: re.Match[str]) -> str:
    body = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{body[at : at + 4]}" for at in range(0, len(body), 4))


class Guard:
    """A text stream to a terminal that passes only line ends, tabs and the launcher's colours, and escapes all other
    control characters. Code that draws (the live view, a progress line) writes to `raw` and makes its texts safe
    itself."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str) -> int:
        self.raw.write(text if text.isprintable() else re.sub(_ODD_ON_TERMINAL, _escaped, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for one in lines:
            self.write(one)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def guarded(stream: Any) -> Any:
    """The stream, guarded if it is a terminal; a pipe gets the bytes unchanged."""
    return Guard(stream) if stream is not None and not isinstance(stream, Guard) and stream.isatty() else stream


def raw(stream: Any) -> Any:
    """The stream without its guard, for code that draws."""
    return stream.raw if isinstance(stream, Guard) else stream
