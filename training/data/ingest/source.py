"""Helpers for importers: check images, turn ids into folder names, read JSON lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from eval.actions.geometry import OutOfFrame, Screen
from eval.desktop import BadFrame
from eval.episodes.pictures import opened
from training.data.faults import BadSample
from training.data.looks import LOOKS

if TYPE_CHECKING:
    from PIL import Image

LONGEST: Final = 180  # characters of a folder's name
TAKEN: Final = frozenset({"report.json", LOOKS})


def folder_name(text: str) -> str:
    """An id as a folder's name: invalid characters become `-`; a long id is cut and ends with its digest."""
    name = "".join(char if char.isalnum() or char in "-_.@" else "-" for char in text).lstrip(".")
    if len(name.encode()) > LONGEST:
        kept = name.encode()[: LONGEST - 17].decode(errors="ignore")
        name = f"{kept}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return "episode" if not name or name in TAKEN else name


def lines(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """(line number, object) of a JSONL file, one line in memory at a time; None for a line that is no JSON object."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                data = None
            yield number, data if isinstance(data, dict) else None


def picture(path: Path) -> tuple[int, int]:
    """The size (width, height) of a PNG that decodes to its end. Raises BadSample."""
    return decoded(content(path), path.name).size


def content(path: Path) -> bytes:
    """Of a picture's file. Raises BadSample."""
    if not path.is_file():
        raise BadSample("image_missing", path.name)
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadSample("image_broken", f"{path.name}: {error.strerror}") from None


def decoded(data: bytes, name: str) -> Image.Image:
    """A PNG, decoded to its end, RGB. Raises BadSample."""
    try:
        image = opened(data, name)
    except BadFrame as error:
        raise BadSample("image_broken", str(error)) from None
    if image.format != "PNG":
        raise BadSample("image_not_png", name)
    return image


def inside(folder: Path, name: Any) -> Path:
    """The file `name` of `folder`. Raises BadSample for a name that is none, or that leads out of the folder."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise BadSample("no_image", f"{name!r} is no file name")
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise BadSample("image_missing", f"{name} lies outside of {folder.name}")
    return path


def normalised(x: Any, y: Any, screen: Screen) -> tuple[float, float]:
    """A point in pixels as fractions of the screen; whole pixels stand for their centre. Raises BadSample off it."""
    try:
        return screen.to_norm(_whole(x), _whole(y))
    except OutOfFrame:
        raise BadSample("off_screen", f"({x}, {y}) on {screen.width}x{screen.height}") from None


def _whole(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadSample("no_point", f"{value!r} is no number")
    return int(value) if isinstance(value, float) and value.is_integer() else value
