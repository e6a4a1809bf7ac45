"""The results that are exported: the records of each agent, and the episodes that were kept."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from eval.config import ConfigError, ResumeError
from eval.episodes import Episode, EpisodeError, frame_name, is_complete, jsonl, read_episode
from eval.records.task_record import RECORDS, TaskRecord

BASELINES = "baselines"


@dataclass(frozen=True)
class RecordedTask:
    """A record, and its episode with the folder, where that was kept.

    written  when the records were last written, Unix seconds
    """

    record: TaskRecord
    episode: Episode | None
    folder: Path
    written: float

    def picture(self, index: int) -> Path | None:
        """The frame before action `index`; None where there is none."""
        path = self.folder / frame_name(index)
        return path if self.episode is not None and path.is_file() else None


def recorded_tasks(results: Path) -> list[RecordedTask]:
    """Every task of the agent, then of each baseline. Raises ConfigError for what is no results folder, or damaged."""
    folders = [results, *sorted(path.parent for path in (results / BASELINES).glob(f"*/{RECORDS}"))]
    if not (results / RECORDS).is_file():
        raise ConfigError(f"{results}: there is no {RECORDS}; allowed: a results folder of an evaluation")
    return [task for folder in folders for task in _of(folder)]


def _of(folder: Path) -> Iterator[RecordedTask]:
    path = folder / RECORDS
    try:
        records = jsonl.read(path, TaskRecord)
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path}: {error}") from None
    written = path.stat().st_mtime if records else 0.0
    for record in records:
        kept = folder / record.episode if record.episode else folder
        if not kept.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"{path}: episode {record.episode!r} lies outside of the results")
        try:
            episode = read_episode(kept) if record.episode and is_complete(kept) else None
        except EpisodeError as error:
            raise ConfigError(str(error)) from None
        yield RecordedTask(record, episode, kept, written)


def new_folder(out: Path) -> Path:
    """Makes the folder for an export. Raises ConfigError where something is in it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise ResumeError(f"{out} is not empty; name another folder")
    except OSError as error:
        raise ConfigError(f"{out}: {error.strerror}") from None
    return out


def part(name: str) -> str:
    """A name as one part of a path: nothing in it leads elsewhere."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip(".")[:120] or "unnamed"


def own_names(tasks: Sequence[RecordedTask]) -> list[str]:
    """A name for each task, in their order: its id, with the seed where an agent did it with several; all differ."""
    names: list[str] = []
    known: set[tuple[str, str]] = set()
    seeds: dict[tuple[str, str], set[int]] = {}
    for task in tasks:
        seeds.setdefault((task.record.agent, task.record.task_id), set()).add(task.record.seed)
    for task in tasks:
        record = task.record
        several = len(seeds[record.agent, record.task_id]) > 1
        name = part(f"{record.task_id}-{record.seed}" if several else record.task_id)
        number = 2
        while (record.agent, name) in known:  # two ids that are one name in a path
            name, number = f"{part(record.task_id)}-{record.seed}-{number}", number + 1
        known.add((record.agent, name))
        names.append(name)
    return names


def copied(source: Path, target: Path) -> str:
    """Copies a file; gives its name."""
    shutil.copyfile(source, target)
    return target.name
