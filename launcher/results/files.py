"""Writes a file for the user: the complete file, or no file."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from launcher.errors import BadInput


def write_whole(path: Path, *pieces: bytes) -> None:
    """Writes a file atomically, one piece after the other. Raises BadInput if the file cannot be written."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            file.writelines(pieces)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
