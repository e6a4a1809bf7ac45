"""Runs whose objects somebody else than `launcher submit` gave to the backend: Argo CD, Flux, kubectl.

`launcher submit` writes job.json before it gives a run to its backend. So whoever finds the object of a run without
job.json knows that the run was applied, and notes it in an event before it writes job.json: once the object is gone,
only the event tells that it may come back. A run that was submitted may be applied later, when its file is committed:
who sees that its object is applied now notes it, too.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from launcher.protocol.records import Event
from launcher.protocol.view import RunView
from launcher.spec.hashing import encode_job
from launcher.spec.model import ResolvedJob, as_written
from launcher.store.base import Store
from launcher.store.layout import RunKeys

KIND: Final = "applied"
TEXT: Final = "applied without `launcher submit`"


def note_applied(store: Store, run: str, namespace: str = "") -> None:
    """Notes that a run was applied. The first note counts. `namespace`: of its object, where the writer knows it."""
    fields = {"namespace": namespace} if namespace else {}
    event = Event(0, KIND, 0, KIND, TEXT, fields, time.time())
    store.create(RunKeys(run).event(0, KIND, 0), msgspec.json.encode(event))


def write_applied(store: Store, run: str, job: ResolvedJob, namespace: str = "") -> None:
    """Writes job.json of a run that was applied, and before it the note that says so."""
    note_applied(store, run, namespace)
    store.create(RunKeys(run).job, encode_job(as_written(job)))


def was_applied(view: RunView) -> bool:
    """Whether the run was applied; `view` was read in full."""
    return any(event.kind == KIND for event in view.events)
