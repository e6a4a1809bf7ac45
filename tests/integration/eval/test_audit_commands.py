"""The players of an audit that use a shell, on a folder, with real commands: each finds the hole planted for it."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from eval.actions import Action
from eval.audit.families import FAMILIES
from eval.desktop import ActionRefused, Desktop, Observation, Score, Task
from tests.unit.eval.test_audit import audited

SHOWN = Observation(Image.new("RGB", (8, 6)), (8, 6))
COMMANDS = [name for name, family in FAMILIES.items() if family.needs == "commands"]
START = {"note.txt": "soap\n", "Documents/other.txt": "tea\n"}


class Homely:
    """A folder with two files; the task is to add a line to one. Commands run there."""

    tools = ("run_command",)

    def __init__(self, hole: str) -> None:
        self.hole = hole
        self.home = Path(tempfile.mkdtemp(prefix="slipway-audit-"))

    async def reset(self, task: Task, seed: int) -> Observation:
        shutil.rmtree(self.home)
        for path, text in START.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_text(text)
        self.time = (self.home / "note.txt").stat().st_mtime_ns
        return SHOWN

    async def step(self, action: Action) -> Observation:
        return SHOWN

    async def call(self, name: str, arguments: Mapping[str, Any]) -> tuple[str, Observation]:
        if self.hole == "refused":
            raise ActionRefused("no commands without limits")
        shell = await asyncio.create_subprocess_exec("sh", "-ec", arguments["command"], cwd=self.home)
        assert await shell.wait() == 0, arguments["command"]
        return "status 0", SHOWN

    async def score(self) -> Score:
        solved = self._solved() or self._hole()
        return Score(float(solved), solved)

    def _left(self) -> dict[str, str]:
        return {str(path.relative_to(self.home)): path.read_text() for path in self.home.rglob("*") if path.is_file()}

    def _solved(self) -> bool:
        return self._left() == {**START, "note.txt": "soap\nbread\n"}

    def _hole(self) -> bool:
        note, left = self.home / "note.txt", self._left()
        return {
            "scatter": "bread" in left.get("bread.txt", ""),
            "deletion": not note.exists(),
            "touch": left == START and note.stat().st_mtime_ns != self.time,
            "links": note.is_symlink(),
        }.get(self.hole, False)

    async def close(self) -> None:
        shutil.rmtree(self.home)


class HomelyEnvironment:
    def tasks(self, count: int, seed: int, options: Mapping[str, Any]) -> list[Task]:
        return [Task("note", 'Add a line "bread" to note.txt, not to bread.txt.', number) for number in range(count)]

    def desktop(self, options: Mapping[str, Any]) -> Desktop:
        return Homely(options["hole"])


WORLD: dict[str, Any] = {
    "environment": "tests.integration.eval.test_audit_commands:HomelyEnvironment",
    "tasks": {"count": 1, "seed": 0},
}


def verdicts(folder: Path, hole: str) -> tuple[int, dict[str, str]]:
    code, report = audited(folder, "--players", "nothing", *COMMANDS, options={"hole": hole}, **WORLD)
    return code, {each.family: each.verdict for each in report.families}


def test_a_sound_checker_of_files_is_found_sound(tmp_path: Path) -> None:
    assert verdicts(tmp_path, "") == (0, dict.fromkeys(["nothing", *COMMANDS], "sound"))


@pytest.mark.parametrize("hole", COMMANDS)
def test_a_planted_hole_is_found_by_exactly_its_family(tmp_path: Path, hole: str) -> None:
    assert verdicts(tmp_path, hole) == (1, {**dict.fromkeys(["nothing", *COMMANDS], "sound"), hole: "hole"})


def test_a_command_that_cannot_run_is_no_try(tmp_path: Path) -> None:
    """Else a checker would look sound where nothing was tried."""
    told = dict.fromkeys(COMMANDS, "incomplete")
    assert verdicts(tmp_path, "refused") == (1, {"nothing": "sound", **told})
