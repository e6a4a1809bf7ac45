"""Published weights of a LoRA (`published.PublishedWeights`) as the folders that vLLM loads, one a version.

Each version has a name of its own: vLLM caches what the vision tower makes of an image by the name of the LoRA alone.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from eval.config import ConfigError
from training.common.model.loading import readable
from training.common.model.parts import VISION

SETTINGS: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
ADAPTER: Final = ".default"  # the LoRA's own name in the names of its weights, which its file leaves out


class LoraFolders:
    """Of one training, in `folder`. Raises ConfigError for a LoRA that vLLM does not take."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        if settings.get("use_dora"):
            raise ConfigError("adapter: vLLM takes no DoRA; leave out asynchronous.vllm")
        for name in ("modules_to_save", "trainable_token_indices"):
            if settings.get(name):
                raise ConfigError(f"adapter: vLLM takes no LoRA with {name}; leave out asynchronous.vllm")
        if settings.get("bias", "none") != "none":
            raise ConfigError("adapter: vLLM takes no LoRA with a bias; leave out asynchronous.vllm")
        self.rank = max(int(settings["r"]), *map(int, (settings.get("rank_pattern") or {"": 1}).values()))

    def name(self, version: int) -> str:
        """Of no other training, and of no other version."""
        return f"{self.folder.name}-{version}"

    def version(self, name: str) -> int | None:
        """The version of a name of this training's; None for any other name."""
        head, _, tail = name.rpartition("-")
        return int(tail) if head == self.folder.name and tail.isdecimal() else None

    def make(self, version: int, file: Path) -> Path:
        """The folder of a version; any number of threads and workers may ask for it at once. Raises FileNotFoundError
        when the version is published no more."""
        place = self.folder / f"lora-{version}"
        if not place.is_dir():
            with self._alone():
                if not place.is_dir():
                    self._write(version, file).rename(place)
        return place

    def _write(self, version: int, file: Path) -> Path:
        """The folder under another name: the final one is always whole."""
        from safetensors.torch import load_file, save_file

        tensors: dict[str, Any] = load_file(file)
        if odd := [name for name in tensors if ".lora_" not in name]:
            raise ConfigError(f"adapter: vLLM takes a LoRA only, and {odd[0]} is trained, too")
        part = self.folder / f".lora-{version}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        save_file({name.replace(f"{ADAPTER}.", "."): value for name, value in tensors.items()}, part / WEIGHTS)
        shutil.copyfile(self.folder / SETTINGS, part / SETTINGS)
        readable(part)
        part.chmod(0o755)
        return part

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One maker at a time: each server has a thread that makes folders, and each worker has its own."""
        with (self.folder / ".lora.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def forget(self, version: int) -> None:
        shutil.rmtree(self.folder / f"lora-{version}", ignore_errors=True)

    @staticmethod
    def touches_vision(folder: Path) -> bool:
        """Whether a LoRA has weights on the vision tower, which vLLM drops without a word unless it is told."""
        from safetensors import safe_open

        with safe_open(folder / WEIGHTS, "pt") as tensors:
            return any(VISION in name.split(".") for name in tensors.keys())  # noqa: SIM118 (no mapping)
