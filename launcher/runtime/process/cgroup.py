"""Counts the kernel's out-of-memory kills: those of this process's cgroup (v2 and v1), or those of the whole machine if
its cgroup has no count."""

from __future__ import annotations

from pathlib import Path


def _counters(proc: Path, sys: Path) -> list[tuple[Path, str]]:
    """(file, key) of every count that this process's cgroup may have, the most specific first."""
    counters = []
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # in a container the path may be that of the host, while the mount shows this cgroup as the root
        for folder in (path.lstrip("/"), ""):
            if not controllers:
                counters.append((sys / folder / "memory.events", "oom_kill"))
                counters.append((sys / "unified" / folder / "memory.events", "oom_kill"))
            elif "memory" in controllers.split(","):
                counters.append((sys / "memory" / folder / "memory.oom_control", "oom_kill"))
    return counters


class OutOfMemory:
    """Counts the kernel's kills from now on."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys/fs/cgroup")) -> None:
        self._source = next(
            (source for source in _counters(proc, sys) if self._read(*source) is not None),
            (proc / "vmstat", "oom_kill"),
        )
        self.shared = self._source[0].name == "vmstat"  # the machine's count, which includes kills of other processes
        self._before = self._read(*self._source) or 0

    def kills(self) -> int:
        return (self._read(*self._source) or 0) - self._before

    @staticmethod
    def _read(path: Path, key: str) -> int | None:
        try:
            for line in path.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
        except (OSError, ValueError):
            pass
        return None
