"""Checks splits for leaks: `python -m training.data check PATH... [--ignore-shared-frames N] [--strict]`.

The splits of a packed dataset must not share content, and neither must several paths, such as folders of training and
test. Exit code 0: no leak. 1: a leak. 78: input that cannot be read, or damaged files.

A leak is an episode (the same goal, frames and actions) or a step (the same goal, frame and action) that two sides
share, and an episode with the same goal and actions whose frames look alike: a pixel, a clock, the compression differs
(`training.data.inspection.similar`). With --strict single steps that look alike are looked for, too, and are leaks.
Shared frames alone are reported with their share, and are leaks only with --strict: an empty desktop is the same in
every split.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from eval import config as configuration
from eval.config import ConfigError
from training.data.inspection.contents import share
from training.data.inspection.dataset_reader import DatasetScan, ScannedEpisode
from training.data.inspection.overlap import MEANING, ContentKeys, Shared, StepPosition, common_frames, leaks
from training.data.inspection.similar import similar

LEAKS: Final = ("episode", "step", "similar episode")


def check(paths: Sequence[Path], ignore_shared_frames: int | None = None, strict: bool = False) -> tuple[bool, str]:
    """(True if there is no leak, the report).

    ignore_shared_frames  steps whose frame is in at least this many episodes of a side do not count

    Raises ConfigError for unreadable input, or for a single side.
    """
    scan = DatasetScan(list(paths), perceptual=False)
    if len(scan.sides) < 2:
        raise ConfigError(f"{paths[0]} has no splits to compare; name another folder as well")
    scan.verify()
    keys = ContentKeys(scan)
    for seen in scan:
        keys.add(seen)
    ignored = None if ignore_shared_frames is None else common_frames(keys, ignore_shared_frames)
    shared = [*leaks(keys, ignored), *similar(keys, scan, ignored, steps=strict)]
    episodes = scan.at({place.episode for leak in shared for pair in leak.examples for place in pair})
    bad = [leak for leak in shared if strict or leak.level in LEAKS]
    lines = [f"{len(keys.side):,} episodes, {len(keys.frame):,} steps in {len(scan.sides)} splits"]
    if ignored is not None:
        lines.append(
            f"{int(ignored.sum()):,} steps on frames of {ignore_shared_frames} episodes of a split or more do not count"
        )
    if scan.faults.total:
        lines.append(f"{scan.faults.total:,} episodes could not be read and were not compared")
    for leak in shared:
        lines += _told(leak, "LEAK" if leak in bad else "warning", episodes)
    lines.append("leaks" if bad else "clean")
    return not bad, "\n".join(lines) + "\n"


def _told(leak: Shared, word: str, episodes: dict[int, ScannedEpisode]) -> list[str]:
    lines = [
        f"{word}: {leak.things:,} of level {leak.level} ({MEANING[leak.level]})",
        f"  {leak.first}: {leak.in_first:,} of {leak.of_first:,} ({share(leak.in_first, leak.of_first)})",
        f"  {leak.second}: {leak.in_second:,} of {leak.of_second:,} ({share(leak.in_second, leak.of_second)})",
    ]
    return lines + [f"    {_name(first, episodes)} = {_name(second, episodes)}" for first, second in leak.examples]


def _name(place: StepPosition, episodes: dict[int, ScannedEpisode]) -> str:
    seen = episodes[place.episode]
    return f"{seen.side}/{seen.name}" + ("" if place.step < 0 else f" step {place.step}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.data check", description="Look for leaks between splits.")
    parser.add_argument("paths", nargs="+", help="packed datasets, or folders of episode folders")
    parser.add_argument(
        "--ignore-shared-frames",
        type=int,
        metavar="N",
        help="steps on a frame that is in N episodes of a split or more do not count (an empty desktop, a start page)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="a shared frame is a leak as well, and a step that looks alike"
    )
    arguments = parser.parse_args(argv)

    def run() -> int:
        if arguments.ignore_shared_frames is not None and arguments.ignore_shared_frames < 2:
            raise ConfigError("--ignore-shared-frames must be 2 or more")
        clean, text = check([Path(path) for path in arguments.paths], arguments.ignore_shared_frames, arguments.strict)
        print(text, end="")
        return 0 if clean else 1

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
