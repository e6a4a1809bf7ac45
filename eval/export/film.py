"""Episodes as videos, made of their frames with each action drawn, by Debian's ffmpeg."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eval.actions import Action
from eval.config import ConfigError
from eval.desktop import BadFrame
from eval.desktops.video import missing_recorder
from eval.episodes.pictures import opened
from eval.export.source import RecordedTask, own_names, part

if TYPE_CHECKING:
    from PIL import Image

RED: Final = (224, 52, 43)
LONGEST: Final = 600.0  # seconds that ffmpeg may take for an episode


def write(tasks: Sequence[RecordedTask], out: Path, seconds: float) -> Counter[str]:
    """Writes `{agent}/{task}.mp4` of every kept episode, a frame every `seconds`; gives counts.

    Raises ConfigError without ffmpeg, and for a frame that is damaged.
    """
    if missing := missing_recorder():
        raise ConfigError(missing)
    counts: Counter[str] = Counter()
    for task, name in zip(tasks, own_names(tasks), strict=True):
        kept = task.picture(0) is not None
        counts["videos" if kept else "tasks whose episode was not kept"] += 1
        if kept:
            file = out / part(task.record.agent) / f"{name}.mp4"
            file.parent.mkdir(parents=True, exist_ok=True)
            _film(task, file, seconds)
    return counts


def _film(task: RecordedTask, file: Path, seconds: float) -> None:
    assert task.episode is not None
    with tempfile.TemporaryDirectory() as scratch:
        size: tuple[int, int] | None = None
        number = 0
        for index in range(len(task.episode.steps) + 1):
            picture = task.picture(index)
            if picture is None:
                continue
            actions = task.episode.steps[index].actions if index < len(task.episode.steps) else ()
            try:
                drawn = opened(picture)
            except BadFrame as error:
                raise ConfigError(str(error)) from None
            draw(drawn, actions)
            size = size or (max(2, drawn.width // 2 * 2), max(2, drawn.height // 2 * 2))  # H.264 has even sides
            drawn.resize(size).save(Path(scratch) / f"{number:06d}.png", compress_level=1)
            number += 1
        command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-framerate", f"{1 / seconds:.6f}"]
        command += ["-i", str(Path(scratch) / "%06d.png"), "-codec:v", "libx264", "-pix_fmt", "yuv420p"]
        command += ["-r", "10", "-movflags", "+faststart", str(file.resolve())]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=LONGEST)
        except subprocess.CalledProcessError as error:
            raise ConfigError(f"{file}: ffmpeg: {error.stderr.decode(errors='replace').strip()[-300:]}") from None
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{file}: ffmpeg took longer than {LONGEST:g} s") from None


def draw(image: Image.Image, actions: Sequence[Action]) -> None:
    """Draws where the actions point: a ring, and a line along a drag."""

    from PIL import ImageDraw

    pen, (width, height) = ImageDraw.Draw(image), image.size
    unit = max(4, max(width, height) // 60)
    for action in actions:
        if action.point is None:
            continue
        x, y = action.point[0] * width, action.point[1] * height
        if action.end is not None:
            end = (action.end[0] * width, action.end[1] * height)
            pen.line([(x, y), end], fill=RED, width=max(2, unit // 4))
        for colour, wide in (((255, 255, 255), max(3, unit // 2)), (RED, max(2, unit // 4))):
            pen.ellipse([x - unit, y - unit, x + unit, y + unit], outline=colour, width=wide)
