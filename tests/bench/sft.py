"""Tokens per second of our SFT against plain TRL: the same model, samples, order and settings, in turns.

Both give the same weights at the end (checked), so the difference is overhead: callbacks, collator, reporting.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from eval.prompts import PromptConfig
from eval.run import TasksConfig
from training import samples
from training.make_episodes import EpisodesConfig, make
from training.reporting import Reporting, StopRequest
from training.samples import Sample
from training.sft import SftConfig, make_trainer
from training.tiny import TinyConfig, build

EPISODES = int(os.environ.get("EPISODES", "100"))
STEPS = int(os.environ.get("STEPS", "60"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
LIMIT = 0.95  # of plain TRL's tokens per second (issue 4)
PROMPT = PromptConfig(decimals=2, system="", history=0)


def plain(config: SftConfig, found: list[Sample], out: Path) -> Any:
    """SFTTrainer as TRL's own examples use it: pictures in the dataset, TRL's collator."""
    from datasets import Dataset, List
    from datasets import Image as ImageFeature
    from trl import SFTTrainer

    settings = make_trainer(config, found, out).args
    rows = [{"images": [{"path": str(path)} for path in s.images], "messages": s.messages} for s in found]
    model = transformers.AutoModelForImageTextToText.from_pretrained(config.model, dtype=torch.float32)
    processor = transformers.AutoProcessor.from_pretrained(config.model)
    data = Dataset.from_list(rows).cast_column("images", List(ImageFeature()))
    return SFTTrainer(model=model, args=settings, train_dataset=data, processing_class=processor)


def ours(config: SftConfig, found: list[Sample], out: Path) -> Any:
    trainer = make_trainer(config, found, out)
    trainer.add_callback(Reporting(StopRequest()))
    return trainer


def timed(trainer: Any) -> tuple[float, float, float, torch.Tensor]:
    """(tokens, seconds, seconds of CPU, all weights) of one training."""
    wall, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tokens = next(e["num_tokens"] for e in reversed(trainer.state.log_history) if "num_tokens" in e)
    return float(tokens), wall, cpu, torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def main() -> int:
    transformers.utils.logging.disable_progress_bar()
    rates: dict[str, list[tuple[float, float]]] = {"plain TRL": [], "training.sft": []}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        made = EpisodesConfig(
            environment="login", tasks=TasksConfig(count=EPISODES, seed=0), options={"split": "train"}, prompt=PROMPT
        )
        make(made, root)
        build(TinyConfig(episodes=str(root / "episodes"), prompt=PROMPT), root / "model")
        config = SftConfig(
            model=str(root / "model"),
            episodes=str(root / "episodes"),
            prompt=PROMPT,
            steps=STEPS,
            learning_rate=2e-3,
            save_every=STEPS * 2,
        )
        found = samples.load(root / "episodes", PROMPT.builder())
        for number in range(ROUNDS):
            weights = []
            for name, maker in (("plain TRL", plain), ("training.sft", ours)):
                tokens, wall, cpu, last = timed(maker(config, found, root / f"{name}-{number}"))
                rates[name].append((tokens / wall, tokens / cpu))
                weights.append(last)
            assert torch.equal(*weights), "the two trainings ended with different weights"
    best = {name: (max(r[0] for r in values), max(r[1] for r in values)) for name, values in rates.items()}
    print(
        f"| SFT, {STEPS} steps of 16 samples, {torch.get_num_threads()} thread(s), best of {ROUNDS} | tokens/s | ",
        end="",
    )
    print("tokens per CPU second |\n|---|---:|---:|")
    for name, (wall, cpu) in best.items():
        print(f"| {name} | {wall:,.0f} | {cpu:,.0f} |")
    ratio = best["training.sft"][1] / best["plain TRL"][1]
    print(f"\nratio by CPU time: {ratio:.2f}; limit: {LIMIT}")
    return 0 if ratio >= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
