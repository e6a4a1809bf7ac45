"""The supervisor as a process: it takes the lock, leaves its terminal, and serves the queue until it is idle.

python -m launcher.backends.local.supervisor --state DIR [--stay]
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec

from launcher.backends.local.slots import capacity
from launcher.backends.local.state import StateDir, SupervisorRecord
from launcher.backends.local.supervisor.loop import KEEP, Supervisor, catch_signals, log
from launcher.backends.local.supervisor.spawner import spawners_by_backend
from launcher.files import replace
from launcher.runtime.process import procs
from launcher.runtime.secrets.credentials import cannot_be_read
from launcher.userdata import secrets
from launcher.version import __version__

MODULE = "launcher.backends.local.supervisor"
LOG_LIMIT = 4 << 20  # bytes of supervisor.log before it is moved aside


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description="the local backend's supervisor")
    parser.add_argument("--state", required=True, help="the state folder")
    parser.add_argument("--slots", default="{}", help="JSON: cpus, memory (bytes), gpus (number or list of ids)")
    parser.add_argument("--idle", type=float, default=60.0, help="seconds without work until it ends")
    parser.add_argument("--stay", action="store_true", help="run in the foreground without end: for systemd")
    args = parser.parse_args(argv)
    state = StateDir(args.state).make()
    lock = _lock(state)
    if lock is None:
        return 0  # another supervisor was faster
    if args.stay:
        _announce(state, os.getpid())
    else:
        _detach(state)
    _supervise(state, json.loads(args.slots), None if args.stay else args.idle, lock)
    return 0


def _lock(state: StateDir, patience: float = 1.0) -> int | None:
    """Takes the lock; None when another supervisor has it. Tries for a while, because `held` takes it shared for an
    instant."""
    handle = os.open(state.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(handle)
                return None
            time.sleep(0.02)


def _detach(state: StateDir) -> None:
    """Continues in a child without a terminal, which outlives the submitter. The child inherits the lock; the parent
    exits once it is held."""
    with contextlib.suppress(FileNotFoundError):
        if state.log.stat().st_size > LOG_LIMIT:
            state.log.replace(state.log.with_suffix(".old.log"))
    log = os.open(state.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if child := os.fork():
        _announce(state, child)
        os._exit(0)
    os.setsid()
    os.umask(0o077)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(log)


def _announce(state: StateDir, pid: int) -> None:
    started = procs.start_time(pid) or 0
    supervisor = SupervisorRecord(pid, started, procs.boot_id(), time.time(), sys.executable, __version__)
    replace(state.who, msgspec.json.encode(supervisor))


def _supervise(state: StateDir, slots: Mapping[str, Any], idle: float | None, lock: int) -> None:
    me = os.getpid()
    cannot_be_read()  # it holds the submitters' credentials
    by_backend = spawners_by_backend()
    procs.become_subreaper()  # processes that a killed runtime leaves become children of the supervisor
    while True:
        supervisor = Supervisor(
            state,
            capacity(slots),
            by_backend,
            lambda named: secrets.values(state.secrets, named),
            idle=idle,
        )
        catch_signals(supervisor)
        log(f"supervisor {me}: {supervisor.slots.capacity}")
        supervisor.run()
        state.prune(KEEP)
        # A submitter checks the lock after it wrote the entry; the supervisor checks the queue after it released the
        # lock. So one of the two sees the other.
        fcntl.flock(lock, fcntl.LOCK_UN)
        if supervisor.stop or not state.queued():
            log(f"supervisor {me}: ends")
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
