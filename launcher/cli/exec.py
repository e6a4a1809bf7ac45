"""`launcher exec`: a command beside a run's, where the backend keeps the run in something that can be entered."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from launcher.cli import common
from launcher.errors import BadInput

SUMMARY = "Run a command beside a run's own, in the same container, pass its exit code on. On docker, kubernetes."
EXAMPLE = "launcher exec sft-login-1a2b3c4d5e6f -- nvidia-smi\n  launcher exec RUN --role server -- bash"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="one run")
    parser.add_argument("--role", help="default: the leading role")
    parser.add_argument("--rank", type=int, default=0, help="default: 0")
    parser.add_argument("command", nargs="+", metavar="-- COMMAND", help="the command and its arguments, after --")
    common.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.base import Entered, backend_of
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
    member = f"{args.role or job.leading}-{args.rank}"
    if member not in job.members():
        raise BadInput(f"--role, --rank: {member} is no member; allowed: {', '.join(job.members())}")
    made = backend_of(job, profile.backend_options(job.backend))
    if not isinstance(made, Entered):
        raise BadInput(f"{chosen.runs[0]} runs on {job.backend}, which has no container to run a command in")
    argv = made.execute(chosen.runs[0], member, args.command, tty=sys.stdin.isatty() and sys.stdout.isatty())
    try:
        return subprocess.run(argv, check=False).returncode
    except FileNotFoundError:
        raise BadInput(f"`{argv[0]}` is not on the PATH; exec uses it") from None
