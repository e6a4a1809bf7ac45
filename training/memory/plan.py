"""Estimates a training's device memory before anything is loaded: `python -m training.plan --config FILE`.

FILE is a trainer's configuration, or a job whose command is a trainer. Prints a table and whether the training fits the
device: --gpu, the job's `resources.gpu`, or this machine's. If it does not fit: exit code 78, and one line with what to
change. Trainers make the same check on CUDA before they load anything; with --plan they print the table and stop.
docs/explanation/memory.md explains the estimate and compares it with measured peaks.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from eval import config as configuration
from eval.config import ConfigError
from eval.config.importing import large_imports
from training.memory.architecture import UnknownArchitecture
from training.memory.estimate import GIB, MemoryEstimate
from training.memory.workload import MemoryPlan, Shape, VllmNeed, colocated, describe, served, vllm_share
from training.options import LoraConfig, TrainerConfig, installed, processes

METHODS: Final[dict[str, tuple[str, str]]] = {
    "sft": ("training.sft.train", "SftConfig"),
    "dpo": ("training.dpo.train", "DpoConfig"),
    "reward": ("training.reward.train", "RewardConfig"),
    "grpo": ("training.grpo.config", "GrpoConfig"),
    "rl": ("training.rl.config", "RlConfig"),
}
WITH_BITSANDBYTES: Final = frozenset(("trl-grpo", "unsloth-sft"))  # of the images in images/
# A card's memory as torch reports it, in GiB: less than its name says.
CARDS: Final = {
    "A4000": 15.6,
    "L4": 21.9,
    "A10G": 21.9,
    "RTX4090": 23.5,
    "A100-40GB": 39.4,
    "L40S": 44.4,
    "A100-80GB": 79.1,
    "H100": 79.1,
    "H200": 139.8,
    "B200": 178.0,
}


def needed(config: TrainerConfig, method: str, shape: Shape, gpus: int, size: float | None) -> float:
    """Bytes of one device."""
    return describe(config, method, shape, gpus).estimate.total + colocated(config) * (size or 0.0)


def reserve(estimate: MemoryEstimate) -> float:
    """Bytes of the estimate that are a reserve against fragmentation; a training may fit without them."""
    return estimate.components.get("fragmentation", 0.0)


def table(config: TrainerConfig, method: str, plan: MemoryPlan, gpus: int, size: float | None) -> str:
    """The estimate for people, GiB."""
    made, wide = plan.estimate, 44
    count = sum(made.parameters.values())
    lines = [
        f"{method} of {config.model}: {count / 1e9:.2f} billion parameters, {made.trained / 1e6:,.1f} million trained",
        f"a pass has {plan.sequences} sequences of {plan.tokens} tokens, {plan.image_tokens} of them of images"
        f" (screen {plan.screen[0]}x{plan.screen[1]}); {gpus} device{'s' if gpus > 1 else ''}",
        *([f"learning rates: {rates_text(config)}"] if config.learning_rates else []),
        "",
        f"{'component':<{wide}}    GiB",
    ]
    components = dict(made.components)
    if size and (share := colocated(config)):
        components["vLLM's share"] = share * size
    lines += [f"{name:<{wide}} {value / GIB:6.2f}" for name, value in components.items()]
    total = sum(components.values())
    lines.append(f"{'peak':<{wide}} {total / GIB:6.2f}")
    if plan.vllm is not None:
        lines.append(f"vLLM needs {_vllm(plan.vllm)}")
        if size:
            room = vllm_share(config) * size - plan.vllm.weights - plan.vllm.activations
            lines.append(f"its share holds {max(0, int(room // plan.vllm.cache))} such sequences at a time")
    if size:
        verdict = "fits" if total <= size else "tight" if total - reserve(made) <= size else "does not fit"
        lines.append(f"{verdict}: {total / GIB:.1f} of {size / GIB:.1f} GiB")
    return "\n".join(lines)


def rates_text(config: TrainerConfig) -> str:
    """The learning rates of the configuration's parts, and of all others."""
    parts = [f"{name} {rate:g}" for name, rate in config.learning_rates.items()]
    return ", ".join([*parts, f"the others {config.learning_rate:g}"])


def _vllm(need: VllmNeed) -> str:
    return (
        f"{need.weights / GIB:.2f} GiB for its weights, {need.activations / GIB:.2f} for its passes, and "
        f"{need.cache / GIB:.2f} for the cache of one sequence of {need.context} tokens"
    )


def refuse_vllm(config: TrainerConfig, need: VllmNeed | None, size: float) -> None:
    """Raises ConfigError when vLLM's share of a device of `size` bytes is less than vLLM starts with."""
    if need is None or need.least <= (share := vllm_share(config) * size):
        return
    if served(config):
        raise ConfigError(
            f"asynchronous.vllm.servers: {share / GIB:.1f} GiB of a card like this one are too little for a server: "
            f"vLLM needs {_vllm(need)}; give each server larger cards, or lower max_pixels or max_completion"
        )
    field = "generation.memory" if hasattr(config, "generation") else "asynchronous.vllm.memory"
    raise ConfigError(
        f"{field}: vLLM's share of {share / GIB:.1f} GiB is too small: it needs {_vllm(need)}; raise it to "
        f"{math.ceil(100 * need.least / size) / 100:.2f} at least, or lower max_pixels or max_completion"
    )


def remedies(
    config: TrainerConfig, method: str, shape: Shape, gpus: int, size: float, *, bitsandbytes: bool = True
) -> str:
    """Changes of the configuration that would make it fit: single ones, else several together, else a hint.

    bitsandbytes  whether it is there, where the training runs: without it a trainer refuses what needs it
    """
    changes: dict[str, dict[str, Any]] = {}
    if config.batch_size > 1:
        changes["batch_size: 1"] = {"batch_size": 1}
    if not config.activation_checkpointing:
        changes["activation_checkpointing: true"] = {"activation_checkpointing": True}
    if config.precision == "float32":
        changes["precision: bf16"] = {"precision": "bf16"}
    if config.optimizer == "adamw_torch":  # torch's default allocates temporaries as large as the trained weights
        changes["optimizer: adamw_torch_fused"] = {"optimizer": "adamw_torch_fused"}
        if bitsandbytes:
            changes["optimizer: adamw_bnb_8bit"] = {"optimizer": "adamw_bnb_8bit"}
    if config.lora is None and config.adapter is None:
        changes["lora: {rank: 16}"] = {"lora": LoraConfig()}
    if config.ema is not None:
        changes["ema: null"] = {"ema": None}
    # a quantised reward model cannot be saved whole, and vLLM would sample with other weights than rl trains
    sampled_by_vllm = getattr(getattr(config, "asynchronous", None), "vllm", None) is not None
    if config.quantization is None and bitsandbytes and method != "reward" and not sampled_by_vllm:
        lora = {} if config.lora is not None or config.adapter is not None else {"lora": LoraConfig()}
        changes["quantization: 4bit"] = {"quantization": "4bit", **lora}
    if config.max_pixels is None or config.max_pixels > 1280 * 720:
        changes["max_pixels: 921600"] = {"max_pixels": 1280 * 720}
    if gpus > 1 and not config.fsdp and config.deepspeed is None:
        changes["fsdp: true"] = {"fsdp": True}

    def fits(change: Mapping[str, Any]) -> bool:
        if method == "grpo" and (batch := change.get("batch_size")):
            change = {**change, "accumulate": config.accumulate * config.batch_size // batch}
        return needed(msgspec.structs.replace(config, **change), method, shape, gpus, size) <= size

    if alone := [name for name, change in changes.items() if fits(change)]:
        return f"it would with {' or with '.join(alone)}"
    taken: dict[str, Any] = {}
    names: list[str] = []
    for name, change in changes.items():
        taken |= change
        names.append(name)
        if fits(taken):
            return f"it would with {', '.join(names)} together"
    return "nor would it with " + ", ".join(names) if names else "name a larger device, or a smaller model"


def refuse(
    config: TrainerConfig, method: str, shape: Shape, gpus: int, size: float, *, bitsandbytes: bool = True
) -> None:
    """Raises ConfigError if the estimate without its reserve exceeds `size` bytes; warns if only the reserve does.

    Also if vLLM beside the trainer cannot start in its share.
    """
    refuse_vllm(config, describe(config, method, shape, gpus).vllm, size)
    if (want := needed(config, method, shape, gpus, size)) > size:
        if want - reserve(describe(config, method, shape, gpus).estimate) <= size:
            print(f"memory: {want / GIB:.1f} GiB are tight on {size / GIB:.1f} GiB", file=sys.stderr)
            return
        told = remedies(config, method, shape, gpus, size, bitsandbytes=bitsandbytes)
        raise ConfigError(f"memory: {want / GIB:.1f} GiB do not fit a device of {size / GIB:.1f} GiB; {told}")


def device_size() -> float | None:
    """Bytes of this machine's CUDA device."""
    with large_imports():
        import torch

    if not torch.cuda.is_available():
        return None
    return float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def check(config: TrainerConfig, method: str) -> None:
    """A trainer's check before it loads anything. Raises ConfigError when it cannot fit this machine's CUDA device."""
    if (size := device_size()) is None:
        return
    try:
        refuse(config, method, Shape(), processes(), size, bitsandbytes=installed("bitsandbytes"))
    except UnknownArchitecture as error:
        print(f"memory: not estimated: {error}", file=sys.stderr)


def show(
    config: TrainerConfig,
    method: str,
    shape: Shape | None = None,
    gpus: int = 0,
    size: float | None = None,
    *,
    bitsandbytes: bool = True,
) -> int:
    """Prints the table. Raises ConfigError when it does not fit."""
    shape, gpus = shape or Shape(), gpus or processes()
    if size is None and "torch" in sys.modules:
        size = device_size()
    try:
        print(table(config, method, describe(config, method, shape, gpus), gpus, size))
        if size is not None:
            refuse(config, method, shape, gpus, size, bitsandbytes=bitsandbytes)
    except UnknownArchitecture as error:
        raise ConfigError(f"model: {error}") from None
    return 0


def parse_size(text: str) -> float:
    """`24GiB`, `80GB` (both GiB, as cards are sold), or a card's name. Raises ConfigError."""
    if text in CARDS:
        return CARDS[text] * GIB
    if match := re.fullmatch(r"([0-9.]+)\s*(?:GiB|GB|Gi|G)", text):
        return float(match.group(1)) * GIB
    raise ConfigError(f"gpu: {text!r} is no size (24GiB) and no card known here: {', '.join(CARDS)}")


def load(path: Path, method: str | None) -> tuple[TrainerConfig, str, str | None, int]:
    """(configuration, method, GPU, GPUs) of a trainer's configuration or of a job. Raises ConfigError."""
    data = configuration.read(path)
    gpu, gpus = None, 0
    if isinstance(data, dict) and "command" in data and isinstance(data.get("config"), dict):
        command = [str(word) for word in data["command"]]
        modules = (b for a, b in itertools.pairwise(command) if a == "-m" and b.startswith("training."))
        module = next(modules, "")
        method = method or module.removeprefix("training.")
        resources = data.get("resources") or {}
        here = _processes(command) or int(resources.get("gpus", 1))
        gpu, gpus = resources.get("gpu"), here * int(resources.get("nodes", 1))
        inputs = data.get("inputs") or {}
        data = {key: _located(value, inputs, path.parent) for key, value in data["config"].items()}
    method = method or "sft"
    if method not in METHODS:
        raise ConfigError(f"method: {method!r} is not known; allowed: {', '.join(METHODS)}")
    module, name = METHODS[method]
    kind: type[TrainerConfig] = getattr(importlib.import_module(module), name)
    return configuration.convert(data, kind, str(path)), method, gpu, gpus


def has_bitsandbytes(path: Path) -> bool:
    """Whether the image of a job has bitsandbytes, as far as is known here; a configuration without a job may run where
    it is installed. Raises ConfigError."""
    data = configuration.read(path)
    image = data.get("image") if isinstance(data, dict) and "command" in data else None
    return not isinstance(image, str) or re.sub(r"[:@].*", "", image.rpartition("/")[2]) in WITH_BITSANDBYTES


def _processes(command: Sequence[str]) -> int | None:
    """How many processes a command names for torchrun on each node; None: as many as there are GPUs."""
    found = re.search(r"\s--nproc[-_]per[-_]node[ =](\d+)\s", f" {' '.join(command)} ")
    return int(found[1]) if found else None


def _located(value: Any, inputs: Mapping[str, Any], folder: Path) -> Any:
    """Replaces a job's input in a text by the source of that input."""
    match = re.match(r"\$\{?SLIPWAY_INPUTS\}?/([^/]+)(.*)", value) if isinstance(value, str) else None
    if match is None or (given := inputs.get(match.group(1))) is None:
        return value
    place = given.get("url") if isinstance(given, dict) else given
    if not isinstance(place, str):
        return value
    return place + match.group(2) if "://" in place else str(folder / place) + match.group(2)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.plan", description="Estimate a training's memory.")
    parser.add_argument("--config", required=True, help="a trainer's configuration, or a job with one")
    parser.add_argument("--method", choices=tuple(METHODS), help="default: the job's, else sft")
    parser.add_argument(
        "--gpu", help="memory of a device (24GiB) or a card (H100); default: the job's, or the one here"
    )
    parser.add_argument("--gpus", type=int, default=0, help="how many devices; default: the job's, else 1")
    parser.add_argument("--screen", help="WIDTHxHEIGHT; default: that of the episodes, else 1920x1080")
    parser.add_argument("--text-tokens", type=int, help="of a prompt, without images")
    parser.add_argument("--answer-tokens", type=int)
    given = parser.parse_args(argv)

    def run() -> int:
        config, method, gpu, gpus = load(Path(given.config), given.method)
        screen = None
        if given.screen:
            if not (match := re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", given.screen)):
                raise ConfigError(f"screen: {given.screen!r} is no WIDTHxHEIGHT")
            screen = (int(match.group(1)), int(match.group(2)))
        shape = Shape(screen=screen, text=given.text_tokens, answer=given.answer_tokens)
        named = given.gpu or gpu
        size = parse_size(named) if named else device_size()
        bitsandbytes = has_bitsandbytes(Path(given.config))
        return show(config, method, shape, given.gpus or gpus, size, bitsandbytes=bitsandbytes)

    return configuration.run(run, needs=())


if __name__ == "__main__":
    sys.exit(main())
