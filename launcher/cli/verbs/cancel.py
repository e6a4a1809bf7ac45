"""`launcher cancel`: end runs."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher import safe_text
from launcher.cli.arguments import add_names, add_output, add_profile
from launcher.cli.printing.output import emit
from launcher.errors import BadInput

SUMMARY = "End runs: their processes get SIGTERM, time to save, and then SIGKILL. Ended runs stay as they are."
EXAMPLE = 'launcher cancel sft-login-1f2e3d4c5b6a --reason "wrong data"'


def add(parser: argparse.ArgumentParser) -> None:
    add_names(parser, nargs="*")
    parser.add_argument("-l", "--label", action="append", default=[], metavar="K=V", help="only runs with this label")
    parser.add_argument("--all", action="store_true", help="every run of the store that has not ended")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; it is recorded")
    add_profile(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.spec.profile import load_profile
    from launcher.store.layout import RUNS
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.userdata.record_cache import Memory
    from launcher.verbs.applied import select_runs, write_all
    from launcher.verbs.cancel import cancel_jobs, cancel_unread, named_jobs, open_jobs
    from launcher.verbs.status import list_runs, verified

    labels = dict(_label(text) for text in args.label)
    if not args.names and not labels and not args.all:
        raise BadInput("name a run or a group, or select with --label or --all")
    profile = load_profile(Path.cwd(), args.profile, os.environ, args.store)
    store = open_known(profile.store)
    with Cache() as cache:
        memory = Memory(store, cache).load(RUNS)
        if args.names:
            found = named_jobs(store, select_runs(store, args.names, profile).runs, memory)
        else:
            runs = list_runs(store)
            runs += write_all(store, runs, profile)
            ended = verified(store, runs, cache)
            found = open_jobs(store, [run for run in runs if run not in ended], memory)
        memory.keep()
    chosen = {
        run: job
        for run, job in found.jobs.items()
        if all(job.labels.get(key) == value for key, value in labels.items())
    }
    # named, they are meant whatever their labels are
    unread = found.unread if args.names and not labels else {}
    asked = cancel_unread(store, unread, reason=args.reason)
    for run, why in found.unread.items():
        told = (
            "its processes end when they read cancel.json; its backend was not asked" if run in unread else "left out"
        )
        print(safe_text.line(f"launcher cancel: {run}: {told}, because its job cannot be read: {why}"), file=sys.stderr)
    done = [*cancel_jobs(store, chosen, profile, reason=args.reason), *asked]
    emit([{"run": ended.run, "state": ended.state} for ended in done], args.output, ("run", "state"))
    return 0


def _label(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise BadInput(f"--label {text}: not of the form KEY=VALUE")
    return key, value
