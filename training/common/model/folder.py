"""Loads a base model, and writes model folders atomically with all files that a server needs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final, Literal

from eval.config import ConfigError
from eval.config.models import source
from training.common.model.card import write_card

Dtype = Literal["float32", "bfloat16", "float16"]

# Files that a server needs besides the weights: one file of each group.
NEEDED: Final = (
    ("config.json",),
    ("generation_config.json",),
    ("tokenizer.json",),
    ("tokenizer_config.json",),
    ("preprocessor_config.json",),
    ("chat_template.jinja", "chat_template.json"),
    ("model.safetensors", "model.safetensors.index.json"),
)


def load_base(model: str, dtype: str | None) -> tuple[Any, Any]:
    """(model, processor). Raises ConfigError, also for a quantised model."""
    from training.common.model.loading import load_processor
    from training.options import model_card

    name, where = source(model)
    if model_card(model).get("quantization_config"):
        raise ConfigError(f"model: {model} is quantised; name the base model with whole weights")
    import torch
    from transformers import AutoModelForImageTextToText

    wanted = "auto" if dtype is None else getattr(torch, dtype)
    try:
        loaded = AutoModelForImageTextToText.from_pretrained(name, dtype=wanted, **where)
    except (OSError, ValueError) as error:
        raise ConfigError(f"model: {model}: {' '.join(str(error).split())[:300]}") from None
    if getattr(loaded, "is_quantized", False):
        raise ConfigError(f"model: {model} is quantised; name the base model with whole weights")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return loaded.to(device), load_processor(model)


def save(
    model: Any,
    processor: Any,
    folder: Path,
    config: Any,
    expected: list[Any],
    inputs: list[Any],
    shard: str,
    method: str = "merge",
) -> str:
    """Writes the folder atomically, after a check that the saved model gives `expected`. Raises ConfigError."""
    from transformers import AutoModelForImageTextToText

    from training.common.model import comparison
    from training.common.model.loading import replace

    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    try:
        model.save_pretrained(partial, max_shard_size=shard)
        complete(processor, model, partial)
        if lacking := missing(partial):
            raise ConfigError(f"model: no {', '.join(lacking)} came of it: its processor is incomplete")
        device, dtype = model.device, model.dtype
        del model
        again = AutoModelForImageTextToText.from_pretrained(partial, dtype=dtype, local_files_only=True).to(device)
        told = comparison.require_same(expected, comparison.logits(again, inputs), 1e-6, "loaded again")
        write_card(partial, config, method=method, licence=config.licence)
        replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return told


def complete(processor: Any, model: Any, folder: Path) -> None:
    """Writes all files besides the weights."""
    processor.save_pretrained(folder)
    for part in ("image_processor", "video_processor"):  # transformers 5 writes them only into processor_config.json
        if (part_processor := getattr(processor, part, None)) is not None:
            part_processor.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)


def missing(folder: Path) -> list[str]:
    """Files that a server needs and that are missing."""
    return [" or ".join(names) for names in NEEDED if not any((folder / name).is_file() for name in names)]


def read_adapter(folder: Path) -> dict[str, Any]:
    """adapter_config.json. Raises ConfigError."""
    try:
        settings = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"adapter: {folder} is no LoRA adapter: {error}") from None
    return dict(settings)
