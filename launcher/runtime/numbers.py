"""A rank's numbers, in the folder of node_exporter's textfile collector if the environment names one. A runtime that is
killed leaves its file, by which an alert sees that its heartbeat stopped; the supervisor removes it with the run."""

from __future__ import annotations

import time
from collections.abc import Mapping

from launcher import exposition
from launcher.exposition import MetricFamily
from launcher.runtime.beating import BeatState


class RuntimeNumbers:
    """`fed` and `trouble` are those of a Member, called by the thread that sends heartbeats."""

    def __init__(self, environ: Mapping[str, str], run: str, member: str) -> None:
        self._folder = exposition.folder(environ)
        self._labels = {"run": run, "member": member}
        self._file = f"slipway-runtime-{run}-{member}"
        self._beat: float | None = None
        self._failures = 0
        self.state: BeatState | None = None

    def fed(self) -> None:
        """A heartbeat reached the store."""
        self._beat = time.time()
        self._write()

    def trouble(self, what: str) -> None:
        """The store did not answer; "" when it does again."""
        if what:
            self._failures += 1
            self._write()

    def leave(self) -> None:
        if self._folder is not None:
            exposition.remove(self._folder, self._file)

    def _write(self) -> None:
        if self._folder is None:
            return
        values = {
            "slipway_runtime_beat_timestamp_seconds": self._beat,
            "slipway_runtime_beat_failures_total": self._failures,
            "slipway_runtime_running_seconds": self.state.running if self.state is not None else None,
            "slipway_runtime_lost_bytes": self.state.stored[2] if self.state is not None else None,
        }
        exposition.write(
            self._folder, self._file, [MetricFamily(name, [(self._labels, value)]) for name, value in values.items()]
        )
