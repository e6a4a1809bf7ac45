"""Turns an AgentNet recording into episode folders: `python -m training.ingest_agentnet --config $SLIPWAY_CONFIG`.

A recording is a folder with `*.jsonl` (a trajectory per line) and `images/`. Each step of code that is exactly one
Action becomes a step of an episode, on the frame recorded before it; any other step is dropped and counted, and nothing
unknown becomes a click. Writes episodes/ under $SLIPWAY_OUTPUTS, with report.json: what was kept, what dropped, why.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from eval import config as configuration
from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.config import Config, ConfigError
from eval.dialects.pyautogui import actions
from eval.episodes import Episode, Step, frame_name, write_episode
from eval.progress import progress

FLAGS = (
    "task_completed",
    "task_difficulty",
    "alignment_score",
    "efficiency_score",
    "natural_language_task",
    "actual_task",
)


class IngestConfig(Config, frozen=True):
    """recording: the folder with *.jsonl and images/. environment: what the episodes name as theirs."""

    recording: str
    environment: str = "agentnet"


class Dropped(Exception):
    """A step or a trajectory that becomes nothing; the text is the reason that is counted."""


def trajectories(folder: Path) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """(file:line, trajectory) of every line; None for a line that is no JSON object."""
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except json.JSONDecodeError:
                data = None
            yield f"{path.name}:{number}", data if isinstance(data, dict) else None


def one_action(code: Any) -> Action:
    """The step's only action. Raises Dropped."""
    if not isinstance(code, str):
        raise Dropped("no_code")
    try:
        found = actions(code)
    except ParseError:
        raise Dropped("not_understood") from None
    except Unrepresentable:
        raise Dropped("unrepresentable") from None
    if len(found) != 1:
        raise Dropped("several_actions")  # what the screen showed between them was not recorded
    return found[0]


def frame(images: Path, name: Any) -> tuple[Path, tuple[int, int]]:
    """The frame's file and its size. Raises Dropped when it is missing, outside the folder, or broken."""
    if not isinstance(name, str) or not name:
        raise Dropped("no_image")
    path = (images / name).resolve()
    if not path.is_relative_to(images.resolve()) or not path.is_file():
        raise Dropped("image_missing")
    try:
        with Image.open(path) as image:
            if image.format != "PNG":
                raise Dropped("image_not_png")
            image.load()
            return path, image.size
    except (OSError, SyntaxError):
        raise Dropped("image_broken") from None


def convert(data: dict[str, Any], images: Path, environment: str) -> tuple[Episode, list[Path], Counter[str]]:
    """One trajectory: its episode, the frames' files, and how many steps were dropped by reason. Raises Dropped."""
    task_id, instruction = data.get("task_id"), data.get("instruction")
    if not isinstance(task_id, str) or not task_id:
        raise Dropped("no_task_id")
    if not isinstance(instruction, str) or not instruction:
        raise Dropped("no_instruction")
    recorded = data.get("traj")
    if not isinstance(recorded, list):
        raise Dropped("no_steps")
    steps: list[Step] = []
    frames: list[Path] = []
    dropped: list[dict[str, Any]] = []
    sizes: list[tuple[int, int]] = []
    ended = False
    for position, item in enumerate(recorded):
        value = item.get("value") if isinstance(item, dict) else None
        if not isinstance(value, dict):
            dropped.append({"index": position, "reason": "no_value"})
            continue
        try:
            if ended:
                raise Dropped("after_the_end")
            action = one_action(value.get("code"))
            path, size = frame(images, item.get("image"))
        except Dropped as reason:
            dropped.append({"index": position, "reason": str(reason), "code": value.get("code")})
            continue
        ended = action.type in (ActionType.DONE, ActionType.FAIL)
        thought = value.get("thought")
        index = len(steps)
        steps.append(
            Step(
                index=index,
                screenshot=frame_name(index),
                action=action,
                response=value["code"],
                thought=thought if isinstance(thought, str) and thought else None,
                done=ended,
            )
        )
        frames.append(path)
        sizes.append(size)
    if not steps:
        raise Dropped("no_step_kept")
    completed = data.get("task_completed")
    episode = Episode(
        episode_id=folder_name(task_id),
        task_id=task_id,
        instruction=instruction,
        goal=instruction,
        screen=sizes[0],
        success=completed if isinstance(completed, bool) else None,
        steps=tuple(steps),
        agent="human",
        environment=environment,
        source="human",
        metadata={"dropped": dropped, **{name: data[name] for name in FLAGS if name in data}},
    )
    return episode, frames, Counter(item["reason"] for item in dropped)


def folder_name(task_id: str) -> str:
    """The task's id as a folder name."""
    return "".join(char if char.isalnum() or char in "-_." else "-" for char in task_id).lstrip(".") or "task"


def ingest(config: IngestConfig, out: Path) -> dict[str, Any]:
    """Writes the episodes; gives the report. Raises ConfigError for a folder that is no recording."""
    folder = Path(config.recording)
    if not any(folder.glob("*.jsonl")):
        raise ConfigError(f"recording: there is no *.jsonl in {folder}")
    out.mkdir(parents=True, exist_ok=True)
    lines = list(trajectories(folder))
    kept = steps = 0
    lost_steps: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    types: Counter[str] = Counter()
    seen: set[str] = set()
    for number, (where, data) in enumerate(lines, 1):
        try:
            if data is None:
                raise Dropped("bad_line")
            episode, frames, reasons = convert(data, folder / "images", config.environment)
            if episode.episode_id in seen:
                raise Dropped("duplicate_task_id")
        except Dropped as reason:
            lost[str(reason)] += 1
            print(f"{where}: dropped: {reason}", flush=True)
            continue
        seen.add(episode.episode_id)
        write_episode(out / episode.episode_id, episode, frames)
        kept += 1
        steps += len(episode.steps)
        types.update(step.action.type.value for step in episode.steps if step.action is not None)
        lost_steps += reasons
        progress(number, len(lines), "ingest", f"{kept} episodes")
    report = {
        "trajectories": {"kept": kept, "dropped": dict(sorted(lost.items()))},
        "steps": {"kept": steps, "dropped": dict(sorted(lost_steps.items())), "by_type": dict(sorted(types.items()))},
    }
    (out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return report


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m training.ingest_agentnet", description="AgentNet to episodes.")
    parser.add_argument("--config", required=True, help="a JSON or YAML file, see IngestConfig")
    parser.add_argument("--out", help="where episodes go; default $SLIPWAY_OUTPUTS/episodes")
    arguments = parser.parse_args(argv)

    def run() -> int:
        config = configuration.load(Path(arguments.config), IngestConfig)
        if arguments.out is None and "SLIPWAY_OUTPUTS" not in os.environ:
            raise ConfigError("name a folder with --out, or set SLIPWAY_OUTPUTS")
        out = Path(arguments.out) if arguments.out else Path(os.environ["SLIPWAY_OUTPUTS"]) / "episodes"
        report = ingest(config, out)
        print(json.dumps(report, indent=1))
        if not report["trajectories"]["kept"]:
            print("ingest: nothing was kept", file=sys.stderr)
            return 1
        return 0

    return configuration.run(run)


if __name__ == "__main__":
    sys.exit(main())
