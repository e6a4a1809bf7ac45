"""training.rl refuses what contradicts itself, in one line, before torch is loaded."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.config import ConfigError, convert
from eval.prompts import PastStep, PromptConfig
from eval.prompts.builder import Style
from training.rl.config import RlConfig
from training.rl.train import main

GOOD: dict[str, Any] = {
    "model": "hf://owner/name",
    "environment": "login",
    "options": {"split": "train"},
    "tasks": {"count": 8, "seed": 0},
    "steps": 4,
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"steps": None, "epochs": 1.0}, "steps: give the optimiser steps"),
    ({"accumulate": 2}, "accumulate: allowed: 1"),
    ({"fsdp": True}, "training.rl trains in one process"),
    ({"lora": {"dropout": 0.1}}, "lora.dropout: allowed: 0"),
    ({"num_iterations": 2, "save_every": 3}, "save_every must be a multiple of"),
    ({"num_iterations": 3, "save_every": 3}, "steps must be a multiple of"),
    ({"epsilon": 1.0}, "epsilon must be below 1"),
    ({"loss": "cispo"}, "epsilon_high: loss cispo needs the largest ratio itself, 1 or more, say 5; not None"),
    ({"loss": "cispo", "epsilon_high": 0.28}, "1 or more, say 5; not 0.28"),
    ({"average": "rollouts", "loss": "grpo"}, "average: rollouts needs loss dapo or cispo"),
    ({"average": "constant"}, "scale_rewards: none"),
    ({"gamma": 0.9}, "gamma: advantage grpo has no discount"),
    ({"batching": "together"}, "limits.concurrency: 16 desktops; batching: together needs 64"),
    ({"tasks": {"count": 7, "seed": 0}}, "tasks.count: 7 are fewer than tasks_per_generation"),
    ({"tasks": {"count": 8, "seed": 999_999}}, "tasks.seed: the train split has the seeds 0 to 999999"),
    ({"environment": "nowhere"}, "environment: 'nowhere' is unknown"),
    ({"rows": "trajectory"}, "rows: allowed: turn. A whole rollout in one row needs prompts that continue each other"),
    ({"advantage": "gae"}, "critic: goes with advantage: gae"),
    ({"critic": {}}, "critic: goes with advantage: gae"),
    ({"advantage": "gae", "critic": {}, "entropy_share": 0.8}, "entropy_share: not with advantage: gae"),
    ({"advantage": "gae", "critic": {}, "gamma": 0.9}, "gamma: advantage gae has no discount"),
    ({"asynchronous": {}, "sdpo": {}}, "asynchronous: not with sdpo"),
    ({"asynchronous": {}, "replay": {}}, "asynchronous: not with replay"),
    ({"asynchronous": {}, "ema": 0.9}, "asynchronous: not with ema"),
    ({"asynchronous": {"staleness": 0}}, "staleness"),
    ({"most_rollouts": 16}, "most_rollouts: needs task_order: curriculum"),
    ({"turn_slack": 1.5}, "turn_slack: needs task_order: curriculum"),
    ({"task_order": "curriculum", "most_rollouts": 8}, "most_rollouts: 8: allowed is more than group_size, 8"),
    ({"replay": {}, "sdpo": {}}, "replay: not with sdpo, which learns from failures"),
    ({"replay": {}, "most_groups": 9}, "replay: not with most_groups, which tries other tasks"),
    ({"replay": {}, "advantage": "gigpo"}, "replay: not with advantage: gigpo, which compares states"),
    ({"length_buffer": 65}, "length_buffer: 65 is longer than max_completion, 64"),
    ({"most_groups": 8}, "most_groups: 8 leaves no room for further tasks"),
    ({"most_groups": 16, "sdpo": {}}, "most_groups: not with sdpo"),
    ({"sdpo": {}, "length_buffer": 8}, "length_buffer: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "advantage": "gigpo"}, "advantage: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "loss": "cispo"}, "loss: does nothing where every turn learns from the teacher"),
    ({"sdpo": {}, "turn_cost": 0.02}, "turn_cost: does nothing where every turn learns from the teacher"),
    ({"sdpo": {"solved": "grpo"}, "loss": "grpo"}, "sdpo.solved: grpo needs loss dapo or cispo"),
    ({"sdpo": {"solved": "grpo"}, "average": "rollouts"}, "sdpo.solved: grpo needs average: tokens"),
    ({"sdpo": {}, "lora": {"dora": True}}, "lora.dora: allowed with sdpo: false"),
    ({"sdpo": {"mix": 0.5}}, "sdpo.mix needs sdpo.rate: 0"),
    ({"sdpo": {"alpha": 1.5}}, "alpha"),
    ({"sdpo": {"rate": -0.1}}, "rate"),
    ({"sdpo": {"top": 0}}, "top"),
    ({"evaluation": {"episodes": ".", "metric": "loss"}}, "evaluation"),
    ({"evaluation": {"environment": "login", "every": 3}, "num_iterations": 2, "save_every": 2}, "evaluation.every"),
]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"sdpo": {}},
        {"loss": "cispo", "epsilon_high": 1.0},
        {"sdpo": {"solved": "grpo"}, "advantage": "gigpo", "gamma": 0.95, "loss": "cispo", "epsilon_high": 5.0},
    ],
)
def test_a_good_configuration_passes(change: dict[str, Any]) -> None:
    convert({**GOOD, **change}, RlConfig, "test").check()


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_contradiction_is_one_line(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        convert({**GOOD, **change}, RlConfig, "test").check()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("style", get_args(Style))
def test_no_prompt_continues_the_one_before_so_a_rollout_is_no_single_row(style: Any) -> None:
    """Not even with every action and picture in it. A style that did could have rows: trajectory."""
    builder = PromptConfig(history_style=style, history=9, images=5).builder()
    screens = [Image.new("RGB", (64, 48), (shade, 0, 0)) for shade in range(3)]
    click = Action(ActionType.CLICK, x=0.5, y=0.25)
    answer = builder.dialect.format_response(click)
    past: list[PastStep] = []
    told = []
    for screen in screens:
        messages, images = builder.layout("Log in.", past, screen)
        shown = iter(images)
        parts = [(message["role"], part) for message in messages for part in message["content"]]
        told.append([(role, part.get("text") or next(shown)) for role, part in parts])
        past.append(PastStep(click, screen, response=answer))
    for before, after in itertools.pairwise(told):
        assert after[: len(before) + 1] != [*before, ("assistant", answer)]


def test_the_command_says_so_with_exit_code_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rl.yaml"
    file.write_text("{model: hf://owner/name, environment: login, tasks: {count: 8, seed: 0}, steps: 4, group_size: 1}")
    assert main(["--config", str(file), "--out", str(tmp_path)]) == 78
    assert "group_size" in capsys.readouterr().err


def test_the_configuration_loads_no_torch() -> None:
    code = "import sys; from training.rl import config, train; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
