"""A folder as a stage for the tests of judges: a scene begins on it and is judged. A web application runs in this
process, as `app`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.accessibility.tree import Tree
from eval.actions import Action
from eval.benchmarks.linux_desktop.webapps.app import WebApp
from eval.benchmarks.linux_desktop.webapps.serving import MODULE, made
from eval.desktop import Score
from eval.desktops.judging import end_states
from eval.desktops.live import TaskScene


class FolderStage(end_states.FolderStage):
    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.app: WebApp | None = None
        self.screen = Tree(screen=(1280, 720))  # what its programs tell
        self.scene: TaskScene | None = None

    async def begin(self, scene: TaskScene) -> None:
        """The start state of a scene, on an empty home."""
        self.app, self.scene, self.screen = None, scene, Tree(screen=(1280, 720))
        for entry in self.home.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        await scene.prepare(self)

    async def judge(self, done: Sequence[Action]) -> Score:
        """Judges the scene that was begun. Raises BrokenByAgent."""
        assert self.scene
        return await self.scene.judge(self, done)

    async def start(self, argv: Sequence[str]) -> None:
        assert not any(os.sep + part in argv[0] for part in ("tmp", "home")), "a program of the machine, by its name"
        await super().start(argv)

    async def serve(self, module: str, order: Mapping[str, Any]) -> str:
        assert module == MODULE
        told = json.loads(json.dumps(order))
        self.app = made(told["app"], told["data"])
        return "http://127.0.0.1:8080"

    async def served(self) -> dict[str, Any]:
        assert self.app
        state: dict[str, Any] = json.loads(json.dumps(self.app.state()))
        return state

    async def tree(self) -> Tree:
        return self.screen
