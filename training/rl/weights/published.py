"""Weights under a version: how a training publishes them, and how a model takes them.

Published is what is trained: all weights, or those of a LoRA alone. A version is the number of updates before it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from eval.config import ConfigError
from training.common.model.loading import readable


def trained(model: Any) -> dict[str, torch.Tensor]:
    """The trained weights by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


class PublishedWeights:
    """Files of a model's trained weights in `folder`, of the newest `kept` versions; with a LoRA also its settings.

    Raises ConfigError where the disk has no room for them.
    """

    def __init__(self, model: Any, folder: Path, kept: int) -> None:
        self.model = model
        self.folder = folder
        self.kept = kept
        self.version = -1
        check_room(folder, sum(w.numel() * w.element_size() for w in trained(model).values()), kept)
        for settings in getattr(model, "peft_config", {}).values():
            settings.save_pretrained(str(folder))
            readable(folder)

    def file(self, version: int) -> Path:
        return self.folder / f"{version}.safetensors"

    def whole(self) -> dict[str, torch.Tensor]:
        """The trained weights as they are now."""
        return {name: weight.detach().cpu() for name, weight in trained(self.model).items()}

    def publish(self, version: int) -> Path:
        """Writes the weights as they are now."""
        from safetensors.torch import save_file

        place = self.file(version)
        partial_file = place.with_suffix(".part")
        save_file({name: weight.contiguous() for name, weight in self.whole().items()}, partial_file)
        partial_file.chmod(0o644)  # a vLLM server may be another user
        partial_file.replace(place)
        self.version = version
        self.file(version - self.kept).unlink(missing_ok=True)
        return place

    @contextmanager
    def at(self, version: int) -> Iterator[None]:
        """Inside, the model has the weights of a version that was published; after it, its own, to the bit."""
        if version == self.version:
            yield
            return
        held = {name: weight.detach().clone() for name, weight in trained(self.model).items()}
        try:
            take_weights(self.model, self.file(version))
            yield
        finally:
            with torch.no_grad():
                for name, weight in trained(self.model).items():
                    weight.copy_(held[name])


def check_room(folder: Path, size: int, kept: int) -> None:
    """Raises ConfigError where there is no room for `kept` files of `size` bytes and the one that is being written."""
    wanted, free = size * (kept + 1), shutil.disk_usage(folder).free
    if wanted > free:
        raise ConfigError(
            f"asynchronous: {kept + 1} versions of the trained weights take {wanted / 1e9:.1f} GB in {folder.parent}, "
            f"which has {free / 1e9:.1f} GB free; lower staleness, train a lora, or name another folder: vllm.folder, "
            "else $TMPDIR"
        )


def read_weights(model: Any, file: Path) -> dict[str, torch.Tensor]:
    """Published weights, for a model that trains the same ones."""
    from safetensors.torch import load_file

    found, mine = load_file(file), trained(model)
    if found.keys() != mine.keys():
        odd = sorted(found.keys() ^ mine.keys())
        raise ValueError(f"{file} has other weights than the model: {', '.join(odd[:3])}")
    return found


@torch.no_grad()
def take_weights(model: Any, file: Path) -> None:
    """Puts published weights into a model."""
    found = read_weights(model, file)
    for name, weight in trained(model).items():
        weight.copy_(found[name])
