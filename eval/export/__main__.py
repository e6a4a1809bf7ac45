"""`python -m eval.export osworld|atif|inspect|video RESULTS OUT`: results of an evaluation in the formats of others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from eval import config as configuration
from eval.config import ConfigError
from eval.export import atif, film, inspect, osworld
from eval.export.source import new_folder, recorded_tasks

FORMATS = {
    "osworld": "OSWorld's layout of results: traj.jsonl, pictures and result.txt of each task",
    "atif": "ATIF 1.7, the agent trajectory interchange format: a JSON file and pictures of each kept episode",
    "inspect": "a log of Inspect (inspect_ai) for each agent, with the pictures of kept episodes: `inspect view`",
    "video": "an MP4 of each kept episode, made of its frames with the actions drawn; needs ffmpeg",
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m eval.export", description="Results in the formats of others.")
    formats = parser.add_subparsers(dest="format", required=True)
    for name, words in FORMATS.items():
        one = formats.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        one.add_argument("results", type=Path, help="a results folder of an evaluation, with tasks.jsonl")
        one.add_argument("out", type=Path, help="a new folder, or an empty one")
        if name == "video":
            one.add_argument("--seconds", type=float, default=1.0, help="of each frame; default: %(default)s")
    arguments = parser.parse_args(argv)

    def run() -> int:
        if arguments.format == "video" and not 0.1 <= arguments.seconds <= 60:
            raise ConfigError(f"--seconds: {arguments.seconds:g}; allowed: 0.1 to 60")
        tasks = recorded_tasks(arguments.results)
        out = new_folder(arguments.out)
        try:
            if arguments.format == "video":
                counts = film.write(tasks, out, arguments.seconds)
            else:
                counts = {"osworld": osworld.write, "atif": atif.write, "inspect": inspect.write}[arguments.format](
                    tasks, out
                )
        except OSError as error:
            raise ConfigError(f"{error.filename or out}: {error.strerror}") from None
        for what, count in counts.items():
            if count:
                print(f"{count} {what}")
        print(out)
        return 0

    return configuration.run(run, needs=())


if __name__ == "__main__":
    sys.exit(main())
