"""Reads whole datasets, packed or not, for the card and the check, with one episode in memory at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes import Episode, EpisodeError, read_episode
from eval.episodes.pictures import opened
from training.data.faults import BadSample, Faults
from training.data.packed.pack import find, frames
from training.data.packed.store import INDEX, from_row, is_dataset, parts, read_manifest, verify
from training.data.packed.stream import PackedImages
from training.data.similar_images import dhash

if TYPE_CHECKING:
    from PIL import Image

BATCH: Final = 200  # rows


@dataclass(frozen=True)
class ScannedEpisode:
    """An episode, the sha256 of its frames (one per step, and the final one if any), and its place."""

    side: str  # a split or a folder, which must not share content with others
    number: int  # among all scanned episodes
    name: str
    episode: Episode
    images: list[str]


@dataclass
class DatasetScan:
    """Iterates over the episodes of paths. Each split of a packed dataset is a side, and so is each other folder.

    After the iteration, `shas` and `hashes` (32 bytes per distinct image) and `sizes` describe the images. Raises
    ConfigError.
    """

    paths: list[Path]
    faults: Faults = field(default_factory=lambda: Faults("skip"))
    perceptual: bool = (
        True  # whether hashes and sizes are wanted: the images of folders that are not packed are decoded
    )

    def __post_init__(self) -> None:
        self.files: dict[str, Path] = {}  # of unpacked images
        self.packs: list[PackedImages] = []
        self.shas, self.hashes = bytearray(), bytearray()
        self.sizes: Counter[tuple[int, int]] = Counter()  # (width, height)
        self.sides: list[str] = []
        self.bytes = 0  # of distinct images
        self.left_out: Counter[str] = Counter()  # by reason, when the datasets were packed
        if len({path.resolve() for path in self.paths}) < len(self.paths):
            raise ConfigError("the same folder is named twice")
        self.names = _short(self.paths)
        for path in self.paths:
            if not path.is_dir():
                raise ConfigError(f"there is no folder {path}")
            if is_dataset(path):
                manifest = read_manifest(path)
                self.packs.append(PackedImages(path, manifest.packs, manifest.index))
                self.bytes += sum(pack.bytes for pack in manifest.packs)
                self.left_out.update(manifest.skipped.get("by_reason", {}))
                self.sides += [self._side(path, split) for split in manifest.splits]
                if self.perceptual:
                    self._read_index(path)
            else:
                self.sides.append(self._side(path, None))

    def _side(self, path: Path, split: str | None) -> str:
        if split is None:
            return self.names[path]
        return split if len(self.paths) == 1 else f"{self.names[path]}#{split}"

    def _read_index(self, path: Path) -> None:
        import pyarrow.parquet as pq

        columns = ["sha256", "width", "height", "dhash"]
        for batch in pq.ParquetFile(path / INDEX).iter_batches(columns=columns):
            shas, widths, heights, hashes = (column.to_pylist() for column in batch.columns)
            self.shas += bytes.fromhex("".join(shas))
            self.hashes += bytes.fromhex("".join(hashes))
            self.sizes.update(zip(widths, heights, strict=True))

    def __iter__(self) -> Iterator[ScannedEpisode]:
        return self._all(None)

    def _all(self, wanted: set[int] | None) -> Iterator[ScannedEpisode]:
        number = 0
        for path in self.paths:
            if is_dataset(path):
                yield from self._packed(path, number, wanted)
                number += sum(counts.episodes for counts in read_manifest(path).splits.values())
            else:
                for seen in self._folder(path, number):
                    number = seen.number + 1
                    if wanted is None or seen.number in wanted:
                        yield seen

    def _packed(self, path: Path, number: int, wanted: set[int] | None) -> Iterator[ScannedEpisode]:
        import pyarrow.parquet as pq

        for shard in read_manifest(path).shards:
            side = self._side(path, shard.split)
            try:
                for batch in pq.ParquetFile(path / shard.file).iter_batches(BATCH):
                    if wanted is not None and wanted.isdisjoint(range(number, number + len(batch))):
                        number += len(batch)
                        continue
                    for row in batch.to_pylist():
                        images = [step["image"] for step in row["steps"]]
                        if row["final_image"] is not None:
                            images.append(row["final_image"])
                        name = row["folder"] or row["episode_id"]
                        yield ScannedEpisode(side, number, name, from_row(row), images)
                        number += 1
            except (OSError, BadSample) as error:
                raise ConfigError(f"{path / shard.file}: {error}") from None

    def _folder(self, path: Path, number: int) -> Iterator[ScannedEpisode]:
        side = self._side(path, None)
        for folder in find([str(path)]):
            try:
                episode = read_episode(folder)
                images = [self._image(file) for file in frames(folder, episode)]
            except EpisodeError as error:
                self.faults.bad(str(folder), BadSample("broken_episode", str(error)))
            except BadSample as fault:
                self.faults.bad(str(folder), fault)
            else:
                yield ScannedEpisode(side, number, folder.name, episode, images)
                number += 1

    def _image(self, file: Path) -> str:
        """The image's sha256. Raises BadSample for a missing or incomplete image."""
        try:
            data = file.read_bytes()
        except OSError as error:
            raise BadSample("image_missing", f"{file}: {error.strerror}") from None
        sha = hashlib.sha256(data).hexdigest()
        if sha not in self.files:
            if self.perceptual:
                try:
                    image = opened(data, str(file))
                except BadFrame as error:
                    raise BadSample("image_broken", str(error)) from None
                self.shas += bytes.fromhex(sha)
                self.hashes += dhash(image)
                self.sizes[image.size] += 1
            self.files[sha] = file
            self.bytes += len(data)
        return sha

    def sha(self, at: int) -> str:
        """The hash of distinct image number `at`."""
        return self.shas[32 * at : 32 * at + 32].hex()

    def verify(self) -> None:
        """Reads every file of the packed datasets. Raises ConfigError for a damaged file."""
        for path in self.paths:
            if is_dataset(path):
                for part in parts(read_manifest(path)):
                    verify(path, part)

    def at(self, numbers: Iterable[int]) -> dict[int, ScannedEpisode]:
        """The episodes with these numbers, from a second pass over all episodes."""
        wanted = set(numbers)
        told, self.faults = self.faults, Faults("skip")  # the first pass reported the faults
        try:
            episodes = self._all(wanted) if wanted else iter(())
            return {seen.number: seen for seen in episodes if seen.number in wanted}
        finally:
            self.faults = told

    def open(self, sha256: str) -> Image.Image:
        """An image, decoded, RGB. Raises BadFrame."""
        for pack in self.packs:
            if sha256 in pack:
                return pack.open(sha256)
        if sha256 not in self.files:
            raise BadFrame(f"there is no image {sha256}")
        return opened(self.files[sha256])


def digest(*parts: Any) -> bytes:
    """A digest of texts, 16 bytes."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode(errors="surrogatepass")
        hasher.update(len(data).to_bytes(8, "little") + data)
    return hasher.digest()


def _short(paths: Sequence[Path]) -> dict[Path, str]:
    """Each folder's shortest trailing path that differs from the others'."""
    whole = [path.resolve().parts for path in paths]
    count = next(n for n in range(1, max(map(len, whole)) + 1) if len({parts[-n:] for parts in whole}) == len(whole))
    return {path: str(Path(*parts[-count:])) for path, parts in zip(paths, whole, strict=True)}
