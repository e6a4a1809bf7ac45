"""A video of a desktop, by Debian's ffmpeg: H.264 in fragments of a second, so that a file that was cut off plays."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from eval.desktop import SetupFailed
from eval.desktops.session import DesktopSession

FRAMES_PER_SECOND: Final = 5


def missing_recorder() -> str | None:
    """What installs the recorder; None where it is there."""
    return None if shutil.which("ffmpeg") else "ffmpeg is not installed: apt-get install ffmpeg"


def file_of(folder: Path, task_id: str, seed: int) -> Path:
    """Where the video of an episode is."""
    return folder / f"{re.sub(r'[^A-Za-z0-9._-]', '_', task_id)[:100]}-{seed}.mp4"


async def record(session: DesktopSession, file: Path, frames: int = FRAMES_PER_SECOND) -> None:
    """Records the session's desktop, with its pointer, until the session is reset or stopped, or `end_views` is called.

    A recorder that ends before (a full disk) does not disturb the desktop. Raises SetupFailed when the recorder is
    missing, or the file cannot be made.
    """
    if missing := missing_recorder():
        raise SetupFailed(missing)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
    except OSError as error:
        raise SetupFailed(f"video: {error.filename}: {error.strerror}") from None
    await session.view(command_of(session, file, frames))


def command_of(session: DesktopSession, file: Path, frames: int = FRAMES_PER_SECOND) -> list[str]:
    """The command that records; asked to end by a signal, it completes the file."""
    width, height = (side // 2 * 2 for side in session.options.screen)  # H.264 with 4:2:0 has even sides
    command = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y", "-f", "x11grab", "-framerate", str(frames)]
    command += ["-video_size", f"{width}x{height}", "-i", session.place.display]
    command += [
        "-codec:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-threads",
        "1",
        "-pix_fmt",
        "yuv420p",
        "-g",
        str(10 * frames),
    ]
    command += [
        "-movflags",
        "+frag_keyframe+empty_moov",
        "-frag_duration",
        "1000000",
        "-flush_packets",
        "1",
        str(file.resolve()),
    ]
    return command
