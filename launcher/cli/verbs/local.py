"""`launcher local`: controls the supervisor of this machine's runs."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from launcher import safe_text
from launcher.cli.arguments import add_output
from launcher.cli.printing.output import emit
from launcher.errors import NotFound, Unreachable
from launcher.files import naming

SUMMARY = "The local backend's supervisor. Any verb starts it when it is needed; it ends when nothing is queued."
EXAMPLE = "launcher local status"

UNIT = "slipway-local.service"


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    status = verbs.add_parser("status", help="show whether it runs, and what is queued")
    add_output(status)
    start = verbs.add_parser("start", help="start it; it takes over the runs of one that died")
    stop = verbs.add_parser("stop", help="stop it; runs continue and the next one adopts them")
    stop.add_argument("--runs", action="store_true", help="let runs save and end too; they continue at the next start")
    install = verbs.add_parser("install", help="install a systemd user unit: the queue continues after a reboot")
    install.add_argument("--print", action="store_true", help="only print the unit")
    uninstall = verbs.add_parser("uninstall", help="remove the unit")
    logs = verbs.add_parser("logs", help="print the supervisor's log")
    logs.add_argument("--follow", "-f", action="store_true", help="follow the log")
    for each in (status, start, stop, install, uninstall, logs):
        each.add_argument("--profile", metavar="NAME", help="a named profile of slipway.yaml")


def run(args: argparse.Namespace) -> int:
    from launcher.backends.local import daemon
    from launcher.backends.local.state import StateDir
    from launcher.spec.profile import load_profile

    options = load_profile(Path.cwd(), args.profile, os.environ).backend_options("local")
    state = StateDir(Path(str(options["state"])))
    match args.action:
        case "status":
            return _status(state.path, options, args.output)
        case "start":
            daemon.ensure(state.make(), options)
        case "stop":
            if not daemon.stop(state, runs=args.runs):
                print("no supervisor was running", file=sys.stderr)
            elif args.runs and (left := len(state.queued())):
                runs = "1 run waits and goes" if left == 1 else f"{left} runs wait and go"
                print(f"{runs} on with the next launcher command; `launcher cancel` ends runs", file=sys.stderr)
        case "install":
            _install(daemon.unit(state.path, options), args.print)
        case "uninstall":
            _uninstall()
        case "logs":
            return _logs(state.log, args.follow)
    return 0


def _status(path: Path, options: dict[str, object], output: str) -> int:
    from launcher.backends.local import daemon
    from launcher.backends.local.queue import describe_position as told
    from launcher.backends.local.queue import queue_positions
    from launcher.backends.local.slots import capacity
    from launcher.backends.local.state import QueueNote, StateDir, read
    from launcher.runtime.process.procs import stopped
    from launcher.version import __version__

    state = StateDir(path)
    alive = daemon.living_supervisor(state)
    rows = []
    waiting = queue_positions(state)
    for name in state.queued():
        note = read(state.note(name), QueueNote) or QueueNote("queued")
        queued = note.phase == "queued" and not note.reason and name in waiting
        evidence = told(waiting[name]) if queued else note.evidence
        rows.append({"run": name, "phase": note.phase, "reason": note.reason, "evidence": evidence})
    if output != "table":
        room = capacity(options)
        about = {
            "state": str(path),
            "supervisor": alive.pid if alive else None,
            "version": alive.version if alive else None,
            "stopped": alive is not None and stopped(alive.pid),
            "slots": {"cpus": room.cpus, "memory": room.memory, "gpus": list(room.gpus)},
            "queue": rows,
        }
        emit([about], output)
        return 0
    up = "stopped" if alive and stopped(alive.pid) else "up"
    said = f"pid {alive.pid}, {up}, begun {time.time() - alive.since:.0f} s ago" if alive else "not running"
    print(f"supervisor {said}; state in {path}")
    if alive and up == "stopped":
        print(f"it starts and ends nothing meanwhile: `kill -CONT {alive.pid}` lets it go on", file=sys.stderr)
    if alive and alive.version != __version__:
        print(
            f"it is of version {alive.version or 'before 0.1'}, and this launcher is {__version__}: "
            "`launcher local stop` ends it, runs go on, and the next launcher command starts one of this version",
            file=sys.stderr,
        )
    if rows:
        print()
        emit(rows, output, ("run", "phase", "reason", "evidence"))
    return 0


def _unit_file() -> Path:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return config / "systemd" / "user" / UNIT


def _install(text: str, only_print: bool) -> None:
    if only_print:
        print(text, end="")
        return
    file = _unit_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with naming(file):
        file.write_text(text)
    print(f"written: {file}", file=sys.stderr)
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", UNIT)
    print("to let it run while nobody is logged in: loginctl enable-linger", file=sys.stderr)


def _uninstall() -> None:
    file = _unit_file()
    if not file.exists():
        raise NotFound(f"{file} is not there")
    _systemctl("disable", "--now", UNIT)
    file.unlink()
    _systemctl("daemon-reload")


def _systemctl(*arguments: str) -> None:
    if shutil.which("systemctl") is None:
        raise Unreachable(f"systemctl is not on the PATH; by hand: systemctl --user {' '.join(arguments)}")
    done = subprocess.run(["systemctl", "--user", *arguments], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Unreachable(f"systemctl --user {' '.join(arguments)}: {done.stderr.strip()}")


def _logs(path: Path, follow: bool) -> int:
    if not path.exists():
        raise NotFound(f"{path} is not there: no supervisor has run yet")
    with path.open(errors="replace") as file:
        while True:
            for line in file:
                sys.stdout.write(safe_text.block(line))
            sys.stdout.flush()
            if not follow:
                return 0
            time.sleep(0.2)
