"""`precision: bf16`: computes in bfloat16, and keeps what is trained in float32 (Micikevicius et al. 2018, "Mixed
Precision Training").

AdamW moves a weight by about the learning rate in a step. A bfloat16 has 8 significant bits, so a weight of .02 has a
spacing of 1.2e-4 to its neighbour: a step of 1e-6 rounds to nothing, and the training stands still without an error.
"""

from __future__ import annotations

from typing import Any

from training.options import TrainerConfig


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
