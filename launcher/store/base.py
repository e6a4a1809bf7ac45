"""The interface of a store. Decisions rely only on create-only puts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from launcher.errors import BadInput

DEADLINE: Final = 30.0
TEMPORARY: Final = ".tmp"  # where a file store prepares objects; no key may start with it


class Meta(NamedTuple):
    """An object as a listing shows it. `modified` is the store's own time, seconds since the epoch."""

    key: str
    size: int
    modified: float
    etag: str = ""


class Store(Protocol):
    """Blocking and thread-safe. Raises NotFound for a missing key, Unreachable for an error that may pass (after the
    store's own bounded retries), OSError for a local file that cannot be read or written, SlipwayError otherwise. Keys
    never start with `/`; no key is the folder of another."""

    @property
    def url(self) -> str: ...

    def get(self, key: str) -> bytes:
        """The whole object; raises NotFound."""
        ...

    def get_range(self, key: str, start: int, end: int | None = None) -> bytes:
        """Bytes [start, end) of an object, fewer if it ends earlier; raises NotFound."""
        ...

    def read(self, key: str) -> tuple[bytes, Meta] | None:
        """The whole object and its metadata in one request; None if it does not exist."""
        ...

    def head(self, key: str) -> Meta | None: ...

    def create(self, key: str, body: bytes) -> bool:
        """Create-only put: True if the object now holds our body, False if another writer was first. After a refusal
        the object is read and compared, because the response to an earlier try may be lost; so bodies that decide
        something hold a nonce. Durable on return."""
        ...

    def put(self, key: str, body: bytes) -> None:
        """Overwriting put; durable on return. The store may execute a failed put at any later time. So no key except a
        heartbeat's is ever put with two different bodies."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects; a missing key is no error."""
        ...

    def scan(self, prefix: str, after: str = "") -> Iterator[Meta]:
        """Every object under a prefix, in key order, streamed page by page."""
        ...

    def folders(self, prefix: str) -> list[str]:
        """The names directly below a prefix that have objects below them (no slashes, sorted)."""
        ...

    def level(self, prefix: str) -> tuple[list[Meta], list[str]]:
        """(the objects directly below a prefix, in key order; the names of its folders, as `folders` returns them). The
        prefix ends with a slash. One request per page."""
        ...

    def stream(self, key: str) -> Iterator[bytes | memoryview]:
        """The object's bytes in order, in pieces of some MiB, fetched ahead of the reader; raises NotFound."""
        ...

    def send(
        self,
        key: str,
        source: Callable[[], Iterable[bytes | memoryview]],
        size: int,
        sha256: str | None = None,
        known: Callable[[int, str], None] | None = None,
    ) -> str:
        """Puts the pieces of `source()`, about `size` bytes, in parallel parts if large. `source` is called again for
        each retry. With `sha256` (hex), raises Damaged if the hash or the size differs. `known` is called with size and
        sha256 before the store has the last piece. If it or the source raises, no object is written. Returns the sha256
        (hex). Overwrites; durable on return."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copies an object to another key within the store. Overwrites; durable on return. Raises NotFound, and
        Unreachable also if the store cannot copy an object of that size."""
        ...

    def upload(self, key: str, path: Path) -> str:
        """Uploads a file, in parallel parts if large; returns the sha256 (hex) of the bytes sent. Overwrites."""
        ...

    def download(self, key: str, path: Path) -> str:
        """Downloads an object into a temporary file beside `path`, fsyncs and renames it; returns the sha256 (hex)."""
        ...

    def now(self) -> float:
        """The store's own clock, seconds since the epoch, to compare with Meta.modified."""
        ...


def settable(store: Store) -> bool:
    """Whether the store's times come from a machine's wall clock, which anybody may set. Such times prove nothing; only
    two readings without a change prove that a writer is silent."""
    return store.url.startswith("file:")


def check_key(key: str) -> str:
    """The key itself; raises BadInput for a key that could leave the store or that some store cannot hold."""
    check_path(key)
    if not key.isprintable() and any(ord(char) < 32 or ord(char) == 127 for char in key):
        raise BadInput(f"store key {key!r}: a name must not have control characters")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise BadInput(f"store key {key!r}: a name must be valid UTF-8") from None
    if size > 1024:
        raise BadInput(f"store key {key[:60]!r}...: longer than 1024 bytes")
    return key


def check_path(key: str) -> str:
    """The key itself; raises BadInput for a key that could leave the store."""
    parts = key.split("/")
    if not all(parts) or "." in parts or ".." in parts or parts[0] == TEMPORARY:
        raise BadInput(f"store key {key!r}: its parts must not be empty, `.` or `..`, nor its first `{TEMPORARY}`")
    return key
