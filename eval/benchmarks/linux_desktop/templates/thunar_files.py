"""The file manager: many files, hidden files, permissions, names in bulk, files that are there already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.accessibility.tree import TreeNode
from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, Part, shared_out
from eval.benchmarks.linux_desktop.templates.mousepad import lines_of, text_of
from eval.benchmarks.linux_desktop.templates.thunar import MANAGER, files_of, pick, pick_by_keys, show_folder
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

RENAME: Final = "Rename"
BULK: Final = "Rename Multiple Files"
PROPERTIES: Final = "Properties"


class ManagerTask(FileTask):
    """With the file manager at the home folder."""

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [MANAGER], 1, "Thunar")


def details_of(hand: OracleActions, path: str) -> Work:
    """Goes to a folder below the home, and shows it as a list of details: another folder may be shown as icons."""
    yield from show_folder(hand, path)
    yield from hand.press("ctrl", "2")


def select(hand: OracleActions, names: list[str]) -> Work:
    """Selects several entries of the folder that is shown."""
    yield from pick(hand, names[0])
    for name in names[1:]:
        cell = yield from hand.wait("table cell", f"={name}")
        yield from hand.click_on(cell, modifiers=("ctrl",))


def name_it(hand: OracleActions, name: str) -> Work:
    """Gives another name to the entry that is selected, and has the folder read again: the tree tells the old order of
    a list that was sorted anew."""
    yield from hand.press("f2")
    yield from hand.wait("dialog", RENAME)
    yield from hand.focused("text")
    yield from hand.press("ctrl", "a")
    yield from hand.type(f"{name}\n")
    yield from hand.wait_gone("dialog", RENAME)
    yield from hand.press("ctrl", "r")
    yield from hand.wait("table cell", f"={name}")


def throw_away(hand: OracleActions) -> Work:
    """Deletes for ever what is selected."""
    yield from hand.press("shift", "delete")
    yield from hand.click("push button", "Delete")
    yield from hand.wait_gone("push button", "Delete")


def _usable(hand: OracleActions, button: str) -> bool | None:
    node = hand.seen("push button", button)
    return True if node is not None and "sensitive" in node.states else None


def drag_to(hand: OracleActions, name: str, folder: str) -> Work:
    """Drags an entry onto a folder beside it."""
    here = yield from hand.wait("table cell", f"={name}")
    there = yield from hand.wait("table cell", f"={folder}")
    (x, y), (x2, y2) = hand.middle(here), hand.middle(there)
    yield from hand.do(Action(ActionType.DRAG, x=x, y=y, x2=x2, y2=y2, duration=0.5), here)
    yield from hand.wait_gone("table cell", f"={name}")


@dataclass(frozen=True)
class CopySeveral(ManagerTask):
    """Three of many files with near names are copied into a folder."""

    about: ClassVar = About("thunar-copy-several", (MANAGER,), "medium", 9)
    source: str
    goal: str
    topic: str
    numbers: tuple[int, ...]
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        source, goal = pool.words("city", 2)
        numbers = pool.numbers(101, 199, 9)
        return cls(source, goal, pool.word("topic"), tuple(numbers), lines_of(pool, 9))

    @property
    def names(self) -> list[str]:
        return [f"{self.topic} {number}.txt" for number in self.numbers]

    @property
    def asked_for(self) -> list[str]:
        return self.names[:3]

    @property
    def request(self) -> str:
        one, two, three = self.asked_for
        return (
            f"Copy these three files of the folder {self.source} into the folder {self.goal}: {one}, {two} and "
            f"{three}. Both folders are in the home folder. Copy no other file, and leave {self.source} as it is."
        )

    @property
    def before(self) -> Files:
        files = {f"{self.source}/{name}": text_of([line]) for name, line in zip(self.names, self.lines, strict=True)}
        return {**files, f"{self.goal}/old.txt": b"old\n"}

    @property
    def after(self) -> Files:
        return self.before | {f"{self.goal}/{name}": self.before[f"{self.source}/{name}"] for name in self.asked_for}

    @property
    def parts(self) -> list[Part]:
        return shared_out({f"{name} is there": [f"{self.goal}/{name}"] for name in self.asked_for})

    def oracle(self, hand: OracleActions) -> Work:
        yield from details_of(hand, self.source)
        yield from select(hand, self.asked_for)
        yield from hand.press("ctrl", "c")
        yield from details_of(hand, self.goal)
        yield from hand.press("ctrl", "v")
        for name in self.asked_for:
            yield from hand.wait("table cell", f"={name}")

    def second(self, hand: OracleActions) -> Work:
        """One by one, by their names and the menu."""
        for name in self.asked_for:
            yield from details_of(hand, self.source)
            yield from pick_by_keys(hand, name)
            yield from hand.menu("Edit", "=Copy")
            yield from details_of(hand, self.goal)
            yield from hand.menu("Edit", "=Paste")
            yield from hand.press("ctrl", "2")
            yield from hand.wait("table cell", f"={name}")

    def wrong(self, hand: OracleActions) -> Work:
        """All files."""
        yield from details_of(hand, self.source)
        yield from hand.press("ctrl", "2")
        yield from hand.press("ctrl", "a")
        yield from hand.press("ctrl", "c")
        yield from details_of(hand, self.goal)
        yield from hand.press("ctrl", "v")
        for name in self.names:
            yield from hand.wait("table cell", f"={name}")


@dataclass(frozen=True)
class HiddenFile(ManagerTask):
    """A hidden file is made visible; a visible one has nearly the same name."""

    about: ClassVar = About("thunar-hidden", (MANAGER,), "medium", 7)
    asks: ClassVar = (
        "The home folder has a hidden file {self.old}. Rename it to {self.new}, so that it is no longer hidden."
    )
    city: str
    other: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        city, other = pool.folder(), pool.word("city")
        return cls(city, other, lines_of(pool, 4))

    @property
    def old(self) -> str:
        return f".{self.city}.conf"

    @property
    def new(self) -> str:
        return f"{self.city}-now.conf"

    @property
    def before(self) -> Files:
        names = [self.old, f"{self.city}.conf", f".{self.other}.conf", f"{self.other}.txt"]
        return {name: text_of([line]) for name, line in zip(names, self.lines, strict=True)}

    @property
    def after(self) -> Files:
        rest = {path: content for path, content in self.before.items() if path != self.old}
        return rest | {self.new: self.before[self.old]}

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "h")
        yield from pick(hand, self.old)
        yield from name_it(hand, self.new)

    def second(self, hand: OracleActions) -> Work:
        """By the menus."""
        yield from hand.press("ctrl", "2")
        yield from hand.menu("View", "Show Hidden Files")
        yield from hand.click("table cell", f"={self.old}")
        yield from hand.menu("Edit", "Rename")
        yield from hand.wait("dialog", RENAME)
        yield from hand.focused("text")
        yield from hand.press("ctrl", "a")
        yield from hand.type(self.new)
        yield from hand.click("push button", "Rename")
        yield from hand.wait_gone("dialog", RENAME)

    def wrong(self, hand: OracleActions) -> Work:
        """The visible one."""
        yield from pick(hand, f"{self.city}.conf")
        yield from name_it(hand, self.new)


# what the file manager's box for the group says -> the rights, and how they are asked for
GROUP_RIGHTS: Final = {
    "Read only": (0o040, "may read it, but not write it"),
    "Write only": (0o020, "may write it, but not read it"),
    "Read & Write": (0o060, "may read and write it"),
}


@dataclass(frozen=True)
class FilePermissions(Instance):
    """What the group may do with one of many files, and whether it may be run: in the properties of the file."""

    about: ClassVar = About("thunar-permissions", (MANAGER,), "hard", 8)
    asks: ClassVar = (
        "Change the permissions of {self.file} in the home folder: its group {self.words}, and its owner may run it "
        "as a program. All others get no right to read or write. Leave the other files alone."
    )
    files: tuple[tuple[str, bytes], ...]
    group: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(tuple(files_of(pool, 12, "sh").items()), pool.choose([*GROUP_RIGHTS]))

    @property
    def file(self) -> str:
        return self.files[0][0]

    @property
    def group_mode(self) -> int:
        """The rights of the group."""
        return GROUP_RIGHTS[self.group][0]

    @property
    def words(self) -> str:
        return GROUP_RIGHTS[self.group][1]

    async def prepare(self, stage: DesktopStage) -> None:
        for path, content in sorted(self.files):
            await stage.write_file(path, content)
        await open_window(stage, [MANAGER], 1, "Thunar")

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await stage.list_files("")
        mode = found[self.file].mode if self.file in found else 0
        return judged(
            ("the group has its rights", 0.5, mode & 0o060 == self.group_mode),
            ("the owner may run it", 0.5, mode & 0o700 == 0o700),
            spoiled={"others may read or write": bool(mode & 0o006), "it runs as its owner": bool(mode & 0o7000)},
        )

    def allowed(self) -> Allowed:
        return Allowed((), modes=(self.file,))

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._change(hand, self.file)

    def second(self, hand: OracleActions) -> Work:
        """By the menu, the group first."""
        yield from pick_by_keys(hand, self.file)
        yield from hand.menu("File", "Properties")
        yield from hand.wait("dialog", PROPERTIES)
        yield from hand.click("page tab", "Permissions")
        yield from self._group(hand)
        yield from hand.click("check box", "Allow this file to run")
        yield from hand.click("push button", "Close")
        yield from hand.wait_gone("dialog", PROPERTIES)

    def wrong(self, hand: OracleActions) -> Work:
        """Another of the files."""
        yield from self._change(hand, self.files[1][0])

    def _change(self, hand: OracleActions, file: str) -> Work:
        yield from pick(hand, file)
        yield from hand.press("alt", "enter")
        yield from hand.wait("dialog", PROPERTIES)
        yield from hand.click("page tab", "Permissions")
        yield from hand.click("check box", "Allow this file to run")
        yield from self._group(hand)
        yield from hand.press("escape")
        yield from hand.wait_gone("dialog", PROPERTIES)

    def _group(self, hand: OracleActions) -> Work:
        """The box for the group is the upper of the two that say None: the tree tells the others' one first."""

        def upper() -> TreeNode | None:
            boxes = (node for node in hand.tree.nodes() if node.role == "combo box" and node.name == "None")
            found = {node.bounds[1]: node for node in boxes if node.bounds}
            return found[min(found)] if len(found) == 2 else None

        yield from hand.click_on((yield from hand.wait_for(upper, "the boxes of the permissions")))
        yield from hand.click("menu item", f"={self.group}")
        yield from hand.wait("combo box", f"={self.group}")


@dataclass(frozen=True)
class BulkRename(ManagerTask):
    """A word in the names of many files is replaced; one file with the word elsewhere keeps its name."""

    about: ClassVar = About("thunar-bulk-rename", (MANAGER,), "hard", 13, max_steps=45)
    asks: ClassVar = (
        "In the folder {self.folder} of the home folder, rename all files whose name begins with {self.old}: put "
        "{self.new} in the place of {self.old}, and leave the rest of the name as it is."
    )
    folder: str
    old: str
    new: str
    numbers: tuple[int, ...]
    kept: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        old, new, kept = pool.words("topic", 3)
        return cls(pool.word("city"), old, new, tuple(sorted(pool.numbers(10, 99, 4))), kept)

    @property
    def before(self) -> Files:
        names = [f"{self.old} {number}.txt" for number in self.numbers] + [f"{self.kept} {self.old}.txt"]
        return {f"{self.folder}/{name}": text_of([name]) for name in names}

    @property
    def after(self) -> Files:
        start = f"{self.folder}/{self.old} "
        return {path.replace(start, f"{self.folder}/{self.new} "): content for path, content in self.before.items()}

    @property
    def parts(self) -> list[Part]:
        pairs = {n: [f"{self.folder}/{word} {n}.txt" for word in (self.old, self.new)] for n in self.numbers}
        return shared_out({f"number {n} has the new name": pair for n, pair in pairs.items()})

    def oracle(self, hand: OracleActions) -> Work:
        yield from details_of(hand, self.folder)
        yield from select(hand, [f"{self.old} {number}.txt" for number in self.numbers])
        yield from hand.press("f2")
        yield from hand.wait("dialog", BULK)
        yield from hand.click("combo box", "Insert / Overwrite")
        yield from hand.click("menu item", "Search & Replace")
        yield from hand.wait("combo box", "Search & Replace")
        yield from hand.click_field_of("label", "Search For:")
        yield from hand.type(self.old)
        yield from hand.press("tab")
        yield from hand.press("tab")
        yield from hand.type(self.new)
        yield from hand.wait_for(lambda: _usable(hand, "=Done"), "names that may be given")
        yield from hand.click("push button", "=Done")
        yield from hand.wait_gone("dialog", BULK)

    def second(self, hand: OracleActions) -> Work:
        """One by one."""
        yield from details_of(hand, self.folder)
        for number in self.numbers:
            yield from pick(hand, f"{self.old} {number}.txt")
            yield from name_it(hand, f"{self.new} {number}.txt")

    def wrong(self, hand: OracleActions) -> Work:
        """The one that was to stay, too."""
        yield from self.oracle(hand)
        yield from pick(hand, f"{self.kept} {self.old}.txt")
        yield from name_it(hand, f"{self.kept} {self.new}.txt")


TEMPLATES: Final = (
    CopySeveral,
    HiddenFile,
    FilePermissions,
    BulkRename,
)
