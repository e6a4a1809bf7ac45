"""How far this machine can separate a desktop's programs from everything else, found by trying."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eval.config import ConfigError
from eval.desktop import SetupFailed
from eval.desktops.keeping.guest import SYSTEM

_SOURCES: Final = str(Path(__file__).parents[2])
PROBE_LIMIT_S: Final = 60.0
OWN: Final = ("/", "/dev", "/home", "/proc", "/run", "/tmp")  # of the folders that every desktop has of its own


def keeper_sources() -> str:
    """The folder above the package `eval`."""
    return _SOURCES


def keeper_command(module: str) -> list[str]:
    """The command that runs `main` of a module of eval.desktops.keeping with the standard library alone."""
    code = (
        f"import sys; sys.path.append({_SOURCES!r}); from eval.desktops.keeping.{module} import main; sys.exit(main())"
    )
    return [sys.executable, "-I", "-S", "-c", code]


@dataclass(frozen=True)
class Isolation:
    """What separates the agent's programs from the rest.

    namespaces  of user, mount, pid, ipc, network
    users       each desktop has a user id of its own, from this number on; 0: it has this process's user
    cgroups     controller (pids, memory) to the folder in which groups are made; only limits that refused something
    root        this process is root
    missing     a line for each part that this machine does not allow, with the reason
    """

    namespaces: tuple[str, ...] = ()
    users: int = 0
    cgroups: Mapping[str, str] = field(default_factory=dict)
    cgroup_version: Mapping[str, int] = field(default_factory=dict)
    root: bool = False
    missing: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whatever a program of the agent does stays in its desktop: it is not root, sees only its own processes and
        folders, and its processes, memory and files are limited. Then it may have a terminal."""
        return {"pid", "mount"} <= set(self.namespaces) and self.limited and (bool(self.users) or not self.root)

    @property
    def limited(self) -> bool:
        """Processes and memory have limits that were seen to hold."""
        return {"pids", "memory"} <= set(self.cgroups)


@functools.cache
def isolation() -> Isolation:
    """What this machine allows to this process; tried once. Raises SetupFailed if that cannot be found out."""
    try:
        answer = subprocess.run(
            keeper_command("probe"), capture_output=True, text=True, timeout=PROBE_LIMIT_S, stdin=subprocess.DEVNULL
        )
        values = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        raise SetupFailed(f"cannot find out how far this machine can separate desktops: {error}") from error
    return Isolation(
        **{**values, "namespaces": tuple(values["namespaces"]), "missing": tuple(values["missing"])},
    )


def check_shown(shown: Sequence[str], where: str, role: str | None = None) -> None:
    """Raises ConfigError for a path that no desktop of this machine can show; `where` names the field."""
    if shown and role is not None:
        raise ConfigError(f"{where}: for desktops of this machine; those of a role see what is in their image")
    for path in shown:
        if (
            not path.startswith("/")
            or os.path.normpath(path) != path
            or path in OWN
            or path.startswith(("/dev/", "/proc/"))
        ):
            raise ConfigError(f"{where}: {path!r}; allowed: an absolute path, as /opt/program; not {', '.join(OWN)}")
        if not Path(path).exists():
            raise ConfigError(f"{where}: {path}: it is not there")


def not_shown(program: str) -> str:
    """Where this machine has the program, if the desktop does not see it there."""
    found = shutil.which(program)
    real = None if found is None else os.path.realpath(found)
    if real is None or any(real.startswith(f"{folder}/") for folder in SYSTEM):
        return ""
    return f"; it is {real}, which the desktop does not see: options.shown: [{'/'.join(real.split('/')[:3])}]"
