"""A packed dataset as a sequence of samples: random access to any step, with the rows on disk.

The rows are read with `datasets`, which at first use converts Parquet to a memory-mapped Arrow file in its cache
($HF_DATASETS_CACHE); reading a row then takes tens of microseconds. Python keeps two integers per sample.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, overload

from eval.actions import Action, ActionError, Unrepresentable
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.episodes import Episode, frame_name
from eval.episodes.images import ImageRef
from eval.prompts import PromptBuilder
from eval.prompts.demonstrations import FrameOf, Pool
from training.data.faults import BadSample, Faults
from training.data.packed.images import PackedImages
from training.data.packed.store import MARKER, DatasetManifest, action, from_row, numbered, read_manifest, verify
from training.data.samples import Sample, step_sample, with_pool

BATCH: Final = 500  # episodes decoded at once in a sequential read


class PackedEpisodes:
    """The episodes of one split of a dataset folder, by number. Raises ConfigError.

    Can be sent to forked or spawned worker processes: each maps the same files.
    """

    def __init__(self, folder: Path, split: str) -> None:
        self.folder = folder
        self.split = split
        self.manifest = read_manifest(folder)
        if split not in self.manifest.splits:
            raise ConfigError(f"{folder}: there is no split {split!r}; allowed: {', '.join(self.manifest.splits)}")
        self.images = PackedImages(folder, self.manifest.packs, self.manifest.index)
        self.rows = _rows(folder, self.manifest, split)

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, number: int) -> dict[str, Any]:
        row: dict[str, Any] = self.rows[number]
        return row

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """All rows in order."""
        for batch in self.rows.with_format("arrow").iter(BATCH):
            yield from batch.to_pylist()

    def frames(self, row: dict[str, Any]) -> FrameOf:
        """The images of a row's steps and of the final state, by the episode's file names."""
        refs: dict[str, ImageRef] = {step["screenshot"]: self.images.ref(step["image"]) for step in row["steps"]}
        if row["final_image"] is not None:
            refs.setdefault(frame_name(len(row["steps"])), self.images.ref(row["final_image"]))
        return lambda name: refs.get(name) or self.folder / name  # a missing file

    def episode(self, number: int) -> tuple[Episode, FrameOf]:
        """The episode of a row. Raises ConfigError for an invalid row."""
        row = self.row(number)
        try:
            return from_row(row), self.frames(row)
        except BadSample as fault:
            raise ConfigError(f"{self.folder}: {fault}") from None


def _rows(folder: Path, manifest: DatasetManifest, split: str) -> Any:
    """The rows of a split as a `datasets.Dataset`. Raises ConfigError."""
    import datasets

    files = [shard for shard in manifest.shards if shard.split == split]
    for shard in files:
        verify(folder, shard)
    shown = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        paths = [str(folder / shard.file) for shard in files]
        rows = datasets.load_dataset("parquet", data_files={"train": paths}, split="train")
    except (OSError, datasets.exceptions.DatasetsError) as error:
        cause = " ".join(str(error.__cause__ or error).split())
        cache = datasets.config.HF_DATASETS_CACHE
        raise ConfigError(f"{folder}: cannot be unpacked into $HF_DATASETS_CACHE, {cache}: {cause}") from None
    finally:
        if shown:
            datasets.enable_progress_bars()
    if len(rows) != manifest.splits[split].episodes:
        raise ConfigError(f"{folder}: {len(rows)} episodes; {MARKER} counts {manifest.splits[split].episodes}")
    return rows


class PackedSamples(Sequence[Sample]):
    """A sample for every step whose action the builder can write, in the order of episodes and steps.

    The constructor checks all steps, so that every fault is counted before training starts. Raises ConfigError.
    """

    def __init__(self, episodes: PackedEpisodes, builder: PromptBuilder, faults: Faults) -> None:
        self.episodes = episodes
        self.builder = with_pool(builder, lambda: _pool(episodes))
        self.numbers, self.steps = _usable(episodes, builder, faults)
        if not len(self.numbers):
            raise ConfigError(f"{episodes.folder}: split {episodes.split!r} has no step to learn")

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> Sample: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Sample]: ...
    def __getitem__(self, at: int | slice) -> Sample | Sequence[Sample]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        episode, frame = self.episodes.episode(int(self.numbers[at]))
        try:
            return step_sample(episode, int(self.steps[at]), self.builder, frame)
        except BadSample as fault:
            raise ConfigError(f"{self.episodes.folder}: episode {episode.episode_id}: {fault}") from None


FURTHER: Final = "further_actions"


@dataclass(frozen=True)
class _Told:
    """The fields of a step from which its target is made."""

    action: Action
    thought: str | None
    response: str | None
    marks: dict[int, Box]
    further_actions: tuple[Action, ...]


def _usable(episodes: PackedEpisodes, builder: PromptBuilder, faults: Faults) -> tuple[Any, Any]:
    """(episode, step) of every sample, as arrays. Decodes only the columns that a target needs."""
    import numpy as np

    counts = episodes.manifest.splits[episodes.split]
    numbers, steps = np.empty(counts.actions, np.uint32), np.empty(counts.actions, np.uint32)
    at = first = 0
    for batch in episodes.rows.select_columns(["episode_id", "steps"]).with_format("arrow").iter(BATCH):
        names = batch.column("episode_id").to_pylist()
        column = batch.column("steps").combine_chunks()
        owners = np.repeat(np.arange(len(names)), column.value_lengths().to_numpy()).tolist()
        flat = column.flatten()
        parts = [flat.field(name).to_pylist() for name in ("index", "action", "thought", "response", "marks")]
        told = flat.type.get_field_index(FURTHER) >= 0  # rows of the episode schema 1.0.0 have no such column
        parts.append(flat.field(FURTHER).to_pylist() if told else [None] * len(owners))
        for owner, index, done, thought, response, marks, more in zip(owners, *parts, strict=True):
            if done is None:
                continue
            try:
                builder.target(_Told(action(done), thought, response, numbered(marks), tuple(map(action, more or ()))))
            except (ActionError, Unrepresentable) as error:
                reason = "unrepresentable" if isinstance(error, Unrepresentable) else "broken_episode"
                where = f"{episodes.folder}: episode {names[owner]}: step {index}"
                faults.bad(where, BadSample(reason, str(error)))
                continue
            numbers[at], steps[at] = first + owner, index
            at += 1
        first += len(names)
    return numbers[:at].copy(), steps[:at].copy()


def _pool(episodes: PackedEpisodes) -> Pool:
    """The episodes that may be shown as demonstrations."""

    def read(number: int) -> Callable[[], tuple[Episode, FrameOf]]:
        return lambda: episodes.episode(number)

    def found() -> Iterator[tuple[Episode, Callable[[], tuple[Episode, FrameOf]]]]:
        for number, row in enumerate(episodes):
            if row["success"]:
                with contextlib.suppress(BadSample):  # reported when its own samples are checked
                    yield from_row(row), read(number)

    return Pool.of(found())
