"""The examples on docs/reference/formats.md; a test reads each with the program's own readers."""

from __future__ import annotations

from typing import Final

EPISODE: Final = {
    "schema_version": "1.1.0",
    "episode_id": "login-7",
    "task_id": "login",
    "instruction": "Log in as alice.",
    "screen": [320, 200],
    "goal": "Log in as alice.",
    "seed": 7,
    "success": True,
    "score": 1.0,
    "outcome": "scored",
    "error": None,
    "agent": "scripted",
    "environment": "login",
    "source": "synthetic",
    "started": "2026-11-22T10:00:00Z",
    "duration_ms": 1250,
    "tags": ["train"],
    "metadata": {},
    "steps": 2,
}
STEPS: Final = (
    {
        "index": 0,
        "screenshot": "000.png",
        "action": {"type": "click", "x": 0.5, "y": 0.25},
        "response": "Thought: The field is empty.\nAction: CLICK(x=0.5, y=0.25)",
        "thought": "The field is empty.",
        "parse_error": None,
        "reward": 0.0,
        "done": False,
        "metrics": {"correct": 1.0},
        "expected": {"action": {"type": "click", "x": 0.5, "y": 0.3}, "box": [0.4, 0.2, 0.2, 0.2]},
        "marks": {"1": [0.4, 0.2, 0.2, 0.2]},
    },
    {
        "index": 1,
        "screenshot": "001.png",
        "action": {"type": "done"},
        "response": "Action: DONE()",
        "thought": None,
        "parse_error": None,
        "reward": 0.0,
        "done": True,
        "metrics": {},
    },
)
MANIFEST: Final = {
    "format": "slipway-dataset",
    "version": 1,
    "splits": {"train": {"episodes": 1, "steps": 2, "actions": 2}},
    "shards": [
        {
            "file": "train-00000.parquet",
            "split": "train",
            "episodes": 1,
            "steps": 2,
            "actions": 2,
            "bytes": 17230,
            "sha256": "0a" * 32,
        }
    ],
    "packs": [{"file": "images-00000.tar", "images": 2, "bytes": 10240, "sha256": "0b" * 32}],
    "index": {"file": "images.parquet", "images": 2, "bytes": 3410, "sha256": "0c" * 32},
    "made_from": {"episodes": ["episodes"]},
    "skipped": {},
}
PAIR: Final = {
    "prompt": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "Task: Log in as alice.\nScreen: "}, {"type": "image"}],
        }
    ],
    "chosen": "Action: CLICK(x=0.5, y=0.25)",
    "rejected": "Action: CLICK(x=0.9, y=0.9)",
    "images": ["images/screen.png"],
    "task_id": "login",
    "source": "synthetic",
    "screen": [96, 96],
    "split_key": "login",
    "split": "train",
    "step": 0,
    "expected": {"action": {"type": "click", "x": 0.5, "y": 0.25}, "box": [0.4, 0.2, 0.2, 0.2]},
    "note": "moved",
}
CHAT: Final = {
    "messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]},
        {"role": "assistant", "content": "A button."},
    ],
    "images": ["pictures/button.png"],
}
SUMMARY: Final = [
    {
        "benchmark": "login",
        "version": "1",
        "split": "test",
        "metric": "success",
        "value": 0.9,
        "ci_low": 0.825,
        "ci_high": 0.945,
        "n": 100,
        "infra_failures": 0,
        "seeds": [1000],
        "agent": "sft",
        "clusters": None,
    }
]
RECORD: Final = {
    "benchmark": "login",
    "agent": "sft",
    "task_id": "login",
    "seed": 1000,
    "score": 1.0,
    "success": True,
    "outcome": "scored",
    "error": None,
    "steps": 4,
    "parse_failures": 0,
    "judged": 4,
    "correct": 4,
    "pointed": 2,
    "in_box": 2,
    "by_type": {"click": [2, 2], "type": [2, 2]},
    "duration_ms": 1250,
    "attempts": 1,
    "metrics": {},
    "episode": "login-1000",
    "version": "1",
    "cluster": None,
    "rules": {
        "environment": "login",
        "options": {},
        "max_steps": 15,
        "parse_failures": 1,
        "answers": {"rule": "2"},
    },
    "programs": [],
    "difficulty": "",
    "feasible": None,
    "failure": None,
}
TRAJECTORY: Final = {
    "task_id": "20240927",
    "high_level_task_description": "Search for bob.",
    "steps": [
        {
            "step_num": 1,
            "image": "search_1.png",
            "action": "pyautogui.click(x=0.25, y=0.5)",
            "inner_monologue": {"thought": "The search field is on the left."},
            "ground_truth_actions": [
                {
                    "type": "click",
                    "params": {"position": {"x": 0.25, "y": 0.5}},
                    "metadata": {"bboxes": [{"rel_bbox": [0.2, 0.4, 0.1, 0.2]}]},
                }
            ],
            "alternative_options": [[{"type": "hotkey", "params": {"keys": ["ctrl", "f"]}}]],
        },
        {
            "step_num": 2,
            "image": "search_2.png",
            "action": "pyautogui.write(message='bob')",
            "ground_truth_actions": [{"type": "write", "params": {"text": "bob"}}],
        },
        {
            "step_num": 3,
            "image": "search_3.png",
            "action": "computer.terminate(status='success')",
            "ground_truth_actions": [{"type": "terminate", "params": {"status": "success"}}],
        },
    ],
}
SCREENSPOT: Final = [
    {
        "img_filename": "web_6f93090a.png",
        "bbox": [1520, 18, 64, 40],
        "instruction": "view my account",
        "data_type": "icon",
        "data_source": "shop",
    }
]
SCREENSPOT_PRO: Final = [
    {
        "img_filename": "vscode_macos/screenshot_2024-11-29.png",
        "bbox": [2440, 120, 2488, 168],
        "instruction": "open the settings",
        "id": "vscode_macos_0",
        "application": "vscode",
        "platform": "macos",
        "img_size": [3840, 2160],
        "ui_type": "icon",
        "group": "Dev",
    }
]
