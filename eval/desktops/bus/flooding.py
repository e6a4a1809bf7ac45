"""Evidence that the desktop's programs keep its buses from answering.

What the evaluation itself asks of the bus before it knows any program are two small calls. A bus that works all of the
time for which these two wait, or that holds more than a hundred connections, is busy with the programs. A bus that
hardly worked, as on a machine without a free processor, is no evidence.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

LAUNCHER, SESSION_BUS, X_SERVER = "accessibility bus", "session bus", "X server"  # as eval.desktops.keeping calls them
REGISTRY: Final = "at-spi2-registr"  # the name of a process has at most 15 characters
BUSY_SHARE: Final = 0.5  # of the time, running or waiting for a processor
WORKED_S: Final = 0.1  # seconds of a processor; the two calls take a thousandth
CONNECTIONS: Final = 128  # a desktop with ten programs has some thirty; the two others take 256


class BusWatch:
    """How much the accessibility bus and its registry of one desktop have worked since now. `processes`: those of
    the session, name to process id."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._since = time.monotonic()
        self._before = {pid: _work(pid) for pid in self._pids()}

    def evidence(self) -> str | None:
        """What the programs of the desktop do to the bus; None: nothing that was seen."""
        elapsed = time.monotonic() - self._since
        for pid, name in self._pids().items():
            ran, waited = (now - old for now, old in zip(_work(pid), self._before.get(pid, (0.0, 0.0)), strict=True))
            if name != X_SERVER and ran >= WORKED_S and ran + waited >= BUSY_SHARE * elapsed:
                return f"the programs of the desktop kept the {name} busy for {ran + waited:.1f} of {elapsed:.1f} s"
            held = _open_files(pid)
            if held >= CONNECTIONS:
                return f"the programs of the desktop hold {held} connections to the {name}"
        return None

    def _pids(self) -> dict[int, str]:
        """What answers: the bus, which its launcher started, the registry, which was left to the keeper, and the X
        server and the session bus, without which the registry does not start. An X server draws, so it may be busy."""
        launcher, keeper = self._processes.get(LAUNCHER, 0), self._processes.get("keeper", 0)
        registries = [pid for pid in _children(keeper) if _name(pid) == REGISTRY]
        named = {self._processes[name]: name for name in (SESSION_BUS, X_SERVER) if name in self._processes}
        return {**dict.fromkeys(_children(launcher), LAUNCHER), **dict.fromkeys(registries, "registry"), **named}


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except OSError:
        pass  # it has ended
    return found


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _work(pid: int) -> tuple[float, float]:
    """Seconds that the main thread of a process ran, and waited for a processor (proc(5), schedstat)."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def _open_files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0
