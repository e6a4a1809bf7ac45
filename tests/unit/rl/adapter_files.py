"""A LoRA as a training publishes it: its settings, and one file a version. tests/unit/rl/test_lora_folders.py makes one
with peft itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import torch

from training.rl.weights.published import PublishedWeights

NAMES = [
    f"base_model.model.{layer}.lora_{side}.default.weight" for layer in ("visual.qkv", "q_proj") for side in ("A", "B")
]


class Settings:
    """In the place of peft's LoraConfig."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "bias": "none"}))


class LoraModel:
    """In the place of a PeftModel."""

    def __init__(self) -> None:
        self.peft_config = {"default": Settings()}
        self.weights = {name: torch.nn.Parameter(torch.zeros(4, 4)) for name in NAMES}

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        yield from self.weights.items()


def published(folder: Path, versions: int) -> PublishedWeights:
    """Versions 0 to versions - 1; the newest four are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    made = PublishedWeights(LoraModel(), folder, kept=4)
    for version in range(versions):
        made.publish(version)
    return made
