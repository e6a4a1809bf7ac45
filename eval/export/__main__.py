"""Results of an evaluation, or tasks, in the formats of others: `python -m eval.export FORMAT RESULTS OUT`, and
`python -m eval.export harbor TASKS OUT`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from eval import config as configuration
from eval.config import ConfigError
from eval.desktop import SetupFailed
from eval.export import atif, film, harbor, inspect, osworld
from eval.export.source import new_folder, recorded_tasks
from eval.serve.config import ServeConfig

FORMATS = {
    "osworld": "OSWorld's layout of results: traj.jsonl, pictures and result.txt of each task",
    "atif": "ATIF 1.7, the agent trajectory interchange format: a JSON file and pictures of each kept episode",
    "inspect": "a log of Inspect (inspect_ai) for each agent, with the pictures of kept episodes: `inspect view`",
    "harbor": "a folder of Harbor for each task of a configuration of eval.serve: instruction, checker, solution",
    "video": "an MP4 of each kept episode, made of its frames with the actions drawn; needs ffmpeg",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m eval.export", description="Results, or tasks, in others' formats.")
    formats = made.add_subparsers(dest="format", required=True)
    for name, words in FORMATS.items():
        one = formats.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        if name == "harbor":
            one.add_argument("tasks", type=Path, help="a configuration of eval.serve, with tasks")
        else:
            one.add_argument("results", type=Path, help="a results folder of an evaluation, with tasks.jsonl")
        one.add_argument("out", type=Path, help="a new folder, or an empty one")
        if name == "harbor":
            one.add_argument("--image", default="linux-desktop:latest", help="of the desktop; default: %(default)s")
            one.add_argument(
                "--base", default="python:3.11-slim", help="of the agent's container; default: %(default)s"
            )
            one.add_argument("--no-solutions", action="store_true", help="play no expert here, and write no solution")
        if name == "video":
            one.add_argument("--seconds", type=float, default=1.0, help="of each frame; default: %(default)s")
    return made


def _written(arguments: argparse.Namespace) -> Counter[str]:
    """Writes what was asked for; gives counts. Raises ConfigError."""
    if arguments.format == "harbor":
        config = configuration.load(arguments.tasks, ServeConfig)
        given = {"image": arguments.image, "base": arguments.base, "solutions": not arguments.no_solutions}
        return harbor.write(config, new_folder(arguments.out), **given)
    if arguments.format == "video" and not 0.1 <= arguments.seconds <= 60:
        raise ConfigError(f"--seconds: {arguments.seconds:g}; allowed: 0.1 to 60")
    tasks = recorded_tasks(arguments.results)
    out = new_folder(arguments.out)
    if arguments.format == "video":
        return film.write(tasks, out, arguments.seconds)
    return {"osworld": osworld.write, "atif": atif.write, "inspect": inspect.write}[arguments.format](tasks, out)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)

    def run() -> int:
        try:
            counts = _written(arguments)
        except OSError as error:
            raise ConfigError(f"{error.filename or arguments.out}: {error.strerror}") from None
        for what, count in counts.items():
            if count:
                print(f"{count} {what}")
        print(arguments.out)
        return 0

    return configuration.run(run, needs=("PIL",) if arguments.format == "harbor" else (), failures=(SetupFailed,))


if __name__ == "__main__":
    sys.exit(main())
