"""`launcher retry`: runs failed and cancelled runs again, from their newest checkpoints."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher import safe_text
from launcher.cli.arguments import add_names, add_output, add_price, add_profile, add_waiting
from launcher.cli.verbs.submit import send

SUMMARY = "Run failed or cancelled runs again: each as a new run that starts from the newest checkpoint of the old one."
EXAMPLE = "launcher retry sft-login-1f2e3d4c5b6a --set limits.deadline=8h"


def add(parser: argparse.ArgumentParser) -> None:
    add_names(parser)
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="limits, labels, resources, timing")
    parser.add_argument("--follow", action="store_true", help="show progress until all have ended; Ctrl-C detaches")
    parser.add_argument("--dry-run", action="store_true", help="print what would be done; write nothing")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on from checkpoints that other packages or another image made; the result says so",
    )
    add_price(parser)
    add_waiting(parser)
    add_profile(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.backends.abilities import images_of
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.verbs.retry import retry

    profile = load_profile(Path.cwd(), args.profile, os.environ, args.store)
    store = open_known(profile.store)
    chosen = select(store, args.names)

    def say(line: str) -> None:
        print(safe_text.line(f"launcher retry: {line}"), file=sys.stderr)

    group = retry(
        store,
        chosen.runs,
        chosen.names,
        args.set,
        ignore=profile.local.ignore,
        python=profile.local.python,
        images=lambda job: images_of(job, profile.backend_options(job.backend)),
        resume=args.resume,
        say=say,
    )
    return send(args, group, profile)
