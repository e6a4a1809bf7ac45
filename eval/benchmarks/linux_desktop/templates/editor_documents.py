"""The text editor: what is more than its lines: line ends, undo, two documents, pictures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.actions import Action, ActionType
from eval.benchmarks.linux_desktop import steps
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About
from eval.benchmarks.linux_desktop.templates.editor_lines import to_line
from eval.benchmarks.linux_desktop.templates.file_tasks import Files, FileTask, Part, open_editor, rewrite
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of, text_of
from eval.desktops.stage import DesktopStage

# system -> what the editor's menu calls it, and how its lines end
LINE_ENDS: Final = {"DOS and Windows (CR LF)": ("DOS", "\r\n"), "old Macs (CR)": ("Mac", "\r")}


@dataclass(frozen=True)
class LineEnds(FileTask):
    """A copy whose lines end as those of another system do: a setting of the document, not of its text."""

    about: ClassVar = About("mousepad-line-ends", (EDITOR,), "medium", 7)
    asks: ClassVar = (
        "The editor shows {self.file}. Save its text under the new name {self.copy} in the home folder, with the line "
        "ends of {self.system}, the text unchanged. Leave {self.file} as it is."
    )
    file: str
    copy: str
    system: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        system, words, numbers = pool.choose(list(LINE_ENDS)), pool.words("topic", 2), pool.numbers(10, 99, 2)
        file, copy = (f"{word}-{number}.txt" for word, number in zip(words, numbers, strict=True))
        return cls(file, copy, system, lines_of(pool, 5))

    @property
    def before(self) -> Files:
        return {self.file: text_of(self.lines)}

    @property
    def after(self) -> Files:
        end = LINE_ENDS[self.system][1]
        return self.before | {self.copy: "".join(f"{line}{end}" for line in self.lines).encode()}

    @property
    def copied(self) -> Collection[bytes]:
        """The last line's end counts, too."""
        return self.after.values()

    async def open(self, stage: DesktopStage) -> None:
        await open_editor(stage, self.file)

    def _save(self, hand: OracleActions, system: str) -> Work:
        yield from hand.menu("Document", "Line Ending", LINE_ENDS[system][0])
        yield from hand.press("ctrl", "shift", "s")
        yield from hand.choose_file(self.copy)

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._save(hand, self.system)

    def second(self, hand: OracleActions) -> Work:
        """The copy first, then its line ends, by the menu."""
        yield from hand.press("ctrl", "shift", "s")
        yield from hand.choose_file(self.copy)
        yield from hand.in_front(self.copy)
        yield from hand.menu("Document", "Line Ending", LINE_ENDS[self.system][0])
        yield from hand.menu("File", "=Save      ")

    def wrong(self, hand: OracleActions) -> Work:
        """Those of the other system."""
        yield from self._save(hand, next(system for system in LINE_ENDS if system != self.system))


@dataclass(frozen=True)
class UndoLoss(FileTask):
    """A text was deleted, and the empty file was saved: the editor can still undo it. Then it gets a line more."""

    about: ClassVar = About("mousepad-undo", (EDITOR,), "medium", 4)
    asks: ClassVar = (
        "All text of {self.file} was deleted in the editor, and the empty file was saved. Bring the old text back "
        'by undoing that, add one line at its end, exactly "{self.line}", and save the file.'
    )
    file: str
    other: str
    lines: tuple[str, ...]
    line: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, other = pool.file("txt"), pool.file("md")
        *lines, line = lines_of(pool, 7)
        return cls(file, other, tuple(lines), line)

    @property
    def before(self) -> Files:
        return {self.file: b"", self.other: text_of(self.lines[:2])}

    @property
    def after(self) -> Files:
        return self.before | {self.file: text_of([*self.lines, self.line])}

    async def prepare(self, stage: DesktopStage) -> None:
        for path, content in (self.before | {self.file: text_of(self.lines)}).items():
            await stage.write_file(path, content)
        await self.open(stage)

    async def open(self, stage: DesktopStage) -> None:
        await open_editor(stage, self.file)
        select = Action(ActionType.HOTKEY, keys=("ctrl", "a"))
        save = Action(ActionType.HOTKEY, keys=("ctrl", "s"))
        await stage.act([select, Action(ActionType.KEY, keys=("delete",)), save])
        await steps.written(stage, self.file, b"")

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "z")
        yield from hand.press("ctrl", "end")
        yield from hand.type(f"{self.line}\n")
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """By the menu, without a line break at the end."""
        yield from hand.menu("Edit", "Undo")
        yield from hand.press("ctrl", "end")
        yield from hand.type(self.line)
        yield from hand.menu("File", "=Save      ")

    def wrong(self, hand: OracleActions) -> Work:
        """The line at the beginning."""
        yield from hand.press("ctrl", "z")
        yield from hand.press("ctrl", "home")
        yield from hand.type(f"{self.line}\n")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class MoveBetweenTabs(FileTask):
    """Lines are moved from one document to another one, in two tabs."""

    about: ClassVar = About("mousepad-two-tabs", (EDITOR,), "hard", 14, max_steps=40)
    asks: ClassVar = (
        "The editor has {self.source} and {self.goal} in two tabs. Move the lines that begin with {self.who} from "
        "{self.source} to the end of {self.goal}, in their order, and save both files."
    )
    source: str
    goal: str
    who: str
    lines: tuple[str, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        source, goal = (f"{word}.txt" for word in pool.words("topic", 2))
        who, *others = pool.words("name", 4)
        people = [others[0], who, others[1], who, others[2]]
        lines = [f"{name} {line}" for name, line in zip(people, lines_of(pool, 5), strict=True)]
        return cls(source, goal, who, tuple(lines))

    @property
    def before(self) -> Files:
        return {self.source: text_of(self.lines), self.goal: b"moved:\n"}

    @property
    def after(self) -> Files:
        mine = [line for line in self.lines if line.startswith(self.who)]
        rest = [line for line in self.lines if line not in mine]
        return {self.source: text_of(rest), self.goal: text_of(["moved:", *mine])}

    @property
    def parts(self) -> list[Part]:
        return [("they are in the one", 0.5, [self.goal]), ("they are gone from the other", 0.5, [self.source])]

    async def open(self, stage: DesktopStage) -> None:
        await open_editor(stage, self.source, self.goal, wait="Mousepad")

    def _turn(self, hand: OracleActions, file: str) -> Work:
        yield from hand.click("page tab", file)
        yield from hand.in_front(file)
        yield from hand.click("text")

    def _write(self, hand: OracleActions, file: str) -> Work:
        yield from self._turn(hand, file)
        yield from rewrite(hand, self.after[file].decode())

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._turn(hand, self.source)
        moved: list[str] = []
        for number in (3, 1):  # the last one first: the others keep their place
            yield from to_line(hand, number)
            yield from hand.press("shift", "down")
            yield from hand.press("delete")
            moved.insert(0, self.lines[number])
        yield from hand.press("ctrl", "s")
        yield from self._turn(hand, self.goal)
        yield from hand.press("ctrl", "end")
        yield from hand.type("".join(f"{line}\n" for line in moved))
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """Writes both anew, the goal first."""
        yield from self._write(hand, self.goal)
        yield from self._write(hand, self.source)

    def wrong(self, hand: OracleActions) -> Work:
        """One line alone."""
        yield from self._turn(hand, self.source)
        yield from to_line(hand, 1)
        yield from hand.press("shift", "down")
        yield from hand.press("delete")
        yield from hand.press("ctrl", "s")


TEMPLATES: Final = (
    LineEnds,
    UndoLoss,
    MoveBetweenTabs,
)
