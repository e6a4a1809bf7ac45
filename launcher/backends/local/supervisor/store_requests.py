"""The supervisor's requests to the store: are a run's inputs there, is its end recorded. They block, so they run in
threads: a store that does not answer stops no other run."""

from __future__ import annotations

from functools import partial

import msgspec

from launcher.backends.local.entry import QueueEntry, queue_of
from launcher.decoding import decode_record
from launcher.errors import NotFound
from launcher.protocol.finish import finish, move_on, nowhere
from launcher.protocol.records import Placement, Result
from launcher.reasons import Reason
from launcher.store.base import Store
from launcher.store.layout import RunKeys, works

WRITER = "local-supervisor"


class Inputs(msgspec.Struct, frozen=True):
    """Whether a run may start. `failed`: the upstream run that ended without success."""

    ready: bool
    failed: str = ""
    cancelled: bool = False
    forgotten: bool = False  # the store does not have the run any more: it was deleted


def look_at_inputs(store: Store, entry: QueueEntry) -> Inputs:
    """Reads works/, and for missing works the results of the upstream runs: O(inputs + upstream) requests."""
    missing = {work for work in entry.works if not _served(store, work)}
    if not missing:
        return Inputs(ready=True)
    if store.head(RunKeys(entry.run).job) is None:
        return Inputs(ready=False, forgotten=True)
    if is_cancelled(store, entry.run):
        return Inputs(ready=False, cancelled=True)
    for work in sorted(missing):
        results = {run: read_result(store, run) for run, of in entry.upstream.items() if of == work}
        done = [run for run, result in results.items() if result and result.outcome == "succeeded"]
        if done:
            finish(
                store, done[0], backend_active=None, here=nowhere, writer=WRITER
            )  # writes the missing record in works/
        elif results and all(results.values()):
            return Inputs(ready=False, failed=next(iter(results)))
    return Inputs(ready=all(_served(store, work) for work in missing))


def _served(store: Store, work: str) -> bool:
    """Whether some run of that work succeeded."""
    return next(iter(store.scan(works(work))), None) is not None


def read_result(store: Store, run: str) -> Result | None:
    answer = store.read(RunKeys(run).result)
    return decode_record(answer[1].key, answer[0], Result) if answer else None


def is_cancelled(store: Store, run: str) -> bool:
    return store.head(RunKeys(run).cancel) is not None


def end_unstarted(
    store: Store, run: str, queue: str, reason: Reason, message: str, turn: int | None = None
) -> Result | None:
    """Records the end of a run that will never have a process on this machine, or that it goes on at its next backend.
    `queue`: the id of this state folder, which decides nothing about a run that another queue has started. `turn`: of
    this backend, for a run that has several."""
    try:
        return _finish(store, run, queue, turn, evidence=reason, message=message)
    except NotFound:
        return None


def close(store: Store, run: str, queue: str, refused: str = "", turn: int | None = None) -> Result | None:
    """Records the end of a run that has no process left on this machine. None also when the store does not have the run
    any more. `refused`: the last line of a leader's runtime that exited with 78; used when no attempt was ever claimed,
    so that no runtime could write the end. `turn`: as in `end_unstarted`."""
    try:
        result = _finish(store, run, queue, turn)
        if result is None and refused:
            result = _finish(store, run, queue, turn, evidence=Reason.CONFIG_ERROR, message=refused)
        return result
    except NotFound:
        return None


def _finish(
    store: Store, run: str, queue: str, turn: int | None, evidence: Reason | None = None, message: str = ""
) -> Result | None:
    """Finishes the run, or moves it on. None of the processes that this queue started lives: the supervisor has seen
    them end."""
    here = partial(_here, queue)

    def dead(placement: Placement | None) -> bool:
        return placement is not None and here(placement)

    result = finish(
        store,
        run,
        backend_active=False,
        here=here,
        dead=dead,
        writer=WRITER,
        evidence=evidence,
        message=message,
        turn=turn,
    )
    if result is None and turn is not None:
        move_on(store, run, turn, here, dead, evidence, message)
    return result


def _here(queue: str, placement: Placement | None) -> bool:
    """Whether the run belongs to this queue. Before the first attempt it belongs to any queue that has it."""
    return placement is None or queue_of(placement) == queue
