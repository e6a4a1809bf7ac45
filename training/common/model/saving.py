"""Saves a finished training's model: its weights, a LoRA merged into them, and the processor."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from eval.config import ConfigError
from training.common.model.loading import replace
from training.options import TrainerConfig


def save_model(trainer: Any, folder: Path) -> None:
    """Saves weights and processor atomically. A LoRA is merged into the weights and also saved next to them, as
    `adapter/`. Of a quantised model only the adapter is saved.

    All processes must call it; the first process writes.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    model = trainer.accelerator.unwrap_model(trainer.model)
    first = trainer.is_world_process_zero()
    sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    weights = trainer.accelerator.get_state_dict(trainer.model_wrapped) if sharded else None  # all processes gather
    if first:
        shutil.rmtree(partial, ignore_errors=True)
        try:
            write(trainer, model, weights, partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()


def write(trainer: Any, model: Any, weights: dict[str, Any] | None, partial: Path, folder: Path) -> None:
    """The first process's part of save_model; `weights` are the gathered weights of a sharded model."""
    if hasattr(model, "merge_and_unload"):
        adapter = folder.with_name("adapter")
        model.save_pretrained(partial, state_dict=weights)
        replace(partial, adapter)
        model = merged(model if weights is None else whole(model, adapter), trainer.processing_class)
        weights = None
    if model is None:
        return
    for name in getattr(model, "all_tied_weights_keys", None) or {}:
        (weights or {}).pop(name, None)  # after gathering, tied weights look independent
    model.save_pretrained(partial, state_dict=weights)
    trainer.processing_class.save_pretrained(partial)
    replace(partial, folder)


def check_shared_embeddings(model: Any, config: TrainerConfig) -> None:
    """Raises ConfigError where vLLM would sample with other weights than the trained ones: a LoRA on an embedding whose
    weights are the head's, too. vLLM gets it merged into the one tensor that it has for both, or refuses it."""
    from training.common.model.merging import on_shared_embeddings

    generation, beside = getattr(config, "generation", None), getattr(config, "asynchronous", None)
    if getattr(generation, "backend", None) != "vllm" and getattr(beside, "vllm", None) is None:
        return
    if hasattr(model, "get_base_model") and on_shared_embeddings(model.get_base_model()):
        raise ConfigError(
            "lora.targets: the embedding and the head of this model share their weights, and vLLM has one tensor for "
            "both: no LoRA may lie on them; leave them out, or generate with transformers"
        )


def merged(model: Any, processor: Any, otherwise: str = "model/ was not written; adapter/ has what was trained") -> Any:
    """The model with its LoRA merged into its weights; None when the weights are quantised.

    otherwise  what the error says of files

    Raises ConfigError when it does not answer as base and adapter do together.
    """
    if getattr(model, "is_quantized", False):
        return None
    from eval.prompts import PromptConfig
    from training.common.model import comparison, merging

    inputs = comparison.probes(processor, None, PromptConfig(), 1)
    return merging.merged(model, lambda each: comparison.logits(each, inputs), otherwise=otherwise)[0]


def whole(model: Any, adapter: Path) -> Any:
    """The base model, loaded again unsharded, with the adapter on it."""
    from peft import PeftModel
    from transformers import AutoModelForImageTextToText

    # with its revision: by its name alone it would be the newest one
    peft_config = model.peft_config[model.active_adapter]
    where = {} if peft_config.revision is None else {"revision": peft_config.revision}
    fresh = AutoModelForImageTextToText.from_pretrained(peft_config.base_model_name_or_path, dtype=model.dtype, **where)
    return PeftModel.from_pretrained(fresh, str(adapter))
