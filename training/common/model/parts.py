"""What became of a model's parts: which layers are quantised, trained, in float32, under an adapter.

Names of layers are given to other libraries' matchers (bitsandbytes by transformers, peft), whose rules change between
versions: so what came of it is counted, and a training of anything else than the configuration says is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from eval.config import ConfigError
from training.options import TrainerConfig

VISION: Final = "visual"  # the vision tower's module in Qwen2.5-VL and Qwen3-VL
HEADS: Final = frozenset(("lm_head", "score"))  # the second is a reward model's
QUANTISED: Final = frozenset(("Params4bit", "Int8Params"))  # bitsandbytes' classes of weights


def part_of(name: str) -> str:
    """vision, head or text, by the name of a module or a parameter. Embeddings belong to the text."""
    words = name.split(".")
    return "vision" if VISION in words else "head" if HEADS.intersection(words) else "text"


def towers(model: Any) -> list[str]:
    """The whole names of the vision tower and the head: `model.visual`, `lm_head`."""
    return [name for name, _ in model.named_modules() if name.rpartition(".")[2] in (VISION, "lm_head")]


def linears(model: Any) -> Iterator[tuple[str, Any, bool]]:
    """(name, module, whether a LoRA lies on it) of each linear layer of the model, without those of adapters."""
    import torch

    for name, module in model.named_modules():
        if ".lora_" in f".{name}" or ".original_module" in name or ".modules_to_save" in name:
            continue
        if isinstance(module, torch.nn.Linear):
            above = name.removesuffix(".base_layer")
            yield above, module, above != name


def check_parts(model: Any, config: TrainerConfig) -> str:
    """A line with the counts. Raises ConfigError for a part that is not as the configuration says."""
    layers, quantised, adapted = Counter[str](), Counter[str](), Counter[str]()
    for name, module, adapter in linears(model):
        part = part_of(name)
        layers[part] += 1
        quantised[part] += type(module.weight).__name__ in QUANTISED
        adapted[part] += adapter
    trained, frozen, narrow = Counter[str](), Counter[str](), 0
    for name, weight in model.named_parameters():
        added = ".lora_" in name or ".modules_to_save" in name
        kind = f"added to {part_of(name)}" if added else part_of(name)
        (trained if weight.requires_grad else frozen)[kind] += 1
        narrow += weight.requires_grad and weight.dtype.itemsize < 4
    told = ", ".join(
        f"{part} {count} linear layers ({quantised[part]} quantised, {adapted[part]} with an adapter)"
        for part, count in layers.items()
    )
    if config.loader == "transformers":  # Unsloth chooses by rules of its own
        _check_quantised(config, layers, quantised)
        _check_trained(config, layers, adapted, trained, frozen)
        if narrow and config.deepspeed is None:
            raise ConfigError(f"precision: {narrow} trained weights are not in float32")
    return f"model: {told}; {sum(trained.values())} weights trained, {sum(frozen.values())} frozen"


def _check_quantised(config: TrainerConfig, layers: Counter[str], quantised: Counter[str]) -> None:
    wanted = {"text": layers["text"] if config.quantization else 0, "vision": 0, "head": 0}
    for part, count in wanted.items():
        if quantised[part] != count:
            raise ConfigError(
                f"quantization: {config.quantization}: {quantised[part]} of {layers[part]} linear layers of the {part} "
                f"are quantised, and {count} are to be: this version of transformers or bitsandbytes takes others"
            )


def _check_trained(
    config: TrainerConfig, layers: Counter[str], adapted: Counter[str], trained: Counter[str], frozen: Counter[str]
) -> None:
    if config.freeze_vision and (odd := trained["vision"] + trained["added to vision"]):
        raise ConfigError(f"freeze_vision: {odd} weights of the vision tower are trained all the same")
    parts = ["text"] if config.freeze_vision else ["text", "vision"]
    if config.lora is None and config.adapter is None:
        if odd := sum(frozen[part] for part in (*parts, "head")):
            raise ConfigError(f"lora: none, so all weights are to be trained, and {odd} of {', '.join(parts)} are not")
        return
    if odd := sum(trained[part] for part in ("text", "vision", "head")):
        raise ConfigError(f"lora: {odd} of the model's own weights are trained all the same")
    if config.adapter is None and config.lora is not None and config.lora.targets == "all-linear":
        for part in parts:
            if adapted[part] != layers[part]:
                raise ConfigError(
                    f"lora.targets: all-linear: {adapted[part]} of {layers[part]} linear layers of the {part} have one"
                )
