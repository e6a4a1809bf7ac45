"""What a GPU does with models of real size: tokens/s, peak memory against the estimate, and a profile.

Qwen3-VL-2B and 8B with random weights; a sample is one 1920x1080 screenshot and 512 tokens of text, 64 of them learnt.
Needs a CUDA device with torch and transformers; LoRA also peft, QLoRA also bitsandbytes. Nothing is downloaded, and of
this repository only `training.memory` and `eval.actions.geometry` are used, which need no
packages:

    python -m tests.bench.gpu             every case that fits the device by the estimate
    python -m tests.bench.gpu 8b-qlora    one of them
    python -m tests.bench.gpu --profile 8b-lora    with the operations that take longest

Each case runs in a process of its own. Without a device: one line, nothing measured.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.memory import estimate as memory
from training.memory.architecture import PUBLISHED, Architecture, parse
from training.memory.estimate import GIB, MemoryEstimate
from training.memory.settings import Batch, Lora, Training

SCREEN = (1920, 1080)
TEXT, ANSWER = 512, 64
WARM, TIMED = 2, 5  # steps
TOP = 15  # operations of a profile


@dataclass(frozen=True)
class Case:
    model: str
    batch: int = 1
    lora: bool = False
    quantization: str | None = None
    checkpointing: bool = True
    freeze_vision: bool = False
    optimizer: str = "adamw_torch_fused"
    max_pixels: int | None = None

    def needs(self) -> list[str]:
        return ["peft"] * self.lora + ["bitsandbytes"] * (self.quantization is not None)


CASES = {
    "2b-full": Case("Qwen/Qwen3-VL-2B"),
    "2b-full-batch4": Case("Qwen/Qwen3-VL-2B", batch=4),
    "2b-full-kept": Case("Qwen/Qwen3-VL-2B", checkpointing=False),
    "2b-lora": Case("Qwen/Qwen3-VL-2B", lora=True, batch=4),
    "8b-full": Case("Qwen/Qwen3-VL-8B"),
    "8b-lora": Case("Qwen/Qwen3-VL-8B", lora=True),
    "8b-lora-batch4": Case("Qwen/Qwen3-VL-8B", lora=True, batch=4),
    "8b-lora-720p": Case("Qwen/Qwen3-VL-8B", lora=True, batch=4, max_pixels=1280 * 720, freeze_vision=True),
    "8b-qlora": Case("Qwen/Qwen3-VL-8B", lora=True, quantization="4bit"),
    "8b-qlora-batch4": Case("Qwen/Qwen3-VL-8B", lora=True, quantization="4bit", batch=4),
}


def sizes(case: Case, model: Architecture) -> tuple[int, int, int, int]:
    """(patches high, patches wide, image tokens, tokens) of a sample"""
    from eval.actions.geometry import smart_resize

    high, wide = smart_resize(SCREEN[1], SCREEN[0], model.family(case.max_pixels))
    grid = high // model.patch, wide // model.patch
    image = grid[0] * grid[1] // model.merge**2
    return *grid, image, image + TEXT


def estimated(case: Case, model: Architecture, *, size: int = 2, cuda: bool = True) -> MemoryEstimate:
    high, wide, _, tokens = sizes(case, model)
    training = Training(
        size=size,
        lora=Lora() if case.lora else None,
        lora_size=2 if case.quantization else 4,
        quantization="4bit" if case.quantization else None,
        freeze_vision=case.freeze_vision,
        optimizer=case.optimizer,
        checkpointing=case.checkpointing,
        cuda=cuda,
    )
    return memory.estimate(model, training, Batch(case.batch, tokens, case.batch * high * wide, case.batch * ANSWER))


def build(case: Case, data: dict[str, Any], device: str, dtype: Any) -> Any:
    """The model with random weights, as it would be trained."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    settings = {key: value for key, value in data.items() if key not in ("model_type", "architectures")}
    config = AutoConfig.for_model(data["model_type"], **settings)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, dtype=dtype, attn_implementation="sdpa")
    if case.freeze_vision:
        model.model.visual.requires_grad_(False)
    if case.quantization:
        quantize(model.model.language_model)
    if case.lora:
        from peft import LoraConfig, get_peft_model

        exclude = r".*\bvisual\b.*" if case.freeze_vision else None
        adapted = get_peft_model(model, LoraConfig(r=Lora().rank, target_modules="all-linear", exclude_modules=exclude))
        for name, parameter in adapted.named_parameters():
            if case.quantization and "lora_" in name:
                parameter.data = parameter.data.to(dtype)
        model = adapted
        model.enable_input_require_grads()
    if case.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model.train()


def quantize(model: Any) -> None:
    """NF4 with double quantisation in place, layer by layer."""
    import bitsandbytes as bnb
    import torch

    found = [(name, module) for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)]
    for name, module in found:
        made = bnb.nn.Linear4bit(
            module.in_features, module.out_features, module.bias is not None, torch.bfloat16, True, "nf4"
        )
        made.weight = bnb.nn.Params4bit(
            module.weight.data.cpu(), requires_grad=False, compress_statistics=True, quant_type="nf4"
        )
        if module.bias is not None:
            made.bias = module.bias
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, made.to(module.weight.device))
    model.requires_grad_(False)


def inputs(case: Case, model: Architecture, data: dict[str, Any], device: str) -> dict[str, Any]:
    import torch

    high, wide, image, tokens = sizes(case, model)
    ids = torch.randint(8, 256, (case.batch, tokens), device=device)
    ids[:, 0] = data["vision_start_token_id"]
    ids[:, 1 : 1 + image] = data["image_token_id"]
    pixels = model.channels * model.temporal * model.patch**2
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == data["image_token_id"]).int(),
        "pixel_values": torch.randn(case.batch * high * wide, pixels, device=device),
        "image_grid_thw": torch.tensor([[1, high, wide]] * case.batch, device=device),
    }


def measure(
    case: Case, data: dict[str, Any], *, device: str = "cuda", dtype: str = "bfloat16", profile: bool = False
) -> dict[str, Any]:
    """Trains a few steps; seconds a step, peaks in bytes, and the profile's table. On CPU without peaks."""
    import torch

    architecture = parse(data)
    model = build(case, data, device, getattr(torch, dtype))
    batch = inputs(case, architecture, data, device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-5, fused=device == "cuda" and case.optimizer.endswith("fused"))
    cuda = device == "cuda"

    def step() -> None:
        logits = model(**batch, logits_to_keep=ANSWER + 1, use_cache=False).logits[:, :-1]
        labels = batch["input_ids"][:, -ANSWER:]
        loss: Any = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    def wait() -> float:
        if cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    for _ in range(WARM):
        step()
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = wait()
    for _ in range(TIMED):
        step()
    seconds = (wait() - began) / TIMED
    found: dict[str, Any] = {"seconds": seconds, "tokens": case.batch * sizes(case, architecture)[3]}
    if cuda:
        free, whole = torch.cuda.mem_get_info()
        found["allocated"] = torch.cuda.max_memory_allocated()
        found["reserved"] = torch.cuda.max_memory_reserved()
        found["outside"] = whole - free - torch.cuda.memory_reserved()  # the context, and other programs
    if profile:
        activities = [torch.profiler.ProfilerActivity.CPU] + [torch.profiler.ProfilerActivity.CUDA] * cuda
        with torch.profiler.profile(activities=activities) as profiled:
            step()
            wait()
        order = "self_cuda_time_total" if cuda else "self_cpu_time_total"
        found["profile"] = profiled.key_averages().table(sort_by=order, row_limit=TOP, max_name_column_width=60)
    return found


def one(name: str, profile: bool) -> int:
    print(json.dumps(measure(CASES[name], PUBLISHED[CASES[name].model], profile=profile)))
    return 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--one"]:
        return one(arguments[1], "--profile" in arguments)
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        print("gpu: needs torch and transformers; nothing was measured")
        return 0
    import torch

    if not torch.cuda.is_available():
        print("gpu: needs a CUDA device, and there is none here; nothing was measured")
        return 0
    about = torch.cuda.get_device_properties(0)
    size = about.total_memory
    print(f"{about.name}, {size / GIB:.1f} GiB, torch {torch.__version__}\n")
    names = [name for name in arguments if not name.startswith("-")] or list(CASES)
    print("| case | tokens a step | s a step | tokens/s | allocated, GiB | estimate | ratio | reserved | context |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    notes, failed = [], []
    for name in names:
        case = CASES[name]
        made = estimated(case, parse(PUBLISHED[case.model]))
        # what the allocator gives out; the rest of the estimate is a reserve for what it can not
        want = sum(v for part, v in made.components.items() if part not in ("CUDA context", "fragmentation"))
        if lacking := [package for package in case.needs() if importlib.util.find_spec(package) is None]:
            notes.append(f"{name}: not measured, needs {', '.join(lacking)}")
            continue
        if made.total > size:
            notes.append(f"{name}: not measured, {made.total / GIB:.1f} GiB by the estimate")
            continue
        command = [sys.executable, "-m", "tests.bench.gpu", "--one", name, *(a for a in arguments if a == "--profile")]
        done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
        if done.returncode:
            failed.append(f"{name}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
            continue
        found = json.loads(done.stdout.strip().splitlines()[-1])
        print(
            f"| {name} | {found['tokens']} | {found['seconds']:.2f} | {found['tokens'] / found['seconds']:,.0f} | "
            f"{found['allocated'] / GIB:.2f} | {want / GIB:.2f} | {want / found['allocated']:.2f} | "
            f"{found['reserved'] / GIB:.2f} | {found['outside'] / GIB:.2f} |",
            flush=True,
        )
        if "profile" in found:
            notes.append(f"{name}\n{found['profile']}")
    print("\n" + "\n".join([*notes, *(f"failed: {line}" for line in failed)]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
