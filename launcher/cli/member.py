"""What `exec` and `forward` share: finding one member of a run, and the backend on which it runs."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from launcher.cli import arguments
from launcher.die_with_parent import die_with_parent
from launcher.errors import BadInput, NotFound

if TYPE_CHECKING:  # --help of these verbs needs none of it
    from launcher.backends.base import Backend
    from launcher.spec.model import ResolvedJob
    from launcher.store.base import Store


@dataclass(frozen=True)
class Chosen:
    run: str
    job: ResolvedJob
    role: str
    rank: int
    backend: Backend
    store: Store

    @property
    def member(self) -> str:
        return f"{self.role}-{self.rank}"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds --role, --rank and the options of the store."""
    parser.add_argument("--role", help="default: the leading role")
    parser.add_argument("--rank", type=int, default=0, help="default: 0")
    arguments.add_profile(parser)


def choose(args: argparse.Namespace) -> Chosen:
    """Raises BadInput when the arguments mean no member or more than one run."""
    from launcher.backends.base import backend_of
    from launcher.protocol.read import read_run
    from launcher.spec.hashing import decode_job
    from launcher.spec.profile import load_profile
    from launcher.store.layout import RunKeys
    from launcher.store.opening import open_known
    from launcher.verbs.applied import select_runs

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    chosen = select_runs(store, [args.name], profile)
    run = chosen.only(args.name)
    stored = store.read(RunKeys(run).job)
    if stored is None:  # a group may list runs whose job.json is not written yet
        raise NotFound(f"{run}: no job.json in {store.url}: the run has not started")
    job = decode_job(stored[0])
    if job.alternatives:
        job = read_run(store, run, full=False).placed or job
    role = args.role or job.leading
    if f"{role}-{args.rank}" not in job.members():
        raise BadInput(f"--role, --rank: {role}-{args.rank} is not a member; allowed: {', '.join(job.members())}")
    return Chosen(run, job, role, args.rank, backend_of(job, profile.backend_options(job.backend)), store)


def call(argv: Sequence[str], verb: str) -> int:
    """Runs the program that the backend names; returns its exit code, 128 and the number for a signal, as a shell does.
    The program ends with this process, however that ends: else it would hold the port, or sit in the container."""
    if shutil.which(argv[0]) is None:
        raise BadInput(f"`{argv[0]}` is not on the PATH; {verb} uses it")
    for number in (signal.SIGTERM, signal.SIGHUP):  # `die_with_parent` does the same, on Linux alone
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)
    code = subprocess.run(die_with_parent(argv), check=False).returncode
    return code if code >= 0 else 128 - code


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # `subprocess.run` kills the program on its way out
