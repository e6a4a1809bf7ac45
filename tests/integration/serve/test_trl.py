"""TRL's own GRPOTrainer learns on served desktops by the example, and the pictures of its episodes reach the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from eval.episodes import read_episode
from tests.support.documented import ROOT
from tests.support.made_once import made_once
from tests.support.needs import need
from tests.support.serving import TOKEN, served
from training.tiny import TinyConfig, build

pytestmark = [pytest.mark.ml, pytest.mark.ci, pytest.mark.timeout(1200)]
LOGIN: Final[dict[str, Any]] = {"environment": "login", "tasks": {"count": 8, "seed": 1000000}}
SIZES: Final = {"hidden": 48, "heads": 2, "layers": 1, "vision_hidden": 32, "vision_layers": 1}


def fill(root: Path) -> None:
    build(TinyConfig(max_pixels=64 * 64, **SIZES), root / "model")


def ran(model: Path, url: str, episodes: Path) -> dict[str, Any]:
    """What the run of the example told."""
    clients = next((ROOT / ".venv-clients/lib").glob("python*")) / "site-packages"
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.serve.trl_run", model, url, clients, episodes],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("told: "))
    return dict(json.loads(line.removeprefix("told: ")))


def test_two_steps_of_grpo_see_the_pictures_of_their_episodes(tmp_path: Path) -> None:
    need("clients")
    model = made_once("serve-trl", fill) / "model"
    with served("openenv", tmp_path, LOGIN) as server:
        told = ran(model, server.url.replace("://", f"://any:{TOKEN}@"), server.out / "episodes")
        records = server.records()
    assert told["steps"] == 2
    assert told["rewards"] == [0.0, 0.0]
    assert [(record.outcome, record.steps, record.score) for record in records] == [("scored", 2, 0.0)] * 4
    clicks = [read_episode(server.out / str(record.episode)).steps[0].action for record in records]
    assert {action.point for action in clicks if action} == {(0.5, 0.25)}
    assert len(told["recorded"]) > 3
    assert told["seen"] == told["recorded"]
