"""Checks that of several create-only puts to a key exactly one succeeds. Every decision depends on this."""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from uuid import uuid4

from launcher.errors import SlipwayError, Unreachable
from launcher.store.base import Store
from launcher.store.layout import CHECKS

RACERS: Final = 16
ROUNDS: Final = 5


class Unfit(SlipwayError):
    """The store's create-only puts do not hold: two runtimes could both claim the same attempt."""

    exit_code = 4


def conditional_puts_hold(store: Store, *, rounds: int = ROUNDS) -> None:
    """Races create-only puts below `checks/` and deletes them again. Raises Unfit if two puts to one key succeed.

    Only a race detects a server that checks first and writes afterwards; two puts in sequence do not.
    """
    from concurrent.futures import ThreadPoolExecutor  # a store is checked once

    prefix = f"{CHECKS}{uuid4().hex}"
    keys = [f"{prefix}/{number}" for number in range(rounds)]
    try:
        if not store.create(f"{prefix}/one", b"first") or store.create(f"{prefix}/one", b"second"):
            raise _unfit(store, "a second put replaced the first")
        with ThreadPoolExecutor(RACERS) as pool:
            for key in keys:
                bodies = [f"{racer} {uuid4().hex}".encode() for racer in range(RACERS)]
                wins = list(pool.map(lambda body, key=key: store.create(key, body), bodies))
                if wins.count(True) != 1:
                    raise _unfit(store, f"of {RACERS} at once {wins.count(True)} were told that they won")
                if store.get(key) != bodies[wins.index(True)]:
                    raise _unfit(store, "the object is not the winner's")
    finally:
        with suppress(Unreachable):  # a user without the right to delete leaves a few bytes
            store.delete([f"{prefix}/one", *keys])


def _unfit(store: Store, reason: str) -> Unfit:
    return Unfit(
        f"store {store.url}: its create-only puts (If-None-Match: *) do not work: {reason}. Slipway decides with them "
        "who runs, so it cannot use this store; AWS, Google, Azure, MinIO, Ceph and versitygw work"
    )
