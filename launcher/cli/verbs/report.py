"""`launcher report`: one self-contained HTML page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from launcher.cli import arguments
from launcher.cli.printing import output

SUMMARY = "Write one self-contained HTML page: results, curves, replays, time line, provenance."
EXAMPLE = "launcher report group-1a2b3c4d5e6f --file report.html"


def add(parser: argparse.ArgumentParser) -> None:
    arguments.add_names(parser)
    parser.add_argument("--file", metavar="OUT", type=Path, default=Path("report.html"), help="default: %(default)s")
    parser.add_argument("--plots", metavar="DIR", type=Path, help="also write the comparison's plots as SVG files")
    arguments.add_output(parser, ("table", "json"))
    arguments.add_profile(parser)


def run(args: argparse.Namespace) -> int:
    from launcher.report.page import write
    from launcher.report.plots import write_plots
    from launcher.selection.select import select
    from launcher.spec.profile import load_profile
    from launcher.store.opening import open_known

    profile = load_profile(Path.cwd(), args.profile, os.environ, store=args.store)
    store = open_known(profile.store)
    chosen = select(store, args.names)
    report = write(store, chosen, args.file, profile.prices)
    plots = write_plots(report.agents, args.plots) if args.plots is not None else []
    if args.plots is not None and not plots:
        print("there are no tasks to plot", file=sys.stderr)
    if report.pictures:
        print(f"its pictures are in {args.file.parent / report.pictures}; keep both together", file=sys.stderr)
    if args.output == "json":
        output.emit_one({"file": str(args.file)}, "json")
    else:
        print(args.file, *plots, sep="\n")
    return 0
