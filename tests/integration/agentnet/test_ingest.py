from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval.actions import Action, ActionType
from eval.episodes import iter_episodes, read_episode
from tests.integration.agentnet.material import CODES, SIZE, recorded, recording
from training.ingest_agentnet import main


def run(source: Path, tmp_path: Path) -> tuple[int, Path]:
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"recording": str(source)}))
    return main(["--config", str(config), "--out", str(tmp_path / "episodes")]), tmp_path / "episodes"


def report(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "report.json").read_text())
    return found


def test_a_recording_becomes_an_episode_with_the_frame_before_each_action(tmp_path: Path) -> None:
    source = recording(tmp_path / "in", recorded(list(CODES), task_completed=True))
    code, out = run(source, tmp_path)
    assert code == 0
    ((folder, episode),) = iter_episodes(out)
    assert [step.action for step in episode.steps] == [
        Action(ActionType.CLICK, x=0.25, y=0.5),
        Action(ActionType.RIGHT_CLICK, x=0.75, y=0.5),
        Action(ActionType.DRAG, x=0.25, y=0.25, x2=0.75, y2=0.25),
        Action(ActionType.SCROLL, x=0.5, y=0.75, direction="down", amount=3),
        Action(ActionType.TYPE, text="it's"),
        Action(ActionType.DONE),
    ]
    for index, step in enumerate(episode.steps):
        assert (folder / step.screenshot).read_bytes() == (source / "images" / f"{index}.png").read_bytes()
    assert (episode.task_id, episode.instruction, episode.screen) == ("task 1", "Do it", SIZE)
    assert (episode.success, episode.source, episode.agent) == (True, "human", "human")
    assert report(out) == {
        "trajectories": {"kept": 1, "dropped": {}},
        "steps": {
            "kept": 6,
            "dropped": {},
            "by_type": {"click": 1, "done": 1, "drag": 1, "right_click": 1, "scroll": 1, "type": 1},
        },
    }


def test_success_is_not_made_up(tmp_path: Path) -> None:
    _, out = run(recording(tmp_path / "in"), tmp_path)
    assert read_episode(out / "task-1").success is None


def test_what_is_not_one_known_action_is_dropped_with_its_reason(tmp_path: Path) -> None:
    codes = [
        "pyautogui.click(x=0.5, y=0.5)",
        "pyautogui.click(x=500, y=5)",
        "pyautogui.teleport(x=0.5, y=0.5)",
        "import os; os.remove('x')",
        "pyautogui.write('a')\npyautogui.press('enter')",
        None,
        "pyautogui.press('tab')",
        "pyautogui.press('a')",
        "pyautogui.press('b')",
        "computer.terminate(status='failure')",
        "pyautogui.click(x=0.5, y=0.5)",
    ]
    trajectory = recorded(codes)
    source = recording(tmp_path / "in", trajectory)
    (source / "images" / "6.png").unlink()
    (source / "images" / "7.png").write_bytes((source / "images" / "7.png").read_bytes()[:80])
    trajectory["traj"][8]["image"] = "../raw.jsonl"
    trajectory["traj"].append("what?")
    (source / "raw.jsonl").write_text(json.dumps(trajectory))
    code, out = run(source, tmp_path)
    assert code == 0
    episode = read_episode(out / "task-1")
    assert [step.action.type.value for step in episode.steps if step.action] == ["click", "fail"]
    assert report(out)["steps"] == {
        "kept": 2,
        "dropped": {
            "after_the_end": 1,
            "image_broken": 1,
            "image_missing": 2,
            "no_code": 1,
            "no_value": 1,
            "not_understood": 2,
            "several_actions": 1,
            "unrepresentable": 1,
        },
        "by_type": {"click": 1, "fail": 1},
    }
    assert [item["index"] for item in episode.metadata["dropped"]] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_trajectories_that_can_not_be_used_are_counted(tmp_path: Path) -> None:
    source = recording(
        tmp_path / "in",
        recorded(list(CODES)),
        recorded(list(CODES)),
        recorded(list(CODES), task_id=""),
        recorded(["nothing"], task_id="empty"),
        {"task_id": "a", "traj": []},
        {"task_id": "a", "instruction": "b"},
        "{",
        "[]",
    )
    code, out = run(source, tmp_path)
    assert code == 0
    assert report(out)["trajectories"] == {
        "kept": 1,
        "dropped": {
            "bad_line": 2,
            "duplicate_task_id": 1,
            "no_instruction": 1,
            "no_step_kept": 1,
            "no_steps": 1,
            "no_task_id": 1,
        },
    }


def test_a_recording_of_which_nothing_is_left_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(recording(tmp_path / "in", recorded(["nothing"])), tmp_path)
    assert code == 1
    assert "nothing was kept" in capsys.readouterr().err


def test_a_folder_that_is_no_recording_is_78(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = run(tmp_path / "nowhere", tmp_path)
    assert code == 78
    assert "there is no *.jsonl" in capsys.readouterr().err
