"""Reap: writes final records that the run's own processes could not write, ends objects that outlived their run, and
ends runs that never start.

Runs wherever it can reach the store and the backends: on a laptop, or as the CronJob of k8s/base. Every step may be
interrupted and repeated, by several reapers at once: records are create-only, and an object is deleted only when the
store says that its run has ended.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from launcher.backends.base import Backend, BackendObservation, Carries, EndsDuplicates, EndsUnused, Handle, Renews
from launcher.decoding import decode_record
from launcher.errors import Conflict, NoPlace, NotFound, NotMadeYet, SlipwayError, Unreachable
from launcher.protocol import decide, steps
from launcher.protocol.applied import TEXT, was_applied
from launcher.protocol.finish import finish, onlookers, own_place, silence
from launcher.protocol.read import read_run, unlisted
from launcher.protocol.records import Event, Placement
from launcher.protocol.view import RunView
from launcher.reasons import Reason, named
from launcher.spec.backends import traits
from launcher.spec.turns import order
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.applied import unknown, write_unknown
from launcher.verbs.move import carry_out, leave, take
from launcher.verbs.status import BackendOf, Said, backend_says, list_runs, note_if_applied, read_lines

WRITER: Final = "reap"
LEAVING: Final = 300.0  # seconds that a run's last processes may take to end after its result
HOPELESS: Final = 1800.0  # seconds after which a run that can never start loses its place, or its GPU
CAN_NOT_START: Final = (Reason.IMAGE_PULL, Reason.CONFIG_ERROR)
PARALLEL: Final = 16


@dataclass(frozen=True)
class Reaped:
    """One action, taken or (`plan`) only planned. `run`: or the backend's name, a store's URL or "notify", where it is
    of no run. `did`: noted (written into the store) | ended | moved | stopped | renewed | unsubmitted | unknown |
    unreachable; with a profile's `notify` told | untold."""

    run: str
    did: str
    detail: str = ""


def reap(
    store: Store,
    backend_of: BackendOf,
    backends: Mapping[str, Backend],
    *,
    cache: Cache,
    plan: bool = False,
) -> list[Reaped]:
    """Checks every run of the store that has not ended, and every object on `backends` that carries Slipway's mark.

    plan  only reports what would be done
    Raises Unreachable when the store cannot be read and nothing was ended; an unreachable backend, and a run whose
    records cannot be read, are rows of the answer.
    """
    rows: list[Reaped] = []
    for name, backend in backends.items():  # first what is billed: a reaper may be interrupted
        objects = _objects(store, name, backend, plan)
        rows += objects + _duplicates(name, backend, plan) + _renewed(name, backend, plan)
        if Reaped(name, "unreachable") not in (Reaped(row.run, row.did) for row in objects):
            rows += _unused(store, name, backend, plan)
    rows = list(dict.fromkeys(rows))  # every question to a backend that does not answer says the same
    try:
        runs = list_runs(store)
    except Unreachable as error:
        if not any(row.did == "stopped" for row in rows):
            raise
        return [*rows, Reaped(store.url, "unreachable", str(error))]
    noted = [row for backend in backends.values() for row in _applied(store, runs, backend, plan)]
    applied = {row.run for row in noted}
    rows = [row for row in rows if row.did != "unknown" or row.run not in applied] + noted
    runs += [row.run for row in noted if row.did == "noted" and not plan]
    lines, problems = read_lines(store, runs, cache=cache)
    told = {row.run for row in rows if row.did == "unreachable"}
    for problem in problems:
        run, _, text = problem.partition(": ")
        rows += [Reaped(run, "unreachable", text)] if run not in told else []
    open_runs = [line.run for line in lines if not line.final]
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="reap") as threads:
        for reaped in threads.map(lambda run: _one(store, run, backend_of, plan), open_runs):
            rows += reaped
    return rows


def _applied(store: Store, known: Sequence[str], backend: Backend, plan: bool) -> list[Reaped]:
    """Writes job.json of the runs on a backend that a GitOps tool applied and of which no pod has started."""
    if not isinstance(backend, Carries):
        return []
    faults: list[str] = []
    try:
        if plan:
            carried = unknown(known, backend, store.url)
            return [Reaped(each.run, "noted", TEXT) for each in carried if each.job is not None]
        noted = write_unknown(store, known, backend, store.url, faults.append)
    except SlipwayError:
        return []  # the question about its objects says so
    rows = [Reaped(fault.partition(" ")[0], "unknown", fault.partition(" ")[2]) for fault in faults]
    return rows + [Reaped(run, "noted", TEXT) for run in noted]


def _one(store: Store, run: str, backend_of: BackendOf, plan: bool) -> list[Reaped]:
    """As `_run`; a run whose records cannot be read or written stops no other."""
    try:
        return _run(store, run, backend_of, plan)
    except SlipwayError as error:
        return [Reaped(run, "unreachable", str(error))]


def _run(store: Store, run: str, backend_of: BackendOf, plan: bool) -> list[Reaped]:
    """Writes the final record of a run if its processes have ended or it waited too long for its first one."""
    try:
        view = read_run(store, run)
    except NotFound:
        return []
    job = view.job
    if job is None or view.result is not None:
        return []
    name = order(job)[view.turn]
    head = store.head(RunKeys(run).job)
    said = backend_says(store, view, backend_of)
    if not plan:
        note_if_applied(store, view, said, backend_of(view.placed or job))
    rows = _moved(store, view, said, backend_of, plan) if view.turn else []
    if any(row.did == "moved" for row in rows):
        return rows  # the next reaper looks at what becomes of it
    # waiting starts when the backend gets the run, not when job.json was written
    made = said.seen.made if said.seen is not None else 0.0
    since = max(head.modified if head is not None else view.now, made)
    if made and was_applied(view):
        since = made  # its job.json may have been written long after
    since = max((since, *(time for attempt in view.attempts if attempt.moved_to for time in attempt.claimed.values())))
    # an object with several runs replaces each pod that is deleted: a stage that waits for the one before it would lose
    # every pod that is about to start
    alone = said.seen is None or not said.active or said.seen.handle.name == run
    patience = job.limits.start_deadline
    if patience is None and said.reason in CAN_NOT_START:
        patience = HOPELESS
    late = alone and not view.since_move and patience is not None and view.now - since > patience
    answered = said.seen is None and not said.message
    if answered and not view.since_move and (deletion := _deletion(store, run)) is not None:
        late = False
        said = said._replace(active=False, reason=deletion.reason, message=deletion.message, here=_anywhere)
    nothing = not view.turn and said.seen is None and not said.active and said.reason is None and not said.message
    if nothing and not late and not view.since_move and not view.cancelled and not traits(name).on_this_machine:
        again = (
            "what applied it makes it again, or `launcher cancel` ends it"
            if was_applied(view)
            else "submit the same job again"
        )
        unseen = f"{name} has no object of this run: if no other cluster has one, {again}"
        return [*rows, Reaped(run, "unsubmitted", unseen)]
    if said.repair:
        return [*rows, Reaped(run, "unsubmitted", said.message)]
    reason, message = said.reason, said.message
    if late:
        reason = reason or Reason.UNSCHEDULABLE
        message = f"not started within {patience:g} s{': ' + message if message else ''}"
    ranks = onlookers(view, job, said.dead)
    own = own_place(view, said.here)
    absent = silence(view) if said.absent else None
    ends = reason if late or said.active is False else None
    if (move := decide.move(ranks, said.active, ends, own=own, absent=absent)) is not None:
        return [*rows, _move(store, view, backend_of, move, message or str(move.reason), plan)]
    if late and said.active and not plan:
        said = said._replace(active=_end(store, view, backend_of, reason or Reason.UNSCHEDULABLE, message))
    active = False if late and said.active and plan else said.active
    step = decide.finish(ranks, active, evidence=reason, own=own, absent=absent)
    if step is None and said.absent and view.attempts:
        return [*rows, Reaped(run, "unknown", said.message)] if said.message else rows
    if step is None and said.active is None and decide.finish(ranks, False, evidence=reason) is not None:
        unseen = "it has no object of this run; another cluster or queue may have one"
        undecided = f"may have ended, and {name} cannot tell: {said.message or unseen}"
        return [*rows, Reaped(run, "unknown", undecided)]
    if plan:
        if isinstance(step, steps.Finish):
            rows.append(Reaped(run, "ended", f"{step.verdict.outcome}: {step.verdict.reason}"))
        return rows
    result = finish(
        store,
        run,
        backend_active=said.active,
        here=said.here,
        dead=said.dead,
        writer=WRITER,
        evidence=reason,
        message=message,
        absent=said.absent,
    )
    if result is not None:
        rows.append(Reaped(run, "ended", f"{result.outcome}: {result.reason}"))
    return rows


def _moved(store: Store, view: RunView, said: Said, backend_of: BackendOf, plan: bool) -> list[Reaped]:
    """Completes the move of a run: ends what the backends still have that it has left, and submits it to the one whose
    turn it is, if whoever moved it has died before."""
    rows: list[Reaped] = []

    def told(name: str) -> None:
        rows.append(Reaped(view.run, "stopped", f"{name} still had it; it has moved on"))

    rows += [Reaped(view.run, "unreachable", line) for line in leave(view, backend_of, plan=plan, tell=told)]
    if said.seen is not None or said.message or view.since_move or view.cancelled:
        return rows
    try:
        target = order(view.placed)[view.turn] if view.placed is not None else ""
        if not plan:
            carry_out(store, view, backend_of)
        rows.append(Reaped(view.run, "moved", f"{target} did not have it yet"))
    except (NoPlace, NotMadeYet) as error:
        rows.append(Reaped(view.run, "unsubmitted", str(error)))
    except SlipwayError as error:
        rows.append(Reaped(view.run, "unreachable", str(error)))
    return rows


def _move(store: Store, view: RunView, backend_of: BackendOf, step: steps.Move, why: str, plan: bool) -> Reaped:
    """Moves a run to its next backend, before its object on the present one is ended."""
    assert view.job is not None
    target = order(view.job)[view.turn + 1]
    try:
        if not plan:
            take(store, view, backend_of, step, why)
    except Conflict as error:
        return Reaped(view.run, "unknown", str(error))
    except (NoPlace, NotMadeYet) as error:
        return Reaped(view.run, "moved", f"to {target}: {why}; {error}")
    except SlipwayError as error:
        return Reaped(view.run, "unreachable", f"it may go on at {target}: {error}")
    return Reaped(view.run, "moved", f"to {target}: {why}")


class _Deletion(NamedTuple):
    """Why a reaper deleted the object of a run that had not started."""

    reason: Reason
    message: str


def _end(store: Store, view: RunView, backend_of: BackendOf, reason: Reason, message: str) -> bool | None:
    """Deletes a run's object on its backend before the final record is written, so that nothing of it can start.
    Returns whether it still may; None: unknown.

    An event is written first: once the object is gone, only the event tells the next reaper that it was here.
    """
    run = view.run
    backend = backend_of(view.placed) if view.placed is not None else None
    try:
        observation = backend.look_up(run) if backend is not None else None
        if backend is None or observation is None or unlisted(store, view):
            return None
        event = Event(0, WRITER, 0, "evidence", message, {"reason": reason}, time.time())
        store.create(_key(run), msgspec.json.encode(event))
        backend.cancel([observation.handle])
        observation = backend.look_up(run)
    except SlipwayError:
        return None
    return observation is not None and observation.active


def _key(run: str) -> str:
    """The key of the event before a deletion."""
    return RunKeys(run).event(0, WRITER, 0)


def _deletion(store: Store, run: str) -> _Deletion | None:
    """Whether a reaper deleted the run's object; it may have ended before it wrote the final record."""
    answer = store.read(_key(run))
    if answer is None:
        return None
    event = decode_record(answer[1].key, answer[0], Event)
    return _Deletion(named(event.fields.get("reason", "")) or Reason.UNSCHEDULABLE, event.message)


def _anywhere(placement: Placement | None) -> bool:
    """The `here` of a run whose object a reaper has deleted."""
    return True


def _objects(store: Store, name: str, backend: Backend, plan: bool) -> list[Reaped]:
    """Ends objects that still run, or are billed, although their runs have ended or were cancelled, and those that are
    past their deadline."""
    try:
        observations = list(backend.mine())
    except SlipwayError as error:
        return [Reaped(name, "unreachable", str(error))]
    shared: dict[
        tuple[str, str], list[BackendObservation]
    ] = {}  # one object may carry several runs: a pipeline, an array
    for observation in observations:
        shared.setdefault((observation.handle.place.get("namespace", ""), observation.handle.name), []).append(
            observation
        )
    running = {
        place: carried
        for place, carried in shared.items()
        if any(observation.active or observation.billed for observation in carried)
    }
    runs = list(dict.fromkeys(observation.handle.run for carried in running.values() for observation in carried))
    fate_of, unread = _fates(store, runs, name)
    rows = [Reaped(run, "unreachable", str(error)) for run, error in unread.items()]
    over: list[tuple[str, list[BackendObservation], dict[str, str]]] = []
    for (_, object_name), carried in running.items():
        fates = {
            observation.handle.run: observation.overdue or fate_of[observation.handle.run] for observation in carried
        }
        if unknown := sorted(run for run, fate in fates.items() if fate is None):
            text = (
                f"{name} has {object_name}, which {store.url} does not know: it belongs to another store, "
                "or has not started yet"
            )
            rows.append(Reaped(unknown[0], "unknown", text))
        if all(fates.values()):
            over.append((object_name, carried, {run: fate or "" for run, fate in fates.items()}))
    troubles = {} if plan else _cancel(backend, [[each.handle for each in carried] for _, carried, _ in over])
    for index, (object_name, carried, told) in enumerate(over):
        if index in troubles:
            rows.append(Reaped(carried[0].handle.run, "unreachable", str(troubles[index])))
        else:
            rows += [Reaped(run, "stopped", f"{object_name} still ran; {fate}") for run, fate in told.items()]
    return rows


def _cancel(backend: Backend, objects: Sequence[Sequence[Handle]]) -> dict[int, SlipwayError]:
    """Ends objects, all of them at once: a backend waits until each is gone, and each is billed until it is asked to
    end. Returns index -> why one could not be ended; which one it was is only known one by one."""
    if not objects:
        return {}
    troubles: dict[int, SlipwayError] = {}
    try:
        backend.cancel([handle for handles in objects for handle in handles])
        return {}
    except SlipwayError as error:
        if len(objects) == 1:
            return {0: error}
    for index, handles in enumerate(objects):
        try:
            backend.cancel(handles)
        except SlipwayError as error:
            troubles[index] = error
    return troubles


def _duplicates(name: str, backend: Backend, plan: bool) -> list[Reaped]:
    rows: list[Reaped] = []
    if isinstance(backend, EndsDuplicates):
        try:
            rows += [Reaped(run, "stopped", text) for run, text in backend.end_duplicates(plan=plan)]
        except SlipwayError as error:
            rows.append(Reaped(name, "unreachable", str(error)))
    return rows


def _renewed(name: str, backend: Backend, plan: bool) -> list[Reaped]:
    rows: list[Reaped] = []
    if isinstance(backend, Renews):
        try:
            for run, text, done in backend.renew(plan=plan):  # one by one: what was done is told, whatever fails next
                rows.append(Reaped(run, "renewed" if done else "unreachable", text))
        except SlipwayError as error:
            rows.append(Reaped(name, "unreachable", str(error)))
    return rows


def _unused(store: Store, name: str, backend: Backend, plan: bool) -> list[Reaped]:
    rows: list[Reaped] = []
    if isinstance(backend, EndsUnused):
        try:
            for did, text in backend.end_unused(store, plan=plan):
                rows.append(Reaped(name, did, text))
        except SlipwayError as error:
            rows.append(Reaped(name, "unreachable", str(error)))
    return rows


def _fates(store: Store, runs: Sequence[str], backend: str) -> tuple[dict[str, str | None], dict[str, SlipwayError]]:
    """(run -> its fate as `_fate` tells it, run -> why its records cannot be read; its objects may continue)."""
    unread: dict[str, SlipwayError] = {}

    def fate(run: str) -> str | None:
        try:
            for error in list(unread.values()):
                if isinstance(error, Unreachable):  # the store does not answer: one has waited for it, for all
                    raise error
            return _fate(store, run, backend)
        except SlipwayError as error:
            unread[run] = error
            return ""

    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="reap") as threads:
        return dict(zip(runs, threads.map(fate, runs), strict=True)), unread


def _fate(store: Store, run: str, backend: str) -> str | None:
    """Why a run's object on a backend must be ended: "" if it may continue, None if the store does not know the run."""
    try:
        view = read_run(store, run, full=False)
    except NotFound:
        return None
    if view.result is not None:
        head = store.head(RunKeys(run).result)
        overdue = head is not None and view.now - head.modified > LEAVING
        return f"its run has {view.result.outcome}" if overdue else ""
    if view.job is not None and backend in order(view.job)[: view.turn]:
        return f"its run has moved to {order(view.job)[view.turn]}"
    return "its run was cancelled" if view.cancelled else ""
