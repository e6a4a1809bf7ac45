"""Which account of Lambda a launch was sent to, and whose turn it is there to launch. That there is no machine of an id
is true for the account of the key that asks; to the key of another account Lambda says it of every machine that lives.

Lambda has no name for an account. So each record of a launch holds a digest of the API key, and the id of the SSH key
that the machine got: an SSH key is its account's, whoever of it asks.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec

from launcher.backends.lambda_labs.api import LambdaApi
from launcher.backends.lambda_labs.names import NAME
from launcher.clock import boottime
from launcher.decoding import decode_record
from launcher.errors import Unreachable
from launcher.protocol.records import Event
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.layout import RunKeys

KEY, SSH_KEY = "key", "ssh_key"  # fields of the records of a launch
STATES: Final = ("asked", "launched")


def marks(api: LambdaApi, run: str, ssh_key: str) -> dict[str, str]:
    """What the records of a launch say of its account. Raises Unreachable."""
    found = api.ssh_keys.get(ssh_key, "")
    return {KEY: _digest(api, run), **({SSH_KEY: found} if found else {})}


def refuse_others(api: LambdaApi, store: Store, run: str) -> None:
    """Raises Unreachable where the machines of a run are another account's than this API key's, or nobody can tell.
    Asked where Lambda shows none of them."""
    records = list(_launches(store, run))
    if not any(KEY in fields for fields in records):  # none, or of a launcher that did not record it
        return
    own = _digest(api, run)
    if any(fields.get(KEY) == own for fields in records):
        return
    if {fields[SSH_KEY] for fields in records if SSH_KEY in fields}.intersection(api.ssh_keys.values()):
        return
    if any(api.instance(fields["instance"]) is not None for fields in records if "instance" in fields):
        return
    raise Unreachable(
        f"{run}: its machines were launched in another account of Lambda than the one of this LAMBDA_API_KEY (or with "
        "an API key and an SSH key that are both gone): use a key of that account"
    )


def _digest(api: LambdaApi, run: str) -> str:
    return hashlib.sha256(f"{run} {api.key}".encode()).hexdigest()[:16]


def _launches(store: Store, run: str) -> Iterator[Mapping[str, str]]:
    for meta in list(store.scan(f"{RunKeys(run).events}0-{NAME}-")):
        answer = store.read(meta.key)
        if answer is not None:
            fields = decode_record(meta.key, answer[0], Event).fields
            if fields.get("state") in STATES:
                yield fields


# One launcher of an account launches at a time, on whatever machine it runs: a lease in the store.
#
# A lease is a row of generations. Whoever creates generation n+1 holds it; generation n must have been released, or be
# older than a lease lasts. Both records are create-only. After the create the generations are listed again: a launcher
# that slept between listing and creating may have made one that was deleted since, below the newest; that one holds
# nothing.
#
# The release says how long ago the last launch was, so that all launchers together keep Lambda's spacing.

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
