"""A checkpoint that is deleted is never taken for a whole one, wherever the deleting stops."""

from __future__ import annotations

import contextlib
from itertools import count
from typing import Literal

import msgspec
import pytest

from launcher.protocol.records import Complete
from launcher.runtime.uploads import stored_checkpoints
from launcher.store.layout import RunKeys
from tests.support.crashing import Crashed, CrashingStore
from tests.support.memory_store import MemoryStore

RUN = "train-0123456789"
MEMBERS = ("main-0", "main-1")


def written() -> MemoryStore:
    """A store with a checkpoint of two ranks."""
    store = MemoryStore("memory:", lambda: 1000.0)
    keys = RunKeys(RUN).attempt(1)
    for member in MEMBERS:
        store.put(keys.checkpoint_files(10, member) + "weights", b"w")
        store.put(keys.checkpoint_manifest(10, member), b'{"files": {}, "time": 1.0, "nonce": "n"}')
    record = Complete(step=10, name="checkpoint-10", members=MEMBERS, nonce="c")
    store.put(keys.checkpoint_complete(10), msgspec.json.encode(record))
    return store


@pytest.mark.parametrize("when", ["before", "after"])
def test_wherever_it_stops_nothing_looks_whole_that_lacks_an_object(when: Literal["before", "after"]) -> None:
    whole = len(written().objects)
    for at in count():
        store = written()
        dying = CrashingStore(store, at, when)
        with contextlib.suppress(Crashed):
            stored_checkpoints.delete(dying, stored_checkpoints.Stored(10, 1, RUN))
        looks_whole = list(stored_checkpoints.complete(store, RUN)) != []
        assert looks_whole == (len(store.objects) == whole), f"operation {at}: {sorted(store.objects)}"
        if not dying.dead:
            break
    assert at > whole
    assert store.objects == {}
