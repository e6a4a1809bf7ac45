"""Runs whose outputs were deleted by `launcher rm` or `launcher gc`; their deleted.json says so."""

from __future__ import annotations

import time
from typing import Final

from launcher.decoding import decode_record
from launcher.protocol.records import Deleted, Deleting
from launcher.store.base import Store
from launcher.store.layout import DELETING, RunKeys

EXPIRED: Final = 3600.0  # seconds after which an intent no longer counts; its owner stops acting on it long before


def read_deleted(store: Store, run: str) -> Deleted | None:
    """deleted.json of a run; None if nobody has deleted its outputs."""
    record = store.read(RunKeys(run).deleted)
    if record is None:
        return None
    return decode_record(record[1].key, record[0], Deleted)


def going(store: Store, run: str) -> bool:
    """Whether the outputs of a run were deleted or are about to be: then nobody may start to use them. The intents are
    read first: an intent is withdrawn only after deleted.json was written, or if nothing will be deleted."""
    now = store.now()
    for meta in store.scan(DELETING):
        intent = store.read(meta.key) if now - meta.modified < EXPIRED else None
        if intent is not None and run in decode_record(meta.key, intent[0], Deleting).runs:
            return True
    return store.head(RunKeys(run).deleted) is not None


def describe_deletion(record: Deleted) -> str:
    """`its outputs were deleted by launcher gc on 2026-11-22 (ann)`"""
    day = time.strftime("%Y-%m-%d", time.gmtime(record.time))
    return f"its outputs were deleted by launcher {record.verb} on {day} ({record.by})"


def why_missing(store: Store, run: str) -> str:
    """The same sentence about a run of which something is missing; empty if nobody deleted its outputs."""
    record = read_deleted(store, run)
    return describe_deletion(record) if record is not None else ""
