"""A rank's log as one stream of bytes, joined from the pieces in the store
(docs/explanation/architecture.md, The store).

A piece's name holds its first byte and its end (older runtimes: only the first byte). When the log ends, one object
with the whole log replaces the pieces. For a while, or after a late put, both may exist. So every byte is read by its
offset: a byte in two objects is read once, and missing bytes are reported.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from launcher.errors import NotFound
from launcher.store.base import Store
from launcher.store.layout import LOG, AttemptKeys, span, span_name

CHUNK = 4 * 1024 * 1024  # bytes of one request, which bounds the memory for a log of any length
WINDOW = 256 * 1024  # bytes read at once in the search for the last lines
AGAIN = (0.0, 0.2, 1.0, 2.0)  # seconds before another listing, after one with deleted pieces


class Piece(NamedTuple):
    """Bytes [offset, offset + len(body)) of a rank's log. A gap has no body; `missing` is its length in bytes."""

    offset: int
    body: bytes
    missing: int = 0


def list_pieces(store: Store, prefix: str, suffix: str, told: int = 0) -> list[tuple[int, int, str]]:
    """(first byte, size, key) of the pieces under a prefix that together hold all bytes, in order. `told`: the size in
    bytes that an exit records; if the listing shows fewer, the object of the whole log is requested by name."""
    pieces = []
    for meta in store.scan(prefix):
        byte_range = span(meta.key.removeprefix(prefix), suffix)
        if byte_range is not None:
            first, end = byte_range
            pieces.append((first, meta.size if end is None else min(meta.size, end - first), meta.key))
    chosen = cover(pieces)
    reach = 0
    for first, size, _ in chosen:
        reach = first + size if first <= reach else reach
    if reach < told:  # a listing may lag: it then shows neither the whole object nor all pieces
        key = f"{prefix}{span_name(0, told)}{suffix}"
        whole = store.head(key)
        if whole is not None and whole.size == told:
            return cover([*pieces, (0, told, key)])
    return chosen


def cover(pieces: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The pieces (first byte, size, key) needed to cover all bytes: at each byte the piece that ends last."""
    chosen: list[tuple[int, int, str]] = []
    position = 0
    best: tuple[int, int, str] | None = None
    for piece in sorted(pieces, key=lambda piece: (piece[0], -piece[1])):
        if best is not None and piece[0] > position:
            chosen.append(best)
            position, best = best[0] + best[1], None
        if piece[0] + piece[1] > max(position, best[0] + best[1] if best else 0):
            best = piece
            position = max(position, piece[0])
    return [*chosen, best] if best is not None else chosen


def read_pieces(
    store: Store, prefix: str, suffix: str, start: int = 0, end: int | None = None, *, told: int = 0
) -> Iterator[Piece]:
    """Every existing byte of [start, end), in order, each once. A gap before an existing byte is a Piece without a
    body. `told` as in `list_pieces`."""
    position = start
    for pause in (*AGAIN, None):
        try:
            for piece in _read_listed(store, list_pieces(store, prefix, suffix, told), position, end):
                position = piece.offset + len(piece.body) + piece.missing
                yield piece
            return
        except NotFound:  # the whole object has replaced this piece since the listing: list again
            if pause is None:
                raise
            time.sleep(pause)


def _read_listed(store: Store, pieces: list[tuple[int, int, str]], position: int, end: int | None) -> Iterator[Piece]:
    for first, size, key in pieces:
        if end is not None and first >= end:
            return
        stop = first + size if end is None else min(first + size, end)
        if stop <= position:
            continue
        if first > position:
            yield Piece(position, b"", missing=first - position)
            position = first
        while position < stop:
            body = store.get_range(key, position - first, min(position + CHUNK, stop) - first)
            if not body:
                break
            yield Piece(position, body)
            position += len(body)


class Log:
    """One rank's log in one attempt, read forward; `more` returns the bytes added since the last call. `told` as in
    `list_pieces`."""

    def __init__(self, store: Store, attempt: AttemptKeys, member: str, told: int = 0) -> None:
        self.store, self.told = store, told
        self.prefix = attempt.logs(member)
        self.member = member
        self.position = 0

    def size(self) -> int:
        """The offset after the last existing byte."""
        pieces = list_pieces(self.store, self.prefix, LOG, self.told)
        return max((first + size for first, size, _ in pieces), default=0)

    def more(self) -> Iterator[Piece]:
        for piece in read_pieces(self.store, self.prefix, LOG, self.position, told=self.told):
            self.position = piece.offset + len(piece.body) + piece.missing
            yield piece

    def skip_to_tail(self, lines: int) -> None:
        """Moves to the start of the last `lines` lines. Reads backwards, with one window in memory at a time."""
        end = stop = self.size()
        wanted = lines
        while wanted > 0 and stop > 0:
            start = max(0, stop - WINDOW)
            window = bytearray(stop - start)
            for piece in read_pieces(self.store, self.prefix, LOG, start, stop, told=self.told):
                if piece.body:
                    window[piece.offset - start : piece.offset - start + len(piece.body)] = piece.body
            at = len(window)
            if stop == end and window.endswith(b"\n"):
                at -= 1  # no line begins after the newline of the last line
            while wanted > 0 and (at := window.rfind(b"\n", 0, at)) >= 0:
                wanted -= 1
            if wanted == 0:
                self.position = start + at + 1
                return
            stop = start
        self.position = end if lines == 0 else 0
