"""Processes of this machine: how to identify one (pids are reused, so a pid alone is not enough), which ones belong to
a run, and how to end a whole tree of them. Linux only; reads /proc."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

MARK = "SLIPWAY_MARK"  # the environment variable that every descendant of a runtime inherits

_PR_SET_CHILD_SUBREAPER = 36
_POLL = 0.02
_KTHREADD = 2  # the parent of the kernel's own processes
_LOOKS = 500  # tries to read a process that is starting another program, a millisecond apart


class Process(NamedTuple):
    """A process: its pid, and its start time in clock ticks since boot. A later process with that pid has another."""

    pid: int
    start: int


class _Row(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    start: int
    zombie: bool


@functools.cache
def boot_id() -> str:
    """The kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _row(pid: int) -> _Row | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()  # the name may contain blanks and brackets
    return _Row(pid, int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]), fields[0] in (b"Z", b"X"))


def _rows() -> Iterator[_Row]:
    for name in os.listdir("/proc"):  # noqa: PTH208 - a tenth of the cost of Path objects
        if name.isdigit() and (row := _row(int(name))):
            yield row


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None if there is no such process."""
    row = _row(pid)
    return row.start if row else None


def stopped(pid: int) -> bool:
    """Whether a process stands still, by SIGSTOP or under a debugger."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return text[text.rindex(b")") + 2 :][:1] in (b"T", b"t")


def alive(pid: int, start: int, boot: str) -> bool:
    """Whether the process with this pid, start time and boot id still runs. A zombie does not."""
    if boot != boot_id():
        return False
    row = _row(pid)
    return row is not None and row.start == start and not row.zombie


def carries(pid: int, mark: str, variable: str = MARK) -> bool:
    """Whether a process was started with `variable=mark` in its environment, or is a runtime with that mark. Nobody can
    read a runtime's environment, so its arguments hold the mark."""
    for _ in range(_LOOKS):
        image = _image(pid)
        arguments, environ = _words(pid, "cmdline"), _words(pid, "environ")
        if variable == MARK and f"--mark={mark}".encode() in (arguments or ()):
            return True
        if environ is None:  # this user may not read it
            return False
        if f"{variable}={mark}".encode() in environ:
            return True
        # While a process starts another program (execve) its environment is empty for a moment. So an empty one counts
        # only if the same program was there, completely, before and after. The kernel's own processes have no program.
        if image is None or (image[0] != 0 and image == _image(pid)):
            return False
        row = _row(pid)
        if row is None or row.zombie or row.parent in (0, _KTHREADD):
            return False
        time.sleep(0.001)
    return False


def _image(pid: int) -> tuple[int, ...] | None:
    """The addresses of a process's program in memory: where its code begins (0 until the program is loaded), and where
    its stack, arguments and environment end. They differ for the next program. None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = text[text.rindex(b")") + 2 :].split()
    return tuple(map(int, (fields[23], fields[25], *fields[45:49])))


def _words(pid: int, name: str) -> list[bytes] | None:
    """None where it cannot be read."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().split(b"\0")
    except OSError:
        return None


def descendants_with_mark(mark: str, variable: str = MARK) -> set[Process]:
    """Every live process with the mark, this process included if it has it."""
    return {Process(row.pid, row.start) for row in _rows() if not row.zombie and carries(row.pid, mark, variable)}


def descendants(pid: int) -> set[Process]:
    """Every live process below `pid`, without `pid` itself."""
    rows = list(_rows())
    below = {pid}
    grew = True
    while grew:
        more = {row.pid for row in rows if row.parent in below} - below
        below |= more
        grew = bool(more)
    return {Process(row.pid, row.start) for row in rows if row.pid in below and row.pid != pid and not row.zombie}


def group(pgid: int) -> set[Process]:
    """Every live process of a process group."""
    return {Process(row.pid, row.start) for row in _rows() if row.group == pgid and not row.zombie}


def session(leader: int) -> set[Process]:
    """Every live process of a session."""
    return {Process(row.pid, row.start) for row in _rows() if row.session == leader and not row.zombie}


def become_subreaper() -> None:
    """From now on a descendant whose parent ends becomes a child of this process instead of pid 1."""
    import ctypes  # verbs look at processes, too, and never become one

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def reap_adopted(keep: Collection[int]) -> None:
    """Waits for adopted children that have ended. Other code waits for the pids in `keep`."""
    for pid in _children():
        if pid not in keep and (row := _row(pid)) and row.zombie:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _children() -> list[int]:
    """This process's children, zombies included."""
    try:
        tasks = [path / "children" for path in Path("/proc/self/task").iterdir()]
        return [int(pid) for task in tasks for pid in task.read_text().split()]
    except OSError:  # a kernel without that file, or a thread that just ended
        return [row.pid for row in _rows() if row.parent == os.getpid()]


def send(process: Process, number: int) -> bool:
    """Sends a signal to this process, never to a later one with its pid. False if it is gone or of another user."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if start_time(process.pid) != process.start:
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)


def kill_tree(
    root: int | None = None,
    *,
    mark: str | None = None,
    variable: str = MARK,
    grace: float,
    asked: Collection[Process] = (),
    spare: Collection[int] = (),
    last: float = 10.0,
    tick: Callable[[], object] = lambda: None,
) -> set[Process]:
    """Ends a tree of processes: everything below `root` (and `root`, unless it is this process) and everything with
    `mark`.

    Sends SIGTERM once to each process except those in `asked`, which had it already; waits `grace` seconds; then sends
    SIGKILL until no process is left. A process that forks while it is killed is found in the next round. This process
    and those in `spare` are not touched. Returns the processes that survived `last` seconds of SIGKILL, because they
    are stuck in the kernel or of another user. `tick` is called at every poll, for example to collect children.
    """

    def find() -> set[Process]:
        processes: set[Process] = set()
        if root is not None:
            processes |= descendants(root)
            row = _row(root)
            if row and not row.zombie:
                processes.add(Process(row.pid, row.start))
        if mark is not None:
            processes |= descendants_with_mark(mark, variable)
        left_alone = {os.getpid(), *spare}
        return {process for process in processes if process.pid not in left_alone}

    told = set(asked)
    until = time.monotonic() + grace
    while (left := find()) and time.monotonic() < until:
        for process in left - told:
            send(process, signal.SIGTERM)
        told |= left
        tick()
        time.sleep(_POLL)
    until = time.monotonic() + last
    while (left := find()) and time.monotonic() < until:
        for process in left:
            send(process, signal.SIGKILL)
        tick()
        time.sleep(_POLL)
    return left
