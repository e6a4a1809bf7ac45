"""`launcher notify`: tell people what became of runs, as the profile's `notify` says."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins

from launcher import safe_text
from launcher.cli.arguments import add_names, add_output, add_profile, seconds
from launcher.cli.printing.output import emit
from launcher.errors import BadInput, Unreachable

if TYPE_CHECKING:  # --help of the verb needs none of it
    from launcher.verbs.notify import Notified

SUMMARY = (
    "Tell people, by the channels of the profile's `notify`, when runs end, fail, collapse in training or near their "
    "budget. Each event is told once per channel, however many of these run. Without --follow it makes one pass, which "
    "suits cron; `launcher reap` and the local supervisor make the same pass by themselves."
)
EXAMPLE = "launcher notify --follow"
PAUSE: Final = 15.0  # seconds between two passes


def add(parser: argparse.ArgumentParser) -> None:
    add_names(parser, nargs="*", more="; default: every run of the store")
    parser.add_argument("--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--dry-run", action="store_true", help="print what would be sent; send nothing")
    parser.add_argument("--test", action="store_true", help="send a test message by every channel")
    parser.add_argument(
        "--within", type=seconds, default=86400.0, metavar="TIME", help="tell ends that are not older; default: 1d"
    )
    add_profile(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.verbs.notify import Notified, Notifier, secret_reader, trial_notice

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    if not profile.notify:
        raise BadInput("slipway.yaml has no `notify`; allowed: notify: {team: {webhook: NAME_OF_A_SECRET}}")
    store = open_known(profile.store)
    notifier = Notifier(store, profile.notify, secret_reader(profile, os.environ), within=args.within)
    if args.test:
        faults = {name: notifier.attempt(each, trial_notice(store)) for name, each in profile.notify.items()}
        rows = [Notified("", "test", name, "unsent" if fault else "sent", fault) for name, fault in faults.items()]
        return _print(rows, args.output)
    chosen = select(store, args.names).runs if args.names else None
    with Cache() as cache:
        if not args.follow:
            return _print(notifier.once(cache, chosen, plan=args.dry_run), args.output)
        said = ""
        while True:
            try:
                if rows := notifier.once(cache, chosen, plan=args.dry_run):
                    _print(rows, args.output)
                said = ""
            except Unreachable as error:
                if str(error) != said:
                    print(safe_text.line(f"launcher notify: {error}"), file=sys.stderr, flush=True)
                said = str(error)
            time.sleep(PAUSE)


def _print(rows: Sequence[Notified], fmt: str) -> int:
    """Prints what was done; returns the exit code."""
    if rows or fmt != "table":
        emit([to_builtins(row) for row in rows], fmt)
    else:
        print("nothing to tell")
    sys.stdout.flush()
    return 4 if any(row.did in ("unsent", "given up") for row in rows) else 0
