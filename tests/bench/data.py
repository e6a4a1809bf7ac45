"""A packed dataset of a million steps: made, opened, read at random, and trained on. `python -m tests.bench.data`

Memory is that of whole processes, mapped pages included: the largest seen of the resident set (one process) and of the
proportional sets (several: pages that they share count once). SLIPWAY_BENCH_STEPS, _ROUNDS, _ROWS, _TRAINED make it
smaller.

The trainer is compared with itself on batches that were made before it started: nothing is left to do but to learn.
"""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STEPS = int(os.environ.get("SLIPWAY_BENCH_STEPS", "1000000"))
ROUNDS = int(os.environ.get("SLIPWAY_BENCH_ROUNDS", "3"))
EPISODE = 10  # steps
IMAGES = min(4_000, max(50, STEPS // 250))
SIZE = 96  # pixels each way
BATCH = 16
ROWS = int(os.environ.get("SLIPWAY_BENCH_ROWS", "3000"))  # that are collated
TRAINED, WARM = (
    int(os.environ.get("SLIPWAY_BENCH_TRAINED", "130")),
    10,
)  # optimiser steps, and those at the beginning that are not timed
MEMORY, SPEED = 2.0, 0.95  # limits (issue 5): GB, and share of the tokens per second
PROMPT = {"decimals": 2, "system": "", "history": 3}


def generate(folder: Path) -> dict[str, float]:
    """Writes the dataset through the writer that `pack` uses."""
    from PIL import Image, ImageDraw

    from eval.actions import Action, ActionType
    from eval.episodes import Episode, Step
    from training.data.packed.writer import DatasetWriter

    rng = random.Random(0)
    frames = []
    for _ in range(IMAGES):
        image = Image.new("RGB", (SIZE, SIZE), (rng.randint(200, 255),) * 3)
        canvas = ImageDraw.Draw(image)
        for _ in range(6):
            x, y = rng.randrange(SIZE - 16), rng.randrange(SIZE - 16)
            canvas.rectangle((x, y, x + 20, y + 10), fill=tuple(rng.randrange(256) for _ in range(3)))
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        frames.append(buffer.getvalue())

    def action(index: int) -> Action:
        if index == EPISODE - 1:
            return Action(ActionType.DONE)
        if index % 3 == 2:
            return Action(ActionType.TYPE, text=f"word {rng.randrange(1000)}")
        return Action(ActionType.CLICK, x=rng.random(), y=rng.random())

    began = time.perf_counter()
    with DatasetWriter(folder) as writer:
        for number in range(STEPS // EPISODE):
            steps = tuple(
                Step(index=i, screenshot=f"{i:03d}.png", action=action(i), thought=f"Now part {i} of it")
                for i in range(EPISODE)
            )
            task = number % 5_000
            episode = Episode(
                episode_id=f"episode-{number}",
                task_id=f"task-{task}",
                instruction=f"Do the things of task {task}",
                screen=(SIZE, SIZE),
                steps=steps,
            )
            writer.add(episode, rng.choices(frames, k=EPISODE))
    took = time.perf_counter() - began
    size = sum(path.stat().st_size for path in folder.iterdir())
    return {"seconds": took, "MB": size / 1e6, "peak": peak()}


def peak() -> float:
    """MB: this process's largest resident set so far."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1e3


def proportional(pid: int) -> float:
    """MB"""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return int(next(line for line in text.splitlines() if line.startswith("Pss:")).split()[1]) / 1e3


@contextmanager
def together() -> Iterator[list[float]]:
    """A list whose first item becomes the largest sum, in MB, of this process and its children."""
    found, over = [0.0], threading.Event()

    def watch() -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children")
        while not over.wait(0.3):
            family = [os.getpid(), *map(int, children.read_text().split())]
            found[0] = max(found[0], sum(map(proportional, family)))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def opened(folder: Path) -> tuple[Sequence[Any], float]:
    from eval.prompts import PromptConfig
    from training.data.source import open_source

    began = time.process_time()
    found = open_source(str(folder), PromptConfig(**PROMPT).builder())  # type: ignore[arg-type]
    return found, time.process_time() - began


def read(folder: Path) -> dict[str, float]:
    """Random steps without a trainer: the samples alone, and with their images decoded."""
    from training.data.samples import open_images

    found, took = opened(folder)
    order = random.Random(1).sample(range(len(found)), min(20_000, len(found)))
    began = time.process_time()
    for index in order:
        found[index]
    bare = len(order) / (time.process_time() - began)
    began = time.process_time()
    for index in order:
        open_images(found[index])
    return {"open": took, "bare": bare, "decoded": len(order) / (time.process_time() - began), "peak": peak()}


def batches(folder: Path) -> dict[str, Any]:
    """Collated batches in random order through torch's DataLoader, at several numbers of workers."""
    import torch
    from torch.utils.data import DataLoader

    from training.common.model.loading import load_processor
    from training.sft.collate import Collator

    found, _ = opened(folder)
    processor = load_processor(str(folder.parent / "model"), None)
    rows = [{"index": index} for index in random.Random(2).sample(range(len(found)), min(ROWS, len(found)))]
    results: dict[str, Any] = {}
    sums = set()
    for workers in (0, 1, 2, 4):
        collator = Collator(processor, found)
        with together() as memory:
            loader: Any = DataLoader(rows, batch_size=BATCH, collate_fn=collator, num_workers=workers)  # type: ignore[arg-type]
            began, busy = time.perf_counter(), time.process_time()
            total = sum(
                int((batch["input_ids"] * torch.arange(1, batch["input_ids"].shape[1] + 1)).sum()) for batch in loader
            )
            took = time.perf_counter() - began
        sums.add(total)
        results[str(workers)] = {"rate": len(rows) / took, "memory": memory[0]}
        if workers == 0:
            results["cpu"] = len(rows) / (time.process_time() - busy)
    assert len(sums) == 1, "the batches depend on the number of workers"
    results["peak"] = peak()
    return results


def train(folder: Path) -> dict[str, Any]:
    """TRL's trainer on the tiny model: batches made before it started, then ours, in turns; tokens per second."""
    from transformers import TrainerCallback

    from training.sft.train import SftConfig, make_trainer

    found, _ = opened(folder)

    class Timer(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            if state.global_step == WARM:
                self.began = time.perf_counter(), time.process_time()
            elif state.global_step == state.max_steps:
                self.wall, self.cpu = time.perf_counter() - self.began[0], time.process_time() - self.began[1]

    class Made:
        """Gives the batches that another collator made for the same rows."""

        def __init__(self, inner: Any) -> None:
            self.inner = inner
            self.known: dict[tuple[int, ...], Any] = {}

        def __call__(self, rows: Any) -> Any:
            key = tuple(int(row["index"]) for row in rows)
            if key not in self.known:
                self.known[key] = self.inner(rows)
            return dict(self.known[key])

    made: Made | None = None
    results: dict[str, list[tuple[float, float, float]]] = {}
    for _ in range(ROUNDS + 1):
        for name, workers in (("made before", 0), ("0 workers", 0), ("1 worker", 1), ("2 workers", 2)):
            if made is None and name != "made before":
                continue
            config = SftConfig(
                model=str(folder.parent / "model"),
                data=str(folder),
                steps=TRAINED,
                batch_size=BATCH,
                learning_rate=1e-4,
                workers=workers,
                save_every=10 * TRAINED,
                log_every=10,
            )
            trainer = make_trainer(config, found, folder.parent / "out")
            trainer.remove_callback(next(c for c in trainer.callback_handler.callbacks if "Print" in type(c).__name__))
            timer = Timer()
            trainer.add_callback(timer)
            first = made is None
            if name == "made before":
                made = made or Made(trainer.data_collator)
                trainer.data_collator = made
            with together() as memory:
                trainer.train()
            if not first:  # that one made the batches
                total = next(e["num_tokens"] for e in reversed(trainer.state.log_history) if "num_tokens" in e)
                tokens = total * (TRAINED - WARM) / TRAINED
                results.setdefault(name, []).append((tokens / timer.wall, tokens / timer.cpu, memory[0]))
    return {**results, "peak": peak(), "samples": BATCH * (TRAINED - WARM)}


def child(what: str, folder: Path) -> Any:
    """A part in a process of its own, so that none measures what another left in memory."""
    environment = {**os.environ, "HF_DATASETS_CACHE": str(folder.parent / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "tests.bench.data", what, str(folder)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        folder = Path(name) / "dataset"
        from training.tiny import TinyConfig, build

        build(TinyConfig(), folder.parent / "model")
        wrote = child("generate", folder)
        reading, collated, trained = (child(what, folder) for what in ("read", "batches", "train"))
    print(
        f"| {STEPS:,} steps, {STEPS // EPISODE:,} episodes, {IMAGES:,} images of {SIZE} px | | goal |\n|---|---:|---:|"
    )
    print(f"| written, steps/s | {STEPS / wrote['seconds']:,.0f} | |")
    print(f"| on the disk, MB | {wrote['MB']:,.0f} | |")
    print(f"| peak of the writer, MB | {wrote['peak']:,.0f} | |")
    print(f"| opened, each step looked at, s of CPU | {reading['open']:.1f} | |")
    print(f"| random samples per s of CPU | {reading['bare']:,.0f} | |")
    print(f"| the same, images decoded | {reading['decoded']:,.0f} | |")
    print(f"| peak of that process, MB | {reading['peak']:,.0f} | {MEMORY * 1000:,.0f} |")
    print(f"| collated samples per s of CPU | {collated['cpu']:,.0f} | |")
    for workers in ("0", "1", "2", "4"):
        line = collated[workers]
        print(f"| collated samples/s, {workers} workers | {line['rate']:,.0f} | |")
        print(f"| all processes of that, MB | {line['memory']:,.0f} | {MEMORY * 1000:,.0f} |")
    base = [max(run[i] for run in trained["made before"]) for i in (0, 1)]
    print(f"\n| tokens/s of the trainer, best of {ROUNDS} | wall | of its CPU | share, wall | share, CPU | MB |")
    print("|---|---:|---:|---:|---:|---:|")
    shares = {}
    for name in ("made before", "0 workers", "1 worker", "2 workers"):
        wall, cpu, memory = (max(run[i] for run in trained[name]) for i in (0, 1, 2))
        shares[name] = wall / base[0], cpu / base[1]
        told = f"{wall:,.0f} | {cpu:,.0f} | {shares[name][0]:.3f} | {shares[name][1]:.3f} | {memory:,.0f}"
        print(f"| {'batches ' if name == 'made before' else 'our data path, '}{name} | {told} |")
    most = max(reading["peak"] / 1e3, *(collated[w]["memory"] / 1e3 for w in ("0", "1", "2", "4")))
    print(
        f"\nlargest: {most:.2f} GB; limit {MEMORY}. Share with a worker: {shares['1 worker'][0]:.3f} of the wall, ",
        end="",
    )
    print(f"{shares['1 worker'][1]:.3f} of the CPU; limit {SPEED}")
    return 0 if most < MEMORY and max(shares["1 worker"]) >= SPEED else 1


PARTS = {"generate": generate, "read": read, "batches": batches, "train": train}

if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(PARTS[sys.argv[1]](Path(sys.argv[2]))))
    else:
        sys.exit(main())
