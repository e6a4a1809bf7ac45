"""A small recording and a small benchmark in the published formats, with pictures drawn here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

SIZE = (320, 200)
CODES = [
    "pyautogui.click(x=0.25, y=0.5)",
    "pyautogui.rightClick(x=0.75, y=0.5)",
    "pyautogui.moveTo(x=0.25, y=0.25)\npyautogui.dragTo(x=0.75, y=0.25, button='left')",
    "pyautogui.moveTo(x=0.5, y=0.75)\npyautogui.scroll(-3)",
    "pyautogui.write(message='it\\'s')",
    "computer.terminate(status='success')",
]


def picture(path: Path, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", SIZE, (shade % 256, 120, 200))
    ImageDraw.Draw(image).rectangle((20 + shade % 200, 60, 80 + shade % 200, 120), fill=(250, 250, 0))
    image.save(path)


def recorded(codes: list[Any], task_id: str = "task 1", **more: Any) -> dict[str, Any]:
    steps = [{"index": i, "image": f"{i}.png", "value": {"code": code}} for i, code in enumerate(codes)]
    return {"task_id": task_id, "instruction": "Do it", "traj": steps, **more}


def recording(root: Path, *trajectories: Any) -> Path:
    """A folder with one line per trajectory (a str is written as it is), and a picture per step."""
    found = trajectories or (recorded(list(CODES)),)
    root.mkdir(parents=True, exist_ok=True)
    lines = [line if isinstance(line, str) else json.dumps(line) for line in found]
    (root / "raw.jsonl").write_text("\n".join(lines) + "\n")
    for index in range(12):
        picture(root / "images" / f"{index}.png", 40 * index)
    return root


def bench(root: Path) -> Path:
    """Two trajectories of three and one steps."""
    click = {
        "type": "click",
        "params": {"position": {"x": 0.25, "y": 0.5}},
        "metadata": {"bboxes": [{"rel_bbox": [0.2, 0.4, 0.1, 0.2]}]},
    }
    write = {"type": "write", "params": {"text": "bob"}, "metadata": {}}
    done = {"type": "terminate", "params": {"status": "success"}, "metadata": {}}
    code = {"click": CODES[0], "write": "pyautogui.write(message='bob')", "terminate": CODES[-1]}
    for task_id, acts in [("one", [click, write, done]), ("two", [done])]:
        steps = []
        for number, act in enumerate(acts, 2):
            name = f"{task_id}_{number}.png"
            picture(root / "images" / name, 30 * number)
            steps.append(
                {
                    "step_num": number,
                    "image": name,
                    "action": code[str(act["type"])],
                    "inner_monologue": {"thought": "Go on."},
                    "ground_truth_actions": [act],
                    "alternative_options": [],
                }
            )
        text = json.dumps({"task_id": task_id, "high_level_task_description": f"Goal {task_id}", "steps": steps})
        (root / f"{task_id}.json").write_text(text)
    return root
