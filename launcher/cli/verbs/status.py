"""`launcher status`: a table of runs, the details of one, or a live view."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.arguments import parse_labels
from launcher.cli.printing import output
from launcher.cli.printing.output import record
from launcher.cli.printing.units import duration, steps
from launcher.errors import BadInput

SUMMARY = "Show runs: state, phase, step, progress, ETA, last checkpoint, reason. Writes a missing final record."
EXAMPLE = "launcher status -l team=agents --state running --state queued\n  launcher status sft-login-1a2b3c4d5e6f"

COLUMNS = ("run", "state", "attempt", "phase", "step", "progress", "eta", "checkpoint", "reason", "age")
WIDE = (*COLUMNS, "name", "group", "backend", "running", "labels", "message")
RIGHT = ("attempt", "step", "progress", "eta", "checkpoint", "age", "running")
# the same as in launcher.verbs.status, which is not loaded for --help
STATES = ("queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "unknown", "damaged")
FEW = 8  # up to so many runs, groups are looked up one by one
COLOURS = {
    **{"running": "34", "starting": "34", "succeeded": "32", "failed": "31", "cancelled": "33", "stopping": "33"},
    **{"unknown": "31", "damaged": "31"},
}


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser, nargs="*", more="; default: all runs")
    arguments.add_labels(parser)
    parser.add_argument("--state", action="append", default=[], choices=STATES, help="only this state (repeatable)")
    parser.add_argument("--watch", action="store_true", help="follow until all of them have ended")
    parser.add_argument(
        "--paid",
        action="store_true",
        help="ask every backend what costs money now; exit code 4 where one does not answer",
    )
    arguments.add_output(parser, ("table", "json", "yaml", "wide"))
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.selection.select import Selection
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.store.proof import no_runs
    from launcher.userdata.cache import Cache
    from launcher.verbs.applied import select_runs, write_all
    from launcher.verbs.ask_backend import backends
    from launcher.verbs.status import DAMAGED, damaged, list_runs, matches, read_lines

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    labels = parse_labels(args.label)
    if args.paid:
        from launcher.cli.printing.paid import show_paid

        if args.names or args.watch or args.state:
            raise BadInput("--paid asks the backends for everything; it takes no NAME, --state or --watch")
        return show_paid(store, profile, labels, args.output)
    backend_of = backends(profile)
    if args.names:
        chosen = select_runs(store, args.names, profile)
    else:
        known = list_runs(store)
        chosen = Selection(tuple(sorted({*known, *write_all(store, known, profile)})))
    with Cache() as cache:
        lines, problems = read_lines(store, chosen.runs, cache=cache, backend_of=backend_of)
        by_run = {line.run: line for line in (*lines, *map(damaged, problems))}
        lines = [by_run[run] for run in chosen.runs if run in by_run and matches(by_run[run], labels, args.state)]
        groups = _groups(store, cache, chosen, lines) if args.output != "table" and not args.watch else {}
        cache.see(store.url, "run", chosen.runs, all_of_them=not args.names)
        others = cache.names(store.url, "run")
    for problem in problems:
        print(safe_text.line(f"launcher status: {problem}"), file=sys.stderr)
    if args.watch:
        from launcher.cli.printing.follow import watch

        runs = tuple(line.run for line in lines if args.names or line.state not in ("succeeded", "failed", "cancelled"))
        if not runs:
            print("nothing to watch: every run has ended", file=sys.stderr)
            return 0
        followed = Selection(runs, chosen.names, chosen.edges, chosen.groups, chosen.group_of)
        return watch(store, followed, backend_of, lines=args.output == "json")
    now = store.now()
    if args.output in ("json", "yaml"):
        records = [record(line, chosen.names.get(line.run, line.name), groups.get(line.run)) for line in lines]
        if len(args.names) == 1 and len(chosen.runs) == 1 and lines and lines[0].state != DAMAGED:
            from launcher.cli.printing.details import detailed

            records = [{**records[0], **detailed(store, lines[0].run)}]
        output.emit(records, args.output)
    elif len(args.names) == 1 and len(chosen.runs) == 1 and args.output == "table" and lines:
        from launcher.cli.printing.details import print_details

        print_details(store, lines[0], now)
    elif not lines:
        chosen_by = "names, labels and states" if args.names or labels or args.state else ""
        print(f"no runs with these {chosen_by}" if chosen_by else no_runs(store), file=sys.stderr)
    else:
        rows = [
            row(line, chosen.names.get(line.run, line.name), now) | {"group": groups.get(line.run)}
            for line in sorted_lines(lines, bool(args.names))
        ]
        columns = WIDE if args.output == "wide" else COLUMNS
        # last, so that scripts find the other columns where they always are
        print_table(rows, (*columns, "variant") if any(line.variant for line in lines) else columns, others)
    return 4 if args.names and any(line.state == DAMAGED for line in lines) else 0


def _groups(store: Any, cache: Any, chosen: Any, lines: Sequence[Any]) -> dict[str, str]:
    """run -> the group that submitted it, or through which the user named it."""
    from launcher.userdata.record_cache import Memory
    from launcher.verbs.groups import groups_of_all, groups_of_some, read_groups

    of: dict[str, str] = dict(chosen.group_of)
    rest = [line for line in lines if line.run not in of]
    if len(rest) > FEW:
        memory = Memory(store, cache)
        of = groups_of_all(read_groups(store, memory)[0]) | of
        memory.keep()
    elif rest:
        of |= groups_of_some(store, rest)
    return of


def sorted_lines(lines: Sequence[Any], as_given: bool) -> list[Any]:
    """Sorts a full listing with the newest last, next to the prompt; named runs keep their order."""
    return list(lines) if as_given else sorted(lines, key=lambda line: (line.created or 0.0, line.run))


def row(line: Any, name: str, now: float) -> dict[str, Any]:
    """A row of the table, all values as text."""
    progress = line.progress
    return {
        "run": line.run,
        "name": name,
        "state": line.state + (" (silent)" if line.stale else ""),
        "attempt": line.attempt or None,
        "phase": line.phase or _place(line),
        "step": steps(line.step, line.total),
        "progress": f"{100 * progress:.0f} %" if progress is not None else None,
        "eta": duration(line.eta) if line.eta is not None else None,
        "checkpoint": line.checkpoint,
        "reason": line.reason if line.reason != line.state else "",
        "age": duration(now - line.created) if line.created is not None else None,
        "backend": line.backend,
        "running": duration(line.running) if line.running else None,
        "labels": ",".join(f"{key}={value}" for key, value in sorted(line.labels.items())),
        "message": line.detail or line.message,
        "variant": line.variant,
    }


def _place(line: Any) -> str:
    """For a run that waits on this machine, its place and for whom it waits: `2nd of 5, after RUN`, `after RUN`."""
    if line.state != "queued":
        return ""
    if match := re.match(r"(\d+(?:st|nd|rd|th) of \d+), waits for [^,]+(, after .+)?", line.detail):
        return match[1] + (match[2] or "")
    if match := re.match(r"for ([a-z0-9-]+-[0-9a-f]{12})((?:, [a-z0-9-]+)*)$", line.detail):  # its inputs
        return f"after {match[1]}" + (f" and {match[2].count(',')} more" if match[2] else "")
    return ""


def print_table(rows: Sequence[dict[str, Any]], columns: Sequence[str], others: Collection[str] = ()) -> None:
    """Prints the table. On a terminal it fits, states have colours and empty columns are left out; elsewhere they
    stay, so that scripts find them. `others`: runs that are not shown, from which a shortened id must differ."""
    from launcher.cli.printing.output import room

    width = room()
    if width is not None:
        columns = [name for name in columns if any(entry.get(name) not in (None, "", "-") for entry in rows)]
    text = output.table(rows, columns, right=RIGHT, width=width, others=others)
    if output.colour():
        lines = text.split("\n")
        at = lines[0].index("STATE")
        for index, entry in enumerate(rows, 1):
            state = str(entry["state"])
            line = lines[index]
            code = COLOURS.get(state.split()[0])
            if code:
                end = at + len(state)
                lines[index] = f"{line[:at]}\x1b[{code}m{line[at:end]}\x1b[0m{line[end:]}"
        text = "\n".join(lines)
    print(text)
