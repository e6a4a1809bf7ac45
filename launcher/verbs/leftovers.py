"""Ends objects on a backend that outlived their runs, and what the backend itself finds unused. It is the part of
`launcher reap` that goes from the objects to the runs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from launcher.backends.abilities import EndsDuplicates, EndsUnused, Renews
from launcher.backends.base import Backend, BackendObservation, Handle
from launcher.errors import NotFound, SlipwayError, Unreachable
from launcher.protocol.read import read_run
from launcher.spec.model import backend_order
from launcher.store.base import Store
from launcher.store.layout import RunKeys

LEAVING: Final = 300.0  # seconds that a run's last processes may take to end after its result
PARALLEL: Final = 16


@dataclass(frozen=True)
class Reaped:
    """One action, taken or (`plan`) only planned. `run`: or the backend's name, a store's URL or "notify", where it is
    of no run. `did`: noted (written into the store) | ended | moved | stopped | renewed | unsubmitted | unknown |
    unreachable; with a profile's `notify` told | untold."""

    run: str
    did: str
    detail: str = ""


def end_objects(store: Store, name: str, backend: Backend, plan: bool) -> list[Reaped]:
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


def end_duplicates(name: str, backend: Backend, plan: bool) -> list[Reaped]:
    rows: list[Reaped] = []
    if isinstance(backend, EndsDuplicates):
        try:
            rows += [Reaped(run, "stopped", text) for run, text in backend.end_duplicates(plan=plan)]
        except SlipwayError as error:
            rows.append(Reaped(name, "unreachable", str(error)))
    return rows


def renew(name: str, backend: Backend, plan: bool) -> list[Reaped]:
    rows: list[Reaped] = []
    if isinstance(backend, Renews):
        try:
            for run, text, done in backend.renew(plan=plan):  # one by one: what was done is told, whatever fails next
                rows.append(Reaped(run, "renewed" if done else "unreachable", text))
        except SlipwayError as error:
            rows.append(Reaped(name, "unreachable", str(error)))
    return rows


def end_unused(store: Store, name: str, backend: Backend, plan: bool) -> list[Reaped]:
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
    if view.job is not None and backend in backend_order(view.job)[: view.turn]:
        return f"its run has moved to {backend_order(view.job)[view.turn]}"
    return "its run was cancelled" if view.cancelled else ""
