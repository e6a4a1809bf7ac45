"""Replaces the values of secrets by `***` in a stream of bytes, however the stream is cut into chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

MASK: Final = b"***"
_LINE: Final = 8  # characters; single lines of a multi-line secret are masked too, if they are at least this long


class Masker:
    """Masks every occurrence of the secrets, overlapping ones included.

    `feed` holds back only bytes that may be the beginning of a secret; `flush` returns them at the end of the stream. A
    secret of several lines (a key file) is also masked line by line, because programs indent or quote such values.
    """

    def __init__(self, secrets: Collection[str] = ()) -> None:
        values = {secret.strip() for secret in secrets} | {
            line.strip() for secret in secrets for line in secret.splitlines() if len(line.strip()) >= _LINE
        }
        self._secrets: Final = sorted((value.encode() for value in values if value), key=len, reverse=True)
        self._kept = b""
        self._covered = 0  # bytes at the start of `_kept` for which a mask was returned already

    def again(self) -> Masker:
        """A new masker of the same secrets, for another stream."""
        other = Masker()
        other._secrets.extend(self._secrets)
        return other

    def text(self, text: str) -> str:
        """A whole text, masked."""
        if not self._secrets or not text:
            return text
        masker = self.again()
        body = text.encode(errors="surrogateescape")
        return (masker.feed(body) + masker.flush()).decode(errors="surrogateescape")

    def feed(self, chunk: bytes) -> bytes:
        """Takes a chunk. Returns the masked bytes that may be shown now."""
        if not self._secrets:
            return chunk
        data = self._kept + chunk
        return self._emit(data, self._safe(data))

    def flush(self) -> bytes:
        """Ends the stream. Returns the bytes that were held back, masked."""
        return self._emit(self._kept, len(self._kept))

    def _emit(self, data: bytes, cut: int) -> bytes:
        """The masked form of data[:cut]; keeps the rest. No incomplete occurrence begins before `cut`."""
        out: list[bytes] = []
        at = covered = self._covered
        for start, end in self._occurrences(data):
            if start >= cut and start >= covered:
                break
            if start >= covered:  # otherwise it overlaps an occurrence that has its mask already
                out += [data[at:start], MASK]
            covered = at = max(covered, end)
        if at < cut:
            out.append(data[at:cut])
        self._kept = data[cut:]
        self._covered = max(0, covered - cut)
        return b"".join(out)

    def _occurrences(self, data: bytes) -> Iterator[tuple[int, int]]:
        occurrences = []
        for secret in self._secrets:
            at = data.find(secret)
            while at >= 0:
                occurrences.append((at, at + len(secret)))
                at = data.find(secret, at + 1)
        yield from sorted(occurrences)

    def _safe(self, data: bytes) -> int:
        """The index in `data` from which on its rest may be the beginning of a secret that is not complete yet."""
        safe = len(data)
        for secret in self._secrets:
            at = data.find(secret[:1], max(0, len(data) - len(secret) + 1), safe)
            while at >= 0:
                if secret.startswith(data[at:]):
                    safe = at
                    break
                at = data.find(secret[:1], at + 1, safe)
        return safe
