"""Writes a packed dataset episode by episode, in constant memory; dataset.json, written last, completes it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import sqlite3
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import msgspec
from PIL import Image

from eval.config import ConfigError, ResumeError
from eval.desktop import BadFrame
from eval.episodes import Episode
from eval.episodes.pictures import opened
from training.data.faults import BadSample
from training.data.looks import PNG, undamaged
from training.data.packed.store import (
    FORMAT,
    INDEX,
    MARKER,
    VERSION,
    Counts,
    DatasetManifest,
    Pack,
    Shard,
    is_dataset,
    schema,
    to_row,
)
from training.data.similar_images import dhash

GROUP_STEPS: Final = 2_000  # of a Parquet row group, which is kept in memory until it is written
SHARD_BYTES: Final = 256 * 2**20
PACK_BYTES: Final = 2**30
SCRATCH: Final = ".images.sqlite"
SUFFIXES: Final = {"PNG": "png", "JPEG": "jpg", "WEBP": "webp"}
OURS: Final = re.compile(
    r"[\w.-]+-[0-9]{5}\.parquet|images-[0-9]{5}\.tar|images\.parquet|\.images\.sqlite|\.dataset\.json"
)
RECENT: Final = 50_000  # hashes cached in memory, to save queries of the database

NOTHING: Final[Mapping[str, str]] = {}

Frame = Image.Image | bytes | Path


class _Hashed:
    """A new file that computes its sha256 and size while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("wb")
        self.sha = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> None:
        self.sha.update(data)
        self.size += len(data)
        self.file.write(data)

    def close(self) -> None:
        self.file.close()


class ImageWriter:
    """Writes images into tar packs, each content once; a database on disk holds their places until the end."""

    def __init__(self, folder: Path, pack_bytes: int = PACK_BYTES) -> None:
        self.folder = folder
        self.pack_bytes = pack_bytes
        self.packs: list[Pack] = []
        self.count = 0  # in the open pack
        self.recent: dict[bytes, None] = {}
        self.file: _Hashed | None = None
        self.base = sqlite3.connect(folder / SCRATCH, isolation_level=None)
        self.base.execute("PRAGMA journal_mode=OFF")
        self.base.execute("PRAGMA synchronous=OFF")
        self.base.execute("PRAGMA locking_mode=EXCLUSIVE")
        self.base.execute(
            "CREATE TABLE images (sha256 BLOB PRIMARY KEY, pack INT, offset INT, length INT, width INT, height INT,"
            " dhash BLOB) WITHOUT ROWID"
        )

    def add(self, frame: Frame, looks: Mapping[str, str] = NOTHING) -> str:
        """Writes the image if it is new; returns its sha256. Raises BadSample for an invalid image. `looks`: perceptual
        hashes by sha256; such an image is not decoded."""
        data = _bytes(frame)
        sha = hashlib.sha256(data)
        if sha.digest() in self.recent or self._known(sha.digest()):
            return sha.hexdigest()
        name = str(frame) if isinstance(frame, Path) else "an image"
        try:
            if (known := looks.get(sha.hexdigest())) is not None and data.startswith(PNG):
                kind, size, look = "PNG", undamaged(data, name), bytes.fromhex(known)
            else:
                image = opened(data, name)
                kind, size, look = str(image.format), image.size, dhash(image)
        except BadFrame as error:
            raise BadSample("image_broken", str(error)) from None
        if (suffix := SUFFIXES.get(kind)) is None:
            raise BadSample("image_broken", f"{name}: not PNG, JPEG or WebP")
        pack, offset = self._write(f"{sha.hexdigest()}.{suffix}", data)
        row = (sha.digest(), pack, offset, len(data), *size, look)
        self.base.execute("INSERT INTO images VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._note(sha.digest())
        return sha.hexdigest()

    def _known(self, digest: bytes) -> bool:
        if self.base.execute("SELECT 1 FROM images WHERE sha256 = ?", (digest,)).fetchone() is None:
            return False
        self._note(digest)
        return True

    def _note(self, digest: bytes) -> None:
        self.recent[digest] = None
        if len(self.recent) > RECENT:
            del self.recent[next(iter(self.recent))]

    def _write(self, name: str, data: bytes) -> tuple[int, int]:
        """(pack, offset of the image in it)"""
        if self.file is not None and self.file.size + len(data) > self.pack_bytes and self.count:
            self._close_pack()
        if self.file is None:
            self.file = _Hashed(self.folder / f"images-{len(self.packs):05d}.tar")
        member = tarfile.TarInfo(name)
        member.size = len(data)
        self.file.write(member.tobuf(tarfile.USTAR_FORMAT))
        offset = self.file.size
        self.file.write(data)
        self.file.write(bytes(-len(data) % tarfile.BLOCKSIZE))
        self.count += 1
        return len(self.packs), offset

    def _close_pack(self) -> None:
        assert self.file is not None
        self.file.write(bytes(2 * tarfile.BLOCKSIZE))  # the end of a tar file
        self.file.close()
        name = self.file.path.name
        self.packs.append(Pack(file=name, images=self.count, bytes=self.file.size, sha256=self.file.sha.hexdigest()))
        self.file, self.count = None, 0

    def close(self) -> Pack:
        """Closes the last pack and writes the index, sorted by hash; returns the index's entry."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.file is not None:
            self._close_pack()
        names = ("sha256", "pack", "offset", "length", "width", "height", "dhash")
        fields = pa.schema([(n, pa.string() if n in ("sha256", "dhash") else pa.int64()) for n in names])
        path, count = self.folder / INDEX, 0
        with pq.ParquetWriter(path, fields, compression="zstd", write_page_checksum=True) as writer:
            images = self.base.execute("SELECT * FROM images ORDER BY sha256")
            while rows := images.fetchmany(50_000):
                columns = [list(column) for column in zip(*rows, strict=True)]
                columns[0] = [digest.hex() for digest in columns[0]]
                columns[-1] = [digest.hex() for digest in columns[-1]]
                writer.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], schema=fields))
                count += len(rows)
        self.base.close()
        return Pack(file=INDEX, images=count, bytes=path.stat().st_size, sha256=_digest(path))

    def abandon(self) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):
                self.file.close()
        self.base.close()


class _Shards:
    """The Parquet files of one split."""

    def __init__(self, folder: Path, split: str, shard_bytes: int) -> None:
        self.folder = folder
        self.split = split
        self.shard_bytes = shard_bytes
        self.done: list[Shard] = []
        self.rows: list[dict[str, Any]] = []  # of the next row group
        self.buffered = 0  # their steps
        self.writer: Any = None
        self.path = folder

    def add(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        self.buffered += len(row["steps"])
        if self.buffered >= GROUP_STEPS or len(self.rows) >= GROUP_STEPS:
            self.flush()

    def flush(self) -> None:
        """Writes a row group, and closes the shard when it is large enough."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.rows:
            return
        if self.writer is None:
            self.path = self.folder / f"{self.split}-{len(self.done):05d}.parquet"
            self.writer = pq.ParquetWriter(self.path, schema(), compression="zstd", write_page_checksum=True)
            self.episodes = self.steps = self.actions = 0
        self.writer.write_batch(pa.RecordBatch.from_pylist(self.rows, schema()), row_group_size=len(self.rows))
        self.episodes += len(self.rows)
        self.steps += self.buffered
        self.actions += sum(row["actions"] for row in self.rows)
        self.rows, self.buffered = [], 0
        if self.path.stat().st_size >= self.shard_bytes:
            self._end()

    def _end(self) -> None:
        self.writer.close()
        self.writer = None
        self.done.append(
            Shard(
                file=self.path.name,
                split=self.split,
                episodes=self.episodes,
                steps=self.steps,
                actions=self.actions,
                bytes=self.path.stat().st_size,
                sha256=_digest(self.path),
            )
        )

    def abandon(self) -> None:
        if self.writer is not None:
            with contextlib.suppress(OSError):
                self.writer.close()

    def close(self) -> list[Shard]:
        self.flush()
        if self.writer is not None:
            self._end()
        return self.done


class DatasetWriter:
    """A context that writes a dataset folder; first it deletes the files of a writer that was killed.

    `add` takes the episodes in any order. The end of the context writes dataset.json, except after an exception.
    Raises ConfigError for a folder that already holds a complete dataset.
    """

    def __init__(
        self,
        folder: Path,
        made_from: dict[str, Any] | None = None,
        *,
        shard_bytes: int = SHARD_BYTES,
        pack_bytes: int = PACK_BYTES,
    ) -> None:
        self.folder = folder
        self.made_from = made_from or {}
        self.shard_bytes = shard_bytes
        _clear(folder)
        self.images = ImageWriter(folder, pack_bytes)
        self.splits: dict[str, _Shards] = {}
        self.counts: dict[str, Counts] = {}  # what was added to each split
        self.skipped: dict[str, Any] = {}

    def add(
        self,
        episode: Episode,
        frames: Sequence[Frame],
        *,
        split: str = "train",
        folder: str = "",
        looks: Mapping[str, str] = NOTHING,
    ) -> None:
        """Adds an episode with a frame per step, and the final frame if there is one. `looks`: as of `ImageWriter.add`.

        Raises BadSample for an unusable episode; then only images of it are written.
        """
        if not episode.steps:
            raise BadSample("no_steps", "an episode without a step")
        if len(frames) not in (len(episode.steps), len(episode.steps) + 1):
            raise BadSample("image_missing", f"{len(frames)} frames for {len(episode.steps)} steps")
        row = to_row(episode, [self.images.add(frame, looks) for frame in frames], folder)
        if split not in self.splits:
            self.splits[split] = _Shards(self.folder, split, self.shard_bytes)
        self.splits[split].add(row)
        before = self.counts.get(split, Counts())
        self.counts[split] = Counts(
            episodes=before.episodes + 1,
            steps=before.steps + len(row["steps"]),
            actions=before.actions + row["actions"],
        )

    def close(self) -> DatasetManifest:
        """Writes the rest from memory, and dataset.json last. Raises ConfigError when there is no episode."""
        shards = [shard for name in sorted(self.splits) for shard in self.splits[name].close()]
        index = self.images.close()
        if not shards:
            raise ConfigError("there is no episode to pack")
        manifest = DatasetManifest(
            format=FORMAT,
            version=VERSION,
            splits={name: _sum([shard for shard in shards if shard.split == name]) for name in sorted(self.splits)},
            shards=shards,
            packs=self.images.packs,
            index=index,
            made_from=self.made_from,
            skipped=self.skipped,
        )
        temporary = self.folder / f".{MARKER}"
        temporary.write_text(json.dumps(msgspec.to_builtins(manifest), indent=1) + "\n", encoding="utf-8")
        temporary.replace(self.folder / MARKER)
        (self.folder / SCRATCH).unlink()
        return manifest

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            try:
                self.close()
            except BaseException:
                self._abandon()
                raise
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Deletes all files: most likely the disk is full."""
        for shards in self.splits.values():
            shards.abandon()
        self.images.abandon()
        _remove(self.folder)


def _sum(shards: Sequence[Shard]) -> Counts:
    return Counts(**{name: sum(getattr(shard, name) for shard in shards) for name in ("episodes", "steps", "actions")})


def _clear(folder: Path) -> None:
    """Creates the folder, or empties that of a killed writer. Raises ConfigError for any other folder with files."""
    if is_dataset(folder):
        raise ResumeError(f"{folder} already holds a dataset; name another folder, or remove it")
    if (folder / SCRATCH).exists():
        _remove(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ResumeError(f"{folder} holds files that are not a dataset's; name another folder")


def _remove(folder: Path) -> None:
    """Deletes a writer's files; its database last, because it marks the folder as a writer's."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == SCRATCH):
        if OURS.fullmatch(path.name):
            path.unlink()


def _bytes(frame: Frame) -> bytes:
    """A file's bytes, or a decoded image's as PNG. Raises BadSample."""
    if isinstance(frame, bytes):
        return frame
    if isinstance(frame, Path):
        try:
            return frame.read_bytes()
        except FileNotFoundError:
            raise BadSample("image_missing", str(frame)) from None
        except OSError as error:
            raise BadSample("image_broken", f"{frame}: {error.strerror}") from None
    buffer = io.BytesIO()
    frame.save(buffer, "PNG")
    return buffer.getvalue()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
