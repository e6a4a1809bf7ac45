"""The file manager. What lies in the folders is judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import lines_of, text_of
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

MANAGER: Final = "thunar"


def files_of(pool: WordPool, count: int, kind: str = "txt") -> dict[str, bytes]:
    """Files of different names and content."""
    names = zip(pool.words("topic", count), pool.numbers(10, 99, count), strict=True)
    return {f"{word}-{number}.{kind}": text_of(lines_of(pool, 2)) for word, number in names}


async def prepare_files(stage: DesktopStage, files: Mapping[str, bytes]) -> None:
    """Files, and the file manager at the home folder."""
    for path, content in files.items():
        await stage.write_file(path, content)
    await open_window(stage, [MANAGER], 1, "Thunar")


def pick(hand: OracleActions, name: str) -> Work:
    """Selects an entry of the folder that is shown, in the list of details."""
    yield from hand.press("ctrl", "2")
    yield from hand.click("table cell", f"={name}")


def pick_by_keys(hand: OracleActions, name: str) -> Work:
    """The same by its name."""
    yield from hand.type(name)
    yield from hand.press("escape")


def show_folder(hand: OracleActions, path: str) -> Work:
    """Goes to a folder below the home, by its path."""
    yield from hand.press("ctrl", "l")
    yield from hand.press("ctrl", "a")
    yield from hand.type(f"/home/user/{path}\n")
    yield from hand.wait("frame", f"{PurePosixPath(path).name or 'user'} - Thunar")


@dataclass(frozen=True)
class NewFolder(Instance):
    """A folder in a folder."""

    about: ClassVar = About("thunar-new-folder", (MANAGER,), "easy", 7)
    asks: ClassVar = "Make a new folder {self.name} in the folder {self.inside} of the home folder. It stays empty."
    inside: str
    name: str
    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        inside, name = pool.words("city", 2)
        files = files_of(pool, 3)
        return cls(inside, name, tuple({f"{inside}/{path}": text for path, text in files.items()}.items()))

    async def prepare(self, stage: DesktopStage) -> None:
        await prepare_files(stage, dict(self.files))

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await stage.list_files(self.inside)
        made = self.name in found and found[self.name].kind == "folder"
        empty = not any(path.startswith(f"{self.name}/") for path in found)
        return judged(("the folder is there", 1.0, made and empty))

    def allowed(self) -> Allowed:
        return Allowed({f"{self.inside}/{self.name}"})

    def oracle(self, hand: OracleActions) -> Work:
        yield from show_folder(hand, self.inside)
        yield from hand.press("ctrl", "shift", "n")
        yield from hand.wait("dialog", "Create New Folder")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.name}\n")
        yield from hand.wait_gone("dialog", "Create New Folder")

    def second(self, hand: OracleActions) -> Work:
        """By the mouse and the menu."""
        yield from hand.press("ctrl", "2")
        yield from hand.click("table cell", f"={self.inside}")
        yield from hand.press("enter")
        yield from hand.wait("frame", f"{self.inside} - Thunar")
        yield from hand.menu("File", "Create Folder")
        yield from hand.focused("text")
        yield from hand.press("ctrl", "a")
        yield from hand.type(self.name)
        yield from hand.click("push button", "Create")
        yield from hand.wait_gone("dialog", "Create New Folder")

    def wrong(self, hand: OracleActions) -> Work:
        """In the home folder."""
        yield from hand.press("ctrl", "shift", "n")
        yield from hand.wait("dialog", "Create New Folder")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.name}\n")


@dataclass(frozen=True)
class Rename(Instance):
    """One of several files gets another name."""

    about: ClassVar = About("thunar-rename", (MANAGER,), "easy", 6)
    asks: ClassVar = "Rename the file {self.old} of the home folder to {self.new}."
    files: tuple[tuple[str, bytes], ...]
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(tuple(files_of(pool, 4).items()), f"{pool.word('city')} {pool.number(10, 99)}.txt")

    @property
    def old(self) -> str:
        return self.files[0][0]

    async def prepare(self, stage: DesktopStage) -> None:
        await prepare_files(stage, self.shown)

    @property
    def shown(self) -> dict[str, bytes]:
        """The files of the start state."""
        return dict(sorted(self.files))

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        named = await content_of(stage, self.new) == self.files[0][1]
        return judged(("it has the new name", 1.0, named and await content_of(stage, self.old) is None))

    def targets(self) -> dict[str, bytes]:
        return {self.new: self.files[0][1]}

    def removed(self) -> tuple[str, ...]:
        return (self.old,)

    def oracle(self, hand: OracleActions) -> Work:
        yield from pick(hand, self.old)
        yield from self._name(hand, self.new)

    def second(self, hand: OracleActions) -> Work:
        """By keys."""
        yield from pick_by_keys(hand, self.old)
        yield from self._name(hand, self.new)

    def wrong(self, hand: OracleActions) -> Work:
        """Another of the files."""
        yield from pick(hand, self.files[1][0])
        yield from self._name(hand, self.new)

    def _name(self, hand: OracleActions, name: str) -> Work:
        yield from hand.press("f2")
        yield from hand.wait("dialog", "Rename")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{name}\n")
        yield from hand.wait_gone("dialog", "Rename")


@dataclass(frozen=True)
class MoveFile(Instance):
    """A file is moved into a folder."""

    about: ClassVar = About("thunar-move", (MANAGER,), "medium", 8)
    asks: ClassVar = "Move the file {self.file} of the home folder into the folder {self.folder}."
    files: tuple[tuple[str, bytes], ...]
    folder: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        folder, other = pool.words("city", 2)
        files = {**files_of(pool, 4), f"{folder}/old.txt": b"old\n", f"{other}/old.txt": b"older\n"}
        return cls(tuple(files.items()), folder)

    @property
    def file(self) -> str:
        return self.files[0][0]

    async def prepare(self, stage: DesktopStage) -> None:
        await prepare_files(stage, self.shown)

    @property
    def shown(self) -> dict[str, bytes]:
        """The files of the start state."""
        return dict(sorted(self.files))

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        there = await content_of(stage, f"{self.folder}/{self.file}") == self.files[0][1]
        gone = await content_of(stage, self.file) is None
        return judged(("it is in the folder", 0.5, there), ("it was moved, not copied", 0.5, there and gone))

    def targets(self) -> dict[str, bytes]:
        return {f"{self.folder}/{self.file}": self.files[0][1]}

    def removed(self) -> tuple[str, ...]:
        return (self.file,)

    def oracle(self, hand: OracleActions) -> Work:
        yield from pick(hand, self.file)
        yield from hand.press("ctrl", "x")
        yield from show_folder(hand, self.folder)
        yield from hand.press("ctrl", "v")
        yield from hand.wait("status bar", self.file)

    def second(self, hand: OracleActions) -> Work:
        """By the menu, into the folder that is selected."""
        yield from pick_by_keys(hand, self.file)
        yield from hand.menu("Edit", "=Cut")
        yield from pick_by_keys(hand, self.folder)
        yield from hand.menu("Edit", "Paste Into Folder")

    def wrong(self, hand: OracleActions) -> Work:
        """Another file."""
        yield from pick(hand, self.files[1][0])
        yield from hand.press("ctrl", "x")
        yield from show_folder(hand, self.folder)
        yield from hand.press("ctrl", "v")


@dataclass(frozen=True)
class DeleteKind(Instance):
    """All files of one kind go; the others stay."""

    about: ClassVar = About("thunar-delete-kind", (MANAGER,), "hard", 9)
    asks: ClassVar = "Delete all .log files in the folder {self.folder} of the home folder, and nothing else."
    kept: tuple[tuple[str, bytes], ...]
    thrown: tuple[tuple[str, bytes], ...]
    folder: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        folder = pool.folder()
        names = pool.words("topic", 6)
        texts = [text_of(lines_of(pool, 2)) for _ in names]
        count = pool.whole(2, 3)
        kinds = ["log"] * count + ["txt"] * (len(names) - count)
        files = [(f"{folder}/{name}.{kind}", text) for name, kind, text in zip(names, kinds, texts, strict=True)]
        return cls(tuple(files[count:]), tuple(files[:count]), folder)

    async def prepare(self, stage: DesktopStage) -> None:
        await prepare_files(stage, dict(sorted([*self.kept, *self.thrown])))

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await stage.list_files("")
        gone = [path for path, _ in self.thrown if path not in found]
        return judged(("one is gone", 0.3, bool(gone)), ("all are gone", 0.7, len(gone) == len(self.thrown)))

    def removed(self) -> tuple[str, ...]:
        return tuple(path for path, _ in self.thrown)

    def oracle(self, hand: OracleActions) -> Work:
        yield from show_folder(hand, self.folder)
        yield from hand.press("ctrl", "2")
        yield from hand.press("ctrl", "s")
        yield from hand.wait("dialog", "Select by Pattern")
        yield from hand.focused("text")
        yield from hand.type("*.log\n")
        yield from hand.wait_gone("dialog", "Select by Pattern")
        yield from hand.press("shift", "delete")
        yield from hand.click("push button", "Delete")
        yield from hand.wait_gone("table cell", ".log")

    def second(self, hand: OracleActions) -> Work:
        """One by one, for ever."""
        yield from show_folder(hand, self.folder)
        for path, _ in self.thrown:
            yield from pick(hand, PurePosixPath(path).name)
            yield from hand.press("shift", "delete")
            yield from hand.click("push button", "Delete")
            yield from hand.wait_gone("table cell", f"={PurePosixPath(path).name}")

    def wrong(self, hand: OracleActions) -> Work:
        """All files."""
        yield from show_folder(hand, self.folder)
        yield from hand.press("ctrl", "a")
        yield from hand.press("shift", "delete")
        yield from hand.click("push button", "Delete")
        yield from hand.wait_gone("push button", "Delete")


@dataclass(frozen=True)
class NothingToRename(Infeasible, Rename):
    """The file is not there."""

    about: ClassVar = About("thunar-no-such-file", (MANAGER,), "easy", 1, infeasible=True, twin="thunar-rename")

    @property
    def shown(self) -> dict[str, bytes]:
        return dict(sorted(self.files[1:]))


@dataclass(frozen=True)
class NothingToMove(Infeasible, MoveFile):
    """The file is not there, but files are that lie in folders."""

    about: ClassVar = About("thunar-nothing-to-move", (MANAGER,), "medium", 1, infeasible=True, twin="thunar-move")

    @property
    def shown(self) -> dict[str, bytes]:
        return dict(sorted(self.files[1:]))


TEMPLATES: Final = (NewFolder, Rename, MoveFile, DeleteKind, NothingToRename, NothingToMove)
