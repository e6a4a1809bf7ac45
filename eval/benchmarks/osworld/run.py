"""`python -m eval.osworld can-run FOLDER`: which task files of OSWorld's format can run on this machine, and what the
others lack: nothing is started and nothing is downloaded. `try FOLDER` sets up and judges those that can."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from eval import config as configuration
from eval.benchmarks.errors import BenchError
from eval.benchmarks.osworld.listing import RunnableTask, report, table
from eval.benchmarks.osworld.machine import JUDGE, Machine
from eval.benchmarks.osworld.tasks import PublicTasks, load
from eval.config import ConfigError


def _try(rows: Sequence[RunnableTask], found: PublicTasks, arguments: argparse.Namespace) -> int:
    from eval.benchmarks.osworld import ladder

    given = {name: getattr(arguments, name) for name in ("folder", "list", "cache", "internet", "judge")}
    with configuration.results_folder(arguments.out, "osworld") as out:
        played = asyncio.run(ladder.without_agent(rows, {**given, "tree": False}, out, arguments.at_once))
    print(ladder.table(rows, played, found.unread))
    return int(bool(ladder.faults(rows, played)))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.osworld", description="Task files in OSWorld's format.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    can_run = verbs.add_parser("can-run", help="which tasks can run on this machine, and what the others lack")
    attempt = verbs.add_parser("try", help="sets up and judges every task that can run, while nobody acts")
    for verb in (can_run, attempt):
        verb.add_argument("folder", help="the task files, DOMAIN/ID.json")
        verb.add_argument("--list", help="only the tasks of this list, such as test_all.json: {DOMAIN: [ID, ...]}")
        verb.add_argument("--strict", action="store_true", help="a task that cannot be read is an error")
        verb.add_argument("--cache", help="folder of downloads as OSWorld's harness keeps them (CACHE/ID/FILE)")
        verb.add_argument("--internet", action="store_true", help="downloads and web sites can be reached")
        verb.add_argument("--judge", default=JUDGE, help=f"the Python that has desktop-env (make osworld-env): {JUDGE}")
    can_run.add_argument("-o", "--output", choices=("table", "json"), default="table")
    attempt.add_argument(
        "--at-once", type=int, default=1, choices=range(1, 65), metavar="N", help="desktops; default 1"
    )
    attempt.add_argument("--out", help="where the records go; default $SLIPWAY_OUTPUTS/osworld")
    arguments = parser.parse_args(argv)

    def run() -> int:
        try:
            found = load(
                Path(arguments.folder),
                None if arguments.list is None else Path(arguments.list),
                strict=arguments.strict,
            )
        except BenchError as error:
            raise ConfigError(str(error)) from None
        kept = None if arguments.cache is None else Path(arguments.cache)
        machine = Machine(arguments.internet, kept, judge=Path(arguments.judge))
        rows = report(found, machine)
        if rows and arguments.verb == "try":
            return _try(rows, found, arguments)
        if arguments.verb == "can-run" and arguments.output == "json":
            told = {"tasks": msgspec.to_builtins(rows), "stale": found.stale, "unread": found.unread}
            json.dump(told, sys.stdout, indent=1)
            print()
        elif rows:
            print(table(rows, found.unread))
        else:
            name, why = next(iter(found.unread.items()))
            raise ConfigError(f"none of the {len(found.names)} tasks can be read; {name}: {why}")
        return 0

    return configuration.run(run, needs=())
