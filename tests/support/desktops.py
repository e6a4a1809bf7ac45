"""Sessions of real desktops for tests: what they need, and what they leave on the machine."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from eval.desktops.isolation import isolation
from eval.desktops.session import DesktopSession
from tests.support.needs import lacking, need

T = TypeVar("T")
KNOWN: dict[Path, set[str]] = {}  # a test's folder: the shared memory that was there before


def need_desktops() -> None:
    """Skips the test where a program of the desktop packages is missing."""
    need("desktop")


def need_isolation() -> None:
    """Skips the test by name unless probes have proved: not root, a PID namespace of its own, limits that hold."""
    need_desktops()
    machine = isolation()
    if not machine.complete:
        lacking("isolation", "; ".join(machine.missing))


def memory_mb(pids: Iterable[int]) -> float:
    """The memory of processes in MB, shared pages counted by share (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine."""
    return asyncio.run(work)


async def output(session: DesktopSession, script: str) -> str:
    """What a shell on the desktop prints for `script`."""
    program = await session.run(["sh", "-c", f"({script}) >.printed 2>&1"])
    await program.wait()
    return (session.place.home / ".printed").read_text().strip()


def _listed(folder: str) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir()) if Path(folder).is_dir() else []


def segments() -> set[str]:
    """The shared memory of the machine."""
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def _open_files(pid: str) -> list[bytes]:
    """Keepers and guests name their folder by the log that they hold open."""
    return [os.fsencode(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()]


def left(folder: Path) -> list[str]:
    """What sessions with folders in `folder` have left: processes, files, mounts, control groups; and, whoever made it,
    shared memory without its maker."""
    mark = re.escape(str(folder).encode())
    things = [f"file {name}" for name in _listed(str(folder))]
    for entry in (path.name for path in Path("/proc").iterdir()):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                command = Path(f"/proc/{entry}/cmdline").read_bytes()
                told = [command, Path(f"/proc/{entry}/environ").read_bytes(), *_open_files(entry)]
                named = re.search(mark + rb"/([^/\0\"]+)", b"\0".join(told))
                if named:
                    things.append(f"process {entry} {command!r} of {named.group(1).decode()}")
            except OSError:
                continue
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        _, number, _, _, maker, _, attached, *_ = line.split()
        if number not in KNOWN.get(folder, ()) and attached == "0" and not Path(f"/proc/{maker}").exists():
            things.append(f"shared memory {number}")
    things += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]
    for groups in set(isolation().cgroups.values()):
        for name in _listed(groups):
            if name.startswith(folder.name):
                things.append(f"control group {name}")
    return things


def descriptors() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
