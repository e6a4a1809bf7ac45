"""AgentNet: a folder with `*.jsonl` (a trajectory per line) and `images/`; the raw form and the processed ones.

    {"task_id", "instruction", flags, "traj": [{"index", "image", "value": {"code", "thought", ...}}]}

A step's `value` holds the code alone (raw), or observation, thought, action, code and the annotators' marks
(processed); it may also be one text with OpenCUA's headings. A line may carry `messages` instead of `traj`: each answer
of the assistant with a section `## Code` is then a step, on the last picture before it.

Every step whose code is exactly one Action becomes a step of the episode, on the picture recorded for it: the last
visually distinct one before the action. Steps of several actions are dropped, as nobody recorded the screen between.
`last_step_correct` and `last_step_redundant` (they judge the very step that carries them) become metrics of the step,
reflections go to the episode's metadata under the step's index. Success is the `task_completed` flag, or None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from eval.actions import Action, ActionType, ParseError, Unrepresentable
from eval.actions.dialects.calls import calls
from eval.actions.dialects.pyautogui import actions
from eval.config import ConfigError
from eval.episodes import Episode, Step, frame_name
from training.data.faults import BadSample
from training.data.ingest import cot
from training.data.ingest.registry import AgentNetConfig
from training.data.ingest.source import folder_name, inside, lines, picture
from training.data.ingest.tally import Lost, Tally, shorten

FLAGS: Final = (
    "task_completed",
    "task_difficulty",
    "alignment_score",
    "efficiency_score",
    "natural_language_task",
    "actual_task",
    "reason",
)
JUDGEMENTS: Final = ("last_step_correct", "last_step_redundant")
ENDS: Final = (ActionType.DONE, ActionType.FAIL)
INSTRUCTION: Final = "# Task Instruction:"


def episodes(config: AgentNetConfig, tally: Tally, scratch: Path) -> Iterator[tuple[str, Episode, Sequence[Path]]]:
    """(file:line, episode, frames) of every trajectory, one line in memory at a time. Raises ConfigError."""
    folder = Path(config.recording)
    files = [folder] if folder.is_file() else sorted(folder.glob("*.jsonl"))
    if not files:
        raise ConfigError(f"recording: there is no *.jsonl in {folder}")
    images = files[0].parent / config.images
    for path in files:
        for number, data in lines(path):
            where = f"{path.name}:{number}"
            try:
                if data is None:
                    raise BadSample("bad_line", "no JSON object")
                yield where, *convert(data, images, config, tally, where)
            except (Lost, BadSample) as trouble:
                tally.lose(where, trouble)


def one_action(code: str) -> Action:
    """The only action of a step's code. Raises Lost, or BadSample for a point off the screen."""
    try:
        for call in calls(code):
            point = call.point
            if point is not None and not all(0 <= value <= 1 for value in point):
                raise BadSample("off_screen", shorten(code))
        parsed = actions(code)
    except ParseError as error:
        raise Lost("not_understood", str(error)) from None
    except Unrepresentable as error:
        raise Lost("unrepresentable", str(error)) from None
    if len(parsed) != 1:
        raise Lost("several_actions", shorten(code))
    return parsed[0]


def convert(
    data: dict[str, Any], images: Path, config: AgentNetConfig, tally: Tally, where: str
) -> tuple[Episode, list[Path]]:
    """One trajectory: its episode and the frames' files. Raises Lost, BadSample."""
    task_id, instruction, recorded = header(data)
    steps: list[Step] = []
    frames: list[Path] = []
    dropped: list[dict[str, Any]] = []
    reflections: dict[str, str] = {}
    screen: tuple[int, int] | None = None
    for position, item in enumerate(recorded):
        try:
            if steps and steps[-1].done:
                raise Lost("after_the_end")
            value, parts = contents(item)
            if config.drop_incorrect and value.get("last_step_correct") is False:
                raise Lost("incorrect")
            if config.drop_redundant and value.get("last_step_redundant") is True:
                raise Lost("redundant")
            if parts.code is None:
                raise BadSample("no_code")
            action = one_action(parts.code)
            path = inside(images, item.get("image"))
            size = picture(path)
            if screen not in (None, size):
                raise BadSample("other_size", f"{path.name} is {size[0]}x{size[1]}")
        except (Lost, BadSample) as trouble:
            tally.lose_step(f"{where} step {position}", trouble)
            dropped.append({"index": position, "reason": trouble.reason, "source": source(item)})
            continue
        screen, index = size, len(steps)
        answer = cot.response(parts, config.cot)
        if answer is None:
            tally.notes["reasoning_left_out"] += 1  # a heading inside it: it would not read back
            parts = cot.Parts(code=parts.code)
            answer = cot.response(parts, config.cot)
        if isinstance(reflection := value.get("reflection"), str) and reflection:
            reflections[str(index)] = reflection
        steps.append(
            Step(
                index=index,
                screenshot=frame_name(index),
                action=action,
                response=answer,
                thought=cot.thought(parts, config.cot),
                done=action.type in ENDS,
                metrics={name: float(value[name]) for name in JUDGEMENTS if isinstance(value.get(name), bool)},
            )
        )
        frames.append(path)
    if screen is None:
        raise Lost("no_step_kept")
    completed = data.get("task_completed")
    metadata: dict[str, Any] = {"dropped": dropped, "cot": config.cot}
    if reflections:
        metadata["reflections"] = reflections
    episode = Episode(
        episode_id=folder_name(task_id),
        task_id=task_id,
        instruction=instruction,
        goal=instruction,
        screen=screen,
        success=completed if isinstance(completed, bool) else None,
        steps=tuple(steps),
        agent="human",
        environment=config.environment or "agentnet",
        source="human",
        metadata=metadata | {name: data[name] for name in FLAGS if name in data},
    )
    return episode, frames


def header(data: dict[str, Any]) -> tuple[str, str, list[Any]]:
    """(task_id, instruction, steps) of a line. Raises BadSample."""
    task_id, instruction, recorded = data.get("task_id"), data.get("instruction"), data.get("traj")
    if recorded is None and isinstance(data.get("messages"), list):
        recorded, told = from_messages(data["messages"], data.get("images"))
        instruction = instruction or told
    if not isinstance(task_id, str) or not task_id:
        raise BadSample("no_task_id")
    if not isinstance(instruction, str) or not instruction.strip():
        raise BadSample("no_instruction")
    if not isinstance(recorded, list) or not recorded:
        raise BadSample("no_steps")
    return task_id, instruction, recorded


def contents(item: Any) -> tuple[dict[str, Any], cot.Parts]:
    """(the fields of a step, its sections). Raises Lost, BadSample."""
    value = item.get("value") if isinstance(item, dict) else None
    if isinstance(value, str):
        return {}, cot.parse(value)
    if not isinstance(value, dict):
        raise BadSample("no_value")
    return value, cot.Parts.of(value)


def source(item: Any) -> str | None:
    """A dropped step's code, for the metadata."""
    value = item.get("value") if isinstance(item, dict) else None
    code = value.get("code") if isinstance(value, dict) else value
    return None if code is None else shorten(code, 1000)


def from_messages(messages: list[Any], images: Any) -> tuple[list[Any], str | None]:
    """(steps, instruction) of a conversation: each answer with code is a step on the last picture before it.

    A picture's part names its file under image, path or image_url; without a name it is the next one of `images`.
    """
    queue = list(images) if isinstance(images, list) else []
    current: Any = None
    instruction: str | None = None
    steps: list[Any] = []
    for message in messages:
        if not isinstance(message, dict):
            raise BadSample("bad_message", shorten(message))
        content = message.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
            raise BadSample("bad_message", shorten(message))
        for part in parts:
            if part.get("type") in ("image", "image_url"):
                named = part.get("image") or part.get("path") or part.get("image_url")
                named = named.get("url") if isinstance(named, dict) else named
                current = named or (queue.pop(0) if queue else None)
        text = "\n".join(part["text"] for part in parts if isinstance(part.get("text"), str))
        if message.get("role") == "user" and INSTRUCTION in text:
            instruction = text.split(INSTRUCTION, 1)[1].strip().split("\n")[0]
        if message.get("role") == "assistant" and any(line.startswith("## Code") for line in text.split("\n")):
            steps.append({"index": len(steps), "image": current, "value": text})
    return steps, instruction
