"""Supervised fine-tuning on episodes: `python -m training.sft --config $SLIPWAY_CONFIG`.

TRL's SFTTrainer with the loss on the assistant's tokens only, of all weights or of a LoRA. Writes under
$SLIPWAY_OUTPUTS (or --out): checkpoints/checkpoint-N, model/ (weights and processor, a LoRA merged in), results/
(predictions drawn on screenshots, and how many are exact), and at the true end .done. $SLIPWAY_RESUME names the
checkpoint to go on from, bit for bit. SIGTERM saves at the end of the step and exits 0 without .done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eval import config as configuration
from eval.config import Config, ConfigError
from eval.progress import progress
from eval.prompts import PromptConfig
from training import samples
from training.samples import Sample


class LoraConfig(Config, frozen=True):
    """peft's LoRA; `targets` as there: `all-linear`, or names of modules."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    targets: str | list[str] = "all-linear"


class SftConfig(Config, frozen=True):
    """
    model          a folder, or hf://OWNER/NAME[@REVISION]
    episodes       a folder of episode folders
    prompt         the same section as the evaluation's
    steps          optimiser steps; or `epochs` over the samples: exactly one of the two
    batch_size     samples per forward pass and device; `accumulate` passes make a step
    schedule       of the learning rate after `warmup_steps`
    adam_beta2     0.98 suits short trainings from random weights
    dtype          of the weights
    save_every     steps between checkpoints; the newest `keep_checkpoints` stay
    predictions    how many steps are predicted at the end and drawn beside their targets
    max_new_tokens of such a prediction
    max_pixels     images are scaled down to this area; None leaves the processor's bound
    lora           None trains all weights
    """

    model: str
    episodes: str
    prompt: PromptConfig = PromptConfig()
    steps: int | None = None
    epochs: float | None = None
    batch_size: int = 16
    accumulate: int = 1
    learning_rate: float = 1e-5
    schedule: str = "linear"
    warmup_steps: int = 10
    weight_decay: float = 0.0
    adam_beta2: float = 0.999
    max_grad_norm: float = 1.0
    activation_checkpointing: bool = False
    dtype: str = "float32"
    seed: int = 0
    log_every: int = 10
    save_every: int = 500
    keep_checkpoints: int = 2
    predictions: int = 12
    max_new_tokens: int = 64
    max_pixels: int | None = None
    lora: LoraConfig | None = None


def check(config: SftConfig) -> None:
    """Raises ConfigError for values that contradict each other or can not be."""
    if (config.steps is None) == (config.epochs is None):
        raise ConfigError("give either steps or epochs")
    for name in ("steps", "epochs", "batch_size", "accumulate", "log_every", "save_every", "keep_checkpoints"):
        value = getattr(config, name)
        if value is not None and value <= 0:
            raise ConfigError(f"{name} must be above 0, not {value}")
    if config.schedule not in ("linear", "cosine", "constant", "constant_with_warmup"):
        raise ConfigError(f"schedule must be linear, cosine, constant or constant_with_warmup, not {config.schedule}")
    if config.dtype not in ("float32", "bfloat16"):
        raise ConfigError(f"dtype must be float32 or bfloat16, not {config.dtype}")
    if "opencua" in config.model.lower():
        raise ConfigError("model: OpenCUA is for evaluation only here: its position encoding and tokenizer are its own")
    if not config.model.startswith("hf://") and not Path(config.model).is_dir():
        raise ConfigError(f"model: there is no folder {config.model}; a model of the hub is hf://OWNER/NAME[@REVISION]")


def load_model(config: SftConfig) -> tuple[Any, Any]:
    """(model, processor)."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    name, _, revision = config.model.removeprefix("hf://").partition("@")
    where = {"revision": revision or None} if config.model.startswith("hf://") else {"local_files_only": True}
    if not config.model.startswith("hf://"):
        name = config.model
    processor = AutoProcessor.from_pretrained(name, **where)
    if config.max_pixels is not None:
        processor.image_processor.size["longest_edge"] = config.max_pixels
    model = AutoModelForImageTextToText.from_pretrained(name, dtype=getattr(torch, config.dtype), **where)
    return model, processor


def make_trainer(config: SftConfig, found: Sequence[Sample], out: Path) -> Any:
    """TRL's SFTTrainer over the samples, ready to train."""
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from training.collate import Collator

    model, processor = load_model(config)
    # The collator takes a sample by its index; the other columns only tell TRL that these are chats with images.
    rows = Dataset.from_list(
        [{"index": i, "messages": sample.messages, "images": []} for i, sample in enumerate(found)]
    )
    peft_config = None
    if config.lora is not None:
        from peft import LoraConfig as PeftLora

        peft_config = PeftLora(
            r=config.lora.rank,
            lora_alpha=config.lora.alpha,
            lora_dropout=config.lora.dropout,
            target_modules=config.lora.targets,
            task_type="CAUSAL_LM",
        )
    arguments = SFTConfig(
        output_dir=str(out / "checkpoints"),
        max_steps=config.steps or -1,
        num_train_epochs=config.epochs or 1.0,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule,
        warmup_steps=config.warmup_steps,
        weight_decay=config.weight_decay,
        adam_beta2=config.adam_beta2,
        max_grad_norm=config.max_grad_norm,
        activation_checkpointing=config.activation_checkpointing,
        assistant_only_loss=True,
        max_length=None,  # truncation would cut image tokens
        bf16=False,  # `dtype` says it for the weights; no autocast on top
        use_cpu=not torch.cuda.is_available(),
        seed=config.seed,
        data_seed=config.seed,
        logging_steps=config.log_every,
        save_steps=config.save_every,
        save_total_limit=config.keep_checkpoints,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
        disable_tqdm=True,
        report_to=[],
    )
    trainer = SFTTrainer(
        model=model, args=arguments, train_dataset=rows, processing_class=processor, peft_config=peft_config
    )
    trainer.data_collator = Collator(trainer.data_collator, found)
    trainer.remove_callback(PrinterCallback)  # Reporting prints
    return trainer


def save_model(config: SftConfig, trainer: Any, folder: Path) -> None:
    """Weights, a LoRA merged into them, and the processor as it came."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if config.lora is not None:
        model = model.merge_and_unload()
    model.save_pretrained(folder)
    trainer.processing_class.save_pretrained(folder)


def predict(config: SftConfig, found: Sequence[Sample], model: Path, folder: Path, step: int) -> None:
    """Answers `config.predictions` steps, spread over the samples, as an evaluation would; draws them into `folder` and
    puts the share of exact answers into the summary beside it, as what it is: memorisation."""
    from eval.agents.transformers import TransformersAgent
    from eval.stats import wilson
    from eval.summary import row, write_summary
    from training.pictures import draw

    count = min(config.predictions, len(found))
    chosen = [found[i * len(found) // count] for i in range(count)]
    agent = TransformersAgent(
        str(model), config.prompt.builder(), max_new_tokens=config.max_new_tokens, max_pixels=config.max_pixels
    )
    right, lines = 0, []
    folder.mkdir(parents=True, exist_ok=True)
    observations, histories = zip(*(sample.asked() for sample in chosen), strict=True)
    decisions = asyncio.run(agent.act(observations, histories))
    for number, (sample, decision) in enumerate(zip(chosen, decisions, strict=True)):
        right += decision.response == sample.target
        name = f"{number:03d}.png"
        draw(sample, decision).save(folder / name)
        lines.append({"picture": name, "target": sample.target, "predicted": decision.response})
    (folder / "predictions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    exact = row(
        "exact_answers",
        wilson(right, count),
        benchmark="memorisation",
        version="1",
        split="training data",
        infra=0,
        seed=config.seed,
        agent="trained",
    )
    write_summary(folder.parent / "summary.json", [exact])
    print(f"{right} of {count} predicted training steps are exact", flush=True)


def train(config: SftConfig, out: Path, resume: str | None) -> bool:
    """The whole training. False: SIGTERM came first, and the checkpoint of the last step is there to go on from."""
    check(config)
    found = samples.load(Path(config.episodes), config.prompt.builder())
    progress(0, config.steps, "load", f"{len(found)} samples")

    from training.reporting import Reporting, StopRequest

    with StopRequest() as stop:
        trainer = make_trainer(config, found, out)
        trainer.add_callback(Reporting(stop))
        trainer.train(resume_from_checkpoint=resume)
    step = trainer.state.global_step
    if stop.asked and step < trainer.state.max_steps:
        print(f"stopped after step {step}", flush=True)
        return False
    save_model(config, trainer, out / "model")
    if config.predictions:
        predict(config, found, out / "model", out / "results" / "samples", step)
    (out / ".done").touch()
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.sft", description="Fine-tune a model on episodes.")
    parser.add_argument("--config", required=True, help="a JSON or YAML file, see SftConfig")
    parser.add_argument("--out", help="where everything goes; default $SLIPWAY_OUTPUTS")
    parser.add_argument("--resume", help="a checkpoint to go on from; default $SLIPWAY_RESUME")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), SftConfig)
        out = arguments.out or os.environ.get("SLIPWAY_OUTPUTS")
        if out is None:
            raise ConfigError("name a folder with --out, or set SLIPWAY_OUTPUTS")
        train(config, Path(out), arguments.resume or os.environ.get("SLIPWAY_RESUME") or None)
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
