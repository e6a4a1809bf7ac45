"""How the supervisor starts, finds and ends one member's runtime: as a process here, as a container elsewhere.

The supervisor uses only this protocol, so `docker` is the same supervisor with another spawner.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

import msgspec

from launcher.backends.local.environment import machine
from launcher.backends.local.state import StartRecord
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.backends import backends
from launcher.spec.model import ResolvedJob

UNKNOWN = -255  # ended with an unknown exit code: not our child


class Launch(msgspec.Struct, frozen=True):
    """What one start of one member needs. `private`: store credentials and secrets, which are also in `environment`."""

    job: ResolvedJob
    run: str
    member: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    private: Mapping[str, str]
    mark: str
    work: Path
    output: Path
    image: str = ""  # the id of the image that the run began with; "": none yet, or its name can not move
    umask: int = 0o077  # the submitter's


class NotYet(Exception):
    """The start must wait, as for a pull. Not a failure."""


class NeverStarts(Exception):
    """A start that no retry can mend."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LiveRuntime(Protocol):
    """A runtime that was started or adopted."""

    @property
    def record(self) -> StartRecord: ...

    def fileno(self) -> int:
        """Readable once it has ended."""
        ...

    def ended(self) -> int | None:
        """The exit code (negative: a signal; or UNKNOWN), or None while it lives."""
        ...

    @property
    def out_of_memory(self) -> bool:
        """Whether its engine says that the kernel killed something in it because memory ran out."""
        ...

    def terminate(self) -> None:
        """Sends SIGTERM, which the runtime forwards."""
        ...

    def close(self) -> None:
        """Frees the resources used to watch it."""
        ...


class Spawner(Protocol):
    def spawn(self, launch: Launch, record: StartRecord) -> LiveRuntime:
        """Starts a runtime, whose record then identifies it. Raises OSError, SlipwayError, NotYet, NeverStarts."""
        ...

    def adopt(self, record: StartRecord, output: Path) -> LiveRuntime | None:
        """The runtime of a record that another supervisor wrote; None when it is gone. Raises Unreachable."""
        ...

    def sweep(self, mark: str) -> bool:
        """Kills every process with the mark; False when one survived. Raises Unreachable."""
        ...

    def lives(self, record: StartRecord) -> bool:
        """Whether the record's runtime was started by this kind of spawner and lives. Raises Unreachable."""
        ...

    def ask_to_end(self, record: StartRecord) -> None:
        """Sends SIGTERM to a living runtime that no supervisor watches. Raises Unreachable."""
        ...

    def reap(self, known: frozenset[int]) -> None:
        """Ends processes that became the supervisor's when their runtime died; spares those in `known`."""
        ...

    def forget(self, queue: str, queued: frozenset[str]) -> None:
        """Removes what is left of this queue's runs that left it. Does not wait."""
        ...


SpawnerFor = Callable[[Mapping[str, str]], Spawner]  # takes the submitter's variables (Site.env)


class _Process:
    def __init__(self, record: StartRecord, handle: int, child: bool) -> None:
        self.record = record
        self._handle = handle
        self._child = child
        self._code: int | None = None

    def fileno(self) -> int:
        return self._handle

    def ended(self) -> int | None:
        if self._code is None:
            if self._child:
                status = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOHANG)
                if status is not None:
                    died = status.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                    self._code = -status.si_status if died else status.si_status
            elif not procs.alive(self.record.pid, self.record.start, self.record.boot):
                self._code = UNKNOWN
        return self._code

    @property
    def out_of_memory(self) -> bool:
        return False  # a process has no memory of its own that could run out

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, signal.SIGTERM)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class ProcessSpawner:
    """Runtimes as processes of this machine, each in its own session."""

    def spawn(self, launch: Launch, record: StartRecord) -> LiveRuntime:
        launch.work.mkdir(parents=True, exist_ok=True)
        with launch.output.open("ab") as output:
            # the pidfd is waited for instead of Popen, which would warn that wait() was never called
            pid = _start(launch, output.fileno())
        handle = os.pidfd_open(pid)
        start = procs.start_time(pid) or 0
        started = msgspec.structs.replace(record, pid=pid, start=start, boot=procs.boot_id(), machine=machine())
        return _Process(started, handle, child=True)

    def adopt(self, record: StartRecord, output: Path) -> LiveRuntime | None:
        if record.machine != machine() or not procs.alive(record.pid, record.start, record.boot):
            return None
        try:
            handle = os.pidfd_open(record.pid)
        except OSError:
            return None
        if not procs.alive(record.pid, record.start, record.boot):  # the pid may belong to another process by now
            os.close(handle)
            return None
        return _Process(record, handle, child=False)

    def sweep(self, mark: str) -> bool:
        return not procs.kill_tree(mark=mark, grace=0, last=5)

    def lives(self, record: StartRecord) -> bool:
        return procs.alive(record.pid, record.start, record.boot)

    def ask_to_end(self, record: StartRecord) -> None:
        procs.send(procs.Process(record.pid, record.start), signal.SIGTERM)

    def reap(self, known: frozenset[int]) -> None:
        below = procs.descendants(os.getpid())
        ours = {process for pid in known for process in procs.descendants(pid)}
        for process in below - ours:
            if process.pid not in known:
                procs.send(process, signal.SIGKILL)
        procs.reap_adopted(known)

    def forget(self, queue: str, queued: frozenset[str]) -> None:
        """Does nothing: a process leaves nothing behind."""


def spawners() -> SpawnerFor:
    """The spawner of the local backend, the same for every submitter."""
    processes = ProcessSpawner()
    return lambda environ: processes


def spawners_by_backend() -> dict[str, SpawnerFor]:
    """Backend name -> how it starts members. A backend's module is loaded when a run first needs it."""
    return {name: _when_needed(each.spawners) for name, each in backends().items() if each.spawners}


def _when_needed(target: str) -> SpawnerFor:
    @cache
    def spawner_for() -> SpawnerFor:
        module, _, function = target.partition(":")
        loaded: SpawnerFor = getattr(import_module(module), function)()
        return loaded

    return lambda environ: spawner_for()(environ)


def _start(launch: Launch, output: int) -> int:
    child = subprocess.Popen(
        list(launch.argv),
        env=dict(launch.environment),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=launch.work,
        start_new_session=True,
        close_fds=True,
        umask=launch.umask,
    )
    child.returncode = 0  # Popen's finaliser then does not wait
    return child.pid
