"""The memory estimate against the real trainers: SFT, reward model, DPO and GRPO with a tiny model, on CPU.

Each runs a few steps of `training.METHOD` on episodes of the login form. Measured is every allocation during the third
step, on top of weights and optimiser state (see tests.bench.memory). The estimate takes the trainer's configuration and
the sizes of the largest batch that the model saw.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.memory import MIB, OVER, UNDER

MODEL: dict[str, Any] = {"hidden": 256, "layers": 4, "vision_hidden": 64}
LORA: dict[str, Any] = {"lora": {"rank": 16}}
SAVING: dict[str, Any] = {"activation_checkpointing": True}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sft": ("sft", {}),
    "sft, LoRA": ("sft", LORA),
    "sft, checkpointing, two passes": ("sft", {**SAVING, "accumulate": 2}),
    "sft, bf16": ("sft", {"precision": "bf16"}),
    "sft, bf16, LoRA, checkpointing": ("sft", {**LORA, **SAVING, "precision": "bf16"}),
    "reward": ("reward", {}),
    "reward, LoRA": ("reward", LORA),
    "dpo": ("dpo", {}),
    "dpo, LoRA": ("dpo", LORA),
    "grpo": ("grpo", {}),
    "grpo, beta, checkpointing": ("grpo", {**SAVING, "beta": 0.1}),
}


def make(method: str, changes: dict[str, Any], root: Path) -> tuple[Any, Any]:
    """(configuration, trainer)"""
    from eval.config import convert
    from eval.prompts import PromptConfig
    from tests.unit.training.material import episodes
    from training.data.faults import Faults
    from training.data.pairs.store import read_pairs
    from training.memory import plan
    from training.tiny import TinyConfig, build

    section: dict[str, Any] = {"decimals": 2, "system": "", "history": 2}
    prompt = PromptConfig(**section)
    made = episodes(root, 30, prompt)
    build(TinyConfig(episodes=str(made), prompt=prompt, **MODEL), root / "model")
    values: dict[str, Any] = {"model": str(root / "model"), "steps": 4, "batch_size": 8, "prompt": section, **changes}
    if method in ("dpo", "reward"):
        from training.data.pairs.run import PairsConfig
        from training.data.pairs.run import make as make_pairs
        from training.data.pairs.synthetic import SyntheticSource

        ways: Any = ["element", "perturbed", "type", "text", "malformed"]
        source = SyntheticSource(episodes=[str(made)], per_step=2, ways=ways)
        make_pairs(PairsConfig(sources=[source], prompt=prompt, test_share=0.3), root / "pairs")
        values["pairs"] = str(root / "pairs")
        if method == "reward":
            del values["prompt"]
    else:
        values["data"] = str(made)
    if method == "grpo":
        values |= {"rewards": [{"name": "format"}], "num_generations": 4, "max_completion": 16}
    module, name = plan.METHODS[method]
    config: Any = convert(values, getattr(importlib.import_module(module), name), method)
    out = root / "out"
    if method == "sft":
        from training.sft import train as sft

        return config, sft.make_trainer(config, sft.open_data(config, prompt.builder(), Faults()), out)
    if method == "grpo":
        from training.data.source import open_source
        from training.grpo import train as grpo
        from training.grpo.prompts import Prompts
        from training.rewards import load

        rewards = load(config.rewards)
        found = open_source(config.data, prompt.builder(), Faults())
        return config, grpo.make_trainer(config, rewards, Prompts(found, rewards, Faults()), out)
    trainers = importlib.import_module(f"training.{method}.train")
    return config, trainers.make_trainer(config, read_pairs(root / "pairs", "train"), out)


def measure(name: str) -> dict[str, float]:
    """Bytes: what stays and what comes and goes, measured and estimated."""
    from torch.profiler import ProfilerActivity, profile
    from transformers import TrainerCallback

    from training.memory import estimate as memory
    from training.memory.settings import Batch
    from training.memory.workload import _generation, how, read_model

    method, changes = CASES[name]
    with tempfile.TemporaryDirectory() as folder:
        config, trainer = make(method, changes, Path(folder))
        seen: list[Batch] = []

        def look(module: Any, positional: Any, given: dict[str, Any]) -> None:
            ids, labels, pixels = (given.get(part) for part in ("input_ids", "labels", "pixel_values"))
            if ids is None or pixels is None or not module.training:
                return
            answers = 0 if labels is None else int((labels != -100).sum())
            padded = not bool(given["attention_mask"].all())
            sequences, tokens = ids.shape
            seen.append(Batch(sequences, tokens, len(pixels), answers, padded))

        trainer.model.register_forward_pre_hook(look, with_kwargs=True)
        profiled: Any = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        stays: list[int] = []

        class Probe(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == 2:
                    gc.collect()
                    states = [v for s in trainer.optimizer.state.values() for v in s.values() if hasattr(v, "numel")]
                    models = [trainer.model, *([trainer.ref_model] if getattr(trainer, "ref_model", None) else [])]
                    weights = {id(p): p for model in models for p in model.parameters()}.values()
                    stays.append(sum(tensor.numel() * tensor.element_size() for tensor in [*weights, *states]))
                    seen.clear()
                    profiled.start()

            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                if state.global_step == 3:
                    profiled.stop()
                    control.should_training_stop = True

        trainer.add_callback(Probe())
        trainer.train()
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
        model, _ = read_model(config.model)
        batch = max(seen, key=lambda one: one.sequences * one.tokens)
        training = dataclasses.replace(how(config, method, 1), cuda=False)
        generation = _generation(config, method, batch.tokens, batch.patches // batch.sequences)
        made = memory.estimate(model, training, batch, generation)
        kept = sum(v for part, v in made.components.items() if part.startswith(("weights", "optimiser state")))
        return {"stay": stays[0], "kept": kept, "peak": peak, "moved": max(made.moments.values())}


def main(names: list[str]) -> int:
    if names:
        with contextlib.redirect_stdout(sys.stderr):
            found = measure(names[0])
        print(json.dumps(found))
        return 0
    print("| one step of | stays, MiB | estimate | comes and goes | estimate | peak: estimate / measured |")
    print("|---|---:|---:|---:|---:|---:|")
    ratios = []
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    for name in CASES:
        command = [sys.executable, "-m", "tests.bench.memory_trainers", name]
        done = subprocess.run(command, env={**os.environ, **offline}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr[-3000:]}")
        found = json.loads(done.stdout.strip().splitlines()[-1])
        ratios.append((found["kept"] + found["moved"]) / (found["stay"] + found["peak"]))
        sizes = " | ".join(f"{found[part] / MIB:.1f}" for part in ("stay", "kept", "peak", "moved"))
        print(f"| {name} | {sizes} | {ratios[-1]:.2f} |", flush=True)
    print(f"\n{len(ratios)} cases, {min(ratios):.2f} to {max(ratios):.2f}; promised: {UNDER} to {OVER}")
    return 0 if min(ratios) >= UNDER and max(ratios) <= OVER else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
