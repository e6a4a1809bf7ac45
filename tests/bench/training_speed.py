"""What training.sft and training.rl take with the code of this checkout and with that of another one:

    OLD=<another checkout> python -m tests.bench.training_speed

One process of each checkout trains in turns with the other: the same model, data, seeds and settings. CPU seconds of
the process, from a configuration to the saved model; what it imports is not counted, and the first turn neither.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = int(os.environ.get("ROUNDS", "5"))
STEPS = {"sft": int(os.environ.get("STEPS", "30")), "rl": int(os.environ.get("GENERATIONS", "4"))}


def settings(method: str, start: Path) -> Any:
    """The configuration of a training from the model and the episodes of `taught`."""
    from tests.integration.rl.conftest import PROMPT, rl_config

    steps = STEPS[method]
    if method == "rl":
        return rl_config(start / "model", steps=steps, save_every=steps, keep_checkpoints=1)
    from training.sft.train import SftConfig

    return SftConfig(
        model=str(start / "model"),
        episodes=str(start / "episodes"),
        prompt=PROMPT,
        steps=steps,
        batch_size=8,
        learning_rate=1e-4,
        save_every=steps,
        predictions=0,
    )


def timed(method: str, start: Path) -> float:
    """CPU seconds of one training in this process."""
    import importlib

    train = importlib.import_module(f"training.{method}.train").train
    with tempfile.TemporaryDirectory() as out, contextlib.redirect_stdout(io.StringIO()):
        begun = time.process_time()
        assert train(settings(method, start), Path(out), None)
        return time.process_time() - begun


def worker(start: Path) -> None:
    """Trains once for each line of stdin, a method, and prints the seconds."""
    for line in sys.stdin:
        print(timed(line.strip(), start), flush=True)


def main() -> int:
    from tests.bench.checkouts import checkouts  # the other checkout may lack it
    from tests.integration.rl.conftest import PROMPT, taught

    start = Path(os.environ["START"]) if "START" in os.environ else taught("rl-start", PROMPT).parent
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, str(start)],
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, checkout in checkouts().items()
    }
    figures: dict[tuple[str, str], list[float]] = {}
    for turn in range(ROUNDS + 1):
        names = list(processes)[:: 1 if turn % 2 else -1]
        for method in STEPS:
            for name in names:
                asked, said = processes[name].stdin, processes[name].stdout
                assert asked is not None
                assert said is not None
                asked.write(f"{method}\n")
                asked.flush()
                seconds = float(said.readline())
                if turn:
                    figures.setdefault((method, name), []).append(seconds)
        print(json.dumps({" ".join(key): values[-1] for key, values in figures.items()}), file=sys.stderr, flush=True)
    for process in processes.values():
        process.communicate()
    print(f"load {os.getloadavg()[0]:.0f}, {ROUNDS} turns each\n\n| training | code | median | least | largest |")
    print("|---|---|---:|---:|---:|")
    for (method, name), values in figures.items():
        print(f"| training.{method} | {name} | {median(values):.2f} s | {min(values):.2f} | {max(values):.2f} |")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 2:
        worker(Path(sys.argv[1]))
    else:
        sys.exit(main())
