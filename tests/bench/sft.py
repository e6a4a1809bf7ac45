"""Our SFT against plain TRL, and against itself on pre-tokenised tensors: tokens per second and memory.

The same model, samples, order and settings, in turns; each ends with the same weights (checked), so the difference is
overhead: callbacks, collator, reporting. Memory is the peak of a process of its own for each.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.prompts import PromptConfig

EPISODES = int(os.environ.get("EPISODES", "100"))
STEPS = int(os.environ.get("STEPS", "60"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
LIMIT = 0.95  # of the tokens per second of plain TRL (issue 4) and of pre-tokenised tensors (issue 5)
MEMORY = 1.05  # of plain TRL's peak (issue 5)
PROMPT = PromptConfig(decimals=2, system="", history=0)
PLAIN, OURS, WORKER, TENSORS = "plain TRL", "training.sft", "training.sft, 1 worker", "pre-tokenised tensors"


def settings(root: Path, workers: int = 0) -> Any:
    from training.sft.train import SftConfig

    return SftConfig(
        model=str(root / "model"),
        episodes=str(root / "episodes"),
        prompt=PROMPT,
        steps=STEPS,
        learning_rate=2e-3,
        save_every=STEPS * 2,
        workers=workers,
    )


def plain(config: Any, found: Sequence[Any], out: Path) -> Any:
    """SFTTrainer as TRL's own examples use it: pictures in the dataset, TRL's collator and masks."""
    import torch
    import transformers
    from datasets import Dataset, List
    from datasets import Image as ImageFeature
    from trl import SFTConfig, SFTTrainer

    from training.options import training_arguments

    rows = [{"images": [{"path": str(path)} for path in s.images], "messages": s.messages} for s in found]
    model = transformers.AutoModelForImageTextToText.from_pretrained(config.model, dtype=torch.float32)
    processor = transformers.AutoProcessor.from_pretrained(config.model)
    data = Dataset.from_list(rows).cast_column("images", List(ImageFeature()))
    given = SFTConfig(**training_arguments(config, out), assistant_only_loss=True, max_length=None)
    return SFTTrainer(model=model, args=given, train_dataset=data, processing_class=processor)


def ours(config: Any, found: Sequence[Any], out: Path) -> Any:
    from training.common.reporting import Reporting, StopRequest
    from training.sft.train import make_trainer

    trainer = make_trainer(config, found, out)
    trainer.add_callback(Reporting(StopRequest()))
    return trainer


class Tensors:
    """A collator that has nothing left to do but to pad: every sample is tokens, labels and pixel values already."""

    def __init__(self, collator: Any, count: int) -> None:
        self.fill = {"input_ids": collator.chats.tokenizer.pad_token_id, "labels": -100}
        self.made = [collator([{"index": index}]) for index in range(count)]

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        import torch

        parts = [self.made[row["index"]] for row in rows]
        batch = {}
        for name in parts[0]:
            values = [part[name] for part in parts]
            if name in ("pixel_values", "image_grid_thw"):
                batch[name] = torch.cat(values)
            else:
                flat = [value[0] for value in values]
                batch[name] = torch.nn.utils.rnn.pad_sequence(flat, True, self.fill.get(name, 0))
        return batch


def tensors(config: Any, found: Sequence[Any], out: Path) -> Any:
    trainer = ours(config, found, out)
    trainer.data_collator = Tensors(trainer.data_collator, len(found))
    return trainer


MAKERS = {PLAIN: plain, OURS: ours, WORKER: ours, TENSORS: tensors}


def timed(trainer: Any) -> tuple[float, float, float, Any]:
    """(tokens, seconds, seconds of CPU of this process alone, all weights) of one training."""
    import torch

    wall, cpu = time.perf_counter(), time.process_time()
    trainer.train()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tokens = next(e["num_tokens"] for e in reversed(trainer.state.log_history) if "num_tokens" in e)
    return float(tokens), wall, cpu, torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


def samples(config: Any) -> Sequence[Any]:
    from training.data.samples import load

    return load(Path(config.episodes), PROMPT.builder())


def alone(name: str, root: Path) -> None:
    """One training in this process; prints its peak of resident memory in KiB."""
    config = settings(root)
    MAKERS[name](config, samples(config), root / f"alone-{name}").train()
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}")


def peak(name: str, root: Path) -> float:
    """The same in a process of its own: MiB."""
    command = [sys.executable, "-m", "tests.bench.sft", name, str(root)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.rsplit("peak ", 1)[1]) / 1024


def main() -> int:
    import torch
    import transformers

    from eval.environments.registry import TasksConfig
    from training.common.model.loading import load_processor
    from training.make_episodes import MakeEpisodesConfig, make
    from training.sft.collate import Collator
    from training.tiny import TinyConfig, build

    transformers.utils.logging.disable_progress_bar()
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in MAKERS}
    best_seconds = float("inf")  # of CPU, on tensors
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        chosen = MakeEpisodesConfig(
            environment="login", tasks=TasksConfig(count=EPISODES, seed=0), options={"split": "train"}, prompt=PROMPT
        )
        make(chosen, root)
        build(TinyConfig(episodes=str(root / "episodes"), prompt=PROMPT), root / "model")
        config = settings(root)
        found = samples(config)
        for number in range(ROUNDS):
            weights = []
            for name, maker in MAKERS.items():
                config = settings(root, workers=int(name == WORKER))
                tokens, wall, cpu, last = timed(maker(config, found, root / f"{name}-{number}"))
                rates[name].append((tokens / wall, tokens / cpu))
                weights.append(last)
                best_seconds = min(best_seconds, cpu) if name == TENSORS else best_seconds
            assert all(torch.equal(weights[0], other) for other in weights[1:]), "they ended with different weights"
        path = Collator(load_processor(config.model), found)
        began = time.process_time()
        for start in range(0, len(found) - 16, 16):
            path([{"index": index} for index in range(start, start + 16)])
        made = (len(found) // 16) * 16 / (time.process_time() - began)
        memory = {name: min(peak(name, root) for _ in range(2)) for name in (PLAIN, OURS)}
    best = {name: (max(r[0] for r in values), max(r[1] for r in values)) for name, values in rates.items()}
    print(
        f"| SFT, {STEPS} steps of 16 samples, {torch.get_num_threads()} thread(s), best of {ROUNDS} | tokens/s | ",
        end="",
    )
    print("tokens per CPU second | peak MiB |\n|---|---:|---:|---:|")
    for name, (wall, cpu) in best.items():
        print(f"| {name} | {wall:,.0f} | {cpu:,.0f} | {f'{memory[name]:,.0f}' if name in memory else ''} |")
    to_plain, to_tensors = best[OURS][1] / best[PLAIN][1], best[WORKER][1] / best[TENSORS][1]
    more = memory[OURS] / memory[PLAIN]
    print(f"\nto plain TRL, by CPU time: {to_plain:.2f}; with a worker to tensors: {to_tensors:.2f}; limit: {LIMIT}")
    print(f"a worker prepares {made:.0f} samples per CPU second; the trainer eats {STEPS * 16 / best_seconds:.0f}")
    print(f"memory, to plain TRL: {more:.2f}; limit: {MEMORY}")
    return 0 if to_plain >= LIMIT and to_tensors >= LIMIT and more <= MEMORY else 1


if __name__ == "__main__":
    if len(sys.argv) == 3:
        alone(sys.argv[1], Path(sys.argv[2]))
    else:
        sys.exit(main())
