"""Loading what is trained and saving what came out: model, processor, LoRA, adapters, the frozen vision tower."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eval.agents.transformers import source
from eval.config import ConfigError
from training.options import TrainerConfig

VISION = "visual"  # the vision tower's module in Qwen2.5-VL and Qwen3-VL


def load_processor(model: str, max_pixels: int | None = None) -> Any:
    """The processor of a model folder or hf:// name. Raises ConfigError."""
    from transformers import AutoProcessor

    name, where = source(model)
    processor = AutoProcessor.from_pretrained(name, **where)
    if max_pixels is not None:
        processor.image_processor.size["longest_edge"] = max_pixels
    return processor


def load_model(config: TrainerConfig) -> tuple[Any, Any]:
    """(model, processor) without a new LoRA: a given adapter is on it and trainable, the vision tower frozen if asked.

    Raises ConfigError.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    name, where = source(config.model)
    processor = load_processor(config.model, config.max_pixels)
    if config.loader == "unsloth":
        raise ConfigError("loader: unsloth is not there yet")
    model = AutoModelForImageTextToText.from_pretrained(name, dtype=getattr(torch, config.dtype), **where)
    if config.freeze_vision:
        freeze_vision(model)
    if config.adapter is not None:
        model = with_adapter(model, config.adapter, base=config.model, trainable=True)
    return model, processor


def freeze_vision(model: Any) -> None:
    """The vision tower keeps its weights. Raises ConfigError when the model has none."""
    frozen = 0
    for name, parameter in model.named_parameters():
        if VISION in name.split("."):
            parameter.requires_grad_(False)
            frozen += 1
    if not frozen:
        raise ConfigError("freeze_vision: this model has no vision tower of a known name")


def with_adapter(model: Any, adapter: str, *, base: str, trainable: bool) -> Any:
    """The model with a LoRA adapter on it. Raises ConfigError for one that was made for another base model."""
    from peft import PeftModel

    folder = Path(adapter)
    if folder.is_dir():
        check_adapter(folder, model, base)
    try:
        return PeftModel.from_pretrained(model, adapter, is_trainable=trainable)
    except (ValueError, RuntimeError) as error:
        raise ConfigError(f"adapter: {adapter} does not fit {base}: {' '.join(str(error).split())[:300]}") from None


def check_adapter(folder: Path, model: Any, base: str) -> None:
    """Raises ConfigError when the adapter's shapes are not those of `model`'s layers."""
    from safetensors import safe_open

    weights = folder / "adapter_model.safetensors"
    try:
        json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        tensors: Any = safe_open(weights, "pt")
    except (OSError, ValueError) as error:
        raise ConfigError(f"adapter: {folder} is no LoRA adapter: {error}") from None
    layers = dict(model.named_modules())
    for name in tensors.keys():  # noqa: SIM118 (safe_open is no mapping)
        path, _, rest = name.removeprefix("base_model.model.").partition(".lora_")
        layer = layers.get(path)
        if not rest or layer is None:
            raise ConfigError(f"adapter: {folder} is for another base model than {base}: there is no layer {path}")
        shape = tensors.get_slice(name).get_shape()
        side, width = (1, "in_features") if rest.startswith("A") else (0, "out_features")
        if (want := getattr(layer, width, None)) is not None and shape[side] != want:
            raise ConfigError(
                f"adapter: {folder} is for another base model than {base}: {path} has {width} {want}, not {shape[side]}"
            )


def lora(config: TrainerConfig) -> Any:
    """peft's LoraConfig for a new LoRA, or None."""
    if config.lora is None or config.adapter is not None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=config.lora.targets,
        exclude_modules=rf".*\b{VISION}\b.*" if config.freeze_vision else None,
        task_type="CAUSAL_LM",
    )


def save_model(trainer: Any, folder: Path) -> None:
    """Weights, a LoRA merged into them, and the processor as it came."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        model = model.merge_and_unload()
    model.save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)
