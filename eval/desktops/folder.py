"""A stage without a desktop: files in a folder, no programs, no windows, an empty accessibility tree. It shows what a
judge says of files alone, in little time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.desktop import NotRunHere, SetupFailed
from eval.desktops.reading import FileEntry, list_files, read_file


class FolderStage:
    """eval.desktops.stage.DesktopStage over the folder `home`. `started`: programs that were to be started."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.started: list[tuple[str, ...]] = []

    async def write_file(self, path: str, data: bytes) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    async def read_file(self, path: str) -> bytes:
        return read_file(self.home, path)

    async def list_files(self, folder: str) -> dict[str, FileEntry]:
        return list_files(self.home, folder)

    async def start(self, argv: Sequence[str]) -> None:
        self.started.append(tuple(argv))

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        raise NotRunHere("missing dependency: a folder has no web applications")

    async def served(self) -> dict[str, Any]:
        raise SetupFailed("no web application runs")

    async def windows(self, count: int) -> None:
        pass

    async def act(self, actions: Sequence[Action]) -> None:
        pass

    async def tree(self) -> Tree:
        return Tree(screen=(1280, 720))
