"""Loads models: processor, weights, the frozen vision tower; and puts whole folders in their place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from eval.config import ConfigError, ResumeError
from eval.config.models import source
from training.common.model import sharding
from training.common.model.adapter import check_targets, lora_name, tell_base, with_adapter
from training.common.model.parts import VISION, towers
from training.options import OPENCUA, TrainerConfig, is_opencua, loaded_dtype


def load_processor(model: str, max_pixels: int | None = None, min_pixels: int | None = None) -> Any:
    """The processor of a model folder or hf:// name. Raises ConfigError."""
    from transformers import AutoProcessor

    name, where = source(model)
    with reading(model, "its processor"):
        processor = AutoProcessor.from_pretrained(name, **where)
    if max_pixels is not None:
        images = getattr(processor, "image_processor", None)
        if images is None or "longest_edge" not in getattr(images, "size", {}):
            raise ConfigError(f"max_pixels: the processor of {model} has no bound of an image's area")
        least = (images.patch_size * images.merge_size) ** 2
        if max_pixels < least:
            raise ConfigError(
                f"max_pixels: {max_pixels} is less than the {least} pixels of one token; allowed: {least} up"
            )
        images.size["longest_edge"] = max_pixels
    if min_pixels is not None:
        bounds = getattr(getattr(processor, "image_processor", None), "size", {})
        if "shortest_edge" not in bounds:
            raise ConfigError(f"min_pixels: the processor of {model} has no bound of an image's area")
        if min_pixels > bounds["longest_edge"]:
            raise ConfigError(f"min_pixels: {min_pixels} is more than the processor's {bounds['longest_edge']} at most")
        bounds["shortest_edge"] = min_pixels
    return processor


@contextmanager
def reading(model: str, what: str) -> Iterator[None]:
    """Turns errors of reading a model's files into one line. Raises ConfigError."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise  # the disk or the network, not the model
        said = " ".join(str(error).split())[:300]
        if "Unrecognized configuration class" in said:
            raise ConfigError(f"model: {model} is no vision-language model that transformers knows") from None
        raise ConfigError(f"model: {model}: {what} cannot be read: {said or type(error).__name__}") from None


def load_model(config: TrainerConfig) -> tuple[Any, Any]:
    """(model, processor), with the given adapter loaded as trainable, and the vision tower frozen if asked.

    A new LoRA is added only with `loader: unsloth`. Raises ConfigError.
    """
    from transformers.utils import logging

    logging.disable_progress_bar()  # progress bars make logs unreadable
    name, where = source(config.model)
    refuse_opencua(name, where)
    # before the weights, which take minutes
    processor = load_processor(config.model, config.max_pixels, config.min_pixels)
    check_family(config, name, where, processor)
    if config.loader == "unsloth":
        from training.common.model.unsloth import load

        model = load(config, name, where.get("revision"))
    else:
        model = start_model(config)
        if config.quantization is not None:
            from peft import prepare_model_for_kbit_training

            model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=config.activation_checkpointing)
    if config.adapter is not None:
        model = with_adapter(model, config.adapter, base=config.model, trainable=True)
    tell_base(model, name, where.get("revision"))
    if config.freeze_vision:
        freeze_vision(model)
    return model, processor


def check_family(config: TrainerConfig, name: str, where: dict[str, Any], processor: Any) -> None:
    """Raises ConfigError for a model that cannot be trained here, by its configuration and its processor: the trainers
    need images that become patches of a grid, as in Qwen-VL's families, and some options a tower of a known name."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    with reading(config.model, "its configuration"), torch.device("meta"):
        about = AutoConfig.from_pretrained(name, **where)
        empty = AutoModelForImageTextToText.from_config(about)
    lacking = []
    tower = config.freeze_vision or config.quantization is not None
    if tower and not any(VISION in layer.split(".") for layer, _ in empty.named_modules()):
        lacking.append(f"a vision tower called {VISION}")
    if getattr(about, "image_token_id", None) is None:
        lacking.append("image_token_id in config.json")
    images = getattr(processor, "image_processor", None)
    if not all(hasattr(images, needed) for needed in ("merge_size", "get_number_of_image_patches")):
        lacking.append("a processor that turns an image into a grid of patches")
    if lacking:
        raise ConfigError(
            f"model: {config.model} is of the family {about.model_type}, which cannot be trained here: it has not "
            f"{', nor '.join(lacking)}; trained are Qwen2.5-VL, Qwen3-VL, and what is built as they are"
        )
    if config.lora is not None and config.adapter is None:
        check_targets(config.lora.targets, empty, freeze_vision=config.freeze_vision)


def start_model(config: TrainerConfig) -> Any:
    """The model as it is before the training: without adapter, loaded by transformers. Raises ConfigError."""
    import torch
    from transformers import AutoModelForImageTextToText

    name, where = source(config.model)
    where = {**where, **quantized(config, name, where)}
    if config.attention is not None:
        where["attn_implementation"] = config.attention
    with reading(config.model, "its weights"):
        model = AutoModelForImageTextToText.from_pretrained(name, dtype=getattr(torch, loaded_dtype(config)), **where)
    check_attention(model, config)
    if config.padding_free:
        from training.common.model.padding_free import without_padding

        without_padding(model)
    return model


def check_attention(model: Any, config: TrainerConfig) -> None:
    """Raises ConfigError when a part of the model has another attention than the configuration names."""
    if config.attention is None:
        return
    parts = {"model": model.config, "text": model.config.get_text_config()}
    if (vision := getattr(model.config, "vision_config", None)) is not None:
        parts["vision"] = vision
    for name, part in parts.items():
        if (has := getattr(part, "_attn_implementation", None)) != config.attention:
            raise ConfigError(f"attention: {config.attention} was asked for, and the {name} part has {has}")


def refuse_opencua(name: str, where: dict[str, Any]) -> None:
    """Raises ConfigError for OpenCUA, by the model's config.json: a mirror or a folder may have any name."""
    from transformers import PreTrainedConfig

    try:
        card, _ = PreTrainedConfig.get_config_dict(name, **where)
    except (OSError, ValueError) as error:  # a malformed name is a ValueError
        raise ConfigError(f"model: {name}: {' '.join(str(error).split())[:300]}") from None
    if is_opencua(card):
        raise ConfigError(OPENCUA)


def quantized(config: TrainerConfig, name: str, where: dict[str, Any]) -> dict[str, Any]:
    """The arguments of from_pretrained for QLoRA (Dettmers et al. 2023: NF4, double quantisation); {} without
    quantisation. Raises ConfigError without a GPU.

    name, where  of the model, as from_pretrained takes them
    """
    import torch

    if config.quantization is None:
        return {}
    if not torch.cuda.is_available():
        raise ConfigError(f"quantization: {config.quantization} needs a GPU; there is none here")
    from transformers import BitsAndBytesConfig

    whole = unquantised(name, where)
    settings = (
        BitsAndBytesConfig(load_in_8bit=True, llm_int8_skip_modules=whole)
        if config.quantization == "8bit"
        else BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
            llm_int8_skip_modules=whole,
        )
    )
    return {"quantization_config": settings, "device_map": {"": int(os.environ.get("LOCAL_RANK", "0"))}}


def unquantised(name: str, where: dict[str, Any]) -> list[str]:
    """The layers that stay whole, by their whole names, because transformers 5 matches from the start of a name: the
    head, and the vision tower, which is small, and which quantisation harms most. Nothing is loaded."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    with reading(name, "its configuration"), torch.device("meta"):
        return towers(AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(name, **where)))


def freeze_vision(model: Any) -> None:
    """Freezes the vision tower and adapters on it. Raises ConfigError when the model has no vision tower."""
    frozen = 0
    for name, parameter in model.named_parameters():
        if VISION in name.split("."):
            parameter.requires_grad_(False)
            frozen += 1
    if not frozen:
        raise ConfigError("freeze_vision: this model has no vision tower of a known name")


def load_weights(model: Any, checkpoint: Path) -> None:
    """Loads a checkpoint's weights (all, or its LoRA's) into a model of the same architecture.

    Where the training kept an average of them, the model gets the average. Raises ConfigError.
    """
    from safetensors.torch import load_file

    from training.common.model import ema

    adapter, files = checkpoint / "adapter_model.safetensors", sorted(checkpoint.glob("model*.safetensors"))
    if sharding.is_sharded(model):
        sharding.load_sharded(model, lambda: whole_weights(model, checkpoint))
        return
    if hasattr(model, "peft_config") and adapter.is_file():
        model.load_adapter(str(checkpoint), model.active_adapter, is_trainable=True)
        ema.load_average(model, checkpoint)
        return
    if not files:
        raise ResumeError(f"resume: {checkpoint} holds no weights")
    missing = set(model.state_dict())
    for file in files:
        tensors = load_file(file)
        missing -= tensors.keys()
        model.load_state_dict(tensors, strict=False)
    model.tie_weights()
    if missing - set(model.all_tied_weights_keys if hasattr(model, "all_tied_weights_keys") else ()):
        raise ResumeError(f"resume: {checkpoint} lacks {min(missing)}")
    ema.load_average(model, checkpoint)


def whole_weights(model: Any, checkpoint: Path) -> dict[str, Any]:
    """A checkpoint's weights, or their average, by the names in `model`, of which a LoRA's have its adapter's name.

    Raises ConfigError.
    """
    from safetensors.torch import load_file

    from training.common.model import ema

    average = ema.read(checkpoint) if (checkpoint / ema.EMA).is_file() else {}
    adapter = checkpoint / "adapter_model.safetensors"
    if hasattr(model, "peft_config") and adapter.is_file():
        names = set(model.state_dict())
        saved = load_file(adapter)
        return {lora_name(name, model.active_adapter, names): value for name, value in saved.items()} | average
    files = sorted(checkpoint.glob("model*.safetensors"))
    if not files:
        raise ResumeError(f"resume: {checkpoint} holds no weights")
    return {name: value for file in files for name, value in load_file(file).items()} | average


def replace(partial: Path, folder: Path) -> None:
    """Moves the complete folder `partial` to `folder`."""
    readable(partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def readable(folder: Path) -> None:
    """Gives files the process's default permissions: safetensors writes files that only their owner can read."""
    mask = os.umask(0)
    os.umask(mask)
    for file in folder.iterdir():
        file.chmod(0o666 & ~mask)
