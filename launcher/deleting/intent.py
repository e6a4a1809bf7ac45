"""deleting/<nonce>.json announces a deletion. It is written before anything is deleted and removed afterwards; a submit
looks for it."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Collection
from typing import Final
from uuid import uuid4

import msgspec

from launcher.decoding import decode
from launcher.protocol.deleted import EXPIRED
from launcher.protocol.records import Deleting
from launcher.runtime.process import procs
from launcher.store.base import Store
from launcher.store.layout import DELETING, deleting

LEASE: Final = 300.0  # seconds for which a check of the store is valid; then it is made again


class Intent:
    """An intent of this process. `fresh`: whether the check made under it is still valid, by a clock that counts
    suspend."""

    def __init__(self, store: Store, runs: Collection[str], blobs: Collection[str]) -> None:
        self._store = store
        self._began = _now()
        self.record = Deleting(
            by=user(),
            time=time.time(),
            nonce=uuid4().hex,
            runs=tuple(runs),
            blobs=tuple(blobs),
            host=os.uname().nodename,
            boot=procs.boot_id(),
            pid=os.getpid(),
            start=procs.start_time(os.getpid()) or 0,
        )
        store.create(deleting(self.record.nonce), msgspec.json.encode(self.record))

    @property
    def fresh(self) -> bool:
        return _now() - self._began < LEASE

    def withdraw(self, more: Collection[str] = ()) -> None:
        """Removes the intent; deletes the keys `more` with it."""
        self._store.delete([deleting(self.record.nonce), *more])


def intents(store: Store) -> list[Deleting]:
    """The intents in the store that are still valid."""
    records = []
    for meta in store.scan(DELETING):
        body = store.read(meta.key)
        if body is not None and (record := _decoded(body[0])) is not None and not void(store, record, meta.modified):
            records.append(record)
    return records


def void(store: Store, record: Deleting, written: float) -> bool:
    """Whether an intent is no longer valid: it is too old, or its process died on this machine."""
    if store.now() - written > EXPIRED:
        return True
    here = record.host == os.uname().nodename and record.boot == procs.boot_id()
    return here and not procs.alive(record.pid, record.start, record.boot)


def sweep(store: Store) -> None:
    """Deletes the intents that are no longer valid."""
    for meta in list(store.scan(DELETING)):
        body = store.read(meta.key)
        record = _decoded(body[0]) if body is not None else None
        if record is not None and void(store, record, meta.modified):
            store.delete([meta.key])


def _decoded(body: bytes) -> Deleting | None:
    try:
        return decode(body, Deleting)
    except msgspec.MsgspecError:
        return None


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
