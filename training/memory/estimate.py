"""Estimates a training's device memory from the sizes of the model and of a batch. Needs no torch, loads nothing.

Constant during a step: weights, gradients, optimiser state (Rajbhandari et al. 2020, "ZeRO", section 3). Temporary:
what autograd saves per layer for the backward pass (the method of Korthikanti et al. 2022, "Reducing Activation
Recomputation", section 4, counted again for the layers of transformers' Qwen-VL), one layer's recomputation under
activation checkpointing (Chen et al. 2016), TRL's chunked output head, the optimiser's temporaries, and generation's
cache. The peak is the largest of the step's moments, not the sum of everything: activations are freed before the
optimiser runs. docs/explanation/memory.md explains each line and compares it with measured peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from training.memory import activations
from training.memory.architecture import TEXT, VISION, Architecture, targeted
from training.memory.settings import Batch, Generation, Training

GIB: Final = 2**30
MIB: Final = 2**20

# Not from a formula. CUDA only; values from common experience, not yet measured here (docs/explanation/memory.md).
CUDA_CONTEXT: Final = 600 * MIB  # the driver's context, cuBLAS and cuDNN workspaces
VLLM_ACTIVATIONS: Final = 1024 * MIB  # vLLM's forward passes of 4096 tokens, which TRL fixes
FRAGMENTATION: Final = 0.05  # of everything else: blocks that the allocator holds but cannot use

HEAD_TOKENS: Final = 4096  # TRL 1.16, trl/kernels/chunked_logprob.py: TOKEN_CHUNK_SIZE
HEAD_VOCABULARY: Final = 32768  # TRL 1.16, trl/trainer/utils.py: _CHUNKED_LOGPROB_CHUNK_SIZE
# bytes per weight: NF4, an 8 bit scale for each block of 64, and a float32 one for 256 of those (Dettmers et al. 2023)
BITS4: Final = 0.5 + 1 / 64 + 4 / (64 * 256)
BITS8: Final = 1.0 + 4 / 4096  # LLM.int8: and a float32 scale per row

# Bytes of state per trained parameter: a multiple of the parameter's own size, plus fixed bytes. Paged: in host memory.
OPTIMISERS: Final[dict[str, tuple[float, float]]] = {
    "adamw_torch": (2, 0),
    "adamw_torch_fused": (2, 0),
    "adamw": (2, 0),
    "adamw_8bit": (0, 2 + 2 * 4 / 256),
    "adamw_bnb_8bit": (0, 2 + 2 * 4 / 256),
    "paged_adamw_32bit": (0, 0),
    "paged_adamw_8bit": (0, 0),
    "paged_adamw": (0, 0),
    "lion_32bit": (1, 0),
    "lion_8bit": (0, 1 + 4 / 256),
    "adafactor": (0.01, 0),
    "sgd": (0, 0),
}
FOREACH: Final = frozenset(("adamw_torch",))  # on CUDA these allocate temporaries as large as all trained weights


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by component at the moment of the peak, and the total of each moment."""

    components: dict[str, float]
    moments: dict[str, float]
    parameters: dict[str, int]
    trained: int

    @property
    def total(self) -> float:
        return sum(self.components.values())


def estimate(
    model: Architecture, training: Training, batch: Batch, generation: Generation | None = None
) -> MemoryEstimate:
    """The peak on one device."""
    parts = model.parameters() | ({"head": 0} if training.head == "scalar" else {})
    kept = weights(model, training)
    trained = _trained(model, training, parts)
    count = sum(trained.values())
    shard = training.sharding
    trained_size = training.lora_size if training.lora else training.size
    gathered_size = training.width if training.sharding.weights > 1 else training.size
    block = _largest_block(model) * gathered_size  # when sharded, this layer and the next one are gathered
    if shard.weights > 1:
        kept = {name: value / shard.weights for name, value in kept.items()}
        root = (parts["embeddings"] + parts["head"]) * gathered_size  # stays gathered during the step
        gathered = root * (1 - 1 / shard.weights) + 2 * block
    else:
        gathered = 0.0
    gradients = count * trained_size / shard.gradients
    optimiser = _optimiser(training, count, trained_size)
    copies = training.copies * sum(parts.values()) * training.size / shard.weights

    saved = activations.saved(model, training, batch)
    head_forward, head_backward, head_gradient = _head(model, training, batch)
    inputs = _inputs(model, batch) * (training.accumulate + 1)
    held = gradients if training.accumulate > 1 else 0.0
    casts = 2.0 * sum(linear.weights for linear in model.linears()) if training.copies_weights else 0.0
    tail = activations.recomputed(model, training, batch)
    moments = {
        "forward": saved + casts + head_forward + held,
        "head": saved + (0.0 if training.checkpointing else casts) + head_backward + (held or head_gradient),
        "backward": saved + (0.0 if training.checkpointing else casts) + tail + (held or head_gradient),
        "end of backward": gradients + activations.first_layer(model, training, batch),
        "optimiser": gradients + _temporaries(model, training, count, trained_size),
    }
    if generation is not None:
        moments["generation"] = sampling(model, training, generation) + (0.0 if generation.vllm else casts)
    peak = max(moments, key=lambda name: moments[name])
    components = {f"weights: {name}": value for name, value in kept.items() if value}
    if training.lora:
        components["weights: LoRA"] = count * trained_size / shard.weights
    components |= {
        "weights: reference": copies,
        "weights: other models": training.others,
        "weights: gathered": gathered,
        "gradient buckets": gradients if training.ddp else 0.0,
        "optimiser state": optimiser,
        "average of the weights": count * 4.0 / shard.weights if training.average else 0.0,
        "self-teacher": _teacher(model, training, count),
        "inputs": inputs,
    }
    if generation is not None and generation.vllm:
        components["vLLM's share"] = generation.vllm
    components |= _at_peak(peak, moments[peak], held or head_gradient, gradients)
    if training.cuda:
        components["fragmentation"] = FRAGMENTATION * sum(components.values())
        components["CUDA context"] = CUDA_CONTEXT
    return MemoryEstimate({k: v for k, v in components.items() if v}, moments, parts, count)


def _at_peak(peak: str, value: float, held: float, gradients: float) -> dict[str, float]:
    if peak in ("optimiser", "end of backward"):
        return {"gradients": gradients, f"temporaries ({peak})": value - gradients}
    if peak == "generation":
        return {"generation: KV cache and activations": value}
    return {"gradients": held, f"activations ({peak})": value - held}


def weights(model: Architecture, training: Training) -> dict[str, float]:
    """Bytes of the model's own weights by part. Only the language model's linear layers are quantised, see
    training.common.model.loading. A reward model has a head of one number."""
    sizes = {name: float(value * training.size) for name, value in model.parameters().items()}
    if training.head == "scalar":
        sizes["head"] = float(model.hidden * 4)
    if training.quantization:
        small = BITS4 if training.quantization == "4bit" else BITS8
        for linear in model.linears():
            if linear.part == TEXT:
                sizes[TEXT] -= linear.weights * (training.size - small)
    return sizes


def _trained(model: Architecture, training: Training, parts: dict[str, int]) -> dict[str, int]:
    """Trained parameters by part."""
    if training.lora is None:
        return {name: value for name, value in parts.items() if not (training.freeze_vision and name == VISION)}
    trained = {TEXT: 0, VISION: 0}
    for linear in targeted(model.linears(), training.lora.targets, not training.freeze_vision):
        trained[linear.part] += training.lora.rank * (linear.inputs + linear.outputs) * linear.count
    return trained


def _largest_block(model: Architecture) -> int:
    """Parameters of one layer of the larger tower."""
    sums = {TEXT: 0, VISION: 0}
    for linear in model.linears():
        if linear.block:
            sums[linear.part] += linear.parameters
    return max(sums[TEXT] // model.layers, sums[VISION] // model.vision_layers)


def _optimiser(training: Training, count: int, size: int) -> float:
    times, fixed = OPTIMISERS.get(training.optimizer, OPTIMISERS["adamw_torch"])
    shard = training.sharding
    if shard.offload:
        return 0.0
    if shard.master and size == 2:
        return count * (4 + 4 * times + fixed) / shard.optimiser
    return count * (size * times + fixed) / shard.optimiser


def _temporaries(model: Architecture, training: Training, count: int, size: int) -> float:
    """Bytes of the optimiser's temporaries. torch's AdamW updates all weights at once on CUDA, one by one on CPU."""
    if training.sharding.offload or training.optimizer not in FOREACH:
        return 0.0
    if training.cuda:
        return count * size / training.sharding.optimiser
    largest = max(linear.inputs * linear.outputs for linear in model.linears())
    if training.lora:
        largest = max(max(linear.inputs, linear.outputs) for linear in model.linears()) * training.lora.rank
    return 2.0 * size * max(largest, 0 if training.lora else model.vocabulary * model.hidden)


def _teacher(model: Architecture, training: Training, count: int) -> float:
    """Float32: the average, and the student's own weights, which are kept aside while the average computes. With a LoRA
    the average is of products as large as their layers, and nothing is kept aside."""
    if not training.teacher:
        return 0.0
    if training.lora is None:
        return 2 * 4.0 * count
    layers = targeted(model.linears(), training.lora.targets, not training.freeze_vision)
    return 4.0 * sum(linear.weights for linear in layers)


def _inputs(model: Architecture, batch: Batch) -> float:
    """Pixel values are float32; ids, mask, labels and token types are int64."""
    pixels = model.channels * model.temporal * model.patch**2
    return batch.patches * pixels * 4.0 + batch.sequences * batch.tokens * 4 * 8.0


def _head(model: Architecture, training: Training, batch: Batch) -> tuple[float, float, float]:
    """(bytes at the end of the forward pass, in the backward pass, of the head's weight gradient)"""
    tokens, h, v = batch.sequences * batch.tokens, model.hidden, model.vocabulary
    trained = training.lora is None
    gradient = v * h * training.size if trained else 0
    if training.head == "scalar":
        return 0.0, 0.0, 0.0
    if training.head == "full":
        logits = tokens * v
        casts = 4 if training.size == 4 else 4 + 2 + 4
        return logits * float(casts + 4), logits * float(casts + 8), gradient
    scored = batch.answers if training.cuda else tokens  # Triton kernels score supervised tokens only
    tile = min(scored, HEAD_TOKENS) * HEAD_VOCABULARY * training.width
    if not training.cuda:  # torch without fused kernels allocates seven float32 tiles
        tile += min(scored, HEAD_TOKENS) * min(v, HEAD_VOCABULARY) * 4 * 7
    states = scored * h * (4 + training.width)
    if training.teacher:  # of the answers: the teacher's logits, the student's, their softmax, and gradients of both
        tile += batch.answers * v * 4 * 6
    return float(tile), float(tile + states + (v * h * 4 + gradient if trained else 0)), gradient


def sampling(model: Architecture, training: Training, generation: Generation) -> float:
    """Bytes of transformers' generate: KV cache of all sequences, and a layer's activations of the prompts at once."""
    size = training.size
    if generation.vllm:
        return 0.0
    keys_and_values = 2 * size if size == training.width else size + training.width  # rotated keys stay float32
    cache = generation.sequences * generation.tokens * keys_and_values * model.layers * model.keys
    wide = 4 * model.hidden * size + 3 * model.intermediate * training.width
    layer = generation.sequences * generation.tokens * wide
    vision = generation.patches * (6 * model.vision_hidden + 2 * model.vision_intermediate) * size
    return float(cache + max(layer, vision) + generation.sequences * model.vocabulary * 4 * 2)
