"""Compares the objects of runs that have ended with their jobs, before submit reports or adopts their results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from launcher.backends.base import Backend
from launcher.errors import BadInput, Conflict, Unreachable
from launcher.protocol.view import RunView
from launcher.selection.select import say


@runtime_checkable
class ComparesEnded(Protocol):
    """A backend that keeps the objects of runs that have ended, where others may have created or changed them."""

    def compare_ended(self, runs: Collection[str]) -> None:
        """Raises Conflict for an object that did not run what its jobs say: the result in the store is not theirs. An
        object that is gone says nothing. Raises Unreachable where objects may not be read."""
        ...


def compare_ended(backend: Backend, views: Collection[RunView]) -> None:
    """Raises Conflict when a run that has ended, or the one whose result it adopted, ran something else than its job
    says. A backend that is away is a note: without its objects the results in the store are all there is."""
    results = {view.run: view.result for view in views if view.result is not None}
    if not results or not isinstance(backend, ComparesEnded):
        return
    adopted = [result.adopted.run for result in results.values() if result.adopted is not None]
    try:
        backend.compare_ended(dict.fromkeys([*results, *adopted]))
    except (BadInput, Unreachable) as error:
        say(f"what has ended is not compared with its job: {str(error).partition(chr(10))[0]}")


def compare_results(backend: Backend, takers: Mapping[str, str]) -> None:
    """The same of runs whose results are about to be adopted. `takers`: such a run -> a run that adopts it."""
    if not takers or not isinstance(backend, ComparesEnded):
        return
    try:
        backend.compare_ended(takers)
    except Conflict as error:  # job.json of the takers is written, and it keeps the results from being deleted
        raise Conflict(f"{error}. First of all: launcher cancel {' '.join(takers.values())}") from None
