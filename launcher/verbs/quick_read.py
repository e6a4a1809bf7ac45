"""Reads a waiting or running run in few requests: objects that never change come from the cache
(`launcher.userdata.record_cache`), and objects that a listing already describes are not read.

A run with one rank costs four requests, whatever the number of attempts: the run's own prefix (same job.json?
cancelled? result?), its attempts, the last attempt (has a rank exited?), and the leader's heartbeat. Several ranks cost
two more. A run that waits costs one. When the run may have ended, the answer is None and the caller reads the run in
full.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from launcher.decoding import decode_record, unpacker
from launcher.protocol.read import complete_checkpoints
from launcher.protocol.records import Beat
from launcher.protocol.view import AttemptView, RunView, add
from launcher.reasons import Reason
from launcher.spec.model import ResolvedJob
from launcher.store.base import Meta, Store, settable
from launcher.store.layout import AttemptKeys, RunKeys
from launcher.userdata.record_cache import Memory

BEGUN: Final = ("running", "asking", "saving")  # phases in which the earlier attempts have certainly ended
OVER: Final = "seen"  # a row that only the cache has, below an attempt: its last heartbeat and newest checkpoint


class _Over(msgspec.Struct, frozen=True):
    """The cached facts of an ended attempt that has no exit or that saved checkpoints."""

    beat: Beat | None
    beaten: float
    checkpoints: tuple[int, ...]


def quick_read(store: Store, run: str, memory: Memory) -> RunView | None:
    """The view of a waiting or running run, with what its status line needs: only the time of the last heartbeat of
    ranks other than the leader, no outputs of the last attempt, and its checkpoints as the leader's heartbeat reports
    them. None when the run must be read in full."""
    keys = RunKeys(run)
    now = store.now()
    metas, folders = store.level(keys.prefix)
    metas_by_key = {meta.key: meta for meta in metas}
    job_file = metas_by_key.get(keys.job)
    if job_file is None or keys.result in metas_by_key or keys.cancel in metas_by_key:
        return None
    if memory.known(keys.job, job_file) is None:
        memory.forget(run)  # another run of the same id: the store was wiped and filled again
    stored = memory.read(keys.job, job_file)
    if stored is None:
        return None
    view = add(RunView(run, now=now, settable=settable(store)), keys.job, stored[0], stored[1].modified)
    job = view.job
    assert job is not None
    if "attempts" not in folders:
        return view
    numbers = sorted(int(name) for name in store.folders(keys.attempts) if name.isdigit())
    if not numbers:
        return view
    last = _last(store, view, job, numbers[-1], memory)
    if last is None:
        return None
    view = last
    leader = view.attempts[-1].beats.get(job.members()[0])
    for number in reversed(numbers[:-1]):
        earlier = _earlier(store, view, job, number, memory, leader is not None and leader[0].phase in BEGUN)
        if earlier is None:
            return None
        view = earlier
    return view


def _with(view: RunView, memory: Memory, keys: Sequence[str]) -> RunView:
    """The view, with the records that never change."""
    for key in keys:
        stored = memory.read(key)
        if stored is not None:
            view = add(view, key, stored[0], stored[1].modified)
    return view


def _last(store: Store, view: RunView, job: ResolvedJob, number: int, memory: Memory) -> RunView | None:
    keys = RunKeys(view.run).attempt(number)
    members = job.members()
    metas, folders = store.level(keys.prefix)
    if "exit" in folders or any(meta.key == keys.broken for meta in metas):
        return None
    view = _with(view, memory, [keys.claim(member) for member in members])
    attempt = view.attempt(number)
    if attempt is None or members[0] not in attempt.claims:
        return None
    if "beat" not in folders:
        return view
    stored = store.read(keys.beat(members[0]))
    if stored is not None:
        view = add(view, keys.beat(members[0]), stored[0], stored[1].modified)
    if len(members) > 1:
        view = _others(store, view, number, members)
    return view


def _others(store: Store, view: RunView, number: int, members: Sequence[str]) -> RunView:
    """The view, with the time of the last heartbeat of every other rank, from one listing."""
    keys = RunKeys(view.run).attempt(number)
    attempt = view.attempt(number)
    assert attempt is not None
    beats = dict(attempt.beats)
    names = {keys.beat(member): member for member in members if member not in beats}
    for meta in store.level(keys.prefix + "beat/")[0]:
        if meta.key in names:
            beats[names[meta.key]] = Beat(seq=0, phase=""), meta.modified
    return _put(view, replace(attempt, beats=beats))


def _earlier(store: Store, view: RunView, job: ResolvedJob, number: int, memory: Memory, over: bool) -> RunView | None:
    """The view, with an attempt before the last. Once the attempt is `over`, missing objects are cached as missing,
    too: nothing of that attempt is written any more."""
    keys = RunKeys(view.run).attempt(number)
    leader = job.members()[0]
    records = [key for member in job.members() for key in (keys.claim(member), keys.exit(member))]
    row = memory.known(keys.prefix + OVER)
    for key in records:
        stored = memory.known(key) if row is not None else memory.read(key)
        if stored is not None:
            view = add(view, key, stored[0], stored[1].modified)
    attempt = view.attempt(number)
    if attempt is None or leader not in attempt.claims:
        return None
    if attempt.exits and all(end.reason is Reason.SUCCEEDED for end in attempt.exits.values()):
        return None  # the checkpoint may have been complete
    seen = unpacker(_Over).decode(row[0]) if row is not None else _look(store, job, attempt, keys)
    if row is None and over:
        body = msgspec.msgpack.encode(seen)
        memory.learn(body, Meta(keys.prefix + OVER, len(body), 0.0))
    beats = {**attempt.beats, leader: (seen.beat, seen.beaten)} if seen.beat is not None else attempt.beats
    return _put(view, replace(attempt, beats=beats, checkpoints=seen.checkpoints))


def _look(store: Store, job: ResolvedJob, attempt: AttemptView, keys: AttemptKeys) -> _Over:
    leader = job.members()[0]
    stored = None if leader in attempt.exits else store.read(keys.beat(leader))
    saves = any(output.kind == "checkpoints" for output in job.outputs.values())
    return _Over(
        decode_record(stored[1].key, stored[0], Beat) if stored else None,
        stored[1].modified if stored else 0.0,
        complete_checkpoints(store, keys)[-1:] if saves else (),
    )


def _put(view: RunView, attempt: AttemptView) -> RunView:
    attempts = {one.number: one for one in (*view.attempts, attempt)}
    return replace(view, attempts=tuple(attempts[number] for number in sorted(attempts)))
