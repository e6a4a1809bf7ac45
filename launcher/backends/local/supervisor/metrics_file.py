"""The supervisor's numbers, in the folder of node_exporter's textfile collector if the environment names one."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from launcher import exposition
from launcher.exposition import MetricFamily

PAUSE: Final = 10.0  # seconds between two writes
# what may come is there as 0 from the start: increase() does not see a value that appears with the first event
OUTCOMES: Final = ("succeeded", "failed", "cancelled", "elsewhere")
PHASES: Final = ("waiting", "queued", "running", "restarting", "stopping", "closing")


class SupervisorMetrics:
    def __init__(self, queue: str) -> None:
        self._folder = exposition.folder(os.environ)
        self._queue = queue
        self._next = 0.0
        self.ended = Counter(dict.fromkeys(OUTCOMES, 0))
        self.failures = 0

    def write(self, phases: Iterable[str]) -> None:
        """Writes them, at most every PAUSE seconds. `phases`: of the runs in the queue."""
        if self._folder is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PAUSE
        labels = {"queue": self._queue}
        counted = {**dict.fromkeys(PHASES, 0), **Counter(phases)}
        exposition.write(
            self._folder,
            f"slipway-supervisor-{self._queue}",
            [
                MetricFamily("slipway_supervisor_seen_timestamp_seconds", [(labels, time.time())]),
                MetricFamily(
                    "slipway_supervisor_runs", [({**labels, "phase": name}, n) for name, n in sorted(counted.items())]
                ),
                MetricFamily(
                    "slipway_supervisor_ended_total",
                    [({**labels, "outcome": name}, n) for name, n in sorted(self.ended.items())],
                ),
                MetricFamily("slipway_supervisor_store_failures_total", [(labels, self.failures)]),
            ],
        )

    def forget(self, run: str) -> None:
        """Removes what runtimes of a run left that were killed."""
        for path in self._folder.glob(f"slipway-runtime-{run}-*.prom") if self._folder is not None else ():
            exposition.remove(path.parent, path.stem)

    def leave(self) -> None:
        """Removes its own: the supervisor ends because it has nothing to do."""
        if self._folder is not None:
            exposition.remove(self._folder, f"slipway-supervisor-{self._queue}")
