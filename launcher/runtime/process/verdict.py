"""Why a command ended, decided from its exit and what happened meanwhile; docs/reference/runtime.md has the same as
a table. `OutOfMemory` reads the kernel's count, the rest is pure."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec

from launcher.reasons import EXIT_NEVER, Reason


class Ended(msgspec.Struct, frozen=True):
    """How a command ended.

    code        its exit code; negative: the signal that ended it
    stop        the reason for which the runtime ended it (cancelled, deadline, fenced, ...), if it did
    why         a message that explains `stop`
    terminated  SIGTERM came from outside before it ended, and was forwarded
    done        $SLIPWAY_OUTPUTS/.done exists
    oom_kills   the kernel's out-of-memory kills while it ran
    oom_shared  `oom_kills` includes other processes of the machine
    last_line   the line it printed that tells best why it failed
    inner       the exit code of the process that failed first, where it was torchrun, which exits with 1 itself
    forgiven    exit code 78 is tried again, as `limits.retry_on` says
    disk_full   the disk of its outputs has no space left
    """

    code: int
    stop: Reason | None = None
    why: str = ""
    terminated: bool = False
    done: bool = False
    oom_kills: int = 0
    oom_shared: bool = False
    last_line: str = ""
    inner: int | None = None
    forgiven: bool = False
    disk_full: bool = False


def verdict(ended: Ended) -> tuple[Reason, str]:
    """The reason that this command gives the attempt, and a message. Missing outputs are checked later."""
    if ended.done and ended.code == 0 and ended.stop in (None, Reason.DEADLINE):
        return Reason.SUCCEEDED, ""
    if ended.stop is not None:
        return ended.stop, ended.why
    if ended.terminated:
        told = "exited with 0, without .done," if ended.code == 0 else how(ended.code)
        return Reason.PREEMPTED, f"the command {told} after SIGTERM"
    if ended.code == 0:
        return Reason.SUCCEEDED, ""
    # The count may include other processes of the machine; then only a SIGKILL of this command proves it.
    killed = ended.code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if ended.oom_kills and (killed or not ended.oom_shared):
        return Reason.OUT_OF_MEMORY, f"the kernel killed {ended.oom_kills} of its processes because memory ran out"
    message = f"the command {how(ended.code)}"
    if killed:
        message += " from outside; the kernel counted no kill because memory ran out"
    if ended.disk_full:
        message += "; the disk of its outputs is full"
    never = EXIT_NEVER in (ended.code, ended.inner) and not ended.forgiven
    reason = Reason.CONFIG_ERROR if never else Reason.USER_ERROR
    return reason, f"{message}: {ended.last_line}" if ended.last_line else message


def how(code: int) -> str:
    """An exit code in words; a negative one is a signal's."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


# Counts the kernel's out-of-memory kills: those of this process's cgroup (v2 and v1), or those of the whole machine
# if its cgroup has no count.


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
