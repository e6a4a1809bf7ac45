"""The part of docs/reference/formats.md about recordings: files of other tools that the importers read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Recording:
    """A format that an importer reads.

    fields    (name, type, meaning with its unit) of what is read; everything else in the files is ignored
    examples  (file name, its text): the smallest recording that makes an episode
    """

    title: str
    about: str
    fields: tuple[tuple[str, str, str], ...]
    examples: tuple[tuple[str, str], ...]


_AGENTNET: Final = {
    "task_id": "search",
    "instruction": "Search for bob.",
    "task_completed": True,
    "traj": [
        {
            "index": 0,
            "image": "0.png",
            "value": {
                "thought": "The search field is on the left.",
                "action": "Click the search field.",
                "code": "pyautogui.click(x=0.25, y=0.5)",
                "last_step_correct": True,
                "last_step_redundant": False,
            },
        },
        {"index": 1, "image": "1.png", "value": {"code": "computer.terminate(status='success')"}},
    ],
}
_OSWORLD: Final = (
    {
        "step_num": 1,
        "action": "pyautogui.click(80, 50)",
        "response": "I click the field.",
        "reward": 0,
        "screenshot_file": "step_1.png",
    },
    {"step_num": 2, "action": "DONE", "response": "Done.", "reward": 0, "screenshot_file": "step_2.png"},
)
_OPENADAPT: Final = """\
CREATE TABLE recording (
  id INTEGER PRIMARY KEY, timestamp REAL, monitor_width INTEGER, monitor_height INTEGER,
  task_description TEXT, video_start_time REAL
);
CREATE TABLE action_event (
  id INTEGER PRIMARY KEY, name TEXT, timestamp REAL, recording_id INTEGER,
  mouse_x REAL, mouse_y REAL, mouse_dx REAL, mouse_dy REAL, mouse_button_name TEXT, mouse_pressed BOOLEAN,
  key_name TEXT, key_char TEXT, canonical_key_name TEXT, canonical_key_char TEXT,
  parent_id INTEGER, disabled BOOLEAN
);
CREATE TABLE screenshot (id INTEGER PRIMARY KEY, recording_id INTEGER, timestamp REAL, png_data BLOB);

INSERT INTO recording VALUES (1, 1700000000.0, 320, 200, 'Click the button.', NULL);
INSERT INTO action_event (id, name, timestamp, recording_id, mouse_x, mouse_y, mouse_button_name, mouse_pressed)
  VALUES (1, 'click', 1700000001.00, 1, 80, 50, 'left', 1), (2, 'click', 1700000001.05, 1, 80, 50, 'left', 0);
"""

RECORDINGS: Final = (
    Recording(
        "AgentNet: `format: agentnet`",
        "A folder with `*.jsonl` files, one trajectory per line, and the pictures in `images/`. A line may carry\n"
        "`messages` of a chat in the place of `traj`.",
        (
            ("task_id", "text", "names the trajectory; becomes the episode's id"),
            ("instruction", "text", "the task in words"),
            ("task_completed", "true or false", "becomes `success`; may be absent"),
            ("traj", "list", "the steps"),
            ("traj[].image", "text", "file name of the picture before the action, below `images/`"),
            ("traj[].value.code", "text", "the action in PyAutoGUI, coordinates as fractions of the screen"),
            ("traj[].value.observation", "text", "what is seen; may be absent"),
            ("traj[].value.thought", "text", "the reasoning; may be absent"),
            ("traj[].value.action", "text", "the action in words; may be absent"),
            (
                "traj[].value.last_step_correct",
                "true or false",
                "the annotators' judgement; may be absent",
            ),
            ("traj[].value.last_step_redundant", "true or false", "likewise: the step was needless"),
            ("traj[].value.reflection", "text", "the annotators' words; goes to the episode's metadata"),
        ),
        (("agentnet.jsonl", json.dumps(_AGENTNET)),),
    ),
    Recording(
        "OSWorld: `format: osworld`",
        "The results of OSWorld: `{action_space}/{observation}/{model}/{domain}/{id}/` with `traj.jsonl`, a PNG per\n"
        "step and `result.txt`. `recording` names any folder above those of the tasks. `tasks` names the folder of\n"
        "the tasks' JSON files, `{domain}/{id}.json`, each with an `instruction`. A picture shows the screen after\n"
        "its action, so the first action is kept only where the folder has a picture of the beginning:\n"
        "`initial_state.png`.",
        (
            (
                "step_num",
                "whole number",
                "counts from 1; a smaller number begins another try; only the last counts",
            ),
            (
                "action",
                "text or object",
                "PyAutoGUI in pixels, an object of `computer_13`, `WAIT`, `DONE` or `FAIL`",
            ),
            ("response", "text", "the agent's answer; may be absent"),
            ("reward", "number", "of the step; may be absent"),
            ("screenshot_file", "text", "file name of the picture after the action"),
            ("instruction", "text", "in any row, where there is no `tasks` folder"),
            ("instruction.txt", "text", "the same in a file beside the rows, where no row has it"),
            ("result.txt", "number", "the score from 0 to 1; without the file, nobody judged"),
        ),
        (("traj.jsonl", "\n".join(json.dumps(row) for row in _OSWORLD)),),
    ),
    Recording(
        "openadapt-capture: `format: openadapt`",
        "A folder with `recording.db` (SQLite) and `oa_recording-*.mp4`, or a folder of such folders. Without a\n"
        "video, the pictures of the table `screenshot` are read. Other columns may be absent.",
        (
            ("recording.timestamp", "number", "when the recording began, seconds since 1970"),
            ("recording.monitor_width", "whole number", "width of the desktop in the pixels of the mouse"),
            ("recording.monitor_height", "whole number", "its height likewise"),
            ("recording.pixel_ratio", "number", "pixels of the screen per pixel of the mouse; may be absent"),
            ("recording.task_description", "text", "the task in words"),
            (
                "recording.video_start_time",
                "number",
                "time of the first frame, seconds since 1970; may be null",
            ),
            ("action_event.name", "text", "`click`, `move`, `scroll`, `press` or `release`"),
            ("action_event.timestamp", "number", "seconds since 1970"),
            ("action_event.recording_id", "whole number", "the recording's `id`"),
            ("action_event.mouse_x", "number", "pixels of the mouse from the left edge"),
            ("action_event.mouse_y", "number", "pixels of the mouse from the top edge"),
            (
                "action_event.mouse_dx",
                "number",
                "of a scroll: lines to the right; to the left where `recording.platform` is `darwin`, as macOS counts",
            ),
            ("action_event.mouse_dy", "number", "of a scroll: lines upwards"),
            ("action_event.mouse_button_name", "text", "`left`, `middle` or `right`"),
            ("action_event.mouse_pressed", "true or false", "of a click: pressed or released"),
            ("action_event.key_name", "text", "of a key without a character, as the keyboard named it"),
            ("action_event.key_char", "text", "the character that was typed"),
            ("action_event.key_vk", "text", "the system's number of the key; may be absent"),
            ("action_event.canonical_key_name", "text", "the key's name without left and right"),
            ("action_event.canonical_key_char", "text", "the character without the effect of modifiers"),
            ("action_event.parent_id", "whole number", "the merged event that stands for this one; may be null"),
            ("action_event.disabled", "true or false", "the event and all below it are left out"),
            ("screenshot.timestamp", "number", "when the picture was taken, seconds since 1970"),
            ("screenshot.png_data", "binary", "the picture, PNG"),
        ),
        (("recording.sql", _OPENADAPT),),
    ),
    Recording(
        "Episodes: `format: episodes`",
        "Our own [episode folders](#episodes), read with care and copied. With `check: true` they are only looked at.",
        (("recording", "a folder", "holds one folder per episode"),),
        (),
    ),
)
