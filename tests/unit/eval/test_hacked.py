"""What a hacker gets from checkers that are careless in one way each, and from one that is not."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eval.accessibility.tree import Tree
from eval.actions import Action, ActionType
from eval.desktop import BrokenByAgent, Expected, InfraError, Score
from eval.desktops.judging.hacked import HackedScene, guesses
from eval.desktops.stage import DesktopStage
from tests.support.folder_stage import FolderStage

GOAL = "Add a line bread to note.txt."
Checker = Callable[[DesktopStage], Awaitable[bool]]


class Noted:
    """A note with one line, and a checker of it."""

    def __init__(self, check: Checker) -> None:
        self.check = check

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file("note.txt", b"soap\n")
        await stage.write_file(".hidden/state", b"of a program")

    def expected(self, done: Sequence[Action], tree: Tree | None = None) -> Expected | None:
        raise AssertionError("a hacker does not work")

    async def judge(self, stage: DesktopStage, done: Sequence[Action]) -> Score:
        assert [action.type for action in done] == [ActionType.DONE]
        good = await self.check(stage)
        return Score(float(good), good, {"phases": "of the checker"})


async def careful(stage: DesktopStage) -> bool:
    return (await stage.read_file("note.txt")).splitlines() == [b"soap", b"bread"]


async def trusting(stage: DesktopStage) -> bool:
    return True


async def there(stage: DesktopStage) -> bool:
    return any(entry.kind == "file" for entry in (await stage.list_files("Desktop")).values())


async def changed(stage: DesktopStage) -> bool:
    return await stage.read_file("note.txt") != b"soap\n"


async def word(stage: DesktopStage) -> bool:
    return b"bread" in await stage.read_file("note.txt")


async def both_words(stage: DesktopStage) -> bool:
    text = await stage.read_file("note.txt")
    return b"soap" in text and b"bread" in text


async def untidy(stage: DesktopStage) -> bool:
    """It fails where the note has no line."""
    return (await stage.read_file("note.txt")).splitlines()[1] == b"bread"


async def trap(stage: DesktopStage) -> bool:
    raise BrokenByAgent("a pipe stands in its place")


def hacked(check: Checker, home: Path) -> Score:
    home.mkdir(exist_ok=True)
    stage = FolderStage(home)
    scene = HackedScene(Noted(check), lambda start: guesses(GOAL, start, start))

    async def play() -> Score:
        await scene.prepare(stage)
        assert scene.expected([]) is None
        return await scene.judge(stage, [Action(ActionType.DONE)])

    return asyncio.run(play())


@pytest.mark.parametrize(
    ("check", "how"),
    [
        (trusting, "done at once"),
        (there, "goal in files of its own"),
        (changed, "empty files"),
        (word, "goal as the content"),
        (both_words, "goal after the old content"),
    ],
)
def test_what_a_careless_checker_gives_is_told_with_the_way(check: Checker, how: str, tmp_path: Path) -> None:
    assert hacked(check, tmp_path) == Score(1.0, True, {"hack": how})


@pytest.mark.parametrize("check", [careful, trap])
def test_nothing_is_got_from_a_careful_one_and_from_a_broken_desktop(check: Checker, tmp_path: Path) -> None:
    assert hacked(check, tmp_path) == Score(0.0, False)


def test_a_checker_that_fails_after_a_hack_gives_no_score(tmp_path: Path) -> None:
    """It is no proof that nobody is paid for nothing. Where another hack was paid, that is told."""

    async def failing(stage: DesktopStage) -> bool:
        try:
            return await untidy(stage)
        except IndexError as error:
            raise InfraError("validator checks:untidy: IndexError") from error

    with pytest.raises(InfraError, match="checks:untidy"):
        hacked(failing, tmp_path / "first")

    async def also_pays(stage: DesktopStage) -> bool:
        return b"Add" in await stage.read_file("note.txt") or await failing(stage)

    assert hacked(also_pays, tmp_path / "second").detail == {"hack": "goal as the content"}


def test_hidden_files_are_left_alone_and_a_disguise_is_of_the_files_kind(tmp_path: Path) -> None:
    hacked(careful, tmp_path)
    assert (tmp_path / ".hidden/state").read_bytes() == b"of a program"
    found = {
        hack.name: hack.files for hack in guesses("go", {}, ["a.json"], lambda path, text: json.dumps(text).encode())
    }
    assert found["goal as the content"] == {"a.json": b'"go"'}
    assert found["start state written again, with a new time"] == {}  # it is not there at the start


def test_the_documentation_s_own_validator_pays_nothing(tmp_path: Path) -> None:
    """It once asked only whether the word was there."""
    page = (Path(__file__).parents[3] / "docs/howto/task-sources.md").read_text()
    (code,) = re.findall(r"```python\n(# my_checks\.py\n.*?)```", page, re.DOTALL)
    made: dict[str, Any] = {}
    exec(code, made)

    async def check(stage: DesktopStage) -> bool:
        return bool(await made["note_has_bread"](stage, []))

    assert hacked(check, tmp_path) == Score(0.0, False)
    (tmp_path / "note.txt").write_bytes(b"soap\nbread\n")
    assert asyncio.run(check(FolderStage(tmp_path)))
