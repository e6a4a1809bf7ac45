"""Deletes what a plan names. It first announces the deletion in an intent, and then checks again that nothing needs it.

After an interruption at any request the next `launcher gc` continues: a deletion that has begun is visible as a run
with deleted.json or a checkpoint without its marker, and everything else is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeVar
from uuid import uuid4

import msgspec

from launcher.deleting.choose import find_needed, unread_needs
from launcher.deleting.guard import Intent, sweep, user
from launcher.deleting.plan import DeletionPlan, StoredCheckpoint, UnusedOverlay
from launcher.deleting.survey import Known, glance
from launcher.deleting.unreferenced import deletion_order
from launcher.protocol.records import Deleted
from launcher.store.base import Meta, Store
from launcher.store.layout import WORKS, RunKeys, blob, blob_note, work_run
from launcher.store.proof import ListProof

PARALLEL: Final = 16
T = TypeVar("T")


@dataclass
class Done:
    """What was deleted, and what was kept in the end: run or overlay -> why."""

    runs: list[str] = field(default_factory=list)
    checkpoints: list[StoredCheckpoint] = field(default_factory=list)
    overlays: list[UnusedOverlay] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)


def carry_out(store: Store, plan: DeletionPlan, *, verb: str) -> Done:
    """Deletes what `plan` names, except what is needed meanwhile. `verb`: gc | rm. Raises Unreachable; the same call
    again continues."""
    done = Done()
    known = plan.known
    # runs that adopted results are deleted before the runs that computed them
    runs = sorted(plan.runs, key=lambda item: not item.adopted)
    checkpoints, overlays = list(plan.checkpoints), list(plan.overlays)
    damaged: list[str] = []
    while runs or checkpoints or overlays:
        with _said(store, [*runs, *checkpoints], overlays, plan.proof) as intent:
            known = glance(store, plan.proof, known)
            _drop(runs, find_needed(known, [item.run for item in runs]), done)
            _drop(checkpoints, find_needed(known, list({item.run for item in checkpoints}), whole=False), done)
            used = {blob for item in known.values() for blob in item.blobs}
            kept = {item.digest: "a new run refers to it" for item in overlays if item.digest in used}
            if unread := next((item.run for item in known.values() if item.unreadable), ""):
                kept = {item.digest: unread_needs(unread) for item in overlays}
            _drop(overlays, kept, done)
            for item in _while_fresh(intent, runs, lambda run: _bury(store, run, verb)):
                done.runs.append(item.run)
                damaged += [item.run] if item.unreadable or item.damaged else []
            for step in _while_fresh(intent, checkpoints, lambda step: _unmark(store, step)):
                done.checkpoints.append(step)
            for overlay in _while_fresh(intent, overlays, lambda overlay: _take_away(store, overlay)):
                done.overlays.append(overlay)
    places = [(run, RunKeys(run).prefix) for run in done.runs] + [(item.run, item.prefix) for item in done.checkpoints]
    leftovers = [list(some) for metas in plan.leftovers.values() for _, some in groupby(metas, _owner)]
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="delete") as threads:
        for _ in threads.map(lambda place: delete_in_order(store, place[0], store.scan(place[1])), places):
            pass
        for _ in threads.map(lambda metas: delete_in_order(store, _owner(metas[0]), metas), leftovers):
            pass
    for keys in map(RunKeys, damaged):  # nobody can read its job; until the end, deleted.json says that it is gone
        store.delete([keys.job, keys.result])
        store.delete([keys.deleted])
    sweep(store)
    plan.proof.clear()
    return done


def delete_in_order(store: Store, run: str, metas: Iterable[Meta]) -> None:
    """Deletes everything but the tombstone, in this order: markers, manifests, bytes, records."""
    stays = RunKeys(run).tombstone
    keys = sorted((deletion_order(run, meta.key), meta.key) for meta in metas if meta.key not in stays)
    for _, some in groupby(keys, lambda item: item[0]):
        store.delete(key for _, key in some)


def _owner(meta: Meta) -> str:
    """The run that a key belongs to; for a works/ record, the work."""
    return meta.key.split("/")[1]


@contextmanager
def _said(
    store: Store, runs: Sequence[Known | StoredCheckpoint], overlays: Sequence[UnusedOverlay], proof: ListProof
) -> Iterator[Intent]:
    """Holds an intent: a submit that needs one of these waits. After an error the intent stays, because requests may
    still be on their way to the store; it counts as long as this process lives."""
    intent = Intent(store, {item.run for item in runs}, [item.digest for item in overlays])
    yield intent
    intent.withdraw(proof.take())


def _drop(left: list[T], kept: Mapping[str, str], done: Done) -> None:
    """Removes from `left` the items that must stay, and notes why."""
    for item in list(left):
        name = item.digest if isinstance(item, UnusedOverlay) else item.run  # type: ignore[attr-defined]
        if name in kept:
            left.remove(item)
            done.kept[name] = kept[name]


def _while_fresh(intent: Intent, left: list[T], act: Callable[[T], None]) -> Iterator[T]:
    """Acts on the items of `left` in parallel and removes them from it, as long as the intent is fresh."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="delete") as threads:
        while left and intent.fresh:
            some = left[: 8 * PARALLEL]
            for _ in threads.map(act, some):
                pass
            del left[: len(some)]
            yield from some


def _bury(store: Store, known: Known, verb: str) -> None:
    """Marks the run as deleted: from now on no reader trusts its outputs."""
    keys = RunKeys(known.run)
    store.create(keys.deleted, msgspec.json.encode(Deleted(user(), time.time(), uuid4().hex, verb)))
    if known.unreadable or (known.damaged and not known.work):
        store.delete([meta.key for meta in store.scan(WORKS) if meta.key.endswith(f"/{known.run}.json")])
    elif known.work:
        store.delete([work_run(known.work, known.run)])


def _unmark(store: Store, step: StoredCheckpoint) -> None:
    store.delete([RunKeys(step.run).attempt(step.attempt).checkpoint_complete(step.step)])


def _take_away(store: Store, overlay: UnusedOverlay) -> None:
    """Deletes the blob before its note: they were written in the opposite order. A blob that was uploaded again
    meanwhile stays."""
    stored = store.head(blob(overlay.digest))
    if overlay.blob is None:
        if stored is None:
            store.delete([blob_note(overlay.digest)])
    elif stored is None or stored.modified == overlay.blob.modified:
        store.delete([blob(overlay.digest)])
        store.delete([blob_note(overlay.digest)])
