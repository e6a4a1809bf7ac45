"""For backends that tell nothing by themselves: they are asked again and again, and output is read from the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator

from launcher.backends.base import BackendObservation, Handle
from launcher.errors import NotFound
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log


def watch_runs(
    handles: Collection[Handle], observe: Callable[[Handle], BackendObservation], pause: Callable[[], object]
) -> Iterator[BackendObservation]:
    """Every change of these runs, until none is active. `pause`: between two looks at those that are."""
    last: dict[str, BackendObservation] = {}
    active = {handle.run: handle for handle in handles}
    while active:
        for run, handle in list(active.items()):
            seen = observe(handle)
            if seen != last.get(run):
                last[run] = seen
                yield seen
            if not seen.active:
                del active[run]
        if active:
            pause()


def follow(
    store: Store,
    run: str,
    member: str,
    previous: bool,
    poll: float,
    look_up: Callable[[str], BackendObservation | None],
) -> Iterator[bytes]:
    """The member's output in its newest attempt and all later ones, until the run is not active. Raises NotFound."""
    numbers = _attempts(store, run)
    if previous:
        if len(numbers) < 2:
            raise NotFound(f"{run}: {member} has no previous attempt")
        yield from _more(Log(store, RunKeys(run).attempt(numbers[-2]), member))
        return
    number, log = 0, None
    while True:
        seen = look_up(run)
        living = seen is not None and seen.active  # asked first: what was written before the end is read below
        for newer in _attempts(store, run):
            if newer > number and (number == 0 or store.folders(RunKeys(run).attempt(newer).prefix)):
                if log is not None:
                    yield from _more(log)
                number, log = newer, Log(store, RunKeys(run).attempt(newer), member)
        if log is not None:
            yield from _more(log)
        if not living:
            return
        time.sleep(poll)


def _attempts(store: Store, run: str) -> list[int]:
    return sorted(int(name) for name in store.folders(RunKeys(run).attempts) if name.isdecimal())


def _more(log: Log) -> Iterator[bytes]:
    for piece in log.more():
        if piece.body:
            yield piece.body
