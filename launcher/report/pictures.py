"""Where the pictures of replays go: into the page, or, where they would make it too large, into a folder beside it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from launcher.errors import BadInput

ROOM: Final = 13 * 1024 * 1024  # bytes of pictures as text in the page, at most: with the rest it stays under 20 MB
OURS: Final = re.compile(r"[0-9a-f]{64}\.(png|jpeg|gif|webp)")


class ReportPictures:
    """Gives an address for each picture.

    folder  where pictures go that the page has no place for; None: they are left out
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.beside = False  # pictures go into the folder
        self.room = ROOM
        self._written: set[str] = set()

    def plan(self, sizes: Iterable[int]) -> None:
        """Chooses the folder if the pictures of these sizes (bytes) are too many for the page."""
        self.beside = self.folder is not None and sum(4 * (size + 2) // 3 for size in sizes) > ROOM

    def address(self, body: bytes, kind: str) -> str | None:
        """A data URI, or a path beside the page; None where there is no room. Raises BadInput for a folder that cannot
        be written."""
        if not self.beside or self.folder is None:
            length = 4 * (len(body) + 2) // 3
            if length > self.room:
                return None
            self.room -= length
            return f"data:image/{kind};base64,{base64.b64encode(body).decode()}"
        name = f"{hashlib.sha256(body).hexdigest()}.{kind}"
        if name not in self._written:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(body)
            except OSError as error:
                raise BadInput(f"{self.folder / name} cannot be written: {error.strerror}") from None
            self._written.add(name)
        return f"{self.folder.name}/{name}"

    def tidy(self) -> None:
        """Removes what an earlier report left in the folder: pictures only, by our names of them."""
        if self.folder is None or not self.folder.is_dir():
            return
        for path in self.folder.iterdir():
            if OURS.fullmatch(path.name) and path.name not in self._written:
                path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()
