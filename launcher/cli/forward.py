"""`launcher forward`: a port of a run's member on this machine, where the backend can do it."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from launcher.cli import common
from launcher.errors import BadInput

SUMMARY = (
    "Bring ports of a run's member to this machine until interrupted: a model server, a dashboard. On `kubernetes`."
)
EXAMPLE = (
    "launcher forward RUN 8000                  http://127.0.0.1:8000\n  launcher forward RUN http:9000 --role server"
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="one run")
    parser.add_argument(
        "ports", nargs="+", metavar="PORT[:LOCAL]", help="a port's number, or its name in the role's `ports`"
    )
    parser.add_argument("--role", help="default: the leading role")
    parser.add_argument("--rank", type=int, default=0, help="default: 0")
    common.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.base import Forwards, backend_of
    from launcher.selection import select
    from launcher.spec.hashing import decode_job
    from launcher.spec.profile import load_profile
    from launcher.store import open_store
    from launcher.store.layout import RunKeys

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_store(profile.store)
    chosen = select(store, [args.name])
    if len(chosen.runs) != 1:
        raise BadInput(f"{args.name} is {len(chosen.runs)} runs; name one: {', '.join(chosen.runs)}")
    found = store.read(RunKeys(chosen.runs[0]).job)
    assert found is not None
    job = decode_job(found[0])
    role = args.role or job.leading
    member = f"{role}-{args.rank}"
    if member not in job.members():
        raise BadInput(f"--role, --rank: {member} is no member; allowed: {', '.join(job.members())}")
    ports = [port(text, job.roles[role].ports) for text in args.ports]
    made = backend_of(job, profile.backend_options(job.backend))
    if not isinstance(made, Forwards):
        where = "its ports are this machine's" if job.backend in ("local", "docker") else "which can't"
        raise BadInput(f"{chosen.runs[0]} runs on {job.backend}: {where}")
    argv = made.forward(chosen.runs[0], member, ports)
    try:
        return subprocess.run(argv, check=False).returncode
    except FileNotFoundError:
        raise BadInput(f"`{argv[0]}` is not on the PATH; forward uses it") from None


def port(text: str, named: dict[str, int]) -> tuple[int, int]:
    """`PORT[:LOCAL]` -> (here, there). Raises BadInput."""
    there, _, here = text.partition(":")
    if not there.isdigit() and there not in named:
        known = ", ".join(f"{name} ({number})" for name, number in sorted(named.items()) if number)
        raise BadInput(f"{text}: no such port; allowed: a number{f', {known}' if known else ''}")
    target = int(there) if there.isdigit() else named[there]
    if target == 0:
        raise BadInput(f"{text}: the runtime picks this port when the run starts; give its number")
    local = int(here) if here.isdigit() else target if not here else -1
    if not 1 <= target <= 65535 or not 0 <= local <= 65535:
        raise BadInput(f"{text}: not PORT or PORT:LOCAL; ports are 1 to 65535")
    return local, target
