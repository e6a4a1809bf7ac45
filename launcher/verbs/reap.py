"""Reap: writes final records that the run's own processes could not write, ends objects that outlived their run, and
ends runs that never start.

Runs wherever it can reach the store and the backends: on a laptop, or as the CronJob of k8s/base. Every step may be
interrupted and repeated, by several reapers at once: records are create-only, and an object is deleted only when the
store says that its run has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from launcher.backends.abilities import Carries
from launcher.backends.base import Backend
from launcher.errors import NotFound, SlipwayError, Unreachable
from launcher.protocol.applied import TEXT
from launcher.protocol.read import read_run
from launcher.store.base import Store
from launcher.userdata.cache import Cache
from launcher.verbs.applied import unknown, write_unknown
from launcher.verbs.ask_backend import BackendOf
from launcher.verbs.leftovers import Reaped, end_duplicates, end_objects, end_unused, renew
from launcher.verbs.open_run import OpenRun
from launcher.verbs.status import list_runs, read_lines

PARALLEL: Final = 16


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
        objects = end_objects(store, name, backend, plan)
        rows += objects + end_duplicates(name, backend, plan) + renew(name, backend, plan)
        if Reaped(name, "unreachable") not in (Reaped(row.run, row.did) for row in objects):
            rows += end_unused(store, name, backend, plan)
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
    # after the objects: a run whose object was just ended has its end written in the same pass
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
    """The rows of one run without a result; a run whose records cannot be read or written stops no other."""
    try:
        view = read_run(store, run)
        if view.job is None or view.result is not None:
            return []
        return OpenRun(store, view, view.job, backend_of, plan).rows()
    except NotFound:
        return []
    except SlipwayError as error:
        return [Reaped(run, "unreachable", str(error))]
