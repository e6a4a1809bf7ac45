"""What is wrong with a configuration or its data and needs no model to be seen is told before torch is imported, which
takes seconds and 700 MB: a user waits for no more than the start of Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = """
import importlib, sys
method, *files = sys.argv[1:]
main = importlib.import_module(f"training.{method}.train").main
for file in files:
    assert main(["--config", file, "--out", file + ".out"]) == 78
print(*sorted(set(sys.modules) & {"torch", "transformers", "trl", "datasets", "peft", "pyarrow"}))
"""
TOO_LONG = "warmup_steps: 9 of 8 steps: the learning rate would never be reached; allowed: 0 to 7"
# method -> (what a good configuration has besides, what is wrong with its data, what is said of that)
METHODS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "sft": ({"episodes": "empty"}, {"episodes": "empty"}, "empty"),
    "dpo": ({"pairs": "empty"}, {"pairs": "nowhere"}, "nowhere"),
    "reward": ({"pairs": "empty"}, {"pairs": "nowhere"}, "nowhere"),
    "grpo": (
        {"data": "empty", "rewards": [{"name": "format"}], "num_generations": 2, "batch_size": 2},
        {"rewards": [{"name": "none-such"}]},
        "none-such",
    ),
    "rl": (
        {"environment": "click", "tasks": {"count": 64, "seed": 1}},
        {"prompt": {"demonstration": {"rule": "matching", "example": "first", "folder": "empty"}}},
        "demonstration",
    ),
}


@pytest.mark.parametrize("method", METHODS)
def test_nothing_of_torch_is_loaded_for_a_wrong_configuration(method: str, tmp_path: Path) -> None:
    good, wrong, said = METHODS[method]
    for name in ("model", "empty"):
        (tmp_path / name).mkdir()
    shared = {"model": "model", "steps": 8, "save_every": 8, **good}
    for name, change in (("warm-up", {"warmup_steps": 9}), ("data", wrong)):
        (tmp_path / f"{name}.json").write_text(json.dumps({**shared, **change}))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, method, "warm-up.json", "data.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    warm_up, data = done.stderr.splitlines()
    assert warm_up == f"config: warm-up.json:1: {TOO_LONG}"
    assert said in data
    assert not done.stdout.splitlines()[-1]
