"""How the pictures of an episode look: `ingest` decodes them, and tells `pack`, which then need not.

Beside the folders of episodes, `looks/` has a JSON object for each: of every picture the sha256 of the file, and the
perceptual hash of what it shows. Nothing but that hash is believed, and only of bytes that have the digest. Width and
height stand in the picture, and so do the checksums of all its parts, which a damaged PNG does not have.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import msgspec

from eval.desktop import BadFrame
from eval.episodes.pictures import broken, measured

LOOKS: Final = "looks"
PNG: Final = b"\x89PNG\r\n\x1a\n"
Hex = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


def place_of(folder: Path) -> Path:
    """Where it stands how the pictures of an episode's folder look."""
    return folder.parent / LOOKS / f"{folder.name}.json"


def write_looks(file: Path, looks: Mapping[str, str]) -> None:
    file.write_bytes(msgspec.json.encode(looks, order="sorted"))


def read_looks(folder: Path) -> dict[str, str]:
    """Nothing where nothing can be read: the pictures are decoded then."""
    try:
        return msgspec.json.decode(place_of(folder).read_bytes(), type=dict[Hex, Hex])
    except (OSError, ValueError):
        return {}


def undamaged(data: bytes, name: str) -> tuple[int, int]:
    """Width and height of a PNG whose parts have their checksums; nothing is decoded. Raises BadFrame."""
    from PIL import Image

    size = measured(data, name)
    try:
        Image.open(io.BytesIO(data), formats=["PNG"]).verify()
    except broken() as error:
        raise BadFrame(f"{name}: {error}") from None
    return size
