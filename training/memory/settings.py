"""The inputs of a memory estimate: how a model is trained, and on which batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class Lora:
    rank: int = 16
    targets: str | list[str] = "all-linear"
    dropout: bool = False


@dataclass(frozen=True)
class Sharding:
    """The number of devices over which weights, gradients and optimiser state are sharded; 1: not sharded.

    master: float32 weights beside bfloat16 ones (DeepSpeed). offload: optimiser state in host memory.
    """

    weights: int = 1
    gradients: int = 1
    optimiser: int = 1
    master: bool = False
    offload: bool = False


@dataclass(frozen=True)
class Batch:
    """One forward pass: `sequences` of `tokens` (text and image tokens, padded), `patches` of all images in it.

    answers: total number of supervised tokens. padded: sequences differ in length, so attention needs a mask.
    """

    sequences: int
    tokens: int
    patches: int
    answers: int
    padded: bool = False


@dataclass(frozen=True)
class Generation:
    """GRPO's memory during sampling: `sequences` of `tokens` in the KV cache; `vllm`: bytes that vLLM takes."""

    sequences: int
    tokens: int
    patches: int
    vllm: float = 0.0


@dataclass(frozen=True)
class Training:
    """How a model is trained. size: bytes per stored weight. head: TRL's chunked head, full logits, a scalar, or none.

    autocast: computes in bfloat16 (`precision: bf16`), whatever the stored weights' type.

    ddp: plain data parallelism over several devices, whose buckets hold a second copy of the gradients.
    copies: full frozen copies of the model besides the trained one (DPO's reference, GRPO's with beta, rl's with kl).
    others: bytes of other models on the device (GRPO's reward models).
    accumulate: forward passes per step.
    average: whether an average of the trained weights is kept (`ema`), in float32.
    teacher: whether SDPO's self-teacher is kept, and logits of answers are compared with its.
    """

    size: int = 4
    autocast: bool = False
    lora: Lora | None = None
    lora_size: int = 4
    quantization: Literal["4bit", "8bit"] | None = None
    freeze_vision: bool = False
    optimizer: str = "adamw_torch"
    checkpointing: bool = False
    attention: Literal["sdpa", "eager"] = "sdpa"
    head: Literal["chunked", "full", "scalar"] = "chunked"
    copies: int = 0
    others: float = 0.0
    ddp: bool = False
    accumulate: int = 1
    average: bool = False
    teacher: bool = False
    sharding: Sharding = field(default_factory=Sharding)
    cuda: bool = True

    @property
    def width(self) -> int:
        """Bytes of a number that a linear layer takes or gives."""
        return 2 if self.autocast else self.size

    @property
    def copies_weights(self) -> bool:
        """Whether autocast keeps a bfloat16 copy of each float32 weight. FSDP gathers layers in bfloat16 instead."""
        return self.autocast and self.size == 4 and self.sharding.weights == 1 and self.quantization is None
