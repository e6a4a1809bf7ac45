"""GRPO on the click task, and why it swings: one start checkpoint, one change at a time.

`python -m tests.bench grpo` runs every variant on seed 0; `python -m tests.bench.grpo NAME SEED` one, with its curves.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from eval.config import convert
from tests.integration.training import clicks

STEPS, GOAL, ROW = 120, 0.95, 10
EVERY = 10  # steps between two looks at held-out screens
BASE: Final[dict[str, Any]] = {
    "rewards": [{"name": "inside_box"}],
    "steps": STEPS,
    "batch_size": 64,
    "num_generations": 8,
    "max_completion": 20,
    "lora": {"rank": 16, "alpha": 32},
    "log_every": 1,
    "save_every": 1000,
    "predictions": 0,
}
# What holds: see docs/project/benchmarks.md for the runs behind it.
RECIPE: Final[dict[str, Any]] = {
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warmup_steps": 10,
    "batch_size": 128,
    "temperature": clicks.TEMPERATURE,
}
HACKING: Final[dict[str, Any]] = {
    "steps": 80,
    "learning_rate": 1e-3,
    "schedule": "constant_with_warmup",
    "warmup_steps": 10,
    "temperature": clicks.TEMPERATURE,
}


# From the recipe with half its batch, one change at a time.
HALF: Final[dict[str, Any]] = {**RECIPE, "batch_size": 64}
VARIANTS: Final[dict[str, dict[str, Any]]] = {
    "recipe": RECIPE,
    "64 answers": HALF,
    "64, constant": {**HALF, "schedule": "constant_with_warmup"},
    "64, constant, no warm-up": {**HALF, "schedule": "constant", "warmup_steps": 0},
    "64, temperature 1": {**HALF, "temperature": 1.0},
    "64, all weights at 2e-4": {**HALF, "lora": None, "learning_rate": 2e-4},
}


@dataclass
class Curves:
    """Per step: mean reward, entropy, share of groups without variance, gradient norm, norm of the weights' change.
    `held_out`: (step, greedy accuracy)."""

    curves: dict[str, list[float]]
    held_out: list[tuple[int, float]]
    moved: list[float]
    seconds: float
    out: Path = field(default_factory=Path)

    def means(self, name: str = "train/reward") -> list[float]:
        """Over ten consecutive steps; the first is that of steps 1 to 10."""
        values = self.curves[name]
        return [statistics.fmean(values[i : i + ROW]) for i in range(len(values) - ROW + 1)]

    @property
    def reached(self) -> int | None:
        """The last of the first ten consecutive steps whose mean is GOAL."""
        return next((i + ROW for i, value in enumerate(self.means()) if value >= GOAL), None)

    @property
    def worst(self) -> float | None:
        """The lowest mean of ten consecutive steps after that."""
        return None if self.reached is None else min(self.means()[self.reached - ROW :])

    @property
    def lowest(self) -> float | None:
        """The lowest held-out accuracy after that."""
        after = [value for step, value in self.held_out if self.reached is not None and step >= self.reached]
        return min(after, default=None)


def run(seed: int, out: Path, **changes: Any) -> Curves:
    """One training from the start checkpoint of this seed."""
    from transformers import TrainerCallback

    from eval.agents.transformers import TransformersAgent
    from training.common.model.loading import load_processor
    from training.grpo import train as grpo
    from training.grpo.config import GrpoConfig

    start = clicks.start(seed)
    given = {"model": str(start), "data": str(clicks.episodes()), "prompt": clicks.SECTION, "seed": seed}
    config = convert({**given, **BASE, **changes}, GrpoConfig, "bench")
    held_out: list[tuple[int, float]] = []
    moved: list[float] = []

    class Look(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            self.before = [p.detach().clone() for p in rest["model"].parameters() if p.requires_grad]

        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            model = rest["model"]
            after = [p.detach() for p in model.parameters() if p.requires_grad]
            moved.append(sum(float((a - b).square().sum()) for a, b in zip(after, self.before, strict=True)) ** 0.5)
            if state.global_step % EVERY == 0:
                agent = TransformersAgent((model, processor), clicks.PROMPT.builder(), max_new_tokens=20)
                held_out.append((state.global_step, clicks.judge(agent, 256)[0]))
                model.train()

    processor = load_processor(str(start))
    build = grpo.make_trainer

    def watched(*arguments: Any) -> Any:
        trainer = build(*arguments)
        trainer.add_callback(Look())
        return trainer

    grpo.make_trainer = watched  # type: ignore[assignment]
    metrics = out / "metrics.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    metrics.unlink(missing_ok=True)
    os.environ["SLIPWAY_METRICS"] = str(metrics)
    began = time.monotonic()
    try:
        assert grpo.train(config, out, None)
    finally:
        grpo.make_trainer = build
        del os.environ["SLIPWAY_METRICS"]
    curves: dict[str, list[float]] = {}
    for line in metrics.read_text().splitlines():
        entry = json.loads(line)
        curves.setdefault(entry["name"], []).append(entry["value"])
    return Curves(curves, held_out, moved, time.monotonic() - began, out)


HEAD = (
    "| variant | seed | first 3 steps | >= 95 % over ten steps at | worst ten steps after | lowest held-out after |"
    " last ten steps | held-out at the end | s |\n|---|---|---|---|---|---|---|---|---|"
)


def line(name: str, seed: int, found: Curves) -> str:
    reward = found.curves["train/reward"]

    def percent(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    return (
        f"| {name} | {seed} | {percent(statistics.fmean(reward[:3]))} | {found.reached or '-'} "
        f"| {percent(found.worst)} | {percent(found.lowest)} | {percent(statistics.fmean(reward[-ROW:]))} "
        f"| {percent(found.held_out[-1][1])} | {found.seconds:.0f} |"
    )


def detail(found: Curves) -> str:
    """The curves, as means over EVERY steps."""
    rows = {
        "reward": found.curves["train/reward"],
        "held-out": [value for _, value in found.held_out],
        "entropy": found.curves["train/entropy"],
        "zero variance": found.curves["train/zero_variance"],
        "gradient norm": found.curves["train/grad_norm"],
        "moved": found.moved,
    }
    lines = []
    for name, values in rows.items():
        if len(values) == STEPS:
            values = [statistics.fmean(values[i : i + EVERY]) for i in range(0, STEPS, EVERY)]
        lines.append(f"{name:>14}: " + " ".join(f"{value:5.2f}" for value in values))
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    names = [arguments[0]] if arguments else list(VARIANTS)
    seeds = [int(value) for value in arguments[1:]] or [0]
    print(HEAD, flush=True)
    told = []
    with tempfile.TemporaryDirectory() as root:
        for name in names:
            for seed in seeds:
                found = run(seed, Path(root) / f"{name}-{seed}", **VARIANTS[name])
                print(line(name, seed, found), flush=True)
                told.append(f"{name}, seed {seed} (means of {EVERY} steps):\n{detail(found)}")
    print("\n" + "\n".join(told))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
