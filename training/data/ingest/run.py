"""Runs an importer: writes its episodes, the report, and what the terminal shows."""

from __future__ import annotations

import errno
import filecmp
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args

from eval import config as configuration
from eval.config import ConfigError
from eval.config import help as config_help
from eval.config.progress import progress
from eval.episodes import Episode, is_complete, write_episode
from training.data.faults import BadSample
from training.data.ingest.registry import EpisodesConfig, IngestConfig, importer
from training.data.ingest.source import folder_name
from training.data.ingest.tally import Tally
from training.data.looks import LOOKS, place_of

STAGING: Final = ".ingest"  # in the output folder, for incomplete episodes
SCRATCH: Final = "scratch"  # in it, the importer's; LOOKS there are those of the episode that it gives
REPORT: Final = "report.json"


def same(one: Path, other: Path) -> bool:
    """Whether two folders of files are the same, byte for byte."""
    names = sorted(path.name for path in one.iterdir())
    if not other.is_dir() or names != sorted(path.name for path in other.iterdir()):
        return False
    return all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def store(out: Path, episode: Episode, frames: Sequence[Path]) -> None:
    """Moves an episode to its folder atomically; an equal one that exists already is not touched."""
    staged, old, target = out / STAGING / "new", out / STAGING / "old", out / folder_name(episode.episode_id)
    write_episode(staged, episode, frames)
    if (looks := out / STAGING / SCRATCH / LOOKS).exists():
        place_of(target).parent.mkdir(exist_ok=True)
        looks.replace(place_of(target))
    if same(staged, target):
        shutil.rmtree(staged)
        return
    if target.exists():
        target.rename(old)
    staged.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def ingest(config: IngestConfig, out: Path) -> dict[str, Any]:
    """Writes the episodes and the report; returns the report. Raises ConfigError, OSError."""
    source = Path(config.recording)
    if not source.exists():
        raise ConfigError(f"recording: there is no {source}")
    check = isinstance(config, EpisodesConfig) and config.check
    if not check and source.resolve() in (out.resolve(), *out.resolve().parents):
        raise ConfigError(f"the output folder {out} must not lie in the recording (to only look at it: check: true)")
    tally = Tally(str(type(config).__struct_config__.tag), config.on_bad_sample)
    staging = out / STAGING
    out.mkdir(parents=True, exist_ok=True)
    (out / REPORT).unlink(missing_ok=True)  # from an earlier run
    shutil.rmtree(staging, ignore_errors=True)
    (staging / SCRATCH).mkdir(parents=True)
    seen: set[str] = set()
    try:
        for number, (where, episode, frames) in enumerate(importer(config)(config, tally, staging / SCRATCH), 1):
            if (name := folder_name(episode.episode_id)) in seen:
                tally.lose(where, BadSample("duplicate_id", episode.episode_id))
                continue
            seen.add(name)
            if not check:
                store(out, episode, frames)
            tally.keep(episode)
            progress(number, tally.total, "ingest", f"{tally.kept} episodes")
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    if not check:
        others = [path.name for path in sorted(out.iterdir()) if path.name not in seen and is_complete(path)]
        if others:
            print(f"ingest: {len(others)} episodes in {out} are not of this run, e.g. {others[0]}", file=sys.stderr)
    report = tally.report()
    temporary = out / f".{REPORT}"
    temporary.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    temporary.replace(out / REPORT)
    print(tally.text())
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 when nothing was kept; 78 for an error that no retry can fix."""
    parser = config_help.parser("training.data ingest", "Recordings to episodes.", *get_args(IngestConfig))
    parser.add_argument("--out", help="where episodes go; default $SLIPWAY_OUTPUTS/episodes")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config: IngestConfig = configuration.load(Path(arguments.config), IngestConfig)  # type: ignore[arg-type]
        out = configuration.output_folder(arguments.out, "episodes")
        try:
            kept = ingest(config, out)["episodes"]["kept"]
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            hint = "; raise resources.disk" if full else ""
            raise ConfigError(f"{error.filename or out}: {error.strerror or error}{hint}") from None
        if not kept:
            print("ingest: nothing was kept", file=sys.stderr)
            return 1
        return 0

    return configuration.run(run)
