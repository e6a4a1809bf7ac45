"""Reads objects that never change (job.json, claims, exits, groups) once and stores them in the user's cache.

A key always has the same body as long as the store is the same. Where the caller has the object's metadata from a
listing, a cached row that differs from it (the store was wiped and filled again) is read again.
"""

from __future__ import annotations

import threading
from typing import Any

import msgspec

from launcher.decoding import unpacker
from launcher.store.base import Meta, Store
from launcher.userdata.cache import Cache

Row = tuple[float, int, str, bytes]  # modified, size, etag, body
_ROW: Any = Row
_DECODE = unpacker(_ROW).decode


class Memory:
    """The cached objects of one store. Several threads may call `read`; `keep` writes new objects and must be called in
    the thread that opened the cache."""

    def __init__(self, store: Store, cache: Cache | None = None) -> None:
        self.store = store
        self._cache = cache
        self._lock = threading.Lock()
        self._rows: dict[str, dict[str, Row]] = {}  # grouped by the run (or group) of the key
        self._new: dict[str, Row] = {}
        self._gone: set[str] = set()

    def load(self, prefix: str) -> Memory:
        """Loads the cached objects under a prefix."""
        rows = self._cache.records(self.store.url, prefix) if self._cache is not None else {}
        try:
            for key, row in rows.items():
                self._rows.setdefault(_owner(key), {})[key] = _DECODE(row)
        except msgspec.MsgspecError:
            self._rows.clear()
            self._gone.update(rows)
        return self

    def known(self, key: str, meta: Meta | None = None) -> tuple[bytes, Meta] | None:
        """The cached object, or None. With `meta` (from a listing just made), only if the metadata are equal."""
        with self._lock:
            row = self._rows.get(_owner(key), {}).get(key)
        if row is None or (meta is not None and (meta.modified, meta.size) != row[:2]):
            return None
        return row[3], Meta(key, row[1], row[0], row[2])

    def read(self, key: str, meta: Meta | None = None) -> tuple[bytes, Meta] | None:
        """The object, from the cache or else from the store; None when the store has none."""
        stored = self.known(key, meta)
        if stored is None:
            stored = self.store.read(key)
            if stored is not None:
                self.learn(*stored)
        return stored

    def learn(self, body: bytes, meta: Meta) -> None:
        """Adds an object that the caller has read, or a row of the caller's own below a run."""
        row = (meta.modified, meta.size, meta.etag, body)
        with self._lock:
            self._rows.setdefault(_owner(meta.key), {})[meta.key] = self._new[meta.key] = row
            self._gone.discard(meta.key)

    def forget(self, run: str) -> None:
        """Drops the objects of a run that has ended or was replaced by another run of the same id."""
        with self._lock:
            for key in self._rows.pop(f"runs/{run}", {}):
                self._new.pop(key, None)
                self._gone.add(key)

    def keep(self) -> None:
        """Writes new objects to the cache and deletes forgotten ones from it."""
        with self._lock:
            new, self._new = self._new, {}
            gone, self._gone = self._gone, set()
        if self._cache is None:
            return
        self._cache.drop_records(self.store.url, gone)
        encode = msgspec.msgpack.encode
        self._cache.put_records(self.store.url, [(key, encode(row)) for key, row in new.items()])


def _owner(key: str) -> str:
    return "/".join(key.split("/", 2)[:2])
