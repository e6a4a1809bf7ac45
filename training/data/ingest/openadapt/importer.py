"""openadapt-capture recordings: folders with `recording.db` and `oa_recording-*.mp4`; one of them, or a folder of them.
What else is there (capture-state.json, profiling.json, sound) is not needed and not read.

Raw input events become actions (`events.derive`), frames come out of the video (`video`), or of the pictures in the
database where there is no video. Each action stands on the last visually distinct frame strictly before it began; where
the recorder bound a frame to the action, no later one is taken. Frames and events share the computer's clock: a frame's
time is `recording.video_start_time` (or, without it, `recording.timestamp`) plus its presentation time in the video.

A video that stops early gives what it holds: actions after its end are damage (`frame_missing`), as are places off the
screen. Nobody recorded whether the task was done: success is None, and no DONE is made up unless `end: done` asks for
it and a frame shows the screen after the last action.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Final

from PIL import Image

from eval.actions import Action, ActionError, ActionType
from eval.actions.geometry import Screen
from eval.config import ConfigError
from eval.episodes import Episode, Step, frame_name
from training.data.faults import BadSample
from training.data.ingest.openadapt.database import Capture, connect, read, screenshots
from training.data.ingest.openadapt.events import Derived, Rules, derive
from training.data.ingest.openadapt.video import FrameSource, StoredFrames, Video, distinct
from training.data.ingest.registry import OpenAdaptConfig
from training.data.ingest.source import folder_name, normalised
from training.data.ingest.tally import Lost, Tally

DATABASE: Final = "recording.db"
SLACK: Final = 0.001  # seconds; a bound frame's time is rounded down when it is written into a video


def episodes(config: OpenAdaptConfig, tally: Tally, scratch: Path) -> Iterator[tuple[str, Episode, Sequence[Path]]]:
    """(folder's name, episode, frames) of every recording, one at a time. Raises ConfigError."""
    root = Path(config.recording)
    folders = [root] if _is_recording(root) else sorted(path for path in root.glob("*") if _is_recording(path))
    if not folders:
        raise ConfigError(f"recording: there is no recording ({DATABASE} or oa_recording-*.mp4) in {root}")
    tally.total = len(folders)
    for folder in folders:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        where = folder.resolve().name
        try:
            yield where, *convert(folder, config, tally, scratch)
        except (Lost, BadSample) as trouble:
            tally.lose(where, trouble)


def convert(folder: Path, config: OpenAdaptConfig, tally: Tally, scratch: Path) -> tuple[Episode, list[Path]]:
    """One recording. Raises Lost, BadSample."""
    where = folder.resolve().name
    with closing(connect(folder / DATABASE, scratch)) as connection:
        capture = read(connection)
        if capture.instruction is None:
            raise BadSample("no_instruction", "the recording has no task_description")
        if not capture.events:
            raise BadSample("no_steps")
        frames = _frames(folder, capture, connection)
        screen = capture.screen(frames.size)
        rules = Rules(config.drag, capture.near, capture.interval, config.scroll_gap, capture.platform)
        derived_actions = derive(capture.events, rules)
        tally.notes.update(capture.left_out)
        if drift := sum(derived.drift for derived in derived_actions):
            tally.notes["scroll_drift_lines"] += math.ceil(drift)
        if _without_stop(derived_actions, config.stop):
            tally.notes["stop_sequence"] += 1
        dropped: list[dict[str, Any]] = []

        def drop(position: int, derived: Derived, trouble: Lost | BadSample) -> None:
            tally.lose_step(f"{where} action {position} at {derived.begin - capture.started:.2f} s", trouble)
            dropped.append({"index": position, "reason": trouble.reason, "detail": trouble.detail})

        usable: list[tuple[int, Derived, Action]] = []
        for position, derived in enumerate(derived_actions):
            try:
                usable.append((position, derived, action(derived, screen)))
            except (Lost, BadSample) as trouble:
                drop(position, derived, trouble)
        shown, final = before(frames, [derived for _, derived, _ in usable], scratch)
    steps: list[Step] = []
    files: list[Path] = []
    for (position, derived, action_kept), file in zip(usable, shown, strict=True):
        if file is None:
            late = frames.broken is not None and derived.begin > frames.until
            detail = frames.broken or ""
            drop(position, derived, BadSample("frame_missing", detail) if late else Lost("no_frame_before"))
            continue
        index = len(steps)
        steps.append(Step(index=index, screenshot=frame_name(index), action=action_kept, time=derived.begin))
        files.append(file)
    if not steps:
        raise Lost("no_step_kept")
    if config.end == "done":
        if final is not None:
            index = len(steps)
            steps.append(Step(index=index, screenshot=frame_name(index), action=Action(ActionType.DONE), done=True))
        else:
            tally.notes["no_frame_for_done"] += 1
    if final is not None:
        files.append(final)
    dropped.sort(key=lambda item: item["index"])
    return _episode(where, capture, frames.size, steps, dropped, config), files


def action(derived: Derived, screen: Screen) -> Action:
    """The Action of a derived one. Raises Lost for what is none, BadSample for a place off the screen."""
    if derived.kind is None:
        raise Lost(derived.reason, derived.detail)
    places: dict[str, Any] = {}
    if derived.start is not None:
        places["x"], places["y"] = normalised(*derived.start, screen)
    if derived.stop is not None:
        places["x2"], places["y2"] = normalised(*derived.stop, screen)
    try:
        return Action(derived.kind, **places, **derived.fields)
    except ActionError as error:
        raise Lost("unrepresentable", str(error)) from None


def before(frames: FrameSource, actions: list[Derived], scratch: Path) -> tuple[list[Path | None], Path | None]:
    """(the frame before each action as a PNG in `scratch` or None, one that shows the screen after the last or None).

    Of frames that look alike the first is taken. One pass, two frames in memory.
    """
    files: list[Path | None] = []
    current: Image.Image | None = None
    saved: Path | None = None  # where `current` is

    def use() -> Path | None:
        nonlocal saved
        if current is not None and saved is None:
            saved = scratch / f"frame-{len(files)}.png"
            current.save(saved)
        return saved

    after = False  # whether `current` came after the last action began
    for time, image in frames:
        while len(files) < len(actions) and not _is_before(time, actions[len(files)]):
            files.append(use())
        if current is None or distinct(current, image):
            current, saved = image, None
            after = bool(actions) and time > actions[-1].end
    while len(files) < len(actions):
        late = frames.broken is not None and actions[len(files)].begin > frames.until
        files.append(None if late else use())
    return files, use() if after and frames.broken is None else None


def _is_before(time: float, action: Derived) -> bool:
    bound = action.bound
    return time < action.begin and (bound is None or bound > action.begin or time <= bound + SLACK)


def _without_stop(actions: list[Derived], sequences: tuple[str, ...]) -> bool:
    """Takes the typing that ended the recording off its end; whether there was any."""
    last = next((derived for derived in reversed(actions) if derived.kind is not None), None)
    if last is None or last.kind is not ActionType.TYPE:
        return False
    for sequence in sequences:
        if sequence and last.fields["text"].endswith(sequence):
            last.fields["text"] = last.fields["text"].removesuffix(sequence)
            if not last.fields["text"]:
                actions.remove(last)
            return True
    return False


def _is_recording(folder: Path) -> bool:
    return folder.is_dir() and ((folder / DATABASE).is_file() or any(folder.glob("oa_recording-*.mp4")))


def _frames(folder: Path, capture: Capture, connection: Connection) -> FrameSource:
    videos = sorted(folder.glob("oa_recording-*.mp4")) + [path for path in (folder / "video.mp4",) if path.is_file()]
    if len(videos) > 1:
        raise BadSample("several_videos", ", ".join(path.name for path in videos))
    if videos:
        return Video(videos[0], capture.video_started)
    first = next(screenshots(connection), None)
    if first is None:
        raise BadSample("no_video", "there is no oa_recording-*.mp4, and the database holds no pictures")
    return StoredFrames(screenshots(connection), first[1])


def _episode(
    name: str,
    capture: Capture,
    screen: tuple[int, int],
    steps: list[Step],
    dropped: list[dict[str, Any]],
    config: OpenAdaptConfig,
) -> Episode:
    assert capture.instruction is not None
    return Episode(
        episode_id=folder_name(name),
        task_id=name,
        instruction=capture.instruction,
        goal=capture.instruction,
        screen=screen,
        steps=tuple(steps),
        agent="human",
        environment=config.environment or "openadapt",
        source="human",
        started=datetime.fromtimestamp(capture.started, UTC).isoformat(),
        duration_ms=max(0, round(1000 * ((steps[-1].time or steps[-2].time or 0.0) - capture.started))),
        metadata={"platform": capture.platform, "mouse_screen": capture.monitor, "dropped": dropped},
    )
