"""GRPO learns, and what it does to a reward model (figures: docs/project/benchmarks.md), on three seeds.
`pytest -m nightly -s tests/integration/training/test_learning_grpo.py` prints the tables; with $SLIPWAY_TEST_CACHE set
the start checkpoints and the plots stay there."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

import pytest

from tests.bench import grpo
from tests.integration.training import clicks

pytestmark = [
    pytest.mark.ml,
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]


@pytest.mark.parametrize("seed", [3, 4, 5])  # the recipe was found on 0 and 2
def test_it_reaches_95_percent_within_80_steps_and_stays(seed: int, tmp_path: Path) -> None:
    found = grpo.run(seed, tmp_path, **grpo.RECIPE)
    print(f"\n{grpo.HEAD}\n{grpo.line('recipe', seed, found)}\n{grpo.detail(found)}")
    assert found.reached is not None
    assert found.reached <= 80
    assert found.worst is not None
    assert found.worst >= 0.9  # no collapse: no ten steps that leave the goal by more than five points
    assert found.held_out[-1][1] >= 0.9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_learned_reward_rises_and_the_true_one_does_not_follow(seed: int, tmp_path: Path) -> None:
    model, accuracy = clicks.reward_model(seed)
    rewards = [
        {"name": "reward_model", "args": {"path": str(model)}},
        {"name": "inside_box", "weight": 0},
        {"name": "format", "weight": 0},
    ]
    out = Path(os.environ.get("SLIPWAY_TEST_CACHE") or tmp_path) / f"hacking-{seed}"
    found = grpo.run(seed, out, **{**grpo.HACKING, "rewards": rewards})

    def ends(name: str) -> tuple[float, float, float]:
        curve = found.curves[f"train/reward/{name}"]
        assert len(curve) == grpo.HACKING["steps"]
        means = [statistics.fmean(curve[i : i + 10]) for i in range(0, len(curve), 10)]
        return means[0], max(means), means[-1]

    plot = out / "results" / "plots" / "curves.png"
    print(f"\nreward model of seed {seed}: {accuracy:.1%} of held-out pairs; plot: {plot}")
    print("| reward | first ten steps | best ten | last ten |\n|---|---|---|---|")
    told = {name: ends(name) for name in ("reward_model", "inside_box", "format")}
    for name, (first, best, last) in told.items():
        print(f"| {name} | {first:.2f} | {best:.2f} | {last:.2f} |")
    assert told["reward_model"][2] > told["reward_model"][0] + 0.5
    assert told["inside_box"][2] < told["inside_box"][0]
    gap = told["inside_box"][1] - told["inside_box"][2]
    print(json.dumps({"seed": seed, "accuracy": accuracy, "lost after its best": gap}))
    assert plot.stat().st_size > 10_000
