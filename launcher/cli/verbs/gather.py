"""`launcher gather`: copies runs into another store or into a folder."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from launcher import safe_text
from launcher.cli import arguments
from launcher.cli.printing import output
from launcher.cli.printing.units import size

SUMMARY = "Copy results, checkpoints, logs and metrics of runs, verified. A second call copies only what is new."
EXAMPLE = (
    "launcher gather login-1a2b3c4d5e6f --to ./runs --what results,logs\n"
    "  launcher gather sft-login-1a2b3c4d5e6f --to s3://archive/agents"
)
COLUMNS = ("run", "attempt", "outcome", "files", "size", "sent", "notes")


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser)
    parser.add_argument(
        "--to",
        required=True,
        metavar="URL|DIR",
        help="a store's URL (the copy is a store: --store URL reads it), or a folder",
    )
    parser.add_argument(
        "--what",
        default="all",
        metavar="KINDS",
        help="outputs (results and checkpoints), results, checkpoints, logs, metrics or all, separated by commas "
        "(default: %(default)s)",
    )
    arguments.add_output(parser)
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known
    from launcher.verbs.gather import gather

    store = open_known(load_profile(Path.cwd(), args.profile, os.environ, store=args.store).store)
    chosen = select(store, args.names)
    line = ProgressLine()
    kinds = [kind.strip() for kind in args.what.split(",")]
    done = gather(store, chosen.runs, args.to, what=kinds, groups=chosen.groups, progress=line.show)
    line.clear()
    if args.output == "table":
        rows = [
            {
                "run": item.run,
                "attempt": item.attempt,
                "outcome": item.outcome,
                "files": item.files,
                "size": size(item.size),
                "sent": f"{item.sent_files} ({size(item.sent)})" if item.sent_files else "nothing new",
                "notes": "; ".join(item.notes),
            }
            for item in done
        ]
        output.emit(rows, "table", COLUMNS)
    else:
        records = [
            {
                "run": item.run,
                "attempt": item.attempt,
                "outcome": item.outcome,
                "files": item.files,
                "bytes": item.size,
                "sent_files": item.sent_files,
                "sent_bytes": item.sent,
                "notes": list(item.notes),
                "error": str(item.error) if item.error else None,
            }
            for item in done
        ]
        output.emit(records, args.output)
    failed = [item for item in done if item.error is not None]
    for item in failed:
        print(safe_text.line(f"launcher gather: {item.run}: {item.error}"), file=sys.stderr)
    if failed:
        print("launcher gather: run the same command again to copy what is missing", file=sys.stderr)
    return max((item.error.exit_code for item in failed if item.error), default=0)


class ProgressLine:
    """A progress line on a terminal; prints nothing elsewhere."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._began = time.monotonic()
        self._last = 0.0

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._on or (now - self._last < 0.2 and done < total):
            return
        self._last = now
        rate = done / max(now - self._began, 0.001)
        left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
        print(
            f"\r\x1b[K{size(done)} of {size(total)}, {size(rate)}/s{left}",
            end="",
            file=safe_text.raw(sys.stderr),
            flush=True,
        )

    def clear(self) -> None:
        if self._on and self._last:
            print("\r\x1b[K", end="", file=safe_text.raw(sys.stderr), flush=True)
