"""A cache of finished runs: SQLite in the user's cache folder. It can be deleted at any time.

A result never changes, so a cached row stays valid as long as the store is the same. A store that was wiped and filled
again has other results under the same run ids. Each reading therefore compares a sample of rows (all of them when there
are few) with result.json in the store; if a row differs, all rows of that store are deleted. The table `records` holds
objects that never change (`launcher.userdata.record_cache`); `names` holds the names for shell completion.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from zlib import crc32

VERSION = 4  # version of the tables; a cache of another version is deleted
TABLES = (
    ("finished", "store TEXT, run TEXT, sum INTEGER, row BLOB", "store, run"),
    ("records", "store TEXT, key TEXT, sum INTEGER, row BLOB", "store, key"),
    ("names", "store TEXT, kind TEXT, name TEXT", "store, kind, name"),
)
BUSY = 2.0  # seconds to wait for another process's write

# errors other than its own that sqlite3 raises for damaged files
DAMAGE = (sqlite3.DatabaseError, UnicodeDecodeError, SystemError, OverflowError, MemoryError, TypeError)


class _Damaged(sqlite3.DatabaseError):
    """A row with a wrong checksum. SQLite has no checksums of its own."""


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "slipway"


class Cache:
    """Rows by (store, run). A cache that cannot be opened or read behaves like an empty one; no method raises."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or cache_folder() / "status.sqlite"
        self._db = self._open()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._db is not None:
            self._db.close()

    def get(self, store: str) -> dict[str, bytes]:
        """All rows of a store."""
        return self._rows("SELECT run, sum, row FROM finished WHERE store = ?", (store,))

    def _rows(self, query: str, values: Sequence[object]) -> dict[str, bytes]:
        if self._db is None:
            return {}
        try:
            return {name: _checked(name, checksum, row) for name, checksum, row in self._db.execute(query, values)}
        except sqlite3.OperationalError as error:
            if not _damage(error):
                return {}
        except DAMAGE:
            pass
        self._rebuild()
        return {}

    def put(self, store: str, rows: Iterable[tuple[str, bytes]]) -> None:
        values = [(store, run, _sum(run, row), row) for run, row in rows]
        if values:
            self._write("INSERT OR REPLACE INTO finished VALUES (?, ?, ?, ?)", values)

    def forget(self, store: str) -> None:
        self._write("DELETE FROM finished WHERE store = ?", [(store,)])

    def records(self, store: str, prefix: str) -> dict[str, bytes]:
        """The cached objects of a store whose keys start with `prefix`."""
        return self._rows(
            "SELECT key, sum, row FROM records WHERE store = ? AND key >= ? AND key < ?",
            (store, prefix, prefix + chr(0x10FFFF)),
        )

    def put_records(self, store: str, rows: Iterable[tuple[str, bytes]]) -> None:
        values = [(store, key, _sum(key, row), row) for key, row in rows]
        if values:
            self._write("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", values)

    def drop_records(self, store: str, keys: Iterable[str]) -> None:
        values = [(store, key) for key in keys]
        if values:
            self._write("DELETE FROM records WHERE store = ? AND key = ?", values)

    def names(self, store: str, kind: str) -> list[str]:
        """The names of one kind (`run`, `group`) last seen in a store, for shell completion; possibly out of date."""
        if self._db is None:
            return []
        try:
            rows = self._db.execute("SELECT name FROM names WHERE store = ? AND kind = ?", (store, kind))
            return [name for (name,) in rows if isinstance(name, str)]
        except DAMAGE:
            return []

    def see(self, store: str, kind: str, names: Iterable[str], *, all_of_them: bool = False) -> None:
        """Stores names for shell completion; `all_of_them`: other names of that kind are deleted."""
        values = [(store, kind, name) for name in names]
        if all_of_them:
            known = set(self.names(store, kind))
            gone = known - {name for _, _, name in values}
            values = [value for value in values if value[2] not in known]
            if gone:
                self._write(
                    "DELETE FROM names WHERE store = ? AND kind = ? AND name = ?",
                    [(store, kind, name) for name in gone],
                )
        if values:
            self._write("INSERT OR IGNORE INTO names VALUES (?, ?, ?)", values)

    def _write(self, statement: str, values: Sequence[tuple[object, ...]]) -> None:
        if self._db is None:
            return
        try:
            with self._db:
                self._db.executemany(statement, values)
        except sqlite3.OperationalError as error:
            if _damage(error):  # ignored (another process writes, or the disk is full): what is missing is read again
                self._rebuild()
        except DAMAGE:
            self._rebuild()

    def _open(self, again: bool = True) -> sqlite3.Connection | None:
        db = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):  # other users must not read the jobs
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            db = sqlite3.connect(self.path, timeout=BUSY)
            db.execute("PRAGMA synchronous = OFF")
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                with db:
                    for table, columns, key in TABLES:
                        db.execute(f"DROP TABLE IF EXISTS {table}")
                        db.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({key})) WITHOUT ROWID")
                    db.execute(f"PRAGMA user_version = {VERSION}")
            return db
        except OSError:  # the folder cannot be created: work without a cache
            return None
        except DAMAGE as error:
            if db is not None:
                db.close()
            # read-only, locked, no space: work without a cache; any other error means that the file is damaged
            if isinstance(error, sqlite3.OperationalError) and not _damage(error):
                return None
            return self._remove() if again else None

    def _remove(self) -> sqlite3.Connection | None:
        with suppress(OSError):
            self.path.unlink()
        with suppress(OSError):
            self.path.with_name(self.path.name + "-journal").unlink()
        return self._open(again=False)

    def _rebuild(self) -> None:
        if self._db is not None:
            with suppress(*DAMAGE):
                self._db.close()
        self._db = self._remove()


def _damage(error: sqlite3.OperationalError) -> bool:
    """Whether an operational error is about the file's content: a table is missing or has other columns."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) == sqlite3.SQLITE_ERROR


def _sum(run: str, row: bytes) -> int:
    return crc32(row, crc32(run.encode()))


def _checked(run: object, checksum: object, row: object) -> bytes:
    if not isinstance(run, str) or not isinstance(row, bytes) or _sum(run, row) != checksum:
        raise _Damaged("checksum")
    return row
