"""`launcher wait`: returns when runs have ended; its exit code tells their outcome."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.cli.printing.units import duration

SUMMARY = (
    "Wait until runs end. Exit code 0 when all succeeded, 1 when one did not or the time was up, 4 when the records of "
    "one cannot be read."
)
EXAMPLE = "launcher wait group-1a2b3c4d5e6f --timeout 6h && launcher results group-1a2b3c4d5e6f"


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser)
    parser.add_argument(
        "--timeout",
        type=arguments.seconds,
        metavar="TIME",
        help="give up after this time: 90s, 15m, 6h; default: never",
    )
    arguments.add_output(parser, ("table", "json"))
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.protocol.fold import State
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.verbs.applied import select_runs
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.status import DAMAGED, Line
    from launcher.verbs.wait import wait_for

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    chosen = select_runs(store, args.names, profile)

    def ended(line: Line) -> None:
        if args.output == "json":
            return
        why = f" ({line.reason})" if line.reason not in ("", line.state) else ""
        detail = f": {line.detail}" if line.detail and line.state != "succeeded" else ""
        sentence = f"{line.run} {line.state}{why} after {duration(line.running, fine=True)}{detail}"
        print(safe_text.line(sentence), flush=True)

    deadline = None if args.timeout is None else time.monotonic() + args.timeout
    lines = wait_for(store, chosen.runs, backends(profile), deadline, ended)
    for line in lines:
        if line.repair:
            print(f"launcher wait: {line.run} {line.state}: {line.detail}", file=sys.stderr)
    unreadable = [line for line in lines if line.state in (DAMAGED, State.UNKNOWN)]
    for line in unreadable:
        print(safe_text.line(f"launcher wait: {line.run} {line.state}: {line.detail}"), file=sys.stderr)
    unfinished = [line for line in lines if not line.final and not line.repair and line.state != DAMAGED]
    if args.output == "json":
        from launcher.cli.printing.output import record
        from launcher.verbs.groups import groups_of_some

        groups = groups_of_some(store, [line for line in lines if line.run not in chosen.group_of])
        groups |= chosen.group_of
        names = [chosen.names.get(line.run, line.name) for line in lines]
        records = [record(line, name, groups.get(line.run)) for line, name in zip(lines, names, strict=True)]
        output.emit(records, "json")
    if unfinished:
        print(f"launcher wait: after {duration(args.timeout)} still {_states(unfinished)}", file=sys.stderr)
    if any(line.state != "succeeded" for line in lines if line not in unreadable):
        return 1
    return 4 if unreadable else 0


def _states(lines: list) -> str:  # type: ignore[type-arg]
    return ", ".join(f"{line.run} {line.state}" for line in lines)
