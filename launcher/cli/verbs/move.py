"""`launcher move`: a run goes on at the next backend of its list."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher import safe_text
from launcher.cli.arguments import add_output, add_profile
from launcher.cli.printing.output import emit

SUMMARY = (
    "Let a run go on at the next of its backends (`backend: [kubernetes, lambda]`), from its last checkpoint. If it "
    "runs, it stops first. A move that was interrupted is completed. It never returns to a backend that it has left."
)
EXAMPLE = "launcher move sft-login-1f2e3d4c5b6a --to lambda"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="a run, or a name that means one")
    parser.add_argument("--to", default="", metavar="BACKEND", help="the backend that is meant; a run there stays")
    add_profile(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.move import move

    profile = load_profile(Path.cwd(), args.profile, os.environ, args.store)
    store = open_known(profile.store)
    moved = move(store, select(store, [args.name]).only(args.name), backends(profile), args.to)
    emit([{"run": moved.run, "backend": moved.backend, "state": moved.state}], args.output)
    for line in moved.left:
        print(safe_text.line(f"launcher move: {line}"), file=sys.stderr)
    return 0
