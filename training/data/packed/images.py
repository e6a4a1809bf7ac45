"""Images of a packed dataset: an index of their places; one image is read with a single pread.

The index takes 24 bytes of memory per image. Each process opens the files itself, so that the objects here can be sent
to worker processes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.episodes.pictures import measured, opened
from training.data.packed.store import INDEX, Pack, verify

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
        """The file's bytes, checked against the hash. Raises BadFrame for a missing or damaged image."""
        key = int(sha256[:16], 16)
        at = int(self._keys.searchsorted(key))
        while at < len(self._keys) and int(self._keys[at]) == key:  # several hashes may share 8 bytes
            name = self.packs[self._pack[at]]
            data = os.pread(self._descriptor(name), int(self._length[at]), int(self._offset[at]))
            if hashlib.sha256(data).hexdigest() == sha256:
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
