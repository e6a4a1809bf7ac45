"""Every figure that the documentation tells to look at is in the metrics of some training."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from eval.environments.registry import TasksConfig
from tests.integration.rl.conftest import CHAT, rl_config
from training.common.measuring.in_training import EvaluationConfig
from training.rl.sections import AsyncConfig, CriticConfig, FreshConfig, ReplayConfig, SdpoConfig
from training.rl.train import train

pytestmark = [
    pytest.mark.ml,
    # TRL asks transformers and peft by the old name
    pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"),
]
PAGES = Path(__file__).parents[3] / "docs"
FIGURE = re.compile(r"`((?:train|eval)/[a-z_]+)`")
JUDGE = f"{__name__}:always"


def always(task: Any, picture: Any, actions: Any) -> bool:
    return True


@pytest.mark.nightly
def test_what_the_pages_name_is_measured(start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {
        name
        for page in ("howto/reinforcement-learning.md", "tutorials/own-task.md", "explanation/algorithms.md")
        for name in FIGURE.findall((PAGES / page).read_text())
    }
    assert {"train/divergence", "train/staleness", "train/rows_per_rollout", "eval/hacker"} <= named
    redrawn = "tests.integration.rl.worlds:Redrawn"
    tasks = TasksConfig(count=2, seed=50)
    evaluation = EvaluationConfig(environment=redrawn, tasks=tasks, every=1, held_out=JUDGE, hacker=True)
    trainings: dict[str, dict[str, Any]] = {
        "curriculum": {
            **{"environment": redrawn, "task_order": "curriculum", "fresh": FreshConfig()},
            **{"replay": ReplayConfig(), "reward": "success", "evaluation": evaluation},
        },
        "sdpo": {"sdpo": SdpoConfig()},
        "ppo": {"advantage": "gae", "critic": CriticConfig()},
        "whole rollouts": {"prompt": CHAT, "rows": "trajectory"},
        "asynchronous": {"asynchronous": AsyncConfig(staleness=1), "batching": "ready"},
    }
    measured: set[str] = set()
    for name, changes in trainings.items():
        file = tmp_path / f"{name}.jsonl"
        monkeypatch.setenv("SLIPWAY_METRICS", str(file))
        assert train(rl_config(start, steps=1, **changes), tmp_path / name, None)
        measured |= {json.loads(line)["name"] for line in file.read_text().splitlines()}
    assert named - measured == set()
