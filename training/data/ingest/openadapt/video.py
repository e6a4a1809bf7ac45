"""Frames of a recording, one after another: of its video through PyAV, or of the pictures in its database.

Times are Unix seconds. A video's frame stands at `start` plus its presentation time; where the recorder left a box with
the true capture times at the end of the file (openadapt.capture-video-timing/v1), those count, and the copies of frames
that only fill gaps are left out. Nothing is sought: the file is decoded once from its beginning, two frames in memory,
and a frame whose bytes are those of the one before is not given again.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Protocol

from PIL import Image, ImageChops

from eval.desktop import BadFrame
from eval.episodes.pictures import opened
from training.data.faults import BadSample

TIMING: Final = bytes.fromhex("d8e90f0620b44e0cb4494f70656e4164")
LARGEST_BOX: Final = 16 * 1024 * 1024
LEVELS: Final = 24  # of 255: the largest change of a channel that compression explains


class FrameSource(Protocol):
    """`size` (width, height) is known at once; after the iteration `broken` says why it ended early, or is None.

    until  the time of the last frame that was decoded, also of one that was not given
    """

    size: tuple[int, int]
    broken: str | None
    until: float

    def __iter__(self) -> Iterator[tuple[float, Image.Image]]: ...


class Video:
    """The frames of a video file. Raises BadSample when it does not open, or holds no picture."""

    def __init__(self, path: Path, start: float) -> None:
        import av

        self.path, self.start = path, start
        self.broken: str | None = None
        self.until = start
        self.taken = capture_times(path)
        try:
            with av.open(str(path)) as container:
                stream = container.streams.video[0]
                self.size = (stream.codec_context.width, stream.codec_context.height)
                self.count = stream.frames
        except (av.FFmpegError, OSError, IndexError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise BadSample("video_unreadable", f"{path.name}: {reason}") from None
        if min(self.size) < 1:
            raise BadSample("video_unreadable", f"{path.name} has no picture")

    def __iter__(self) -> Iterator[tuple[float, Image.Image]]:
        import av

        number, first = 0, None
        before: list[bytes] = []
        try:
            with av.open(str(self.path)) as container:
                codec = container.streams.video[0].codec_context
                codec.options = {"err_detect": "explode"}  # fail on damage instead of concealing it
                codec.thread_count = 1  # with several threads the decoder hides errors
                for number, frame in enumerate(container.decode(video=0), 1):
                    if frame.is_corrupt:
                        self.broken = f"{self.path.name}: frame {number} is damaged"
                        return
                    shown = frame.time if frame.time is not None else 0.0
                    first = shown if first is None else first
                    time = self.start + shown - first
                    if self.taken is not None:
                        if number - 1 not in self.taken:
                            continue
                        time = self.taken[number - 1]
                    self.until = max(self.until, time)
                    planes = [bytes(plane) for plane in frame.planes]
                    if planes != before:
                        before = planes
                        yield time, frame.to_image()
        except (av.FFmpegError, OSError) as error:
            self.broken = f"{self.path.name}: after {number} frames: {error}"
            return
        if number < self.count:
            self.broken = f"{self.path.name}: {number} of {self.count} frames"


def capture_times(path: Path) -> dict[int, float] | None:
    """Frame number -> Unix seconds, from the recorder's box at the end of an MP4; None where it has none."""
    size = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at + 8 <= size:
            file.seek(at)
            length, kind = struct.unpack(">I4s", file.read(8))
            head = 8
            if length == 1:
                length, head = int.from_bytes(file.read(8), "big"), 16
            elif length == 0:
                length = size - at
            if length < head or at + length > size:
                return None
            if kind == b"uuid" and head + 16 <= length <= LARGEST_BOX and file.read(16) == TIMING:
                return _captures(file.read(length - head - 16))
            at += length
    return None


def _captures(payload: bytes) -> dict[int, float] | None:
    try:
        captures: Any = json.loads(payload)["captures"]
        return {int(number): float(time) for number, time in captures} or None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


class StoredFrames:
    """The frames of recordings without a video: PNGs in rows of (time, bytes), in the order of time."""

    def __init__(self, rows: Iterator[tuple[float, bytes]], first: bytes) -> None:
        self.rows = rows
        self.broken: str | None = None
        self.until = 0.0
        self.size = _decoded(first).size

    def __iter__(self) -> Iterator[tuple[float, Image.Image]]:
        for number, (time, data) in enumerate(self.rows, 1):
            try:
                image = _decoded(data)
            except BadSample as fault:
                self.broken = f"screenshot {number}: {fault.detail}"
                return
            self.until = time
            yield time, image


def _decoded(data: bytes) -> Image.Image:
    try:
        return opened(data)
    except BadFrame as error:
        raise BadSample("image_broken", str(error)) from None


def distinct(one: Image.Image, other: Image.Image) -> bool:
    """Whether a channel of any pixel changed by more than LEVELS, which compression does not explain."""
    if one.size != other.size:
        return True
    difference = ImageChops.difference(one, other)
    return any(sum(band.histogram()[LEVELS + 1 :]) for band in difference.split())
