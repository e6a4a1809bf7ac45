"""SFT learns to look and point: three seeds on the click task (docs/project/benchmarks.md).

4 x 4 cells of 16 pixels: chance is 6 %.
`pytest -m nightly -s tests/integration/training/test_learning_sft.py` prints the table; each training is also what a
job would run, with its evaluation in a closed loop and its early stop.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from eval.environments.registry import TasksConfig
from eval.environments.splits import SPLIT_SEED
from eval.scores.stats import wilson
from tests.integration.training import clicks
from training.common.measuring.in_training import EvaluationConfig
from training.options import LoraConfig
from training.sft.train import SftConfig, train
from training.tiny import TinyConfig, build

SEEDS = (0, 1, 2)
WAYS: dict[str, dict[str, Any]] = {
    "full, lr 1.2e-3, 450 steps": {"learning_rate": 1.2e-3, "steps": 450},
    "LoRA r32, lr 3e-3, 300 steps": {"learning_rate": 3e-3, "steps": 300, "lora": LoraConfig(rank=32, alpha=64)},
}
GOAL = 0.90  # held-out screens clicked right, the worst of three seeds (ml.md: 91 %)


# TRL asks peft's model by the old name
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
@pytest.mark.ml
@pytest.mark.nightly
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("way", WAYS)
def test_it_learns_to_click(tmp_path: Path, way: str) -> None:
    episodes = clicks.episodes()
    rows, results = [], []
    for seed in SEEDS:
        root = tmp_path / str(seed)
        build(TinyConfig(episodes=str(episodes), prompt=clicks.PROMPT, seed=seed), root / "tiny")
        config = SftConfig(
            model=str(root / "tiny"),
            episodes=str(episodes),
            prompt=clicks.PROMPT,
            adam_beta2=0.98,
            seed=seed,
            predictions=0,
            max_new_tokens=20,
            evaluation=EvaluationConfig(
                environment="click",
                tasks=TasksConfig(count=64, seed=SPLIT_SEED + 10_000),  # other screens than those of the table
                options={**clicks.OPTIONS, "split": "test"},
                every=50,
            ),
            **WAYS[way],
        )
        before = clicks.accuracy(root / "tiny")[0]
        began = time.perf_counter()
        assert train(config, root / "out", None)
        took = time.perf_counter() - began
        hit, malformed = clicks.accuracy(root / "out" / "model")
        estimate = wilson(round(hit * 256), 256)
        assert estimate is not None
        results.append(hit)
        rows.append(
            f"| {way} | {seed} | {before:.0%} | {hit:.1%} | {estimate.low:.1%} to {estimate.high:.1%} |"
            f" {malformed:.1%} | {took:.0f} |"
        )
    print("\n| training | seed | before | held-out screens right | 95 % interval (n 256) | malformed | seconds |")
    print("|---|---:|---:|---:|---|---:|---:|")
    print("\n".join(rows), flush=True)
    assert min(results) >= GOAL
