"""The memory estimate against measured peaks: tiny models of many shapes, one training step each, on CPU.

Measured is every allocation of torch's CPU allocator during one step in steady state (torch.profiler's memory events,
summed over time), on top of the bytes of weights and optimiser state; not resident memory, which also holds what the
allocator keeps. Each case runs in a process of its own. `python -m tests.bench.memory NAME` measures one, as JSON;
`python -m tests.bench.memory examples` prints the estimates of examples/configs.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.memory import estimate as memory
from training.memory.architecture import parse
from training.memory.settings import Batch, Generation, Lora, Training

UNDER, OVER = 0.90, 1.15  # estimate / measured: the band that is promised
MIB = 2**20


@dataclass(frozen=True)
class Case:
    """A model, a batch and a way to train. grid: patches of each sequence's image, height and width."""

    hidden: int = 256
    wide: int = 512
    layers: int = 4
    heads: int = 4
    vocabulary: int = 512
    vision: int = 64
    vision_wide: int = 128
    depth: int = 2
    kind: str = "qwen3_vl"
    sequences: int = 8
    tokens: int = 200
    grid: tuple[int, int] = (16, 16)
    dtype: str = "float32"  # of the stored weights; a LoRA's are float32
    autocast: bool = False
    padded: bool = False
    padding_free: bool = False
    checkpointing: bool = False
    lora: bool = False
    freeze_vision: bool = False
    head: str = "full"
    attention: str = "sdpa"
    accumulate: int = 1
    generate: int = 0  # new tokens; measures sampling instead of training

    def config(self) -> dict[str, Any]:
        head = self.hidden // self.heads
        axis = head // 2 // 3
        text = {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "intermediate_size": self.wide,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.heads // 2,
            "head_dim": head,
            "pad_token_id": 0,
            "bos_token_id": None,
            "eos_token_id": None,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [head // 2 - 2 * axis, axis, axis],
                "mrope_interleaved": True,
            },
        }
        vision: dict[str, Any] = {
            "depth": self.depth,
            "hidden_size": self.vision,
            "intermediate_size": self.vision_wide,
            "num_heads": 4,
            "patch_size": 8,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": self.hidden,
        }
        if self.kind == "qwen3_vl":
            vision |= {"num_position_embeddings": 144, "deepstack_visual_indexes": [0]}
        else:
            vision |= {"window_size": 64, "fullatt_block_indexes": [self.depth - 1]}
        ids = {"image_token_id": 1, "video_token_id": 2, "vision_start_token_id": 3, "vision_end_token_id": 4}
        return {
            "model_type": self.kind,
            "text_config": text,
            "vision_config": vision,
            "tie_word_embeddings": True,
            **ids,
        }

    def estimate(self) -> tuple[float, float]:
        """(bytes that stay, bytes that come and go)"""
        model = parse(self.config())
        training = Training(
            size=4 if self.dtype == "float32" else 2,
            autocast=self.autocast,
            lora=Lora() if self.lora else None,
            freeze_vision=self.freeze_vision,
            checkpointing=self.checkpointing,
            attention=self.attention,  # type: ignore[arg-type]
            head=self.head,  # type: ignore[arg-type]
            accumulate=self.accumulate,
            cuda=False,
        )
        patches = self.sequences * self.grid[0] * self.grid[1]
        tokens = self.sequences * self.tokens
        batch = Batch(self.sequences, self.tokens, patches, tokens, self.padded and not self.padding_free)
        made = memory.estimate(model, training, batch, self._generation(patches))
        kept = ("weights",) if self.generate else ("weights", "optimiser state")
        stay = sum(size for name, size in made.components.items() if name.startswith(kept))
        return stay, made.moments["generation"] if self.generate else max(made.moments.values())

    def _generation(self, patches: int) -> Generation | None:
        return Generation(self.sequences, self.tokens + self.generate, patches) if self.generate else None


CASES = {
    "plain": Case(),
    "checkpointing": Case(checkpointing=True),
    "padded": Case(padded=True),
    "padding_free": Case(padded=True, padding_free=True),
    "padding_free, checkpointing": Case(padded=True, padding_free=True, checkpointing=True),
    "LoRA": Case(lora=True),
    "LoRA, checkpointing": Case(lora=True, checkpointing=True),
    "bfloat16": Case(dtype="bfloat16"),
    "bfloat16, LoRA": Case(dtype="bfloat16", lora=True),
    "bfloat16, LoRA, checkpointing": Case(dtype="bfloat16", lora=True, checkpointing=True),
    "bf16": Case(autocast=True),
    "bf16, checkpointing": Case(autocast=True, checkpointing=True),
    "bf16, padded, TRL's head": Case(autocast=True, padded=True, head="chunked"),
    "bf16, LoRA": Case(dtype="bfloat16", lora=True, autocast=True),
    "bf16, LoRA, checkpointing": Case(dtype="bfloat16", lora=True, checkpointing=True, autocast=True),
    "bf16, large images": Case(
        hidden=128, wide=256, layers=1, depth=8, vision=128, vision_wide=256, tokens=260, grid=(32, 32), autocast=True
    ),
    "bf16, deep": Case(layers=10, depth=1, grid=(4, 4), autocast=True),
    "bf16, wide": Case(hidden=512, wide=1536, heads=8, layers=2, autocast=True),
    "bf16, Qwen2.5-VL": Case(kind="qwen2_5_vl", autocast=True),
    "small": Case(hidden=128, wide=256, layers=2, sequences=16, tokens=100, grid=(8, 8)),
    "wide": Case(hidden=512, wide=1536, heads=8, layers=2),
    "deep": Case(layers=10, depth=1, grid=(4, 4)),
    "deep, checkpointing": Case(layers=10, depth=1, grid=(4, 4), checkpointing=True),
    "large images": Case(
        hidden=128, wide=256, layers=1, depth=8, vision=128, vision_wide=256, tokens=260, grid=(32, 32)
    ),
    "large images, checkpointing": Case(
        hidden=128,
        wide=256,
        layers=1,
        depth=8,
        vision=128,
        vision_wide=256,
        tokens=260,
        grid=(32, 32),
        checkpointing=True,
    ),
    "large images, frozen tower": Case(
        depth=8, vision=128, vision_wide=256, tokens=260, grid=(32, 32), freeze_vision=True
    ),
    "large vocabulary": Case(vocabulary=16384, layers=2, tokens=120, grid=(8, 8)),
    "large vocabulary, TRL's head": Case(vocabulary=16384, layers=2, tokens=120, grid=(8, 8), head="chunked"),
    "TRL's head": Case(head="chunked", sequences=4, layers=8),
    "TRL's head, bfloat16, LoRA": Case(head="chunked", sequences=4, layers=8, dtype="bfloat16", lora=True),
    "eager attention": Case(attention="eager"),
    "one sequence": Case(sequences=1, hidden=512, wide=2048, heads=8, layers=4, tokens=40, grid=(8, 8)),
    "four passes a step": Case(sequences=2, tokens=100, grid=(8, 8), accumulate=4),
    "Qwen2.5-VL": Case(kind="qwen2_5_vl"),
    "Qwen2.5-VL, checkpointing": Case(kind="qwen2_5_vl", checkpointing=True),
    "Qwen2.5-VL, LoRA": Case(kind="qwen2_5_vl", lora=True),
    "Qwen2.5-VL, large images": Case(
        kind="qwen2_5_vl", layers=1, depth=6, vision=128, vision_wide=256, tokens=260, grid=(32, 32)
    ),
    "sampling": Case(generate=16, sequences=16, layers=8),
    "sampling, bfloat16": Case(generate=16, sequences=16, layers=8, dtype="bfloat16"),
    "sampling, bf16": Case(generate=16, sequences=16, layers=8, autocast=True),
}


def measure(case: Case) -> tuple[float, float]:
    """(bytes of weights and optimiser state, largest sum of what a step allocates on top of them)"""
    import torch
    import transformers
    from torch.profiler import ProfilerActivity, profile

    torch.manual_seed(0)
    model, batches = build(case)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-3)

    def autocast() -> Any:
        return torch.autocast("cpu", torch.bfloat16, enabled=case.autocast)

    def step() -> None:
        if case.generate:
            with torch.no_grad(), autocast():
                batch = {name: value for name, value in batches[0].items() if name != "labels"}
                model.generate(**batch, max_new_tokens=case.generate, min_new_tokens=case.generate, do_sample=True)
            return
        for batch in batches:
            fused = {"fused_lm_head": True} if case.head == "chunked" else {}
            with autocast():
                loss = model(**batch, use_cache=False, **fused).loss
            (loss / len(batches)).backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    transformers.utils.logging.set_verbosity_error()
    step()
    gc.collect()
    states = [value for state in optimiser.state.values() for value in state.values()]
    stay = sum(tensor.numel() * tensor.element_size() for tensor in [*model.parameters(), *states])
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events: list[tuple[int, int]] = []
    open_ = list(profiled.profiler.kineto_results.experimental_event_tree())
    while open_:
        event = open_.pop()
        open_ += event.children
        if event.typed[0].name == "Allocation":
            events.append((event.start_time_ns, event.typed[1].alloc_size))
    now = peak = 0
    for _, size in sorted(events):
        now += size
        peak = max(peak, now)
    return float(stay), float(peak)


def build(case: Case) -> tuple[Any, list[dict[str, Any]]]:
    """The model, and the batches of one step."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    settings = case.config()
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    model = AutoModelForImageTextToText.from_config(
        config, dtype=getattr(torch, case.dtype), attn_implementation=case.attention
    )
    if case.padding_free:
        from training.common.model.padding_free import without_padding

        without_padding(model)
    if case.head == "chunked":
        from trl.trainer.utils import add_fused_lm_head

        add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    if case.freeze_vision:
        model.model.visual.requires_grad_(False)
    if case.lora:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=Lora().rank, target_modules="all-linear"))
        if case.checkpointing:
            model.enable_input_require_grads()
    if case.checkpointing:
        model.gradient_checkpointing_enable()
    model.train(not case.generate)
    height, width = case.grid
    count = height * width // 4
    batches = []
    for _ in range(case.accumulate):
        ids = torch.randint(5, case.vocabulary, (case.sequences, case.tokens))
        ids[:, 1 : 1 + count] = 1
        ids[:, 0] = 3
        mask = torch.ones_like(ids)
        if case.padded:
            mask[0, -3:] = 0
        pixels = torch.randn(case.sequences * height * width, 3 * 2 * 8**2)
        batch = {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels, "labels": ids}
        batch["image_grid_thw"] = torch.tensor([[1, height, width]] * case.sequences)
        batch["mm_token_type_ids"] = (ids == 1).int()
        batches.append(batch)
    return model, batches


def measured(name: str) -> tuple[float, float]:
    """`measure` in a process of its own."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.memory", name],
        env={**os.environ, **offline},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    stay, peak = json.loads(done.stdout.strip().splitlines()[-1])
    return stay, peak


def examples() -> None:
    """The estimates of examples/configs, as docs/explanation/memory.md lists them."""
    from training.memory import plan
    from training.memory.workload import Shape, colocated, describe

    print("| job | card | devices | tokens of a sequence | stays, GiB | comes and goes | peak | card's |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for path in sorted((Path(__file__).parents[2] / "examples" / "configs").glob("*.yaml")):
        config, method, gpu, gpus = plan.load(path, None)
        size = plan.parse_size(gpu or "")
        made = describe(config, method, Shape(), gpus)
        kept = ("weights", "optimiser state", "CUDA", "frag")
        stay = (
            sum(v for name, v in made.estimate.components.items() if name.startswith(kept)) + colocated(config) * size
        )
        total = plan.needed(config, method, Shape(), gpus, size)
        numbers = " | ".join(f"{value / 2**30:.1f}" for value in (stay, total - stay, total, size))
        of = " (its trainer)" if "8x" in path.stem and gpus == 1 else ""  # of a job with servers on the other cards
        print(f"| `{path.stem}`{of} | {gpu} | {gpus} | {made.tokens} | {numbers} |")


def main(names: list[str]) -> int:
    if names == ["examples"]:
        examples()
        return 0
    if names:
        with contextlib.redirect_stdout(sys.stderr):
            found = measure(CASES[names[0]])
        print(json.dumps(found))
        return 0
    print("| one step of | stays, MiB | estimate | comes and goes | estimate | peak: estimate / measured |")
    print("|---|---:|---:|---:|---:|---:|")
    ratios = []
    for name, case in CASES.items():
        stay, peak = measured(name)
        kept, moved = case.estimate()
        ratios.append((kept + moved) / (stay + peak))
        sizes = " | ".join(f"{value / MIB:.1f}" for value in (stay, kept, peak, moved))
        print(f"| {name} | {sizes} | {ratios[-1]:.2f} |", flush=True)
    print(f"\n{len(ratios)} cases, {min(ratios):.2f} to {max(ratios):.2f}; promised: {UNDER} to {OVER}")
    return 0 if min(ratios) >= UNDER and max(ratios) <= OVER else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
