"""What is known of finished runs, in SQLite in the user's cache folder. A convenience: delete it and nothing is lost.

A result never changes, so a row never needs to be read again as long as its store is the same one. A store that was
wiped and filled anew has other results under the same run ids: each reading compares a sample of rows with the store's
result.json (all of them when there are few), and a row that differs throws away everything known of that store.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

VERSION = 1  # of the rows; another version is thrown away
BUSY = 2.0  # seconds to wait for another process's write


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CACHE_HOME") or home / ".cache") / "slipway"


class Cache:
    """Rows by (store, run). A cache that can not be opened or read behaves as an empty one; it never raises."""

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
        """Every row of a store."""
        if self._db is None:
            return {}
        try:
            return dict(self._db.execute("SELECT run, row FROM finished WHERE store = ?", (store,)))
        except sqlite3.DatabaseError:
            self._rebuild()
            return {}

    def put(self, store: str, rows: Iterable[tuple[str, bytes]]) -> None:
        if self._db is None:
            return
        try:
            with self._db:
                self._db.executemany(
                    "INSERT OR REPLACE INTO finished VALUES (?, ?, ?)", [(store, run, row) for run, row in rows]
                )
        except sqlite3.OperationalError:  # another process writes, the disk is full: what is missing is read again
            return
        except sqlite3.DatabaseError:
            self._rebuild()

    def forget(self, store: str) -> None:
        if self._db is None:
            return
        try:
            with self._db:
                self._db.execute("DELETE FROM finished WHERE store = ?", (store,))
        except sqlite3.DatabaseError:
            self._rebuild()

    def _open(self, again: bool = True) -> sqlite3.Connection | None:
        db = None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=BUSY)
            db.execute("PRAGMA synchronous = OFF")
            if db.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                with db:
                    db.execute("DROP TABLE IF EXISTS finished")
                    db.execute(
                        "CREATE TABLE finished (store TEXT, run TEXT, row BLOB, PRIMARY KEY (store, run)) WITHOUT ROWID"
                    )
                    db.execute(f"PRAGMA user_version = {VERSION}")
            return db
        except (sqlite3.OperationalError, OSError):  # read-only, locked, no space: live without it
            if db is not None:
                db.close()
            return None
        except sqlite3.DatabaseError:  # not a database
            if db is not None:
                db.close()
            return self._remove() if again else None

    def _remove(self) -> sqlite3.Connection | None:
        with suppress(OSError):
            self.path.unlink()
        return self._open(again=False)

    def _rebuild(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = self._remove()
