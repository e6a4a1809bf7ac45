"""Rows of results that others published, as they stand (only the thoughts are shorter).

The UI-TARS rows: a DART-GUI run of January 2026 on OSWorld's task 030eeff7 (chrome). The Qwen3-VL rows: the data set
UI-MOPD/OSWorld-Eval-Results (Apache-2.0), task 5d901039 (libreoffice_impress), its `instruction.txt` beside the rows.
The rows whose `response` is an object: a run of GPT-5.5 through the same harness.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.actions import Action, ActionType
from eval.episodes import Episode, iter_episodes
from tests.unit.training.ingest.material import report
from training.data.__main__ import main

SIZE = (1920, 1080)


def uitars(thought: str, call: str) -> str:
    return f"import pyautogui\nimport time\n'''\nObservation:\n\n\nThought:\n{thought}\n'''\n\n{call}"


UITARS = [
    uitars("There's an icon with three dots.", "pyautogui.click(1896.149, 89.011, button='left')"),
    uitars('There\'s an option labeled "Settings."', "pyautogui.click(1593.043, 814.945, button='left')"),
]
QWEN = [
    "pyautogui.click(1028, 451)",
    "pyautogui.moveTo(1464, 1028)",
    "pyautogui.dragTo(1493, 1080, duration=0.5)",
    "DONE",
]
GPT = ["pyautogui.click(126, 111, button='left')", "WAIT", "pyautogui.hotkey('ctrl', 'o')"]


def ingested(tmp_path: Path, actions: list[str], **row: Any) -> tuple[Episode, Path]:
    folder = tmp_path / "results/pyautogui/screenshot/agent/chrome/task"
    folder.mkdir(parents=True)
    Image.new("RGB", SIZE).save(folder / "step_0_20260622@002405810754.png")
    with (folder / "traj.jsonl").open("w") as lines:
        for number, action in enumerate(actions, 1):
            name = f"step_{number}_20260622@00241139161{number}.png"
            Image.new("RGB", SIZE, (number, 0, 0)).save(folder / name)
            fields = {"step_num": number, "action": action, "response": "So.", "reward": 0, "done": False, "info": {}}
            lines.write(json.dumps({**fields, "screenshot_file": name, **row}) + "\n")
    (folder / "instruction.txt").write_text("Cover the slide with the picture.\n")
    (folder / "result.txt").write_text("0.0\n")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"format": "osworld", "recording": str(tmp_path / "results")}))
    assert main(["ingest", "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    ((_, episode),) = iter_episodes(tmp_path / "out")
    return episode, tmp_path / "out"


def test_rows_of_uitars_keep_their_points(tmp_path: Path) -> None:
    episode, _ = ingested(tmp_path, UITARS)
    first, second = (step.action for step in episode.steps)
    assert first is not None
    assert second is not None
    assert (first.type, second.type) == (ActionType.CLICK, ActionType.CLICK)
    assert (first.x, first.y) == pytest.approx((1896.149 / 1920, 89.011 / 1080), abs=5e-4)
    assert (second.x, second.y) == pytest.approx((1593.043 / 1920, 814.945 / 1080), abs=5e-4)


def test_a_drag_to_the_height_of_the_screen_ends_on_its_last_pixel(tmp_path: Path) -> None:
    episode, out = ingested(tmp_path, QWEN)
    assert episode.instruction == "Cover the slide with the picture."
    kinds = [step.action.type for step in episode.steps if step.action]
    assert kinds == [ActionType.CLICK, ActionType.HOVER, ActionType.DRAG, ActionType.DONE]
    drag = episode.steps[2].action
    assert drag is not None
    assert (drag.x, drag.y) == pytest.approx((1464.5 / 1920, 1028.5 / 1080))
    assert (drag.x2, drag.y2) == pytest.approx((1493.5 / 1920, 1079.5 / 1080))
    assert report(out)["notes"] == {"points_at_the_edge": 1}


def test_answers_may_be_objects(tmp_path: Path) -> None:
    answer = {"provider": "openai", "model": "gpt-5.5", "status": "ok", "raw_response": "[...]", "step_idx": 1}
    episode, _ = ingested(tmp_path, GPT, response=answer)
    kinds = [step.action.type for step in episode.steps if step.action]
    assert kinds == [ActionType.CLICK, ActionType.WAIT, ActionType.HOTKEY]
    assert episode.steps[2].action == Action(ActionType.HOTKEY, keys=("ctrl", "o"))
