"""A packed dataset as a sequence of samples: random access to any step, with the rows on disk.

The rows are read with `datasets`, which at first use converts Parquet to a memory-mapped Arrow file in its cache
($HF_DATASETS_CACHE); reading a row then takes tens of microseconds. Python keeps two integers per sample.

An index knows the place of each image, in 32 bytes of memory; one image is read with a single pread. Each process opens
the files itself, so that the objects here can be sent to worker processes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eval.actions import Action, ActionError, Unrepresentable
from eval.actions.geometry import Box
from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes import Episode, frame_name
from eval.episodes.images import ImageRef
from eval.episodes.pictures import measured, opened
from eval.prompts import PromptBuilder
from eval.prompts.demonstrations import FrameOf, Pool
from training.data.faults import BadSample, Faults
from training.data.packed.store import (
    INDEX,
    MARKER,
    DatasetManifest,
    Pack,
    action,
    from_row,
    numbered,
    read_manifest,
    verify,
)
from training.data.samples import Sample, SampleSequence, step_sample, with_pool

if TYPE_CHECKING:
    from PIL import Image


class PackedImages:
    """The images of a dataset folder by content hash. Raises ConfigError when the index is damaged."""

    def __init__(self, folder: Path, packs: Sequence[Pack], index: Pack) -> None:
        import numpy as np
        import pyarrow.parquet as pq

        self.folder = folder
        self.packs = [pack.file for pack in packs]
        verify(folder, index)
        file = pq.ParquetFile(folder / INDEX)
        count = file.metadata.num_rows
        self._keys: Any = np.empty(count, np.uint64)  # the first 8 bytes of the sha256, ascending
        self._pack: Any = np.empty(count, np.int32)
        self._offset: Any = np.empty(count, np.int64)
        self._length: Any = np.empty(count, np.int32)
        # the next 8 bytes, of those images that this process has read and found right: what is shown again and again
        # is hashed once
        self._right: Any = np.zeros(count, np.uint64)
        at = 0
        for batch in file.iter_batches(columns=["sha256", "pack", "offset", "length"]):
            end = at + len(batch)
            digests = bytes.fromhex("".join(batch.column(0).to_pylist()))
            self._keys[at:end] = np.frombuffer(digests, ">u8")[::4]
            self._pack[at:end] = batch.column(1).to_numpy()
            self._offset[at:end] = batch.column(2).to_numpy()
            self._length[at:end] = batch.column(3).to_numpy()
            at = end
        self._files: dict[str, int] = {}  # name -> descriptor; pread moves no file position, so forks may share it

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, sha256: str) -> bool:
        key = int(sha256[:16], 16)
        at = int(self._keys.searchsorted(key))
        return at < len(self._keys) and int(self._keys[at]) == key

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}

    def read(self, sha256: str) -> bytes:
        """The file's bytes; those of the first reading are checked against the hash. Raises BadFrame for a missing or
        damaged image."""
        key, rest = int(sha256[:16], 16), int(sha256[16:32], 16)
        at = int(self._keys.searchsorted(key))
        while at < len(self._keys) and int(self._keys[at]) == key:  # several hashes may share 8 bytes
            name = self.packs[self._pack[at]]
            length = int(self._length[at])
            data = os.pread(self._descriptor(name), length, int(self._offset[at]))
            if rest and int(self._right[at]) == rest and len(data) == length:
                return data
            if hashlib.sha256(data).hexdigest() == sha256:
                self._right[at] = rest
                return data
            at += 1
            if at == len(self._keys) or int(self._keys[at]) != key:
                raise BadFrame(f"{self.folder / name}: damaged: image {sha256} is not what was packed")
        raise BadFrame(f"{self.folder}: there is no image {sha256}")

    def open(self, sha256: str) -> Image.Image:
        """Decoded, RGB. Raises BadFrame."""
        return opened(self.read(sha256), f"{self.folder}: image {sha256}")

    def measure(self, sha256: str) -> tuple[int, int]:
        """Width and height, by the file's header. Raises BadFrame."""
        return measured(self.read(sha256), f"{self.folder}: image {sha256}")

    def ref(self, sha256: str) -> PackedImage:
        return PackedImage(self, sha256)

    def _descriptor(self, name: str) -> int:
        if name not in self._files:
            try:
                self._files[name] = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise ConfigError(f"{self.folder / name}: {error.strerror}") from None
        return self._files[name]

    def __del__(self) -> None:
        for descriptor in getattr(self, "_files", {}).values():
            os.close(descriptor)


class PackedImage:
    """An image of a dataset; read on demand."""

    __slots__ = ("images", "sha256")

    def __init__(self, images: PackedImages, sha256: str) -> None:
        self.images = images
        self.sha256 = sha256

    def open(self) -> Image.Image:
        """Decoded, RGB. Raises BadFrame."""
        return self.images.open(self.sha256)

    def measure(self) -> tuple[int, int]:
        """Width and height, by the file's header. Raises BadFrame."""
        return self.images.measure(self.sha256)

    def read(self) -> bytes:
        """The file's bytes. Raises BadFrame."""
        return self.images.read(self.sha256)

    def __repr__(self) -> str:
        return f"{self.images.folder}#{self.sha256[:12]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedImage) and other.sha256 == self.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


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


class PackedSamples(SampleSequence):
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

    def _at(self, at: int) -> Sample:
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
