"""Asking about single screens while the agent's server fails: nothing is lost, and nothing is a score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval import agentnetbench as bench
from eval.rollout.single_screens import GIVE_UP
from tests.support.modelserver import Reply, completion, serving


def trajectory(folder: Path, steps: int) -> None:
    (folder / "images").mkdir(parents=True)
    Image.new("RGB", (80, 40)).save(folder / "images/a.png")
    truth = [{"type": "click", "params": {"position": {"x": 0.5, "y": 0.5}}}]
    one = {"image": "a.png", "action": "pyautogui.click(x=0.5, y=0.5)", "ground_truth_actions": truth}
    data = {
        "task_id": "t",
        "high_level_task_description": "g",
        "steps": [{**one, "step_num": n} for n in range(steps)],
    }
    (folder / "t.json").write_text(json.dumps(data))


def evaluated(tmp_path: Path, url: str) -> tuple[int, Path]:
    agent = {"kind": "openai-compatible", "model": "m", "base_url": f"{url}/v1", "retries": 0, "timeout": 5.0}
    config = {"bench": str(tmp_path / "bench"), "agent": agent, "prompt": {"dialect": "pyautogui"}, "batch_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return bench.main(["--config", str(tmp_path / "config.json"), "--out", str(tmp_path / "out")]), tmp_path / "out"


RIGHT = completion("## Code:\npyautogui.click(x=0.5, y=0.5)")


def test_agentnetbench_goes_on_behind_a_server_that_fails_now_and_then(tmp_path: Path) -> None:
    trajectory(tmp_path / "bench", 5)
    with serving(lambda request, number: Reply("down", status=500) if number == 2 else Reply(RIGHT)) as server:
        code, out = evaluated(tmp_path, server.url)
    assert code == 0
    (average, *_) = json.loads((out / "summary.json").read_text())
    assert (average["n"], average["value"], average["infra_failures"]) == (5, 0.8, 1)
    with serving(lambda request, number: Reply(RIGHT)) as server:  # what failed is asked again, and nothing else
        code, out = evaluated(tmp_path, server.url)
        assert len(server.requests) == 1
    (average, *_) = json.loads((out / "summary.json").read_text())
    assert (code, average["n"], average["value"], average["infra_failures"]) == (0, 5, 1.0, 0)


def test_agentnetbench_without_any_answer_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectory(tmp_path / "bench", 20)
    with serving(lambda request, number: Reply("down", status=500)) as server:
        code, out = evaluated(tmp_path, server.url)
        assert len(server.requests) == 2 * GIVE_UP
    assert code == 1
    assert not (out / "summary.json").exists()
    told: Any = capsys.readouterr().err
    assert told.startswith("eval: no question was answered: ServerFailed: ")
    assert told.count("\n") == 1
