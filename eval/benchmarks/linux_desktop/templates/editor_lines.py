"""The text editor: the lines of a file are changed and saved. Templates differ in what becomes of the lines."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of, open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of, same_text, text_of
from eval.desktops.stage import DesktopStage

LINES: Final = 12  # of a file of which a block is meant


@dataclass(frozen=True)
class EditorLines(Instance):
    """A file of lines in the editor; `after` is what it must hold in the end."""

    asks: ClassVar = "The editor shows {self.file}. {self.wish} Then save the file."

    file: str
    lines: tuple[str, ...]

    @property
    @abstractmethod
    def after(self) -> list[str]: ...

    @property
    def shown(self) -> tuple[str, ...]:
        """The lines of the start state."""
        return self.lines

    @property
    @abstractmethod
    def wish(self) -> str:
        """What is to become of the file, as a sentence's end."""

    async def prepare(self, stage: DesktopStage) -> None:
        await stage.write_file(self.file, text_of(self.shown))
        await open_window(stage, [EDITOR, self.file], 1, self.file)

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_of(self.after)}

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        found = await content_of(stage, self.file)
        return judged(("the lines are right", 1.0, same_text(found, text_of(self.after))))

    def second(self, hand: OracleActions) -> Work:
        """Writes the whole file anew."""
        yield from hand.press("ctrl", "a")
        yield from hand.type("\n".join(self.after))
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """All lines but the last one."""
        yield from hand.press("ctrl", "a")
        yield from hand.type("\n".join(self.after[:-1]))
        yield from hand.press("ctrl", "s")


def to_line(hand: OracleActions, number: int) -> Work:
    """Puts the cursor at the beginning of a line, the first is 0."""
    yield from hand.press("ctrl", "home")
    for _ in range(number):
        yield from hand.press("down")


@dataclass(frozen=True)
class EditorBlock(EditorLines):
    """Some lines, one below the other, are meant.

    first  of them, counted from 0
    count  how many there are
    """

    first: int
    count: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        count = pool.whole(2, 5)
        return cls(pool.file("txt"), lines_of(pool, LINES), pool.whole(0, LINES - count), count)

    @property
    def chosen(self) -> range:
        return range(self.first, self.first + self.count)

    @property
    def named(self) -> str:
        one, last = (self.lines[number].rstrip() for number in (self.chosen[0], self.chosen[-1]))
        return f'the lines from "{one}" to "{last}", both included'

    def select(self, hand: OracleActions) -> Work:
        """Without the line break of the last one: a command for lines would take the line below, too."""
        yield from to_line(hand, self.first)
        for _ in range(self.count - 1):
            yield from hand.press("shift", "down")
        yield from hand.press("shift", "end")


@dataclass(frozen=True)
class DeleteLine(EditorBlock):
    """Some lines go."""

    about: ClassVar = About("mousepad-delete-line", (EDITOR,), "easy", 11)

    @property
    def wish(self) -> str:
        return f"Delete {self.named}, and leave no empty line in their place."

    @property
    def after(self) -> list[str]:
        return [line for n, line in enumerate(self.lines) if n not in self.chosen]

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._delete(hand, self.count)

    def wrong(self, hand: OracleActions) -> Work:
        """The last one stays."""
        yield from self._delete(hand, self.count - 1)

    def _delete(self, hand: OracleActions, count: int) -> Work:
        yield from to_line(hand, self.first)
        for _ in range(count):
            yield from hand.press("shift", "down")
        yield from hand.press("delete")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class MoveOneLine(EditorLines):
    """One line gets another place, further up or down."""

    about: ClassVar = About("mousepad-move-line", (EDITOR,), "medium", 14, max_steps=30)
    number: int
    goal: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        lines = lines_of(pool, 9)
        apart = [(one, other) for one in range(9) for other in range(9) if abs(one - other) > 1]
        return cls(pool.file("txt"), lines, *pool.choose(apart))

    @property
    def wish(self) -> str:
        moved, below = self.lines[self.number], self.lines[self.goal]
        return f'Move the line "{moved}" directly above the line "{below}"; the others stay in their order.'

    @property
    def place(self) -> int:
        """Where the line must stand, counted without it."""
        return self.goal - (self.goal > self.number)

    @property
    def after(self) -> list[str]:
        lines = [line for line in self.lines if line != self.lines[self.number]]
        return [*lines[: self.place], self.lines[self.number], *lines[self.place :]]

    def _move(self, hand: OracleActions, place: int) -> Work:
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "down")
        yield from hand.press("ctrl", "x")
        yield from to_line(hand, place)
        yield from hand.press("ctrl", "v")
        yield from hand.press("ctrl", "s")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._move(hand, self.place)

    def wrong(self, hand: OracleActions) -> Work:
        """Directly below it."""
        yield from self._move(hand, self.place + 1)


@dataclass(frozen=True)
class SortLines(EditorLines):
    """The lines in alphabetical order."""

    about: ClassVar = About("mousepad-sort", (EDITOR,), "hard", 48, max_steps=80)

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        names = pool.words("name", 6)
        if names == sorted(names):
            names.reverse()
        return cls(pool.file("txt"), tuple(names))

    @property
    def wish(self) -> str:
        return "Put its names into alphabetical order, one in each line."

    @property
    def after(self) -> list[str]:
        return sorted(self.lines)

    def oracle(self, hand: OracleActions) -> Work:
        """Moves the lines by the editor's own command for it, as a person sorts cards."""
        lines = list(self.lines)
        for place, name in enumerate(self.after):
            at = lines.index(name)
            if at == place:
                continue
            yield from to_line(hand, at)
            yield from hand.press("shift", "end")
            yield from hand.press("delete")
            yield from hand.press("delete")
            yield from to_line(hand, place)
            yield from hand.type(f"{name}\n")
            lines.insert(place, lines.pop(at))
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class ChangeNumber(EditorLines):
    """One number of one line is raised by an amount."""

    about: ClassVar = About("mousepad-change-number", (EDITOR,), "medium", 8)
    number: int
    more: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.file("txt"), lines_of(pool, 6), pool.whole(1, 4), pool.number(3, 30))

    @property
    def thing(self) -> str:
        return self.lines[self.number].split()[1]

    @property
    def wish(self) -> str:
        return (
            f"Each line has a number of boxes, and what is in them. {self.more} more boxes of {self.thing} have come: "
            "change the number in that line."
        )

    @property
    def after(self) -> list[str]:
        now = f"{int(self.lines[self.number].split()[0]) + self.more} {self.thing}"
        return [now if line == self.lines[self.number] else line for line in self.lines]

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "end")
        yield from hand.type(self.after[self.number])
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class NoSuchLine(Infeasible, DeleteLine):
    """The first of the lines that are to be deleted is not there."""

    about: ClassVar = About("mousepad-no-such-line", (EDITOR,), "easy", 1, infeasible=True, twin="mousepad-delete-line")

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(line for n, line in enumerate(self.lines) if n != self.first)


@dataclass(frozen=True)
class NoSuchNumber(Infeasible, ChangeNumber):
    """No line has the number that is to be raised."""

    about: ClassVar = About(
        "mousepad-no-such-number", (EDITOR,), "hard", 1, infeasible=True, twin="mousepad-change-number"
    )

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(line for line in self.lines if line != self.lines[self.number])


TEMPLATES: Final = (DeleteLine, MoveOneLine, SortLines, ChangeNumber, NoSuchLine, NoSuchNumber)
