"""Runs a command beside a run's own on this machine: in its working folder, with its environment.

    python -m launcher.backends.local.entering --mark=MARK PID START KEEP COMMAND...

becomes COMMAND, beside the process PID (with that start time). The run does not wait for the command. The supervisor
kills the command when the member's runtime ends, as an engine does in a container: it finds the command by MARK, which
stands in the arguments first, then in the environment. The command does not get the store's credentials, except the
variables named in KEEP (comma-separated), which the job declared as secrets.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from launcher.errors import NotFound
from launcher.runtime.member.command import SELF
from launcher.runtime.process import procs
from launcher.runtime.secrets.credentials import is_credential

if TYPE_CHECKING:
    from launcher.spec.model import ResolvedJob

MODULE: Final = "launcher.backends.local.entering"
NO_PROGRAM: Final = 127  # the exit code that shells use
NOT_EXECUTABLE: Final = 126


def argv(runtime: procs.Process, job: ResolvedJob, mark: str, name: str, command: Sequence[str]) -> list[str]:
    """The argv that enters the command of `runtime`, whose mark is `mark`. `name` is for messages. Raises NotFound when
    no command runs yet."""
    command_process = command_of(runtime)
    if command_process is None:
        raise NotFound(f"{name}: its runtime runs no command at this moment (launcher status says what it does)")
    keep = ",".join(sorted(job.secrets))
    process = (str(command_process.pid), str(command_process.start))
    return [sys.executable, "-m", MODULE, f"--mark={mark}", *process, keep, *command]


def command_of(runtime: procs.Process) -> procs.Process | None:
    """The command that a runtime started: the child with a mark of its own."""
    below = sorted(procs.descendants(runtime.pid), key=lambda process: process.start)
    return next((process for process in below if SELF in environment(process)), None)


def environment(process: procs.Process) -> dict[str, str]:
    """The environment with which a process was started; empty where it cannot be read or the process is gone."""
    try:
        words = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    if procs.start_time(process.pid) != process.start:
        return {}
    pairs = (os.fsdecode(word).partition("=") for word in words)
    return {name: value for name, separator, value in pairs if separator}


def inside(environ: dict[str, str], keep: Sequence[str]) -> dict[str, str]:
    """The environment of the entering command: without the store's credentials, and without SELF, so that the runtime
    does not take the command for its own."""
    return {
        name: value
        for name, value in environ.items()
        if name != SELF and (name in keep or not is_credential(name, value))
    }


def main(arguments: Sequence[str]) -> int:
    _, pid, start, keep, *command = arguments
    process = procs.Process(int(pid), int(start))
    environ = environment(process)
    try:
        folder = str(Path(f"/proc/{process.pid}/cwd").readlink())
        os.chdir(folder)
    except OSError:
        environ = {}
    if not environ:
        print("launcher exec: the run's command ended at this moment", file=sys.stderr)
        return NotFound.exit_code
    environ = inside(environ, keep.split(","))
    environ["PWD"] = folder
    program = command[0] if os.sep in command[0] else shutil.which(command[0], path=environ.get("PATH", os.defpath))
    if program is None:
        print(f"launcher exec: `{command[0]}` is not on the PATH of the run", file=sys.stderr)
        return NO_PROGRAM
    try:
        os.execve(program, list(command), environ)
    except OSError as error:
        print(f"launcher exec: {command[0]}: {error.strerror}", file=sys.stderr)
        return NO_PROGRAM if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
