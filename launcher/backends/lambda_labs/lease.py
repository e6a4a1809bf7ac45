"""One launcher of an account launches at a time, on whatever machine it runs: a lease in the store.

A lease is a row of generations. Whoever creates generation n+1 holds it; generation n must have been released, or be
older than a lease lasts. Both records are create-only. After the create the generations are listed again: a launcher
that slept between listing and creating may have made one that was deleted since, below the newest; that one holds
nothing.

The release says how long ago the last launch was, so that all launchers together keep Lambda's spacing.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from launcher.clock import boottime
from launcher.decoding import decode_record
from launcher.errors import Unreachable
from launcher.store import layout
from launcher.store.base import Store

LASTS: Final = 240.0  # seconds; then another launcher may take over
MARGIN: Final = 60.0  # seconds before that in which no launch begins: as long as one may take, and more
WAIT: Final = 1800.0  # seconds for which a launcher waits for its turn


class LeaseHeld(msgspec.Struct, frozen=True, omit_defaults=True):
    """A generation's record. `by`: host and pid, for people."""

    nonce: str
    by: str = ""


class LeaseReleased(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of a generation. `launched`: seconds since the last launch, None if that is long ago."""

    nonce: str
    launched: float | None = None


@dataclass
class LeaseTurn:
    """The lease while it is held. `launched`: when the last launch was sent, by `boottime`."""

    lasts: float
    began: float
    launched: float | None = None

    def check(self) -> None:
        """Raises Unreachable when too little of the lease is left to begin a launch."""
        if boottime() - self.began > self.lasts * (1 - MARGIN / LASTS):
            raise Unreachable("the launch took longer than its lease: submit again, nothing is launched twice")


@contextmanager
def turn(store: Store, account: str, *, lasts: float = LASTS, poll: float = 1.0) -> Iterator[LeaseTurn]:
    """Waits for the account's lease, holds it for the block, and releases it. Raises Unreachable."""
    prefix = layout.lease(account)
    number, launched = _take(store, prefix, lasts, poll)
    held = LeaseTurn(lasts, boottime(), launched)
    try:
        yield held
    finally:
        ago = None if held.launched is None else boottime() - held.launched
        record = LeaseReleased(uuid.uuid4().hex, ago)
        store.create(layout.lease_released(account, number), msgspec.json.encode(record))
        store.delete(meta.key for meta in list(store.scan(prefix)) if _number(prefix, meta.key) < number)


def _take(store: Store, prefix: str, lasts: float, poll: float) -> tuple[int, float | None]:
    """(the generation that this launcher holds, when the last launch was sent)."""
    account = prefix.rstrip("/").rpartition("/")[2]
    end = time.monotonic() + WAIT
    while True:
        number, free, launched = _newest(store, prefix, account, lasts)
        if free:
            body = msgspec.json.encode(LeaseHeld(uuid.uuid4().hex, f"{socket.gethostname()}:{os.getpid()}"))
            mine = store.create(layout.lease_held(account, number + 1), body)
            if mine and _newest(store, prefix, account, lasts)[0] == number + 1:
                return number + 1, launched
        elif time.monotonic() > end:
            raise Unreachable(f"another launcher launches machines of account `{account}` since {WAIT / 60:.0f} min")
        time.sleep(poll)


def _newest(store: Store, prefix: str, account: str, lasts: float) -> tuple[int, bool, float | None]:
    """(the newest generation, whether it has ended, when the last launch was sent by `boottime`)."""
    metas = {meta.key: meta for meta in store.scan(prefix)}
    number = max((_number(prefix, key) for key in metas), default=0)
    if number == 0:
        return 0, True, None
    now = store.now()
    released = store.read(layout.lease_released(account, number))
    if released is None:
        held = metas.get(layout.lease_held(account, number))
        return number, held is not None and now - held.modified > lasts, None
    record = decode_record(released[1].key, released[0], LeaseReleased)
    if record.launched is None:
        return number, True, None
    return number, True, boottime() - (now - released[1].modified) - record.launched


def _number(prefix: str, key: str) -> int:
    return int(key.removeprefix(prefix).partition("/")[0])
