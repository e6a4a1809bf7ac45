"""The end of a member's log, as lines that are safe to show and never many or long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from launcher import safe_text
from launcher.store.base import Store
from launcher.store.layout import LOG, RunKeys
from launcher.store.logs import list_pieces, read_pieces

WINDOW: Final = 96 * 1024  # bytes read from the end of a log, whatever its length
LINES: Final = 400
LONGEST: Final = 2000  # characters of a line


@dataclass(frozen=True)
class Tail:
    """`size`: bytes of the whole log. `cut`: the first line shown is not the log's first."""

    lines: tuple[str, ...]
    size: int
    cut: bool


def read_tail(store: Store, run: str, attempt: int, member: str, told: int = 0) -> Tail:
    """The last lines. Raises Unreachable. `told`: as in `launcher.store.logs`."""
    prefix = RunKeys(run).attempt(attempt).logs(member)
    size = max((first + length for first, length, _ in list_pieces(store, prefix, LOG, told)), default=0)
    start = max(0, size - WINDOW)
    body = bytearray()
    for piece in read_pieces(store, prefix, LOG, start, size, told=told):
        body += piece.body if piece.body else f"\n[{piece.missing} bytes are missing]\n".encode()
    texts = bytes(body).decode("utf-8", "replace").split("\n")
    if texts and not texts[-1]:
        texts.pop()
    lines = texts[-LINES:]
    return Tail(tuple(map(_shown, lines)), size, start > 0 or len(texts) > LINES)


def _shown(line: str) -> str:
    """What was written last where a line was written over; escapes are shown and not obeyed."""
    line = line.rstrip("\r").rpartition("\r")[2]
    cut = f"{line[:LONGEST]}… ({len(line) - LONGEST:,} more characters)" if len(line) > LONGEST else line
    return safe_text.line(cut)
