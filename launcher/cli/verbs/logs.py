"""`launcher logs`: prints the output of a run's ranks, from the store or live from the backend."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher.cli import arguments
from launcher.cli.printing.lines import JsonPrinter, Lines, Printer
from launcher.decoding import decode_record
from launcher.errors import BadInput
from launcher.protocol.deleted import why_missing
from launcher.protocol.read import read_run
from launcher.protocol.records import Result
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.verbs.logs import pick_attempt, pick_members

SUMMARY = "Print or follow what a run printed. Durable: the logs of every attempt stay in the store."
EXAMPLE = (
    "launcher logs sft-login-1a2b3c4d5e6f --follow\n"
    "  launcher logs RUN --previous --tail 50      the attempt before the last\n"
    "  launcher logs RUN --role desktop --rank 3"
)


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser)
    parser.add_argument("--role", help="only this role")
    parser.add_argument("--rank", type=int, help="only this rank")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--attempt", type=int, metavar="N", help="this attempt; default: the last")
    which.add_argument("-p", "--previous", action="store_true", help="the attempt before the last")
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the runs end")
    parser.add_argument("-n", "--tail", type=int, metavar="N", help="only the last N lines of each rank")
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="json: one document per line (default: text)"
    )
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.cli.printing.tailing import Feed, MemberFilter, follow
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.verbs.applied import select_runs
    from launcher.verbs.ask_backend import backends

    if args.tail is not None and args.tail < 0:
        raise BadInput("--tail: a number of lines is not negative")
    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    chosen = select_runs(store, args.names, profile)
    runs = [source(store, run_id) for run_id in chosen.runs]
    kind = JsonPrinter if args.output == "json" else Printer
    printer = kind(sys.stdout.buffer, sys.stdout.isatty())
    if args.follow and args.attempt is None and not args.previous:
        names = {run_id: chosen.names.get(run_id, run_id) for run_id in runs}
        feeds = [
            Feed(
                store,
                run_id,
                names[run_id] if len(runs) > 1 else "",
                MemberFilter(args.role, args.rank, args.tail),
                printer,
            )
            for run_id in runs
        ]
        return follow(feeds, backends(profile))
    printed = False
    for run_id in runs:
        view = read_run(store, run_id)
        label = chosen.names.get(run_id, run_id) if len(runs) > 1 else ""
        number = pick_attempt(view, args.attempt, args.previous)
        if number is None:
            if len(runs) == 1 and not why_missing(store, run_id):
                print(f"{run_id} has not begun: no attempt yet", file=sys.stderr)
                return 0
            continue
        members = pick_members(view, number, args.role, args.rank)
        for member in members:
            attempt = view.attempt(number)
            told = attempt.exits[member].log if attempt is not None and member in attempt.exits else 0
            log = Log(store, RunKeys(run_id).attempt(number), member, told)
            if args.tail is not None:
                log.skip_to_tail(args.tail)
            lines = Lines(printer, printer.prefix(run_id, label, member, members))
            for piece in log.more():
                printed = True
                lines.feed(piece)
            lines.close()
    if not printed:
        gone = [f"{run_id}: {why}" for run_id in runs if (why := why_missing(store, run_id))]
        print(*(gone or ["no logs yet"]), sep="\n", file=sys.stderr)
    return 0


def source(store: Store, run: str) -> str:
    """The run that wrote the logs: another run if its work was adopted; then a line says so."""
    stored = store.read(RunKeys(run).result)
    if stored is None:
        return run
    owner, attempt = decode_record(stored[1].key, stored[0], Result).source(run)
    if owner != run:
        print(f"{run} adopted the work of {owner}, attempt {attempt}; what follows is its log", file=sys.stderr)
    return owner
