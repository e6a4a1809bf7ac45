"""Limits on processes and memory by control groups, version 1 and version 2.

A group lies beside or below this process's own: a folder per controller in version 1, one folder in version 2. A
process joins by writing itself into `cgroup.procs`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("pids", "memory")


@dataclass(frozen=True)
class Parents:
    """Where groups can be made: the folder for each controller, and in which version it is."""

    folders: dict[str, str]
    version: dict[str, int]


def _unescape(path: str) -> str:
    return path.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")


def parents(mountinfo: str, own: str) -> Parents:
    """The parents that the texts of /proc/self/mountinfo and /proc/self/cgroup name, writable or not."""
    paths: dict[str, str] = {}
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    folders: dict[str, str] = {}
    version: dict[str, int] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, point = (_unescape(part) for part in before.split()[3:5])
        kind, _, options = after.split(" ", 2)
        names = options.split(",") if kind == "cgroup" else [""] if kind == "cgroup2" else []
        for name in names:
            if (name not in CONTROLLERS and name) or name not in paths:
                continue
            path = paths[name]
            inside = path[len(root) :] if root != "/" and path.startswith(root) else path if root == "/" else ""
            folder = os.path.normpath(f"{point}/{inside}")
            for controller in [name] if name else CONTROLLERS:
                if name or controller not in folders:
                    folders[controller], version[controller] = folder, 1 if name else 2
    return Parents(folders, version)


def usable(all_parents: Parents) -> tuple[Parents, list[str]]:
    """Those in which a group can be made and limited, and for each other controller a line that says why not.

    In version 2 a folder that holds processes cannot give controllers to folders below it, so its parent is tried too.
    """
    folders: dict[str, str] = {}
    missing = []
    for controller in CONTROLLERS:
        if controller not in all_parents.folders:
            missing.append(f"cgroup {controller}: no such controller is mounted")
            continue
        version = all_parents.version[controller]
        own = Path(all_parents.folders[controller])
        reason = ""
        for folder in [own] if version == 1 else [own, own.parent]:
            try:
                _try_group(folder, controller, version)
            except OSError as error:
                reason = reason or f"{folder}: {error.strerror}"
            else:
                folders[controller] = str(folder)
                break
        else:
            missing.append(f"cgroup {controller}: {reason}")
    return Parents(folders, {name: all_parents.version[name] for name in folders}), missing


def _try_group(folder: Path, controller: str, version: int) -> None:
    if version == 2:
        if not (folder / "cgroup.controllers").exists():
            raise OSError(errno.ENOENT, "not a control group")
        if controller not in (folder / "cgroup.controllers").read_text().split():
            raise OSError(errno.ENOENT, f"the controller {controller} is not given to this group")
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    trial = folder / f"slipway-trial-{os.getpid()}"
    trial.mkdir()
    try:
        if not (trial / _limit_file(controller, version)).exists():
            raise OSError(errno.ENOENT, "a new group has no limits")
    finally:
        trial.rmdir()


def _limit_file(controller: str, version: int) -> str:
    if controller == "pids":
        return "pids.max"
    return "memory.limit_in_bytes" if version == 1 else "memory.max"


def group_name(folder: str, part: str) -> str:
    """The name of the group of a part of the desktop whose folder is `folder`."""
    return "-".join([*folder.split("/")[-2:], part])


class ControlGroup:
    """A group with limits; `close` removes it."""

    def __init__(self, where: Parents, name: str, pids: int, memory: int) -> None:
        self._folders: dict[str, Path] = {}
        self._version = where.version
        for controller, parent in where.folders.items():
            folder = Path(parent) / name
            folder.mkdir(exist_ok=True)
            self._folders[controller] = folder
            limit = pids if controller == "pids" else memory
            (folder / _limit_file(controller, where.version[controller])).write_text(str(limit))
        if "memory" in self._folders:  # no swapping beyond the limit, where the kernel counts swap
            swap = "memory.memsw.limit_in_bytes" if where.version["memory"] == 1 else "memory.swap.max"
            with contextlib.suppress(OSError):
                (self._folders["memory"] / swap).write_text(str(memory if where.version["memory"] == 1 else 0))

    def open(self) -> list[int]:
        """Descriptors of the files through which a process joins: write b"0" to each."""
        return [os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC) for folder in set(self._folders.values())]

    def refused(self) -> dict[str, int]:
        """How often the limits took effect: forks that were refused, processes that were killed for memory."""
        counts = {"forks": 0, "memory": 0}
        if "pids" in self._folders:
            counts["forks"] = _count(self._folders["pids"] / "pids.events", "max")
        if "memory" in self._folders:
            name = "memory.oom_control" if self._version["memory"] == 1 else "memory.events"
            counts["memory"] = _count(self._folders["memory"] / name, "oom_kill")
        return counts

    def close(self) -> None:
        """Removes the group; its last process was waited for."""
        for folder in set(self._folders.values()):
            remove(folder)
        self._folders = {}


def remove(folder: Path) -> None:
    """Removes a group whose processes have ended. The kernel lets go of it shortly after."""
    for _ in range(200):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.005)
        else:
            return


def _count(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)
