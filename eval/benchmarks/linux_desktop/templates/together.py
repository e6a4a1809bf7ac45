"""Two programs: the file manager or the terminal, and the text editor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, Part, open_editor, shared_out
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of, text_of
from eval.benchmarks.linux_desktop.templates.thunar import MANAGER, pick, pick_by_keys
from eval.benchmarks.linux_desktop.templates.thunar_files import details_of, name_it, throw_away
from eval.benchmarks.linux_desktop.templates.xterm import TERMINAL
from eval.desktops.stage import DesktopStage

LEFT: Final = (0, 40)
RIGHT: Final = (640, 40)
LOWER: Final = (640, 330)
BESIDE: Final = (TERMINAL, "-geometry", "90x24+660+60")
IN_TERMINAL: Final = (900, 200)  # a point of this terminal


def to_editor(hand: OracleActions) -> Work:
    """Gives the keyboard to the editor's text."""
    yield from hand.click("text", program=EDITOR)


def write_all(hand: OracleActions, text: str) -> Work:
    """Puts this text into the place of all that the editor shows, and saves it; another program has the keyboard."""
    yield from to_editor(hand)
    yield from hand.press("ctrl", "a")
    yield from hand.type(text)
    yield from hand.press("ctrl", "s")


def to_manager(hand: OracleActions) -> Work:
    yield from hand.to_window("Thunar")


def to_terminal(hand: OracleActions) -> Work:
    """Gives the keyboard to the terminal BESIDE, which the tree does not tell."""
    width, height = hand.tree.screen
    yield from hand.do(Action(ActionType.CLICK, x=IN_TERMINAL[0] / width, y=IN_TERMINAL[1] / height))


def renamed_parts(folder: str, pairs: list[tuple[str, str]]) -> list[Part]:
    """A phase for each file of a folder that gets a new name; the pairs are (old name, new name)."""
    return shared_out({f"{old} has its new name": [f"{folder}/{old}", f"{folder}/{new}"] for old, new in pairs})


@dataclass(frozen=True)
class RenameByContent(FileTask):
    """The files that name somebody get a new name; the old names say nothing."""

    about: ClassVar = About("thunar-editor-rename", (MANAGER, EDITOR), "hard", 14, max_steps=45)
    asks: ClassVar = (
        "Two files in the folder {self.folder} of the home folder were written by {self.who}: they say so. Put "
        'the name and a space in front of the names of these two files, as in "{self.who} {self.topic} 7.txt".'
    )
    folder: str
    who: str
    near: str
    topic: str
    numbers: tuple[int, ...]
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        who, near = pool.words("name", 2)
        numbers = pool.shuffled(pool.numbers(10, 99, 6))
        return cls(pool.word("city"), who, near, pool.word("topic"), tuple(numbers), lines_of(pool, 6))

    @property
    def names(self) -> list[str]:
        return [f"{self.topic} {number}.txt" for number in self.numbers]

    @property
    def before(self) -> Files:
        people = [self.who, self.who, f"{self.who}son", self.near, self.near, "nobody"]
        told = zip(self.names, people, self.lines, strict=True)
        return {f"{self.folder}/{name}": text_of([line, f"written by {who}"]) for name, who, line in told}

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(name, f"{self.who} {name}") for name in self.names[:2]]

    @property
    def after(self) -> Files:
        files = self.before
        for old, new in self.pairs:
            files[f"{self.folder}/{new}"] = files.pop(f"{self.folder}/{old}")
        return files

    @property
    def parts(self) -> list[Part]:
        return renamed_parts(self.folder, self.pairs)

    async def open(self, stage: DesktopStage) -> None:
        await open_editor(stage, f"{self.folder}/{self.names[5]}", place=LEFT)
        await open_window(stage, [MANAGER, self.folder], 2, "Thunar", RIGHT)

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_manager(hand)
        yield from hand.press("ctrl", "2")
        for old, new in self.pairs:
            yield from pick(hand, old)
            yield from name_it(hand, new)

    def second(self, hand: OracleActions) -> Work:
        """Looks into each of them first."""
        for old, _ in self.pairs:
            yield from to_editor(hand)
            yield from hand.press("ctrl", "o")
            yield from hand.choose_file(f"/home/user/{self.folder}/{old}")
            yield from hand.wait("frame", f"{old} - Mousepad")
        yield from to_manager(hand)
        for old, new in self.pairs:
            yield from pick_by_keys(hand, old)
            yield from hand.press("ctrl", "2")
            yield from name_it(hand, new)

    def wrong(self, hand: OracleActions) -> Work:
        """One with nearly the same name in it."""
        yield from to_manager(hand)
        yield from pick(hand, self.names[2])
        yield from name_it(hand, f"{self.who} {self.names[2]}")


@dataclass(frozen=True)
class DoTheList(FileTask):
    """The editor shows a list of things to do with files; each is done, and the list says so."""

    about: ClassVar = About("editor-thunar-to-do", (EDITOR, MANAGER), "hard", 24, max_steps=60)
    asks: ClassVar = (
        "The editor shows {self.list_file}: what is to be done with files of the home folder. Do all of it. Then "
        'add one line at the end of the list, exactly "all done", and save it.'
    )
    names: tuple[str, ...]
    folder: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(tuple(pool.words("topic", 6)), pool.folder(), lines_of(pool, 5))

    @property
    def gone(self) -> str:
        return f"{self.names[0]}.txt"

    @property
    def renamed(self) -> tuple[str, str]:
        return f"{self.names[1]}.txt", f"{self.names[2]} new.txt"

    @property
    def moved(self) -> str:
        return f"{self.names[3]}.txt"

    @property
    def list_file(self) -> str:
        return f"to do {self.names[5]} {self.folder}.txt"

    @property
    def jobs(self) -> tuple[str, ...]:
        old, new = self.renamed
        return f"delete {self.gone}", f"rename {old} to {new}", f"move {self.moved} into {self.folder}"

    @property
    def before(self) -> Files:
        names = [self.gone, self.renamed[0], self.moved, f"{self.names[4]}.txt", f"{self.folder}/old.txt"]
        files = {name: text_of([line]) for name, line in zip(names, self.lines, strict=True)}
        return files | {self.list_file: text_of(self.jobs)}

    @property
    def after(self) -> Files:
        files = self.before
        del files[self.gone]
        files[self.renamed[1]] = files.pop(self.renamed[0])
        files[f"{self.folder}/{self.moved}"] = files.pop(self.moved)
        return files | {self.list_file: text_of([*self.jobs, "all done"])}

    @property
    def parts(self) -> list[Part]:
        return [
            ("one is deleted", 0.25, [self.gone]),
            ("one is renamed", 0.25, self.renamed),
            ("one is moved", 0.25, [self.moved, f"{self.folder}/{self.moved}"]),
            ("the list says so", 0.25, [self.list_file]),
        ]

    async def open(self, stage: DesktopStage) -> None:
        await open_window(stage, [MANAGER], 1, "Thunar", RIGHT)
        await open_editor(stage, self.list_file, count=2, place=LEFT)

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_manager(hand)
        yield from hand.press("ctrl", "2")
        yield from pick(hand, self.gone)
        yield from throw_away(hand)
        yield from hand.press("ctrl", "r")
        yield from pick(hand, self.renamed[0])
        yield from name_it(hand, self.renamed[1])
        yield from pick(hand, self.moved)
        yield from hand.press("ctrl", "x")
        yield from details_of(hand, self.folder)
        yield from hand.press("ctrl", "v")
        yield from hand.wait("table cell", f"={self.moved}")
        yield from to_editor(hand)
        yield from hand.press("ctrl", "end")
        yield from hand.type("all done\n")
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """From the last to the first, by names and menus."""
        yield from write_all(hand, "\n".join([*self.jobs, "all done"]))
        yield from to_manager(hand)
        yield from pick_by_keys(hand, self.moved)
        yield from hand.menu("Edit", "=Cut")
        yield from pick_by_keys(hand, self.folder)
        yield from hand.menu("Edit", "Paste Into Folder")
        yield from hand.press("ctrl", "2")
        yield from hand.press("ctrl", "r")
        yield from pick_by_keys(hand, self.renamed[0])
        yield from name_it(hand, self.renamed[1])
        yield from pick_by_keys(hand, self.gone)
        yield from throw_away(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Writes that it is done, into another file."""
        yield from to_editor(hand)
        yield from hand.press("ctrl", "end")
        yield from hand.type("all done\n")
        yield from hand.press("ctrl", "shift", "s")
        yield from hand.choose_file("/home/user/done.txt")


TEMPLATES: Final = (RenameByContent, DoTheList)
