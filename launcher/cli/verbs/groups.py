"""`launcher groups`: lists which runs were submitted together, when, and their states."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.errors import BadInput

SUMMARY = "List groups, the newest last: each submit of several runs, or of one, is a group."
EXAMPLE = "launcher groups\n  launcher groups --last 100 -o json"
COLUMNS = ("group", "age", "runs", "jobs", "states")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--last", type=int, default=30, metavar="N", help="how many groups to list (default: %(default)s)"
    )
    parser.add_argument("--all", action="store_true", help="all of them")
    arguments.add_output(parser)
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.cli.printing.units import duration
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.userdata.cache import Cache
    from launcher.userdata.record_cache import Memory
    from launcher.verbs.groups import jobs_of, read_groups, states_of
    from launcher.verbs.status import damaged, read_lines

    if args.last < 1:
        raise BadInput("--last: a number from 1")
    store = open_known(load_profile(Path.cwd(), args.profile, os.environ, store=args.store).store)
    with Cache() as cache:
        memory = Memory(store, cache)
        groups, left_out = read_groups(store, memory, None if args.all else args.last)
        wanted = list(dict.fromkeys(run for group in groups for run in group.record.runs))
        lines, problems = read_lines(store, wanted, cache=cache)
        memory.keep()
        cache.see(store.url, "group", [group.record.id for group in groups], all_of_them=not left_out)
    for problem in problems:
        print(safe_text.line(f"launcher groups: {problem}"), file=sys.stderr)
    lines_by_run = {line.run: line for line in (*lines, *map(damaged, problems))}
    if args.output != "table":
        records = [
            {
                "group": group.record.id,
                "created": group.when,
                "jobs": jobs_of(group.record),
                "states": states_of(group.record, lines_by_run),
                "runs": [
                    {
                        "run": run,
                        "name": group.record.names.get(run, run),
                        "state": lines_by_run[run].state if run in lines_by_run else None,
                    }
                    for run in group.record.runs
                ],
            }
            for group in groups
        ]
        output.emit(records, args.output)
    elif not groups:
        print(f"no groups in {store.url}", file=sys.stderr)
    else:
        now = store.now()
        rows = [
            {
                "group": group.record.id,
                "age": duration(now - group.when),
                "runs": len(group.record.runs),
                "jobs": ", ".join(f"{job} x{n}" if n > 1 else job for job, n in jobs_of(group.record).items()),
                "states": ", ".join(f"{n} {state}" for state, n in states_of(group.record, lines_by_run).items()),
            }
            for group in groups
        ]
        output.show(rows, COLUMNS, right=("age", "runs"))
    if left_out:
        print(f"launcher groups: {left_out} older ones are not shown; --all shows them", file=sys.stderr)
    return 0
