"""`launcher gc`: delete old runs, old checkpoints and unreferenced objects."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from launcher.cli import deleting
from launcher.cli.arguments import add_labels, seconds
from launcher.errors import BadInput

SUMMARY = (
    "Delete unreferenced objects, and the outputs, checkpoints and logs of the ended runs that the options select.\n"
    "Job and final record stay, so the same job computes nothing again. What an unfinished run needs is never\n"
    "deleted. A run must match all options."
)
EXAMPLE = (
    "launcher gc                                          unreferenced objects\n"
    "  launcher gc --older-than 30d --keep 3 --yes          old runs, but the newest three of each job\n"
    "  launcher gc -l team=agents --state failed\n"
    "  launcher gc --checkpoints --keep 1 --yes             of ended runs, all but the newest checkpoint"
)
ENDED = ("succeeded", "failed", "cancelled")
DAY = 86400.0


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=seconds, metavar="TIME", help="runs that ended at least this long ago: 12h, 30d"
    )
    add_labels(parser, "runs with this label (repeatable)")
    parser.add_argument(
        "--state", action="append", default=[], choices=ENDED, help="runs that ended in this state (repeatable)"
    )
    parser.add_argument(
        "--keep",
        type=int,
        metavar="N",
        help="keep the newest N runs of each job, among those with these labels and states",
    )
    parser.add_argument(
        "--checkpoints",
        action="store_true",
        help="only checkpoints, but keep the newest --keep (default: 1) of each run",
    )
    parser.add_argument(
        "--grace",
        type=seconds,
        default=7 * DAY,
        metavar="TIME",
        help="how old a code overlay or a part of an upload must be, to which nothing refers (default: 7d)",
    )
    deleting.add_yes(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.cli.arguments import parse_labels
    from launcher.deleting.choose import DeletionSelection
    from launcher.deleting.plan import plan_gc
    from launcher.spec.profile import load_profile
    from launcher.store.opening import make_store, marked, memory, open_known

    if args.keep is not None and args.keep < 0:
        raise BadInput(f"--keep: {args.keep} is not a number of runs; allowed: 0 or more")
    if args.checkpoints and args.keep == 0:
        raise BadInput("--keep: a run keeps its newest checkpoint; `launcher rm` deletes all that it has")
    store = open_known(load_profile(Path.cwd(), args.profile, os.environ, store=args.store).store)
    wanted = DeletionSelection(args.older_than, parse_labels(args.label), tuple(args.state), args.keep)
    may_act = deleting.may_act(args)
    if may_act and not store.url.startswith("file:"):  # a folder has one where a submit or a push made the store
        make_store(store, marked(memory(os.environ), store.url))
    plan = plan_gc(store, wanted, checkpoints=args.checkpoints, grace=args.grace, may_act=may_act)
    return deleting.go(store, plan, args, "gc")
