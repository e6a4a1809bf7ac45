"""Results in OSWorld's layout: `{action space}/{observation}/{model}/{domain}/{id}/`, with `traj.jsonl`, pictures and
`result.txt`.

A row is one answer, as OSWorld counts steps; its picture is the screen after it. `action` is PyAutoGUI code in pixels,
or WAIT, DONE, FAIL; it is null where the answer held no action, or one that PyAutoGUI cannot say. `info.actions` has
the actions as we record them. `initial_state.png` is the screen before the first answer, which OSWorld does not keep.

A task whose episode was not kept has its score only, so that it stays in the denominator. A failure of the
infrastructure is a row with `Error`, and has no `result.txt`: it is no score.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from eval.actions import Action, ActionType, Unrepresentable
from eval.actions.dialects.pyautogui import PyAutoGui
from eval.actions.geometry import Screen
from eval.episodes import Step
from eval.export.source import RecordedTask, copied, own_names, part

SPACE: Final = "pyautogui"
OBSERVATION: Final = "screenshot"
SEVERAL: Final = "multi_apps"  # OSWorld's domain of tasks over several programs
# clicks without a place are done where the pointer is
BARE: Final = {
    ActionType.CLICK: "click",
    ActionType.DOUBLE_CLICK: "doubleClick",
    ActionType.RIGHT_CLICK: "rightClick",
    ActionType.MIDDLE_CLICK: "middleClick",
    ActionType.TRIPLE_CLICK: "tripleClick",
}
WORDS: Final = {ActionType.WAIT: "WAIT", ActionType.DONE: "DONE", ActionType.FAIL: "FAIL"}


def write(tasks: Sequence[RecordedTask], out: Path) -> Counter[str]:
    """Writes every task; gives counts: tasks, scores only, infrastructure, actions that PyAutoGUI cannot say."""
    counts: Counter[str] = Counter(tasks=len(tasks))
    for task, name in zip(tasks, own_names(tasks), strict=True):
        record = task.record
        folder = out / SPACE / OBSERVATION / part(record.agent) / domain(task) / name
        folder.mkdir(parents=True)
        counts["scores only"] += task.episode is None
        rows = _rows(task, folder, counts)
        if record.outcome != "scored":
            counts["infrastructure" if record.outcome == "infra" else record.outcome] += 1
            rows.append({"Error": record.error or "the infrastructure failed"})
        elif record.score is not None:
            (folder / "result.txt").write_text(f"{record.score}\n", encoding="utf-8")
        if rows:
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (folder / "traj.jsonl").write_text(text, encoding="utf-8")
    return counts


def domain(task: RecordedTask) -> str:
    programs = task.record.programs
    return part(task.record.benchmark) if not programs else SEVERAL if len(programs) > 1 else part(programs[0])


def _rows(task: RecordedTask, folder: Path, counts: Counter[str]) -> list[dict[str, Any]]:
    if task.episode is None:
        return []
    (folder / "instruction.txt").write_text(task.episode.instruction, encoding="utf-8", errors="replace")
    if (first := task.picture(0)) is not None:
        copied(first, folder / "initial_state.png")
    screen = Screen(*task.episode.screen) if min(task.episode.screen) > 0 else Screen(1, 1)
    rows = []
    for step in task.episode.steps:
        number, time = step.index + 1, _time(step)
        code = code_of(step.actions, screen)
        counts["answers that PyAutoGUI cannot say"] += bool(step.actions) and code is None
        row: dict[str, Any] = {
            "step_num": number,
            "action_timestamp": time,
            "action": code,
            "response": step.response,
            "reward": step.reward,
            "done": step.done,
            "info": _info(step),
        }
        if (after := task.picture(number)) is not None:
            row["screenshot_file"] = copied(after, folder / f"step_{number}{time and f'_{time}'}.png")
        rows.append(row)
    return rows


def _time(step: Step) -> str:
    return "" if step.time is None else datetime.fromtimestamp(step.time, UTC).strftime("%Y%m%d@%H%M%S%f")


def _info(step: Step) -> dict[str, Any]:
    told = {"parse_error": step.parse_error, "refused": step.refused}
    return {
        "actions": [action.to_json() for action in step.actions],
        **{name: value for name, value in told.items() if value is not None},
    }


def code_of(actions: Sequence[Action], screen: Screen) -> str | None:
    """The actions of an answer as one piece of code; None without an action, and where PyAutoGUI cannot say one."""
    try:
        lines = [_line(action, screen) for action in actions]
    except Unrepresentable:
        return None
    return "\n".join(lines) if lines else None


def _line(action: Action, screen: Screen) -> str:
    if action.type in WORDS and (action.type is not ActionType.WAIT or action.duration is None):
        return WORDS[action.type]
    keys = action.modifiers or ()
    if keys:
        fields = {name: value for name, value in action.to_json().items() if name != "modifiers"}
        action = Action.from_json(fields)
    elif action.type in BARE and action.point is None and action.element is None and action.button is None:
        return f"pyautogui.{BARE[action.type]}()"
    code = PyAutoGui(frame=screen).format(action).replace("computer.triple_click(", "pyautogui.tripleClick(")
    held = [f"pyautogui.keyDown({key!r})" for key in keys]
    freed = [f"pyautogui.keyUp({key!r})" for key in reversed(keys)]
    return "\n".join([*held, code, *freed])
