"""One command from its start to the end of the last process that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from launcher.clock import boottime
from launcher.runtime.member import command
from launcher.runtime.process import procs
from launcher.runtime.process.leash import Leash
from launcher.runtime.process.signals import Signals
from launcher.runtime.process.threads import ErrorReporter
from launcher.runtime.uploads.log_stream import OutputStream

BY_SIGTERM: Final = (-signal.SIGTERM, 128 + signal.SIGTERM)  # the second: as a shell tells it of what it ran
TO_ALL: Final = 2.0  # seconds in which a machine that shuts down has told all its processes


class Outcome(msgspec.Struct, frozen=True):
    """
    code        exit code; negative: the signal that ended the command
    terminated  SIGTERM came from outside before the end, and was forwarded to the command
    stopped     the runtime itself ended the command
    killed      the command did not end within the grace period
    """

    code: int
    terminated: bool
    stopped: bool
    killed: bool
    seconds: float


def run_command(
    argv: list[str],
    env: dict[str, str],
    cwd: Path,
    *,
    output: OutputStream,
    signals: Signals,
    stopped: threading.Event,
    grace: float,
    leftovers: float,
    poll: float,
    tick: Callable[[float], None],
    leash: Leash,
) -> Outcome:
    """Runs a command until it ends.

    SIGTERM from outside, or `stopped`, ends it: SIGTERM to its process group, then `grace` seconds for everything that
    it started, then SIGKILL. Processes that outlive a command which ended by itself get `leftovers` seconds.
    `tick(seconds)` is called every `poll` seconds; an error in it is reported and does not end the command.

    Raises AttemptError for a command that cannot be started. Whatever it raises, no process of the command is left.
    """
    read, write = os.pipe()
    try:
        child = command.start(argv, env, cwd, write)
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)
    leash.running(child.pid)
    began = boottime()
    told = ErrorReporter(output.say)

    def safe_tick(seconds: float) -> None:  # an error in what runs beside the command must not end the command
        try:
            tick(seconds)
            told.well()
        except Exception as error:
            told.tell(error)

    asked: set[procs.Process] = set()
    asked_at: float | None = None
    ended = threading.Event()
    try:
        pump = output.pump(read)
        handle = os.pidfd_open(child.pid)
        try:
            threading.Thread(target=_wake_when, args=(stopped, ended, signals), name="stop", daemon=True).start()
            while child.poll() is None:
                signals.wait(handle, poll)
                safe_tick(boottime() - began)
                procs.reap_adopted(keep=[child.pid, leash.pid])
                if asked_at is None and (signals.terminated is not None or stopped.is_set()) and child.poll() is None:
                    asked_at = time.monotonic()
                    asked = procs.group(child.pid)
                    os.killpg(child.pid, signal.SIGTERM)
                    leash.ending(grace)
                if asked_at is not None and time.monotonic() - asked_at >= grace:
                    break
        finally:
            ended.set()
            os.close(handle)
        killed = child.poll() is None
        seconds = boottime() - began
        rest = leftovers if asked_at is None else max(0.0, grace - (time.monotonic() - asked_at))
        end_everything(child, asked, rest, leash)
    except BaseException:  # no thread or no memory: a command that is not watched must not go on
        end_everything(child, asked, 0.0, leash)
        raise
    pump.join(timeout=5.0)  # only a process stuck in the kernel could still hold the pipe
    safe_tick(seconds)
    if asked_at is None and child.returncode in BY_SIGTERM:
        _wait_for_sigterm(signals)
    # SIGTERM may have been sent to every process at once; then the command may have ended before it was forwarded
    terminated = signals.terminated is not None and (asked_at is not None or child.returncode != 0)
    return Outcome(child.returncode, terminated, asked_at is not None and stopped.is_set(), killed, seconds)


def _wait_for_sigterm(signals: Signals) -> None:
    """A machine that shuts down sends SIGTERM to one process after the other: this one's may be the later one."""
    end = time.monotonic() + TO_ALL
    while signals.terminated is None and time.monotonic() < end:
        time.sleep(0.02)


def end_everything(child: subprocess.Popen[bytes], asked: set[procs.Process], grace: float, leash: Leash) -> None:
    """Ends every process below this one. Processes whose parent has ended have become its children."""

    def reap() -> None:
        child.poll()
        procs.reap_adopted(keep=[child.pid, leash.pid])

    procs.kill_tree(os.getpid(), grace=grace, asked=asked, spare=[leash.pid], tick=reap)
    child.wait()
    reap()
    leash.over()


def _wake_when(stopped: threading.Event, ended: threading.Event, signals: Signals) -> None:
    while not ended.is_set():
        if stopped.wait(0.5):
            signals.wake()
            return
