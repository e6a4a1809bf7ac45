"""A runtime that stands still while its command runs on: its leash ends the command before a successor computes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.model import Limits, Timing
from tests.integration.runtime.rig import Rig, command_of, leash_of, until
from tests.support.needs import need_root

TIMING = Timing(beat=0.2, stale=6.0, fence=2.0)
# appends `attempt boottime` to a ledger, itself and by a child that left its session and its environment
COMMAND = """
import os, signal, sys, time
attempt, ledger = os.environ["SLIPWAY_ATTEMPT"], sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def write():
    while True:
        with open(ledger, "a") as file:
            file.write(f"{attempt} {time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
        time.sleep(0.01)
if os.fork() == 0:
    os.setsid()
    os.execve(sys.executable, [sys.executable, "-c", LOOP, attempt, ledger], {})
write()
"""
LOOP = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    with open(sys.argv[2], "a") as file:
        file.write(f"{sys.argv[1]} {time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
    time.sleep(0.01)
"""


def rig_of(tmp_path: Path) -> Rig:
    code = f"LOOP = {LOOP!r}\n{COMMAND}"
    command = ("python", "-c", code, str(tmp_path / "ledger"))
    return Rig.of(tmp_path, command, timing=TIMING, limits=Limits(grace=0.3))


def _open_of(pid: int) -> set[str]:
    """What its descriptors are; one that is closed while they are listed is left out."""
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(path))  # noqa: PTH115 - no path: socket:[1]
    return found


def lines(rig: Rig, attempt: int) -> list[float]:
    """The times at which the command of an attempt wrote."""
    ledger = rig.root / "ledger"
    rows = [line.split() for line in ledger.read_text().splitlines()] if ledger.exists() else []
    return [float(row[1]) for row in rows if len(row) == 2 and row[0] == str(attempt)]


def elsewhere(rig: Rig) -> subprocess.Popen[bytes]:
    """A runtime of the same run at a place from which nobody can tell that the first one lives."""
    rig.environ["SLIPWAY_PLACEMENT"] = json.dumps({"kind": "process", "where": "there/queue/1", "host": "there"})
    rig.environ["SLIPWAY_WORKDIR"] = str(rig.root / "work" / "there")
    return rig.start()


def living(found: set[procs.Process]) -> set[procs.Process]:
    return {process for process in found if procs.alive(process.pid, process.start, procs.boot_id())}


def _at_rest(pid: int) -> bool:
    """Whether a process waited whenever it was asked for a while: one that is kept from the processor does not."""
    for _ in range(20):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            return False
        time.sleep(0.02)
    return True


def test_a_frozen_runtime_s_command_ends_before_its_successor_s_begins(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    first = rig.start()
    until(lambda: len(lines(rig, 1)) > 20)
    os.kill(first.pid, signal.SIGSTOP)
    second = elsewhere(rig)
    try:
        until(lambda: len(lines(rig, 2)) > 20, 120)
        assert max(lines(rig, 1)) < min(lines(rig, 2))
        os.kill(first.pid, signal.SIGCONT)
        first.wait(60)
        assert rig.exit(1).reason is Reason.LOST
    finally:
        for process in (first, second):
            process.kill()
            process.wait()
    assert max(lines(rig, 1)) < min(lines(rig, 2))


def test_a_whole_machine_that_stood_still_ends_the_command_first(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    first = rig.start()
    until(lambda: len(lines(rig, 1)) > 20)
    command, watcher = command_of(first.pid), leash_of(first.pid)
    for pid in (watcher, first.pid, *(process.pid for process in command)):
        os.kill(pid, signal.SIGSTOP)
    second = elsewhere(rig)
    try:
        until(lambda: len(lines(rig, 2)) > 20, 120)
        wrote = len(lines(rig, 1))
        os.kill(watcher, signal.SIGCONT)  # whichever of the two wakes up first
        until(lambda: not living(command))
        assert len(lines(rig, 1)) == wrote
        os.kill(first.pid, signal.SIGCONT)
        first.wait(60)
        assert rig.exit(1).reason is Reason.LOST
    finally:
        for process in (first, second):
            process.kill()
            process.wait()


def test_what_a_killed_runtime_s_command_started_ends_at_once_and_the_leash_with_it(tmp_path: Path) -> None:
    rig = rig_of(tmp_path)
    rig.job = msgspec.structs.replace(rig.job, timing=Timing(beat=0.2, stale=120.0, fence=60.0))
    first = rig.start()
    until(lambda: len(command_of(first.pid)) > 1 and len(lines(rig, 1)) > 20)
    seq = rig.view().attempts[0].beats["main-0"][0].seq
    until(lambda: rig.view().attempts[0].beats["main-0"][0].seq > seq + 1)
    everything, watcher = procs.descendants(first.pid), leash_of(first.pid)
    first.send_signal(signal.SIGSTOP)  # it tells the leash of no further heartbeat: at rest, that has seen them all
    until(lambda: _at_rest(watcher))
    first.kill()
    first.wait()
    until(lambda: not living(everything))


def test_a_leash_holds_nothing_of_its_runtime_s_and_outlives_sigterm(tmp_path: Path) -> None:
    need_root()  # a runtime hides what it has open from its own user
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; until [ -e go ]; do sleep 0.05; done"), timing=TIMING)
    first = rig.start()
    until(lambda: b"up\n" in rig.log())
    pid = leash_of(first.pid)
    theirs = _open_of(first.pid)
    held = _open_of(pid)
    assert not {name for name in held & theirs if not name.startswith("/proc")} - {os.devnull}
    # besides its socket, what it looks at in /proc at this moment
    assert {name for name in held if not name.startswith(("socket:", "/proc"))} == {os.devnull}
    assert sum(name.startswith("socket:") for name in held) == 1
    assert os.getpgid(pid) != os.getpgid(first.pid)
    os.kill(pid, signal.SIGTERM)
    (rig.root / "work" / "main-0" / "work" / "go").touch()
    assert first.wait(60) == 0
    assert procs.start_time(pid) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_leash_is_left_behind(tmp_path: Path, number: signal.Signals) -> None:
    rig = Rig.of(tmp_path, ("sh", "-c", "echo up; sleep 600"), timing=TIMING)
    first = rig.start()
    until(lambda: b"up\n" in rig.log())
    everything = procs.descendants(first.pid)
    os.killpg(first.pid, number)
    first.wait(60)
    until(lambda: not living(everything))
