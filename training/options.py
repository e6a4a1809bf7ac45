"""The configuration fields that all trainers share, their checks, and the transformers arguments made from them."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from eval.config import Config, ConfigError
from training import deepspeed_file
from training.trl_arguments import check_names

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Schedule = Literal["linear", "cosine", "constant", "constant_with_warmup"]
# transformers' names, without those that need packages of their own besides bitsandbytes
Optimizer = Literal[
    "adamw_torch",
    "adamw_torch_fused",
    "adamw_bnb_8bit",
    "adamw_8bit",
    "paged_adamw",
    "paged_adamw_32bit",
    "paged_adamw_8bit",
    "lion",
    "lion_32bit",
    "lion_8bit",
    "paged_lion_8bit",
    "adafactor",
    "adagrad",
    "rmsprop",
    "sgd",
]
OF_TORCH: Final = ("adamw_torch", "adamw_torch_fused", "adafactor", "adagrad", "rmsprop", "sgd")
GROUPS: Final = ("vision", "projector", "language", "head", "lora")  # parts of a model that learning_rates can name
WARMUP: Final = 10  # steps, where a configuration names none
OPENCUA: Final = "model: OpenCUA is for evaluation only here: its position encoding and tokenizer are its own"

# Fields that may change between the run that wrote a checkpoint and the run that resumes from it: paths, logging, and
# what is kept. All other fields change the computation.
FREE: Final = frozenset(
    (
        *("model", "adapter", "data", "episodes", "pairs", "held_out", "prompts", "evaluation", "reward_model"),
        *("log_every", "save_every", "keep_checkpoints", "predictions", "max_new_tokens"),
        *("report_to", "run_name", "workers", "sample_every", "answer_every", "answers", "cache_mb", "collapse"),
    )
)


class LoraConfig(Config, frozen=True, kw_only=True):
    """
    rank     width of the two added matrices; a higher rank learns more and takes more memory
    alpha    the LoRA's output is scaled by alpha / rank; twice the rank is usual
    dropout  share of the LoRA's inputs that is set to 0 while training
    rslora   scales the output by alpha / sqrt(rank): a high rank learns as fast as a low one (Kalajdzievski 2023)
    dora     also trains the length of each column of a layer (Liu et al. 2024): nearer to training all weights, slower
    targets  the layers that get a LoRA: `all-linear`, or names of modules, as in peft
    """

    rank: Positive = 16
    alpha: Positive = 32
    dropout: Share = 0.0
    rslora: bool = False
    dora: bool = False
    targets: str | list[str] = "all-linear"


class TrainerConfig(Config, frozen=True, kw_only=True):
    """
    model          what is trained: a folder, or hf://OWNER/NAME[@REVISION]
    adapter        a LoRA adapter of that model; the training continues with it
    loader         transformers, or unsloth (its own kernels; training.sft only; needs a GPU and the image unsloth-sft)
    lora           trains a new LoRA on frozen weights; None trains all weights
    quantization   stores the frozen weights under a LoRA in 4 or 8 bits (QLoRA); needs a GPU and bitsandbytes
    freeze_vision  the vision tower keeps its weights and gets no LoRA. So does the projector from its patches to the
                   language model (merger, deepstack mergers), which is a part of the tower in Qwen-VL's classes
    precision      float32; or bf16: computes in bfloat16, while the trained weights, their gradients and the
                   optimiser's state stay float32, because a small step is lost in a bfloat16 weight's rounding. Frozen
                   weights under a LoRA are stored in bfloat16
    attention      sdpa, eager, or flash_attention_2 (needs a GPU, precision bf16, and flash-attn, which no image of
                   Slipway has: put it into one of your own); a model that does not have it is refused; None lets
                   transformers choose
    padding_free   the language model computes a batch as one row without padding, each sample by itself: less time and
                   memory where lengths differ, the same gradients. For Qwen2.5-VL and Qwen3-VL with attention sdpa or
                   flash_attention_2
    max_pixels     images with more pixels are scaled down to this area; None keeps the processor's bound
    min_pixels     images with fewer pixels are scaled up to this area; None keeps the processor's bound
    steps          length of the training in optimiser steps; give either `steps` or `epochs`
    epochs         length of the training in passes over the samples; give either `steps` or `epochs`
    batch_size     samples per forward pass and device; lower it when memory runs out
    accumulate     forward passes per optimiser step: a larger batch in the same memory
    learning_rate  the largest one, reached after the warm-up; a LoRA usually wants ten times that of all weights
    learning_rates  others for parts of the model, by the name of a part (vision: the tower without the projector;
                   projector; language; head: lm_head or a reward model's score; lora) or a regular expression for the
                   whole name of a weight, which goes before a part. Those of all parts warm up and fall together
    ema            also keeps an average of the trained weights, in float32: after each step ema times the average, plus
                   (1 - ema) times the weights. The average is what is evaluated and what model/ gets; the training
                   goes on with the weights. For a training of 1,000 steps say 0.99. Not with deepspeed
    schedule       how the learning rate changes after the warm-up
    floor          with schedule cosine: where the learning rate ends, as a share of the largest
    warmup_steps   optimiser steps in which the learning rate rises from 0, fewer than the training has; None: 10, or
                   half of a training that has fewer than 20. In training.grpo and training.rl step k of n has the share
                   k / (n + 1): the first step moves the weights, because its answers were made for it. In the others
                   it is (k - 1) / n, as in transformers and TRL: the first step only begins Adam's averages
    weight_decay   AdamW shrinks each weight by this times the learning rate in each step; 0 turns it off
    adam_beta2     decay of Adam's average of squared gradients; 0.98 suits short trainings from random weights
    max_grad_norm  gradients whose norm is larger are scaled down to it; 0 turns that off
    optimizer      paged_adamw_8bit saves memory on a GPU; those of 8 bits, paged and lion need bitsandbytes
    activation_checkpointing  computes activations again in the backward pass: less memory, about a third more time
    seed           of the order of samples, of dropout and of new weights
    log_every      optimiser steps between two logged losses
    save_every     optimiser steps between two checkpoints
    keep_checkpoints  how many of the newest checkpoints stay on the disk
    workers        processes that load data; 0 loads in the trainer's own process
    report_to      trackers besides metrics.jsonl: wandb, tensorboard, mlflow, trackio; each must be installed
    run_name       name of the run in those trackers; None lets the tracker choose
    deepspeed      path of a DeepSpeed configuration file. Batch size, clipping, precision and optimiser are those of
                   this configuration: other values there are refused, and so is a scheduler. What DeepSpeed would
                   compile with nvcc when it starts (FusedAdam, ZeRO++, offloading to NVMe) is refused where there is
                   no nvcc, as in the images; offloading to the CPU needs a C++ compiler, which they have
    fsdp           shards parameters, gradients and optimiser over the processes, layer by layer (FSDP 2)
    trl            any other argument of the trainer's class: trl.SFTConfig, DPOConfig, GRPOConfig, and for the reward
                   model transformers.TrainingArguments; the last section of this page lists what is refused
    """

    renamed: ClassVar[dict[str, str]] = {"dtype": "precision: float32 or bf16"}
    unread: ClassVar[dict[str, str]] = {}  # TRL's arguments that this trainer reads nowhere -> what to use instead
    takes_unsloth: ClassVar[bool] = False  # its image has an older TRL than our other trainers are written for

    model: str
    adapter: str | None = None
    loader: Literal["transformers", "unsloth"] = "transformers"
    lora: LoraConfig | None = None
    quantization: Literal["4bit", "8bit"] | None = None
    freeze_vision: bool = False
    precision: Literal["float32", "bf16"] = "float32"
    attention: Literal["sdpa", "eager", "flash_attention_2"] | None = None
    padding_free: bool = False
    max_pixels: Positive | None = None
    min_pixels: Positive | None = None
    steps: Annotated[int, msgspec.Meta(ge=1, le=10**9)] | None = None
    epochs: Annotated[float, msgspec.Meta(gt=0, le=10**6)] | None = None
    batch_size: Positive = 16
    accumulate: Positive = 1
    learning_rate: Rate = 1e-5
    learning_rates: dict[str, Rate] = msgspec.field(default_factory=dict)
    ema: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    schedule: Schedule = "linear"
    floor: Share = 0.0
    warmup_steps: Annotated[int, msgspec.Meta(ge=0)] | None = None
    weight_decay: NotNegative = 0.0
    adam_beta2: Share = 0.999
    max_grad_norm: NotNegative = 1.0
    optimizer: Optimizer = "adamw_torch"
    activation_checkpointing: bool = False
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**32)] = 0
    log_every: Positive = 10
    save_every: Positive = 500
    keep_checkpoints: Positive = 2
    workers: Annotated[int, msgspec.Meta(ge=0)] = 0
    report_to: list[Literal["wandb", "tensorboard", "mlflow", "trackio"]] = msgspec.field(default_factory=list)
    run_name: str | None = None
    deepspeed: str | None = None
    fsdp: bool = False
    trl: dict[str, Any] = msgspec.field(default_factory=dict)

    def check(self) -> None:
        """Raises ConfigError for invalid or contradictory values."""
        if field := next(_not_finite(msgspec.to_builtins(self)), None):
            raise ConfigError(f"{field} is not a finite number")
        if (self.steps is None) == (self.epochs is None):
            raise ConfigError("give either steps or epochs")
        check_names(self.trl, self.__struct_fields__, self.unread)
        if self.steps is not None:
            self.check_warmup(self.steps)
        self._check_learning_rates()
        if self.ema is not None and self.deepspeed is not None:
            raise ConfigError("ema: DeepSpeed keeps the weights that the average would be of; take fsdp, or no ema")
        if self.floor and self.schedule != "cosine":
            raise ConfigError(f"floor: schedule {self.schedule} has none; allowed with cosine")
        if self.min_pixels is not None and self.max_pixels is not None and self.min_pixels > self.max_pixels:
            raise ConfigError(f"min_pixels: {self.min_pixels} is more than max_pixels, {self.max_pixels}")
        if self.attention == "flash_attention_2" and not installed("flash_attn"):
            raise ConfigError("attention: flash_attention_2 needs flash-attn, which is not installed; take sdpa")
        if self.attention == "flash_attention_2" and self.precision != "bf16":
            raise ConfigError("attention: flash_attention_2 computes in bfloat16 only; give precision: bf16")
        if self.lora is not None and self.lora.dora and self.loader == "unsloth":
            raise ConfigError("lora.dora: Unsloth has none; take loader: transformers")
        if self.attention is not None and self.loader == "unsloth":
            raise ConfigError("attention: Unsloth chooses its own; leave it out, or take loader: transformers")
        if self.padding_free and self.loader == "unsloth":
            raise ConfigError("padding_free: not proved with Unsloth's attention; take loader: transformers")
        if self.padding_free and self.attention == "eager":
            raise ConfigError("padding_free: attention eager would let samples see one another; take sdpa")
        if self.lora is not None and not self.lora.targets:
            raise ConfigError("lora.targets: name a layer, or all-linear")
        if "opencua" in self.model.lower() or is_opencua(model_card(self.model)):
            raise ConfigError(OPENCUA)
        for name in ("model", "adapter"):
            value = getattr(self, name)
            if value is not None and not value.startswith("hf://") and not Path(value).is_dir():
                raise ConfigError(f"{name}: there is no folder {value}; one of the hub is hf://OWNER/NAME[@REVISION]")
        if self.lora is not None and self.adapter is not None:
            raise ConfigError("give either a new lora or an adapter to go on from")
        if self.quantization and self.lora is None and self.adapter is None:
            raise ConfigError("quantization freezes the weights: give a lora to train")
        if self.quantization and self.loader == "transformers" and not installed("bitsandbytes"):
            raise ConfigError("quantization needs bitsandbytes, which is not installed: pip install bitsandbytes")
        if self.optimizer not in OF_TORCH and not installed("bitsandbytes"):
            raise ConfigError(f"optimizer: {self.optimizer} needs bitsandbytes, which is not installed")
        if self.loader == "unsloth" and not self.takes_unsloth:
            raise ConfigError("loader: unsloth is for training.sft only; take transformers")
        expression = self.lora is not None and isinstance(self.lora.targets, str) and self.lora.targets != "all-linear"
        if self.loader == "unsloth" and self.freeze_vision and expression:
            raise ConfigError(
                "lora.targets: with loader unsloth and freeze_vision, name layers in a list, or all-linear: Unsloth "
                "would put a LoRA on the frozen tower for a regular expression"
            )
        if self.loader == "unsloth" and not installed("unsloth"):
            raise ConfigError("loader: unsloth is not installed here: run in the image unsloth-sft, on a GPU")
        if missing := [name for name in self.report_to if not installed(name)]:
            raise ConfigError(
                f"report_to: not installed: pip install {' '.join(missing)}, or take the image trl-grpo or unsloth-sft"
            )
        if self.deepspeed is not None and self.fsdp:
            raise ConfigError("give either deepspeed or fsdp")
        if self.deepspeed is not None and not Path(self.deepspeed).is_file():
            raise ConfigError(f"deepspeed: there is no file {self.deepspeed}")
        if self.deepspeed is not None and not installed("deepspeed"):
            raise ConfigError(
                "deepspeed is not installed: pip install deepspeed, or take the image trl-grpo or unsloth-sft"
            )
        if self.deepspeed is not None:
            deepspeed_file.check_compilers(Path(self.deepspeed), self.optimizer)
            deepspeed_file.agreed_settings(Path(self.deepspeed), self, processes())

    def _check_learning_rates(self) -> None:
        """Raises ConfigError for what is wrong with learning_rates in any model."""
        for key in self.learning_rates:
            if key in ("vision", "projector") and self.freeze_vision:
                raise ConfigError(f"learning_rates.{key}: freeze_vision keeps its weights")
            if key == "lora" and self.lora is None and self.adapter is None:
                raise ConfigError("learning_rates.lora: there is none; give a lora, or an adapter to go on from")
            try:
                re.compile(key)
            except re.error as error:
                raise ConfigError(
                    f"learning_rates: {key!r} is no regular expression: {error}; parts are {', '.join(GROUPS)}"
                ) from None
        if self.learning_rates and self.deepspeed is not None:
            raise ConfigError("learning_rates: not verified with DeepSpeed; take fsdp, or one learning_rate")

    def check_warmup(self, steps: int) -> None:
        """Raises ConfigError for a warm-up that does not end before the training's `steps` do."""
        if self.warmup_steps is not None and self.warmup_steps >= steps:
            raise ConfigError(
                f"warmup_steps: {self.warmup_steps} of {steps} steps: the learning rate would never be reached; "
                f"allowed: 0 to {steps - 1}"
            )

    def warmup(self, steps: int | None) -> int:
        """Steps of warm-up in a training of `steps`; None: not known yet."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        return WARMUP if steps is None else min(WARMUP, steps // 2)


def _not_finite(value: Any, name: str = "") -> Iterator[str]:
    """Names of the fields that are infinite or not a number."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _not_finite(inner, f"{name}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        yield name


def check_largest_ratio(loss: str, epsilon_high: float | None) -> None:
    """Raises ConfigError for cispo without a largest ratio: TRL would take `epsilon`, .2, for it, so that every token
    had the same fifth of its gradient, whatever its ratio."""
    if loss == "cispo" and (epsilon_high is None or epsilon_high < 1):
        raise ConfigError(
            f"epsilon_high: loss cispo needs the largest ratio itself, 1 or more, say 5; not {epsilon_high}"
        )


def installed(name: str) -> bool:
    """Whether a package can be imported. A plain folder of that name (wandb creates one) does not count."""
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None


def model_card(model: str) -> dict[str, Any]:
    """A model folder's config.json; {} when it cannot be read."""
    try:
        card = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return card if isinstance(card, dict) else {}


def is_opencua(card: dict[str, Any]) -> bool:
    """Whether a config.json is OpenCUA's, whatever the folder's name."""
    said = [card.get("model_type"), card.get("architectures"), card.get("auto_map")]
    return "opencua" in json.dumps(said).lower()


def training_arguments(config: TrainerConfig, out: Path) -> dict[str, Any]:
    """Keyword arguments for TrainingArguments and every TRL config that derives from it.

    Raises ConfigError for fsdp with a single process.
    """
    if config.fsdp and processes() < 2:
        raise ConfigError("fsdp shards over processes: start two at least, with torchrun or accelerate launch")
    import torch
    from transformers import TrainingArguments

    # the field's name before transformers 5.18 (Unsloth's)
    known = "activation_checkpointing" in TrainingArguments.__dataclass_fields__
    checkpointing = "activation_checkpointing" if known else "gradient_checkpointing"
    return {
        "output_dir": str(out / "checkpoints"),
        "max_steps": config.steps or -1,
        "num_train_epochs": config.epochs or 1.0,
        "per_device_train_batch_size": config.batch_size,
        "gradient_accumulation_steps": config.accumulate,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "cosine_with_min_lr" if config.floor else config.schedule,
        **({"lr_scheduler_kwargs": {"min_lr_rate": config.floor}} if config.floor else {}),
        "warmup_steps": config.warmup(config.steps),
        "weight_decay": config.weight_decay,
        "adam_beta2": config.adam_beta2,
        "max_grad_norm": config.max_grad_norm,
        "optim": config.optimizer,
        checkpointing: config.activation_checkpointing,
        "bf16": config.precision == "bf16",  # autocast; FSDP and DeepSpeed cast for themselves
        "use_cpu": not torch.cuda.is_available(),
        "seed": config.seed,
        "data_seed": config.seed,
        "logging_steps": config.log_every,
        "logging_nan_inf_filter": False,  # the filter hides NaN losses; Reporting stops the training on one
        "save_steps": config.save_every,
        "save_total_limit": config.keep_checkpoints,
        "dataloader_num_workers": config.workers,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "remove_unused_columns": False,
        "disable_tqdm": True,
        "report_to": list(config.report_to),
        "run_name": config.run_name,
        "deepspeed": deepspeed_file.agreed_settings(Path(config.deepspeed), config, processes())
        if config.deepspeed is not None
        else None,
        "ddp_timeout": 7200,  # seconds; the first process evaluates while the others wait
        # FSDP wraps the layers that the model class names
        **({"fsdp": True, "fsdp_config": {"version": 2, "state_dict_type": "FULL_STATE_DICT"}} if config.fsdp else {}),
    }


def processes() -> int:
    """Number of training processes, from torchrun's and accelerate's variable. Each has its own device."""
    return max(1, int(os.environ.get("WORLD_SIZE", "1")))


def loaded_dtype(config: TrainerConfig) -> str:
    """torch's name of the type in which a model's weights are loaded.

    bfloat16 under `precision: bf16` where they are frozen, and for DeepSpeed, which keeps float32 copies itself.
    training.common.model.sharding makes float32 what is trained.
    """
    frozen = config.lora is not None or config.adapter is not None
    return "bfloat16" if config.precision == "bf16" and (frozen or config.deepspeed is not None) else "float32"


def computed(config: TrainerConfig) -> dict[str, Any]:
    """The fields that must be equal in a checkpoint and in the run that resumes from it."""
    values = {name: value for name, value in msgspec.to_builtins(config).items() if name not in FREE}
    values["warmup_steps"] = config.warmup(config.steps)
    return {**values, "processes": processes()}
