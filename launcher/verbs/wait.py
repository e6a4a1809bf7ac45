"""Wait: reads runs again and again until they have ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from launcher.errors import BadRecord
from launcher.parallel import Threads
from launcher.store.base import Store
from launcher.userdata.record_cache import Memory
from launcher.verbs.ask_backend import BackendOf
from launcher.verbs.status import DAMAGED, Line, damaged, read_line

POLL: Final = 0.5  # seconds between two readings of a store in a folder


POLL_REMOTE: Final = 3.0  # the same for a store on the network


def wait_for(
    store: Store, runs: Sequence[str], backend_of: BackendOf, deadline: float | None, ended: Callable[[Line], None]
) -> list[Line]:
    """Returns the lines of `runs` when each has ended, has an interrupted submit to repair or is damaged, or at the
    deadline (a time of this process's monotonic clock)."""
    pause = POLL if store.url.startswith("file:") else POLL_REMOTE
    lines: dict[str, Line] = {}
    memory = Memory(store)
    while True:
        open_runs = [run for run in runs if run not in lines or not lines[run].final]
        with Threads(8) as pool:
            for line in pool.map(lambda run: _line(store, run, backend_of, memory), open_runs):
                lines[line.run] = line
                if line.final:
                    ended(line)
        if all(line.final or line.repair or line.state == DAMAGED for line in lines.values()):
            break
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        time.sleep(pause if left is None else min(pause, max(left, 0.01)))
    return [lines[run] for run in runs]


def _line(store: Store, run: str, backend_of: BackendOf, memory: Memory) -> Line:
    try:
        return read_line(store, run, backend_of, memory)[1]
    except BadRecord as error:
        return damaged(f"{run}: {error}")
