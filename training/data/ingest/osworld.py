"""OSWorld results: {action_space}/{observation}/{model}/{domain}/{id}/ with `traj.jsonl`, step PNGs and `result.txt`.

`recording` names any folder above those of the tasks (or one of them). The instruction is not in the results: it comes
from the task's JSON under `tasks`, from a row that names it, or from `instruction.txt` beside the rows.

A row's picture shows the screen **after** its action, so a step stands on the picture of the row before it. Of the
first action nobody kept a picture, unless the folder has one from the beginning (`initial_state.png`, `initial.png`,
`step_0.png`, `step_0_*.png`): it is dropped (`no_frame_before`). Rows whose pictures have the same name overwrote each
other: only the last of them has its picture, the step after another one is dropped (`frame_overwritten`). Where step
numbers start again, a task was tried again into the same file: only the last try counts.

`result.txt` is a number, or it is damage; without it nobody judged, and success is None. A row that holds an error
instead of an action, in a try that nobody judged, marks the episode as failed by its infrastructure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eval.actions import ActionType
from eval.actions.geometry import Screen
from eval.config import ConfigError
from eval.episodes import Episode, Step, frame_name
from training.data.faults import BadSample
from training.data.ingest.osworld_actions import Cursor, one_action
from training.data.ingest.registry import OsworldConfig
from training.data.ingest.source import folder_name, inside, lines, picture
from training.data.ingest.tally import Lost, Tally, shorten

TRAJECTORY: Final = "traj.jsonl"
RESULT: Final = "result.txt"
INSTRUCTION: Final = "instruction.txt"
TRACES: Final = (RESULT, "runtime.log", "recording.mp4")  # of a task that was begun, whatever became of it
FIRST: Final = ("initial_state.png", "initial.png", "step_0.png")
SPACES: Final = ("pyautogui", "computer_13")
ENDS: Final = (ActionType.DONE, ActionType.FAIL)


def episodes(config: OsworldConfig, tally: Tally, scratch: Path) -> Iterator[tuple[str, Episode, Sequence[Path]]]:
    """(folder, episode, frames) of every task, one at a time. Raises ConfigError."""
    root = Path(config.recording).resolve()
    if config.tasks is not None and not Path(config.tasks).is_dir():
        raise ConfigError(f"tasks: there is no folder {config.tasks}")
    folders = sorted({path.parent for name in (TRAJECTORY, *TRACES) for path in root.rglob(name)})
    if not folders:
        raise ConfigError(f"recording: there is no {TRAJECTORY} under {config.recording}")
    tally.total = len(folders)
    for folder in folders:
        where = "/".join(folder.relative_to(root).parts) or folder.name
        try:
            yield where, *convert(folder, where, config, tally)
        except (Lost, BadSample) as trouble:
            tally.lose(where, trouble)


def convert(folder: Path, where: str, config: OsworldConfig, tally: Tally) -> tuple[Episode, list[Path]]:
    """One task's folder. Raises Lost, BadSample."""
    if not (folder / TRAJECTORY).is_file():
        raise BadSample("no_trajectory", f"begun, but there is no {TRAJECTORY}")
    rows, about = rows_of(folder, tally)
    instruction = task(folder, config.tasks) or about.get("instruction") or written_instruction(folder)
    if not isinstance(instruction, str) or not instruction.strip():
        raise BadSample("no_instruction", "name the folder of the tasks' JSON files with tasks:")
    score = result(folder)
    error = about.get("error") if score is None else None
    if not rows:
        raise BadSample("no_steps", shorten(error or ""))
    pictures = StepScreens(folder, rows, about.get("initial_state"))
    cursor = Cursor()
    steps: list[Step] = []
    frames: list[Path] = []
    dropped: list[dict[str, Any]] = []
    for position, row in enumerate(rows):
        try:
            if steps and steps[-1].done:
                raise Lost("after_the_end")
            if "bad_line" in row:
                raise BadSample("bad_line", f"{TRAJECTORY}:{row['bad_line']} is no JSON object")
            if row.get("action") is None:
                raise Lost("no_action")
            action = one_action(row["action"], pictures.screen(), cursor, tally.notes)
            frame = pictures.before(position)
        except (Lost, BadSample) as trouble:
            tally.lose_step(f"{where} step {position}", trouble)
            source = shorten(row.get("action"), 1000)
            dropped.append({"index": position, "reason": trouble.reason, "source": source})
            continue
        index, reward = len(steps), row.get("reward")
        steps.append(
            Step(
                index=index,
                screenshot=frame_name(index),
                action=action,
                response=_text(row.get("response")),
                reward=float(reward) if isinstance(reward, int | float) else 0.0,
                done=action.type in ENDS,
            )
        )
        frames.append(frame)
    if not steps:
        raise Lost("no_step_kept")
    final = pictures.final() if not dropped or dropped[-1]["index"] != len(rows) - 1 else None
    if final is not None:
        frames.append(final)
    parents = [""] * 5 + [part for part in folder.parts if part != folder.anchor]
    space, observation, model, domain = parents[-5:-1]
    known = space in SPACES
    screen = pictures.screen()
    return Episode(
        episode_id=folder_name(where.replace("/", "-")),
        task_id=folder.name,
        instruction=instruction.strip(),
        goal=instruction.strip(),
        screen=(screen.width, screen.height),
        success=None if score is None else score >= 1.0,
        score=score,
        outcome="scored" if error is None else "infra",
        error=None if error is None else shorten(error),
        steps=tuple(steps),
        agent=model if known else "",
        environment=config.environment or "osworld",
        source="osworld",
        metadata={
            "domain": domain,
            **({"action_space": space, "observation": observation} if known else {}),
            "dropped": dropped,
        },
    ), frames


def rows_of(folder: Path, tally: Tally) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(rows of the last try that are steps, what other rows tell: instruction, initial_state, error)."""
    rows: list[dict[str, Any]] = []
    about: dict[str, Any] = {}
    last = 0
    for number, row in lines(folder / TRAJECTORY):
        if row is None:
            rows.append({"bad_line": number})  # without its picture: the next step must not stand on an older one
            continue
        if isinstance(row.get("instruction"), str):
            about.setdefault("instruction", row["instruction"])
        if "action" not in row:
            about |= {name.lower(): row[name] for name in ("Error", "error", "initial_state") if name in row}
            continue
        count = row.get("step_num")
        if isinstance(count, int):
            if count < last:
                tally.notes["earlier_tries"] += 1
                rows.clear()
                about.pop("error", None)
            last = count
        rows.append(row)
    return rows, about


class StepScreens:
    """The screens of a try: before the first row, and after each."""

    def __init__(self, folder: Path, rows: list[dict[str, Any]], first: Any) -> None:
        self.folder = folder
        self.names = [row.get("screenshot_file") for row in rows]
        named = [str(first)] if first else []
        candidates = [folder / name for name in (*named, *FIRST) if Path(name).name == name]
        candidates += sorted(folder.glob("step_0_*.png"))
        self.first = next((path for path in candidates if path.is_file()), None)
        self.last_use = {name: position for position, name in enumerate(self.names) if isinstance(name, str)}
        self.size: tuple[int, int] | None = None

    def screen(self) -> Screen:
        """Of the first picture that can be read. Raises BadSample."""
        if self.size is None:
            fault = BadSample("image_missing", "no picture at all")
            for name in self.names:
                try:
                    self.size = picture(inside(self.folder, name))
                    break
                except BadSample as error:
                    fault = error
            else:
                if self.first is None:
                    raise fault
                self.size = picture(self.first)
        return Screen(*self.size)

    def before(self, position: int) -> Path:
        """The screen before a row's action. Raises Lost, BadSample."""
        if position == 0:
            if self.first is None:
                raise Lost("no_frame_before")
            return self._checked(self.first)
        name = self.names[position - 1]
        path = inside(self.folder, name)
        if self.last_use.get(str(name)) != position - 1:
            raise Lost("frame_overwritten", path.name)
        return self._checked(path)

    def final(self) -> Path | None:
        """The screen after the last row, where there is one."""
        try:
            return self._checked(inside(self.folder, self.names[-1]))
        except BadSample:
            return None

    def _checked(self, path: Path) -> Path:
        size, screen = picture(path), self.screen()
        if size != (screen.width, screen.height):
            raise BadSample("other_size", f"{path.name} is {size[0]}x{size[1]}")
        return path


def task(folder: Path, tasks: str | None) -> str | None:
    """The instruction from the task's file; None without `tasks`. Raises BadSample."""
    if tasks is None:
        return None
    path = Path(tasks) / folder.parent.name / f"{folder.name}.json"
    try:
        data = json.loads(path.read_bytes())
        instruction = data["instruction"]
    except OSError:
        raise BadSample("no_task", f"there is no {path.parent.name}/{path.name} in {tasks}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadSample("bad_task", f"{path.parent.name}/{path.name}: {error!r}") from None
    return instruction if isinstance(instruction, str) else None


def written_instruction(folder: Path) -> str | None:
    """The instruction that some agents write beside the rows; None without it. Raises BadSample."""
    try:
        return (folder / INSTRUCTION).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadSample("bad_task", f"{INSTRUCTION}: {error}") from None


def result(folder: Path) -> float | None:
    """The score in result.txt, None where nobody judged. Raises BadSample."""
    try:
        text = (folder / RESULT).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadSample("bad_result", str(error)) from None
    try:
        score = float(text)
    except ValueError:
        raise BadSample("bad_result", f"{RESULT} holds {shorten(text, 40)!r}") from None
    if not 0.0 <= score <= 1.0:
        raise BadSample("bad_result", f"{RESULT} holds {score}, not a score from 0 to 1")
    return score


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    return json.dumps(value)
