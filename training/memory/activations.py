"""Bytes that autograd saves between the forward and the backward pass, layer by layer. Sources: `estimate`."""

from __future__ import annotations

from collections.abc import Sequence

from training.memory.architecture import TEXT, VISION, Architecture, targeted
from training.memory.settings import Batch, Training


def _names(model: Architecture, training: Training, part: str) -> frozenset[str] | None:
    """Names of the layers under a LoRA; None: everything is trained."""
    if training.lora is None:
        return None
    layers = targeted(model.linears(), training.lora.targets, not training.freeze_vision)
    return frozenset(linear.name for linear in layers if linear.part == part)


def _input(width: int, names: Sequence[str], lora: frozenset[str] | None, training: Training) -> float:
    """Bytes that the linear layers `names` save of their shared input, per token.

    Trained weights save the input once; under autocast each layer saves its own bfloat16 copy. With a LoRA of the
    weights' type they save it once, with one of another type once per layer. Dropout adds a copy and a mask per layer.
    """
    if lora is None:
        return width * training.width * (len(names) if training.autocast else 1)
    count = sum(name in lora for name in names)
    if training.autocast:
        mask = int(training.lora is not None and training.lora.dropout)
        return (width * (2 + mask) + (training.lora.rank * 2 if training.lora else 0)) * count
    rank = training.lora.rank * training.lora_size * count if training.lora else 0
    if training.lora and training.lora.dropout:
        return width * (training.lora_size + 1) * count + rank
    if training.lora_size == training.size:
        return width * training.size * (count > 0) + rank
    return width * training.lora_size * count + rank


def _norm(width: int, size: int, trained: bool) -> float:
    """Bytes that RMSNorm saves: its input in float32, and the normalised input if its weight is trained."""
    return width * 4 + (width * size if trained else 0)


def _text_layer(model: Architecture, training: Training, batch: Batch) -> float:
    """Bytes that one decoder layer saves, per token."""
    size, lora = training.width, _names(model, training, TEXT)
    all_ = lora is None
    q, k, h, wide = model.queries, model.keys, model.hidden, model.intermediate
    saved = 2 * _norm(h, training.size, all_) + _input(h, ("q_proj", "k_proj", "v_proj"), lora, training)
    if model.kind == "qwen3_vl":
        saved += _norm(q, size, all_) + _norm(k, size, all_)
    saved += _attention(q, k, model.heads, batch.tokens, training, batch.padded)
    cast = _input(q, ("o_proj",), lora, training)
    alike = lora is None or (training.lora_size == size and not training.autocast)
    saved += max(0.0, cast - q * size) if alike else cast  # attention's output
    saved += _input(h, ("gate_proj", "up_proj"), lora, training)
    saved += 3 * wide * size + _input(wide, ("down_proj",), lora, training)
    return saved


def _attention(q: int, k: int, heads: int, tokens: int, training: Training, masked: bool) -> float:
    """Bytes saved per token: queries, keys, values (repeated to all heads under a mask), the output, its logsumexp;
    eager also the probabilities, in float32 and in the weights' type."""
    size = training.width
    if training.attention == "eager":
        return (3 * q) * size + heads * tokens * (4 + (size if size != 4 else 0))
    mask = tokens * size if masked else 0  # in each layer torch converts the boolean mask to an additive one
    return (q + 2 * (q if masked else k) + q) * size + heads * 4 + mask


def _vision_layer(model: Architecture, training: Training, batch: Batch) -> float:
    """Bytes that one block of the vision tower saves, per patch; 0 when nothing in it is trained."""
    lora = _names(model, training, VISION)
    if training.freeze_vision or (lora is not None and not lora):
        return 0.0
    size, v, wide = training.width, model.vision_hidden, model.vision_intermediate
    images = max(1, batch.sequences)
    saved = _input(v, ("qkv",), lora, training)
    # values are a view of qkv's output, so all of qkv is kept; rotated keys are a separate tensor
    saved += 3 * v * size + v * size + _attention(v, 0, model.vision_heads, batch.patches // images, training, False)
    saved += _input(v, ("proj",), lora, training)
    if model.kind == "qwen3_vl":
        saved += 2 * v * training.size  # LayerNorm keeps its input
        saved += (
            _input(v, ("linear_fc1",), lora, training) + wide * size + _input(wide, ("linear_fc2",), lora, training)
        )
    else:
        saved += 2 * _norm(v, training.size, lora is None) + _input(v, ("gate_proj", "up_proj"), lora, training)
        saved += 3 * wide * size + _input(wide, ("down_proj",), lora, training)
    return saved


def _merger(model: Architecture, training: Training) -> float:
    """Bytes that the mergers (between vision tower and language model) save, per patch."""
    lora = _names(model, training, VISION)
    if training.freeze_vision or (lora is not None and not lora):
        return 0.0
    names = ("linear_fc1", "linear_fc2") if model.kind == "qwen3_vl" else ("0", "2")
    wide, group = model.merged, model.merge**2
    each = _input(wide, names[:1], lora, training) + wide * training.width + _input(wide, names[1:], lora, training)
    return model.mergers * (each + wide * training.size) / group


def saved(model: Architecture, training: Training, batch: Batch) -> float:
    """Bytes that autograd holds at the end of the forward pass."""
    tokens = batch.sequences * batch.tokens
    size = training.size
    text, vision = _text_layer(model, training, batch), _vision_layer(model, training, batch)
    if training.checkpointing:
        text, vision = min(text, model.hidden * size), min(vision, model.vision_hidden * size)
    total = tokens * text * model.layers + batch.patches * vision * model.vision_layers
    total += batch.patches * _merger(model, training)
    total += tokens * (_norm(model.hidden, size, training.lora is None) + model.hidden * size)  # final norm and output
    total += tokens * 2 * model.head * size  # rotary angles
    if batch.padded or training.attention == "eager":
        total += tokens * batch.tokens * (1 if training.attention == "sdpa" else size)
    return total


def recomputed(model: Architecture, training: Training, batch: Batch) -> float:
    """Bytes of one layer's backward pass: its gradients, and its recomputed activations under checkpointing."""
    tokens = batch.sequences * batch.tokens
    size = max(training.size, training.lora_size) if training.lora else training.size
    inner = size if training.lora else training.width
    flow = float((2 * model.intermediate * inner + 2 * model.hidden * size) * tokens)
    if training.quantization:  # a layer's weights are dequantised while it computes
        flow += max(linear.inputs * linear.outputs for linear in model.linears()) * training.width
    if not training.checkpointing:
        return flow
    text = tokens * _text_layer(model, training, batch) + flow
    vision = batch.patches * _vision_layer(model, training, batch)
    return max(text, vision)


def first_layer(model: Architecture, training: Training, batch: Batch) -> float:
    """Bytes of the tied embeddings' dense gradient, which is a second one until it is added to the head's."""
    if training.lora is not None:
        return 0.0
    return float(model.vocabulary * model.hidden * training.size) if model.tied else 0.0
