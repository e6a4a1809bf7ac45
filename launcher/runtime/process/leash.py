"""The leash: a small process beside the runtime that ends its command when the runtime cannot.

A runtime that is stopped (SIGSTOP, a frozen cgroup, a suspended machine) sends no heartbeats and cannot fence itself,
but its command goes on; after `timing.stale` the next attempt would compute at the same time. So the runtime tells the
leash of every heartbeat that reached the store. After `timing.fence` without one, or when the runtime dies, the leash
ends every process that the command started. It ends with its runtime, holds none of the runtime's files, and is not in
its process group, so a SIGTERM to that group does not reach it.

It is forked before the runtime has threads. It shares the runtime's memory pages and starts in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from launcher.clock import boottime
from launcher.runtime.process import procs

NAME: Final = b"slipway-leash"  # what `ps` and /proc/<pid>/comm show
MARGIN: Final = 1.0  # seconds that the leash gives the runtime to act first; a tenth of the fence if that is less
SOONER: Final = 250  # oom_score_adj above the runtime's; the command's is higher still
_LAST: Final = 10.0  # seconds during which SIGKILL is repeated, for processes stuck in the kernel
_POLL: Final = 0.02
_PR_SET_NAME: Final = 15


class Leash:
    """The runtime's side of the pipe. Thread-safe; no method raises or waits for the other side."""

    def __init__(self, pid: int, end: socket.socket) -> None:
        self.pid, self._end = pid, end

    @classmethod
    def fork(cls) -> Leash:
        """Starts the leash. Call it while this process has one thread. Raises OSError if no process can be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        runtime = os.getpid()
        start = procs.start_time(runtime) or 0
        gc.freeze()  # a garbage collection would write to every page, and so copy it
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                _become_a_leash(theirs.fileno())
                _Watch(theirs, procs.Process(runtime, start)).run()
            os._exit(0)
        gc.unfreeze()
        theirs.close()
        ours.setblocking(False)
        return cls(pid, ours)

    def fed(self, began: float) -> None:
        """Tells the leash that a heartbeat which began at this boot time reached the store."""
        self._send(("fed", began))

    def hold(self, mark: str, variable: str, fence: float, grace: float) -> None:
        """Tells the leash that a command is about to start whose processes have `variable=mark` in their environment.
        `fence` and `grace` are in seconds."""
        self._send(("hold", mark, variable, fence, grace))

    def running(self, pid: int) -> None:
        """Tells the leash the command's pid, which is also its session."""
        self._send(("running", pid))

    def ending(self, within: float) -> None:
        """Tells the leash that the runtime ends the command itself, within so many seconds."""
        self._send(("ending", within))

    def over(self) -> None:
        """Tells the leash that no process of the command is left."""
        self._send(("over",))

    def let_go(self) -> None:
        """Ends the leash and waits for it."""
        self._send(("bye",))
        self._end.close()
        with contextlib.suppress(OSError):  # another part of this process may have waited for it already
            os.waitpid(self.pid, 0)

    def _send(self, message: tuple[Any, ...]) -> None:
        with contextlib.suppress(OSError):
            self._end.send(msgspec.json.encode(message))


def _become_a_leash(end: int) -> None:
    """Closes all descriptors of the runtime except this one: a pipe that the leash kept open would never end."""
    os.setsid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    os.closerange(3, end)
    os.closerange(end + 1, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    # out of memory, the kernel takes the command first, then this, and the runtime last
    with contextlib.suppress(OSError, ValueError):
        score = Path("/proc/self/oom_score_adj")
        score.write_text(str(min(int(score.read_text()) + SOONER, 1000)))
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME, 0, 0, 0)


class _Watch(msgspec.Struct):
    """The leash's side of the pipe. Times are boot times."""

    end: socket.socket
    runtime: procs.Process
    last: float = msgspec.field(default_factory=boottime)  # when the last heartbeat that reached the store began
    held: bool = False  # a command may run
    mark: str = ""
    variable: str = ""
    fence: float = 0.0
    grace: float = 0.0
    session: int = 0
    within: float | None = None  # when the runtime, which is ending its command, must have finished
    known: set[procs.Process] = msgspec.field(default_factory=set)  # of the command, as last seen

    def run(self) -> None:
        while True:
            # a wait does not count time while the machine is suspended, so the clock is read at least once a second
            ready, _, _ = select.select([self.end], [], [], min(1.0, self.fence / 20) if self.held else None)
            if ready:
                body = self.end.recv(1 << 16)
                if not body:
                    return self._runtime_died()
                if not self._hear(*msgspec.json.decode(body)):
                    return
            elif self.held:
                self._look()

    def _hear(self, message: str, *told: Any) -> bool:
        """Handles one message of the runtime. False: the leash has to end."""
        if message == "fed":
            self.last = told[0]
            if self.held:
                self.known = self._found()
        elif message == "hold":
            self.held, self.within, self.session, self.known = True, None, 0, set()
            self.mark, self.variable, self.fence, self.grace = told
        elif message == "running":
            self.session = told[0]
        elif message == "ending":
            self.within = boottime() + told[0] + self._margin
        elif message == "over":
            self.held = False
        return message != "bye"

    @property
    def _margin(self) -> float:
        return min(MARGIN, self.fence / 10)

    def _look(self) -> None:
        due = self.last + self.fence + self._margin
        if self.within is not None:  # the runtime sent SIGTERM; if it is stopped now, the leash sends SIGKILL
            if boottime() > min(self.within, max(due, boottime()) + self.grace):
                self._end_all(0.0)
        elif boottime() > due:
            # after a long suspend the next attempt may be running already: then there is no grace period
            self._end_all(max(0.0, due + self.grace - boottime()))

    def _runtime_died(self) -> None:
        """The kernel has killed the command together with the runtime. Ends the processes that the command started."""
        if self.held:
            self._end_all(0.0)

    def _end_all(self, grace: float) -> None:
        told: set[procs.Process] = set()
        kill = boottime() + grace
        while (found := self._found()) and boottime() < kill + _LAST:
            killing = boottime() >= kill
            for process in found if killing else found - told:
                procs.send(process, signal.SIGKILL if killing else signal.SIGTERM)
            told |= found
            time.sleep(_POLL)

    def _found(self) -> set[procs.Process]:
        """The living processes of the command: those below the runtime, those with the mark, those of its session, and
        those that were one of these at the last heartbeat."""
        processes = {process for process in self.known if procs.start_time(process.pid) == process.start}
        if procs.start_time(self.runtime.pid) == self.runtime.start:
            processes |= procs.descendants(self.runtime.pid)
        processes |= procs.descendants_with_mark(self.mark, self.variable)
        if self.session:
            processes |= procs.session(self.session)
        return {process for process in processes if process.pid not in (os.getpid(), self.runtime.pid)}
