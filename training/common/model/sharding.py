"""FSDP: on CPU processes, where accelerate silently falls back to plain data parallelism, and loading into shards; and
the precision of what is trained, sharded or not."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from eval.config import ConfigError
from training.options import TrainerConfig


def asked_for(config: TrainerConfig) -> bool:
    """Whether the configuration, or `accelerate launch`, asks for FSDP."""
    return config.fsdp or os.environ.get("ACCELERATE_USE_FSDP", "").lower() in ("true", "1")


def with_policy(arguments: Any, config: TrainerConfig) -> Any:
    """TrainingArguments whose FSDP has our mixed precision, for the model and for a reference model."""
    if (policy := fsdp_policy(config)) is not None and arguments.fsdp_plugin_args is not None:
        arguments.fsdp_plugin_args["mixed_precision_policy"] = policy
    return arguments


def ensure(trainer: Any, config: TrainerConfig) -> None:
    """Sets up the FSDP that was asked for on a CPU trainer, before training. Raises ConfigError for a single process.

    accelerate 1.15 sets its plugin up for accelerators only (accelerate/state.py), although torch can shard over gloo.
    """
    if not asked_for(config):
        return
    if trainer.is_fsdp_enabled:
        if (policy := fsdp_policy(config)) is not None:  # `accelerate launch` makes one of its own
            trainer.accelerator.state.fsdp_plugin.mixed_precision_policy = policy
        return
    if trainer.args.world_size < 2:
        raise ConfigError("fsdp shards over processes: start with torchrun or accelerate launch, two at least")
    from accelerate.state import PartialState
    from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

    given = {**(trainer.args.fsdp_plugin_args or {}), "mixed_precision_policy": fsdp_policy(config)}
    trainer.accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(**given)
    trainer.accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    trainer.is_fsdp_enabled = True


def is_sharded(model: Any) -> bool:
    """Whether FSDP 2 holds the model's weights, of which each process then has a part."""
    from torch.distributed.tensor import DTensor

    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def reshard(model: Any) -> None:
    """Frees the whole weights that a forward pass without a backward pass leaves gathered: the next pass must not use
    them when the shards have changed since."""
    for module in model.modules():
        if hasattr(module, "reshard") and hasattr(module, "unshard"):  # torch's FSDPModule
            module.reshard()


def load_sharded(model: Any, read: Callable[[], dict[str, Any]]) -> None:
    """Loads whole weights into a sharded model. All processes must call it; the first one reads.

    read  gives tensors by name; names that it lacks keep their weights
    """
    import torch
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    set_model_state_dict(model, read() if torch.distributed.get_rank() == 0 else {}, options=options)


# `precision: bf16` computes in bfloat16, and keeps what is trained in float32 (Micikevicius et al. 2018, "Mixed
# Precision Training"). AdamW moves a weight by about the learning rate in a step. A bfloat16 has 8 significant bits, so
# a weight of .02 has a spacing of 1.2e-4 to its neighbour: a step of 1e-6 rounds to nothing, and the training stands
# still without an error.


def float32_masters(model: Any, config: TrainerConfig) -> None:
    """Makes every trained weight float32, in place. The optimiser must not exist yet.

    TRL makes a LoRA on quantised weights bfloat16, and a merged adapter has the type of the weights under it. DeepSpeed
    keeps float32 copies of its own, and wants all weights of one type.
    """
    import torch

    if config.deepspeed is not None:
        return
    for parameter in model.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()


def fsdp_policy(config: TrainerConfig) -> Any:
    """FSDP 2's mixed precision, or None: layers are gathered and computed in bfloat16; gradients are summed in float32,
    and shards stay float32.

    accelerate's own policy for bf16 also sums gradients in bfloat16, and rounds what the model returns: a
    log-probability of -20 to a multiple of .125.
    """
    if config.precision != "bf16":
        return None
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    return MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
