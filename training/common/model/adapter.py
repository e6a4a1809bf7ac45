"""LoRA adapters: which layers they lie on, a new one, and one that was trained before."""

from __future__ import annotations

import json
import re
from collections.abc import Container
from pathlib import Path
from typing import Any, Final

from eval.config import ConfigError
from eval.config.models import source
from training.common.model.parts import VISION
from training.options import TrainerConfig

HEAD: Final = "the losses multiply by its weights alone, so that a LoRA on it would never be trained"
TOKEN_ROWS: Final = ".token_adapter.trainable_tokens_delta"
# of a LoRA's weights: which side of them has the layer's width, and the layer's name of it
WIDTHS: Final = {"A": (1, "in_features"), "embedding_A": (1, "num_embeddings"), "embedding_B": (0, "embedding_dim")}


def with_adapter(model: Any, adapter: str, *, base: str, trainable: bool) -> Any:
    """The model with a LoRA adapter on it. Raises ConfigError for an adapter of another base model."""
    from peft import PeftModel

    folder = Path(adapter)
    if folder.is_dir():
        check_adapter(folder, model, base)
    name, where = (adapter, {}) if folder.is_dir() else source(adapter)
    try:
        return PeftModel.from_pretrained(model, name, is_trainable=trainable, **where)
    except (ValueError, RuntimeError, OSError) as error:
        raise ConfigError(f"adapter: {adapter} does not fit {base}: {' '.join(str(error).split())[:300]}") from None


def tell_base(model: Any, name: str, revision: str | None) -> None:
    """Tells a model's LoRA adapters which base model they lie on. An adapter from a folder names the one that it was
    made on, perhaps without its revision, or by a folder that is gone; Unsloth's names no revision. What is merged
    later, and who loads the saved adapter, take the base from there."""
    for each in getattr(model, "peft_config", {}).values():
        each.base_model_name_or_path, each.revision = name, revision


def check_adapter(folder: Path, model: Any, base: str) -> None:
    """Raises ConfigError when the adapter's shapes do not fit `model`'s layers."""
    from safetensors import safe_open

    weights = folder / "adapter_model.safetensors"
    try:
        json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
        tensors: Any = safe_open(weights, "pt")
    except (OSError, ValueError) as error:
        raise ConfigError(f"adapter: {folder} is no LoRA adapter: {error}") from None
    # with what shares another's weights, a tied head: an adapter has its own of that
    layers, plain = dict(model.named_modules()), dict(model.named_parameters(remove_duplicate=False))
    other = f"adapter: {folder} is for another base model than {base}"
    for name in tensors.keys():  # noqa: SIM118 (safe_open is no mapping)
        path, _, rest = name.removeprefix("base_model.model.").replace(".base_layer.", ".").partition(".lora_")
        shape = tensors.get_slice(name).get_shape()
        if path.endswith(TOKEN_ROWS):  # peft's trainable_token_indices: rows of an embedding
            weight = plain.get(f"{path.removesuffix(TOKEN_ROWS)}.weight")
            if weight is None or weight.shape[1] != shape[1]:
                raise ConfigError(f"{other}: there is no {path.removesuffix(TOKEN_ROWS)} with rows of {shape[1]}")
            continue
        if not rest:  # a full weight that was trained together with the LoRA
            if path not in plain or list(plain[path].shape) != shape:
                raise ConfigError(f"{other}: there is no {path} of shape {shape}")
            continue
        if (layer := layers.get(path)) is None:
            raise ConfigError(f"{other}: there is no layer {path}")
        side, width = WIDTHS.get(rest.partition(".")[0], (0, "out_features"))
        if (want := getattr(layer, width, None)) is not None and shape[side] != want:
            raise ConfigError(f"{other}: {path} has {width} {want}, not {shape[side]}")


def lora(config: TrainerConfig, model: Any) -> Any:
    """peft's LoraConfig for a new LoRA on `model`, or None. With Unsloth: None, because Unsloth adds the LoRA itself.

    Raises ConfigError for targets that no layer has, or on which no LoRA can lie, and for an adapter on the head.
    """
    if config.adapter is not None and hasattr(getattr(_head(model), "base_layer", None), "weight"):
        raise ConfigError(f"adapter: {config.adapter} has a LoRA on the head; {HEAD}")
    if config.lora is None or config.adapter is not None or config.loader == "unsloth":
        return None
    from peft import LoraConfig

    check_targets(config.lora.targets, model, freeze_vision=config.freeze_vision)
    return LoraConfig(
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=config.lora.targets,
        use_rslora=config.lora.rslora,
        use_dora=config.lora.dora,
        exclude_modules=rf".*\b{VISION}\b.*" if config.freeze_vision else None,
        task_type="CAUSAL_LM",
        revision=source(config.model)[1].get("revision"),  # of the base model
    )


def check_targets(targets: str | list[str], model: Any, *, freeze_vision: bool) -> None:
    """Raises ConfigError for targets of a LoRA that match no layer, or one that cannot have a LoRA."""
    import torch

    if targets == "all-linear":
        return
    layers = {name: module for name, module in model.named_modules() if name}
    if freeze_vision:
        layers = {name: module for name, module in layers.items() if VISION not in name.split(".")}
    names = [targets] if isinstance(targets, str) else targets
    kinds = (torch.nn.Linear, torch.nn.Embedding, torch.nn.modules.conv._ConvNd)
    for target in names:
        try:  # peft's rule: a text is a regular expression for the whole name, an item of a list is its end
            matched = [
                name
                for name in layers
                if (re.fullmatch(target, name) if isinstance(targets, str) else f".{name}".endswith(f".{target}"))
            ]
        except re.error as error:
            raise ConfigError(f"lora.targets: {target!r} is no regular expression: {error}") from None
        found = {name.split(".")[-1] for name, module in layers.items() if isinstance(module, torch.nn.Linear)}
        linear = sorted(found - {"lm_head"})
        if not matched:
            raise ConfigError(f"lora.targets: no layer is called {target!r}; among them are {', '.join(linear)}")
        if head := next((name for name in matched if layers[name] is _head(model)), None):
            raise ConfigError(f"lora.targets: {head} is the head; {HEAD}; allowed: {', '.join(linear)}")
        if wrong := next((name for name in matched if not isinstance(layers[name], kinds)), None):
            kind = type(layers[wrong]).__name__
            raise ConfigError(f"lora.targets: {wrong} is a {kind}; a LoRA lies on linear layers: {', '.join(linear)}")


def _head(model: Any) -> Any:
    """The layer that makes logits; None for a model without, such as a reward model's."""
    return model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None


def lora_name(saved: str, adapter: str, names: Container[str]) -> str:
    """A LoRA weight's name in a model; peft saves it without the adapter's: lora_A.weight, lora_magnitude_vector."""
    if saved in names:
        return saved
    layer, _, kind = saved.rpartition(".")
    first, last = f"{layer}.{adapter}.{kind}", f"{saved}.{adapter}"
    return first if first in names else last
