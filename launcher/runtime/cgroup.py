"""Whether the kernel killed for want of memory: the cgroup's own count (v2 and v1), or the machine's where this process
is in no cgroup with a count."""

from __future__ import annotations

from pathlib import Path


def _counters(proc: Path, sys: Path) -> list[tuple[Path, str]]:
    """(file, key) of every count of this process's cgroup that may be there, the most telling first."""
    found = []
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # inside a container the path may be the host's, while the mount shows this group as the root
        for folder in (path.lstrip("/"), ""):
            if not controllers:
                found.append((sys / folder / "memory.events", "oom_kill"))
                found.append((sys / "unified" / folder / "memory.events", "oom_kill"))
            elif "memory" in controllers.split(","):
                found.append((sys / "memory" / folder / "memory.oom_control", "oom_kill"))
    return found


class OutOfMemory:
    """Counts the kernel's kills from now on."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys/fs/cgroup")) -> None:
        self._source = next(
            (source for source in _counters(proc, sys) if self._read(*source) is not None),
            (proc / "vmstat", "oom_kill"),
        )
        self.shared = self._source[0].name == "vmstat"  # the whole machine's count: others' kills are in it
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
