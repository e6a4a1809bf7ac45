"""What people say of rollouts: create-only records beside the runs, from which a database can be made again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final
from uuid import uuid4

import msgspec

from launcher.decoding import decode_record
from launcher.errors import BadInput
from launcher.protocol.records import PersonVerdict
from launcher.store.base import Store
from launcher.store.layout import VERDICTS, verdict, verdict_of

LONGEST: Final = 2000  # characters of a reason


def give_verdict(
    store: Store,
    run: str,
    place: str,
    success: bool | None,
    reason: str,
    by: str,
    *,
    blind: bool = False,
    checker: bool | None = None,
) -> tuple[str, PersonVerdict]:
    """Writes a verdict; returns its name and itself. Raises BadInput without a reason, and for one that is too long."""
    reason = reason.strip()
    if not reason:
        raise BadInput("reason: missing; a verdict needs one")
    if len(reason) > LONGEST:
        raise BadInput(f"reason: {len(reason):,} characters; at most {LONGEST:,} are kept")
    made = PersonVerdict(place, success, reason, by, time.time(), uuid4().hex, blind, checker)
    name = f"{int(made.time * 1e6):017d}-{made.nonce}"  # in the order in which they were given
    store.create(verdict(run, name), msgspec.json.encode(made))
    return name, made


def list_verdicts(store: Store) -> Iterator[tuple[str, str]]:
    """(run, name) of all verdicts."""
    for meta in store.scan(VERDICTS):
        found = verdict_of(meta.key)
        if found is not None:
            yield found


def read_verdict(store: Store, run: str, name: str) -> PersonVerdict | None:
    """None if it is not there any more. Raises SlipwayError for an object that is none."""
    record = store.read(verdict(run, name))
    return decode_record(record[1].key, record[0], PersonVerdict) if record is not None else None
