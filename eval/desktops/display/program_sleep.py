"""Whether every program of a desktop sleeps: then nothing more is drawn until something happens from outside.

The kernel tells of each thread in which system call it waits, and how often it has run (proc(5): `syscall`,
`schedstat`, `stat`). All threads are looked at twice. Who sleeps at both looks and did not run between them slept from
the first look to the second, so at the moment between the two everybody slept. A sleep that soon ends of itself does
not count: so a program waits for the time of its next frame. The second look asks only what may have changed without a
thread that ran: whether somebody has been woken. Only who runs starts a thread or waits in another call.
"""

from __future__ import annotations

import contextlib
import os
import platform
import struct
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

SOON_S: Final = 0.018  # a frame is 16.7 ms
AWAKE_S: Final = 1.0  # so long the number of a thread is not given to another one
THREADS: Final = 400  # with more of them looking would take longer than waiting
# x86-64 system calls that end of themselves: number to (position of the timeout, its form). Other calls wait for an
# event, as does any of these with a timeout of -1 or a null pointer.
_MS, _TIMEVAL, _TIMESPEC = "ms", "timeval", "timespec"
_TIMEOUTS: Final = {
    7: (2, _MS),  # poll
    23: (4, _TIMEVAL),  # select
    35: (0, _TIMESPEC),  # nanosleep
    202: (3, _TIMESPEC),  # futex
    230: (2, _TIMESPEC),  # clock_nanosleep
    232: (3, _MS),  # epoll_wait
    270: (4, _TIMESPEC),  # pselect6
    271: (2, _TIMESPEC),  # ppoll
    281: (3, _MS),  # epoll_pwait
    441: (3, _TIMESPEC),  # epoll_pwait2
}
_FUTEX, _CLOCK_NANOSLEEP = 202, 230
_FUTEX_WAIT, _FUTEX_WAIT_BITSET, _FUTEX_REALTIME = 0, 9, 256  # linux/futex.h; of others the argument is no time
_FUTEX_OPERATIONS: Final = 0x7F
_ABSOLUTE: Final = 1  # TIMER_ABSTIME


class _AwakeError(Exception):
    """Some thread runs, is about to, or waits for a disk."""


class SleepWatch:
    """Looks at the processes that `roots` names and at all below them."""

    def __init__(self, roots: Callable[[], Sequence[int]]) -> None:
        self._roots = roots
        # the thread that was found awake last, and when: it is likely the one that is awake at the next look
        self._awake: tuple[str, float] = ("", 0.0)
        self.works = _kernel_tells()

    def asleep(self, soon_s: float = SOON_S) -> bool | None:
        """Whether there was a moment during this call at which every thread slept, and none was about to wake within
        `soon_s`. With 0: each has read every event that came before, though it may wait to draw the next frame.

        None where the kernel does not tell; then `works` becomes False.
        """
        if not self.works:
            return None
        try:
            if self._is_still_awake():
                return False
            return all(_still_sleeps(thread, runs) for thread, runs in self._look(soon_s).items())
        except PermissionError:
            self.works = False
            return None
        except (_AwakeError, OSError):  # a thread that ended meanwhile was running
            pass
        return False

    def _is_still_awake(self) -> bool:
        thread, seen = self._awake
        return time.monotonic() - seen <= AWAKE_S and _can_run(thread)

    def queued(self) -> dict[int, int]:
        """How long each thread has waited for a processor so far, in nanoseconds. What ends meanwhile is left out."""
        return {number: waited for number, (_, _, waited) in self._times().items()}

    def processor_wait(self) -> Callable[[], float]:
        """Returns a function that tells how many of the seconds since its last call (at first since now) the thread
        that waited longest has waited for a processor.

        The kernel counts a wait when it ends. Until then, the time counts in which a thread that can run did not run.
        """
        before, last = self._times(), time.monotonic()

        def waited() -> float:
            nonlocal before, last
            now, times = time.monotonic(), self._times()
            passed, longest = now - last, 0.0
            for number, (thread, ran, told) in times.items():
                _, ran_before, told_before = before.get(number, (thread, 0, 0))
                longest = max(longest, (told - told_before) / 1e9)
                idle = passed - (ran - ran_before) / 1e9
                if idle > longest and _can_run(thread):
                    longest = idle
            before, last = times, now
            return min(longest, passed)

        return waited

    def _times(self) -> dict[int, tuple[str, int, int]]:
        """Of each thread, by its number: its folder, and for how many nanoseconds it has run, and waited to run."""
        out: dict[int, tuple[str, int, int]] = {}
        waiting = list(self._roots())
        while waiting and len(out) <= THREADS:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                for number, thread in _threads(pid):
                    ran, waited, _ = map(int, _read(f"{thread}/schedstat").split())
                    out[number] = (thread, ran, waited)
                    waiting += map(int, _read(f"{thread}/children").split())
        return out

    def _look(self, soon_s: float) -> dict[str, bytes]:
        """The folder of each thread, and how often it has run. Raises _AwakeError and OSError."""
        runs: dict[str, bytes] = {}
        waiting = list(self._roots())
        while waiting:
            pid = waiting.pop()
            for _, thread in _threads(pid):
                runs[thread] = _times_run(thread)
                self._check(pid, thread, soon_s)
                waiting += map(int, _read(f"{thread}/children").split())
            if len(runs) > THREADS:
                raise _AwakeError
        return runs

    def _check(self, pid: int, thread: str, soon_s: float) -> None:
        words = _read(f"{thread}/syscall").split()
        if words[0] == b"running":
            self._awake = (thread, time.monotonic())
            raise _AwakeError
        state = _read(f"{thread}/stat").rpartition(b")")[2].split(maxsplit=1)[0]
        if state == b"Z":
            return
        if state != b"S" or int(words[0]) < 0:
            raise _AwakeError
        if soon_s and _wakes_soon(pid, [int(word, 0) for word in words[:7]], soon_s):
            raise _AwakeError


class ServedTime:
    """The time in which no program of a desktop waited for a processor: what a busy machine takes does not count.

    `seconds` is the time since the start, less what the threads have waited for a processor since; never less than 0.
    A thread's wait is told when it ends, so the clock may go back.
    """

    def __init__(self, watch: SleepWatch) -> None:
        self._watch = watch
        self._began = time.monotonic()
        self._last = watch.queued()
        self._waited = 0

    def seconds(self) -> float:
        now = self._watch.queued()
        self._waited += sum(max(0, waited - self._last.get(number, 0)) for number, waited in now.items())
        self._last = now
        return max(0.0, time.monotonic() - self._began - self._waited / 1e9)


def _threads(pid: int) -> list[tuple[int, str]]:
    """The numbers and folders of a process's threads. Raises OSError."""
    folder = f"/proc/{pid}/task"
    return [(int(name), f"{folder}/{name}") for name in os.listdir(folder)]  # noqa: PTH208 a path object takes too long


def _can_run(thread: str) -> bool:
    """Whether a thread runs or waits for a processor. False: it has ended."""
    with contextlib.suppress(OSError):
        return _read(f"{thread}/syscall").startswith(b"running")
    return False


def _times_run(thread: str) -> bytes:
    return _read(f"{thread}/schedstat").split()[-1]


def _still_sleeps(thread: str, runs: bytes) -> bool:
    """Whether a thread that slept when it had run so often has slept since. Raises OSError: it has ended."""
    return not _read(f"{thread}/syscall").startswith(b"running") and _times_run(thread) == runs


def _kernel_tells() -> bool:
    thread = f"/proc/self/task/{os.getpid()}"
    names = ("syscall", "schedstat", "children")
    return platform.machine() == "x86_64" and all(Path(thread, name).exists() for name in names)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def _wakes_soon(pid: int, call: list[int], soon_s: float) -> bool:
    """Whether a system call (its number, six arguments) returns of itself within `soon_s`."""
    number, arguments = call[0], call[1:]
    if number not in _TIMEOUTS:
        return False
    position, form = _TIMEOUTS[number]
    value = arguments[position]
    if form == _MS:
        return value & 0xFFFFFFFF < soon_s * 1e3  # a negative number is a large one here: no timeout
    operation = arguments[1] & _FUTEX_OPERATIONS if number == _FUTEX else _FUTEX_WAIT
    if value == 0 or operation not in (_FUTEX_WAIT, _FUTEX_WAIT_BITSET):
        return False
    seconds = _span(pid, value, form)
    if operation == _FUTEX_WAIT_BITSET:
        realtime = arguments[1] & _FUTEX_REALTIME
        seconds -= time.clock_gettime(time.CLOCK_REALTIME if realtime else time.CLOCK_MONOTONIC)
    elif number == _CLOCK_NANOSLEEP and arguments[1] & _ABSOLUTE:
        seconds -= time.clock_gettime(arguments[0])
    return seconds < soon_s


def _span(pid: int, address: int, form: str) -> float:
    """The seconds at an address of a process. Raises OSError; a time that cannot be read counts as none."""
    with contextlib.suppress(OverflowError, struct.error):
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            whole, part = struct.unpack("qq", os.pread(descriptor, 16, address))
        finally:
            os.close(descriptor)
        return float(whole + part / (1e6 if form == _TIMEVAL else 1e9))
    return 0.0
