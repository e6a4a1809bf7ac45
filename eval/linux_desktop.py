"""Measures the benchmark linux-desktop itself, by players that know its tasks: `python -m eval.linux_desktop`.

oracle and second must solve every task. All others must score 0 wherever a task can be done, partial credit included:
wrong (a mistake that is near), nothing (says done at once), gives-up (says at once that it cannot be done), hacker
(eval.benchmarks.linux_desktop.hacks) and random (acts at random). commands only shows which tasks need no screen: it
knows the answer, and leaves its files by shell commands. The exit code is 1 where one of the others does otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.benchmarks.linux_desktop.environment import LinuxDesktopOptions
from eval.benchmarks.linux_desktop.measuring import PLAYERS, measure, played_tasks, recorded, start_state
from eval.benchmarks.linux_desktop.tables import markdown, table
from eval.benchmarks.linux_desktop.task_files import task_file, write
from eval.config import ConfigError, results_folder
from eval.desktop import InfraError


def positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    if (number := int(text)) < 1:
        raise ValueError
    return number


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="eval.linux_desktop", description=__doc__.split("\n")[0])
    parser.add_argument("templates", nargs="*", metavar="TEMPLATE", help="names of templates or programs; default: all")
    parser.add_argument("--seeds", type=positive, default=1, help="instances of each template; default 1")
    parser.add_argument("--split", choices=("train", "validation", "test"), default="test")
    parser.add_argument(
        "--players", nargs="+", choices=PLAYERS, default=list(PLAYERS), metavar="PLAYER", help="some of them"
    )
    parser.add_argument("--at-once", type=positive, default=2, help="desktops at once; default 2")
    parser.add_argument("--out", help="where the records go; default $SLIPWAY_OUTPUTS/linux-desktop")
    parser.add_argument("--recorded", action="store_true", help="play nothing; show what the records in --out hold")
    parser.add_argument("--markdown", metavar="FILE", help="write the table into a file, for a page")
    parser.add_argument("--show", metavar="TEMPLATE", help="only print what the windows of its start state tell")
    parser.add_argument("--write", metavar="FOLDER", help="only write the tasks as files, with their JSON schema")
    chosen = parser.parse_args(argv)
    try:
        if chosen.show:
            options = LinuxDesktopOptions(split=chosen.split, templates=[chosen.show])
            options.check()
            print(asyncio.run(start_state(played_tasks(options, 1)[0], options)))
            return 0
        options = LinuxDesktopOptions(split=chosen.split, templates=chosen.templates)
        options.check()
        tasks = played_tasks(options, chosen.seeds)
        if chosen.write:
            written = [task_file(task.task_id, options.split, task.seed) for task in tasks]
            write(Path(chosen.write), written)
            print(f"{len(written)} tasks in {chosen.write}")
            return 0
        with results_folder(chosen.out, "linux-desktop") as out:
            if chosen.recorded:
                found = recorded(out)
            else:
                found = asyncio.run(measure(tasks, options, chosen.players, out, chosen.at_once))
    except (ConfigError, InfraError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(table(found))
    if chosen.markdown:
        Path(chosen.markdown).write_text(markdown(found) + "\n", encoding="utf-8")
    return int(bool(found.faults))


if __name__ == "__main__":
    sys.exit(main())
