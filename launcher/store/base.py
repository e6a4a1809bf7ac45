"""What the rest of the launcher may ask of a store. Only create-only puts are relied on for decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Meta:
    """An object as a listing shows it. `modified` is the store's own time, seconds since the epoch."""

    key: str
    size: int
    modified: float
    etag: str = ""


class Store(Protocol):
    """Blocking, thread-safe. Errors: NotFound for a missing key, Unreachable for everything that a retry may mend
    (after the store's own bounded retries), SlipwayError otherwise. Keys never start with `/`."""

    @property
    def url(self) -> str: ...

    def get(self, key: str) -> bytes:
        """The whole object; raises NotFound."""
        ...

    def get_range(self, key: str, start: int, end: int | None = None) -> bytes:
        """Bytes [start, end) of an object."""
        ...

    def read(self, key: str) -> tuple[bytes, Meta] | None:
        """The whole object and its metadata in one request; None when it is not there."""
        ...

    def head(self, key: str) -> Meta | None: ...

    def create(self, key: str, body: bytes) -> bool:
        """Create-only put. True when the object now there is ours (a refusal after a lost response is read back and
        compared: bodies that matter carry a nonce), False when another's was there first. Durable on return."""
        ...

    def put(self, key: str, body: bytes) -> None:
        """Overwriting put; only for objects with one writer (beats, pieces, output files)."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes; a missing key is no error."""
        ...

    def scan(self, prefix: str, after: str = "") -> Iterator[Meta]:
        """Every object under a prefix, in key order, streamed page by page."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """The names directly below a prefix that have objects below them (no slashes, sorted)."""
        ...

    def upload(self, key: str, path: Path) -> str:
        """Streams a file up, in parallel parts when large; returns the sha256 (hex) of the bytes sent."""
        ...

    def download(self, key: str, path: Path) -> str:
        """Streams an object into a temporary file beside `path`, fsyncs, renames; returns the sha256 (hex)."""
        ...

    def now(self) -> float:
        """The store's own clock, seconds since the epoch, to compare with Meta.modified."""
        ...
