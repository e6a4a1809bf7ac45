"""Loading a model through Unsloth: its kernels, our processor, collator and configuration.

Unsloth replaces parts of transformers, peft and TRL when it is imported, so it comes before TRL. It needs a GPU and its
own versions of them: the image unsloth-sft.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from eval.config import ConfigError
from training.options import TrainerConfig, loaded_dtype


def ready() -> Any:
    """Unsloth's FastVisionModel, imported. Raises ConfigError where Unsloth cannot run."""
    import torch

    if not torch.cuda.is_available():
        raise ConfigError("loader: unsloth needs a GPU and the image unsloth-sft; there is no GPU here")
    # otherwise it compiles into the working directory
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", tempfile.mkdtemp(prefix="unsloth-"))
    os.environ.setdefault("UNSLOTH_DISABLE_STATISTICS", "1")
    try:
        from unsloth import FastVisionModel
    except (ImportError, NotImplementedError, RuntimeError) as error:
        told = " ".join(str(error).split())[:200]
        raise ConfigError(f"loader: unsloth cannot be imported: {told}; run in the image unsloth-sft") from None
    return FastVisionModel


def load(config: TrainerConfig, name: str, revision: str | None) -> Any:
    """The model, with a new LoRA if one is asked for. Raises ConfigError.

    Written for Unsloth 2026.10.7, whose defaults differ from what a configuration says: it takes another repository for
    some names (and then drops the revision), turns its checkpointing on in each of the three calls, and lets
    `all-linear` overrule finetune_vision_layers, which leaves a LoRA without gradients on a frozen tower.
    """
    import torch

    FastVisionModel = ready()
    checkpointing = "unsloth" if config.activation_checkpointing else False
    model, _ = FastVisionModel.from_pretrained(
        model_name=name,
        dtype=getattr(torch, loaded_dtype(config)),
        load_in_4bit=config.quantization == "4bit",
        load_in_8bit=config.quantization == "8bit",
        full_finetuning=config.lora is None and config.adapter is None,
        float32_mixed_precision=True,  # trained weights are float32
        use_gradient_checkpointing=checkpointing,
        revision=revision,
        use_exact_model_name=True,
        random_state=config.seed,
    )
    if config.lora is not None:
        every = config.lora.targets == "all-linear"
        model = FastVisionModel.get_peft_model(
            model,
            finetune_vision_layers=not config.freeze_vision,
            finetune_language_layers=True,
            finetune_attention_modules=True,
            finetune_mlp_modules=True,
            r=config.lora.rank,
            lora_alpha=config.lora.alpha,
            lora_dropout=config.lora.dropout,
            use_rslora=config.lora.rslora,
            target_modules=None if every and config.freeze_vision else config.lora.targets,
            bias="none",
            use_gradient_checkpointing=checkpointing,
            random_state=config.seed,
        )
    FastVisionModel.for_training(model, use_gradient_checkpointing=bool(checkpointing))
    return model
