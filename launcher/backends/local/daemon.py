"""The supervisor as a verb sees it: how to start, find and stop it, and its systemd unit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from launcher.backends.local.state import Site, StartRecord, StateDir, SupervisorRecord, read
from launcher.backends.local.supervisor.spawner import spawners_by_backend
from launcher.errors import Unreachable
from launcher.exposition import TEXTFILES
from launcher.files import replace
from launcher.runtime.process import procs

MODULE = "launcher.backends.local.supervisor"


def command(state: StateDir, options: Mapping[str, object], *extra: str) -> list[str]:
    """The command line of a supervisor with these options."""
    slots = {name: options[name] for name in ("cpus", "memory", "gpus") if options.get(name) is not None}
    arguments = [sys.executable, "-m", MODULE, "--state", str(state.path)]
    return [*arguments, *(["--slots", json.dumps(slots)] if slots else []), *extra]


def ensure(state: StateDir, options: Mapping[str, object]) -> None:
    """Makes sure that a supervisor lives and reads its folder now. Raises Unreachable when none can be started."""
    if not state.held():
        # a verb called inside a run must not pass the run's mark on: the supervisor would be killed with the run
        kept = {name: value for name, value in os.environ.items() if name == TEXTFILES}
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")} | kept
        idle = ["--idle", str(options["idle"])] if "idle" in options else []
        try:
            started = subprocess.run(
                command(state, options, *idle),
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd="/",
                timeout=60,
                check=False,
                start_new_session=True,  # at once: the submitter may close the terminal at any moment
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unreachable(f"the local supervisor cannot be started: {error}") from None
        if started.returncode != 0:
            message = started.stderr.strip() or f"exit code {started.returncode}"
            raise Unreachable(f"the local supervisor cannot be started: {message}")
    state.wake()


def living_supervisor(state: StateDir) -> SupervisorRecord | None:
    """The living supervisor; None without one."""
    supervisor = read(state.who, SupervisorRecord)
    return supervisor if supervisor is not None and state.held() else None


def stop(state: StateDir, *, runs: bool = False, timeout: float = 30.0) -> bool:
    """Ends the supervisor; False when none lived. Runs continue by themselves, unless `runs`: then they are asked to
    save and end, and the next supervisor continues them; a
    command that was following them by then does not start it. Raises Unreachable when it does not end in time."""
    supervisor = read(state.who, SupervisorRecord)
    lived = state.held()
    if lived and runs:  # before it ends: who follows a run starts no other
        replace(state.stopped, uuid.uuid4().hex.encode())
    until = time.monotonic() + timeout
    while state.held():
        if supervisor is not None and supervisor.boot == procs.boot_id():
            procs.send(procs.Process(supervisor.pid, supervisor.start), 15)
        if time.monotonic() > until:
            raise Unreachable(f"the supervisor of {state.path} does not end; see {state.log}")
        time.sleep(0.05)
        supervisor = read(state.who, SupervisorRecord)
    if runs:
        _stop_runs(state, timeout)
    return lived


def _stop_runs(state: StateDir, timeout: float) -> None:
    """Sends SIGTERM to every living runtime, of any backend. Raises Unreachable."""
    by_backend = spawners_by_backend()
    alive: list[Callable[[], bool]] = []
    for path in (state.path / "runs").glob("*/*/record.json"):
        record = read(path, StartRecord)
        site = read(state.site(path.parent.parent.name), Site)
        for spawner_for in by_backend.values() if record else ():
            spawner = spawner_for(site.env if site else {})
            if record and spawner.lives(record):
                spawner.ask_to_end(record)
                alive.append(partial(spawner.lives, record))
    until = time.monotonic() + timeout
    while any(lives() for lives in alive) and time.monotonic() < until:
        time.sleep(0.05)


def unit(state: Path, options: Mapping[str, object]) -> str:
    """A systemd user unit, with which the queue continues after a reboot before anybody calls a verb."""
    line = " ".join(_quoted(part) for part in command(StateDir(state), options, "--stay"))
    return f"""\
[Unit]
Description=Slipway: local runs queued in {state}

[Service]
ExecStart={line}
Restart=on-failure
RestartSec=5
# runs outlive a restart of the supervisor, which adopts them
KillMode=process
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""


def _quoted(part: str) -> str:
    """A word quoted for systemd, without variables and specifiers."""
    escaped = part.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
