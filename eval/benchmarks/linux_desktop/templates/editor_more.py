"""The text editor: line ends, character sets, upper case, undo, tabs, long files, search with conditions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, Infeasible
from eval.benchmarks.linux_desktop.templates.editor_lines import EditorBlock, EditorLines, to_line
from eval.benchmarks.linux_desktop.templates.mousepad import EDITOR, lines_of


@dataclass(frozen=True)
class UpperCase(EditorLines):
    """Some lines are written in capitals; the program has a command for it."""

    about: ClassVar = About("mousepad-upper-case", (EDITOR,), "medium", 10)
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        lines = [f"{name} from {city}" for name, city in zip(pool.words("name", 6), pool.words("city", 6), strict=True)]
        return cls(pool.file("txt"), tuple(lines), tuple(sorted(pool.sample(range(6), 2))))

    @property
    def wish(self) -> str:
        one, two = (self.lines[number] for number in self.numbers)
        return (
            f'Write the two lines "{one}" and "{two}" in capital letters alone, and leave the other lines as they are.'
        )

    @property
    def after(self) -> list[str]:
        return [line.upper() if n in self.numbers else line for n, line in enumerate(self.lines)]

    def oracle(self, hand: OracleActions) -> Work:
        for number in self.numbers:
            yield from to_line(hand, number)
            yield from hand.press("shift", "end")
            yield from hand.menu("Edit", "Convert", "To Uppercase")
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """All lines."""
        yield from hand.press("ctrl", "a")
        yield from hand.menu("Edit", "Convert", "To Uppercase")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class IndentLines(EditorBlock):
    """Some lines get a tab in front."""

    about: ClassVar = About("mousepad-indent", (EDITOR,), "easy", 11)

    @property
    def wish(self) -> str:
        return f"Indent {self.named}, by one tab each."

    @property
    def after(self) -> list[str]:
        return [f"\t{line}" if n in self.chosen else line for n, line in enumerate(self.lines)]

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.select(hand)
        yield from hand.press("tab")
        yield from hand.press("ctrl", "s")

    def second(self, hand: OracleActions) -> Work:
        """Line by line."""
        yield from self._each(hand, self.count)
        yield from hand.menu("File", "=Save      ")

    def wrong(self, hand: OracleActions) -> Work:
        """The last one stays as it is."""
        yield from self._each(hand, self.count - 1)
        yield from hand.press("ctrl", "s")

    def _each(self, hand: OracleActions, count: int) -> Work:
        yield from to_line(hand, self.first)
        for _ in range(count):
            yield from hand.press("home")
            yield from hand.type("\t")
            yield from hand.press("down")


@dataclass(frozen=True)
class SpecialCharacters(EditorLines):
    """A line with signs that no key of an English keyboard has."""

    about: ClassVar = About("mousepad-special-characters", (EDITOR,), "medium", 4)
    line: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        line = f"{pool.word('city')}: Größe {pool.number(10, 99)} °C, naïve façade, {pool.number(10, 99)} £ → Ω"
        return cls(pool.file("txt"), lines_of(pool, 4), line)

    @property
    def wish(self) -> str:
        return f'Add one line above the first one, exactly "{self.line}".'

    @property
    def after(self) -> list[str]:
        return [self.line, *self.lines]

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "home")
        yield from hand.type(f"{self.line}\n")
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """Without the signs."""
        yield from hand.press("ctrl", "home")
        yield from hand.type(f"{self.line.encode('ascii', 'ignore').decode()}\n")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class DeleteRepeated(EditorLines):
    """Lines that stand there twice go the second time; two are only nearly the same."""

    about: ClassVar = About("mousepad-repeated-lines", (EDITOR,), "hard", 20, max_steps=50)

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        some = lines_of(pool, 9)
        lines = pool.shuffled([*some, f"{some[0]} x"])
        for place in sorted(pool.sample(range(2, 12), 2)):
            lines.insert(place, pool.choose([line for line in lines[:place] if lines.count(line) == 1]))
        return cls(pool.file("txt"), tuple(lines))

    @property
    def wish(self) -> str:
        return "Delete every line that stands there already further up, so that each line is there once."

    @property
    def after(self) -> list[str]:
        return list(dict.fromkeys(self.lines))

    @property
    def repeated(self) -> list[int]:
        """The places of the lines that go, the first is 0."""
        return [number for number, line in enumerate(self.lines) if line in self.lines[:number]]

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._delete(hand, self.repeated[::-1])  # the last one first: the others keep their place

    def wrong(self, hand: OracleActions) -> Work:
        """One alone."""
        yield from self._delete(hand, self.repeated[1:])

    def _delete(self, hand: OracleActions, numbers: list[int]) -> Work:
        for number in numbers:
            yield from to_line(hand, number)
            yield from hand.press("shift", "down")
            yield from hand.press("delete")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class LineOfLongFile(EditorLines):
    """One line of a long file, by its number."""

    about: ClassVar = About("mousepad-line-number", (EDITOR,), "medium", 7)
    number: int
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        names = pool.words("name", 6)
        lines = tuple(f"{names[n % 6]} {amount}" for n, amount in enumerate(pool.numbers(1000, 9999, 300)))
        return cls(pool.file("txt"), lines, pool.number(150, 280), f"{pool.word('city')} {pool.number(10, 99)}")

    @property
    def wish(self) -> str:
        return f'Replace its line {self.number}, the first line is 1, by "{self.new}", and change no other line.'

    @property
    def after(self) -> list[str]:
        return [self.new if n == self.number else line for n, line in enumerate(self.lines, 1)]

    def _replace(self, hand: OracleActions, number: int) -> Work:
        yield from hand.press("ctrl", "l")
        yield from hand.wait("dialog", "Go To")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{number}\n")
        yield from hand.wait_gone("dialog", "Go To")
        yield from hand.press("home")
        yield from hand.press("shift", "end")
        yield from hand.type(self.new)
        yield from hand.press("ctrl", "s")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._replace(hand, self.number)

    def second(self, hand: OracleActions) -> Work:
        """By the cursor, from the end."""
        yield from hand.press("ctrl", "end")
        for _ in range(len(self.lines) - self.number + 1):
            yield from hand.press("up")
        yield from hand.press("home")
        yield from hand.press("shift", "end")
        yield from hand.type(self.new)
        yield from hand.press("ctrl", "s")

    def wrong(self, hand: OracleActions) -> Work:
        """The next one."""
        yield from self._replace(hand, self.number + 1)


@dataclass(frozen=True)
class TrailingSpaces(EditorBlock):
    """Spaces at the ends of some lines, which nobody sees, go; those of other lines and at the beginning stay."""

    about: ClassVar = About("mousepad-trailing-spaces", (EDITOR,), "hard", 13, max_steps=30)

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        plain = super().draw(pool)
        others = [n for n in range(len(plain.lines)) if n not in plain.chosen]
        without = {pool.choose(plain.chosen), *pool.sample(others, 2)}
        in_front = pool.sample([*others, *plain.chosen[1:-1]], 4)
        lines = [
            ("  " if n in in_front else "") + line + ("" if n in without else " " * pool.whole(1, 3))
            for n, line in enumerate(plain.lines)
        ]
        return replace(plain, lines=tuple(lines))

    @property
    def wish(self) -> str:
        return (
            f"Many of its lines end in spaces. Remove the spaces at the ends of {self.named}; the two are quoted here "
            "without these spaces. All other spaces stay, also those at the ends of the other lines."
        )

    @property
    def after(self) -> list[str]:
        return [line.rstrip() if n in self.chosen else line for n, line in enumerate(self.lines)]

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.select(hand)
        yield from self._strip(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """All lines."""
        yield from hand.press("ctrl", "a")
        yield from self._strip(hand)

    def _strip(self, hand: OracleActions) -> Work:
        yield from hand.menu("Edit", "Convert", "Strip Trailing Spaces")
        yield from hand.press("ctrl", "s")


SEPARATORS: Final = {
    ";": "a semicolon",
    ",": "a comma",
    ":": "a colon",
    "/": "a slash",
    "=": "an equals sign",
    "@": "an at sign",
    "&": "an ampersand",
}


@dataclass(frozen=True)
class SwapColumns(EditorLines):
    """Two columns of many lines change places: a search by regular expression does it at once. Something else divides
    them then."""

    about: ClassVar = About("mousepad-swap-columns", (EDITOR,), "hard", 12)
    old: str
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        names, amounts = pool.words("name", 14), pool.numbers(100, 999, 14)
        old, new = pool.sample([*SEPARATORS], 2)
        lines = tuple(f"{name}{old}{n}" for name, n in zip(names, amounts, strict=True))
        return cls(pool.file("txt"), lines, old, new)

    @property
    def wish(self) -> str:
        return (
            f"Each line has a name and a number, divided by {SEPARATORS[self.old]}. Put the number first in every "
            f'line, and divide the two by {SEPARATORS[self.new]}, without any space, as in "12{self.new}Name".'
        )

    @property
    def after(self) -> list[str]:
        return [self.new.join(reversed(line.split(self.old))) for line in self.lines]

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._swap(hand, self.new)

    def wrong(self, hand: OracleActions) -> Work:
        """Divided as before."""
        yield from self._swap(hand, self.old)

    def _swap(self, hand: OracleActions, between: str) -> Work:
        yield from hand.press("ctrl", "r")
        yield from hand.wait("dialog", "Find and Replace")
        yield from hand.focused("text")
        yield from hand.type(f"(\\w+){self.old}(\\w+)")
        yield from hand.press("tab")
        yield from hand.type(f"\\2{between}\\1")
        yield from hand.click("check box", "egular expression")
        if hand.seen("push button", "Replace All") is None:
            yield from hand.click("check box", "Replace all")
        yield from hand.click("push button", "Replace All")
        yield from hand.press("escape")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class WholeWord(EditorLines):
    """A name is replaced as a whole word with its capital alone; longer names and small letters stay."""

    about: ClassVar = About("mousepad-whole-word", (EDITOR,), "hard", 12)
    old: str
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        old, new, other = pool.words("name", 3)
        forms = pool.shuffled([old, old, f"{old}son", old.lower(), old, other, f"{old}s"])
        lines = [
            f"{n} {form}, {thing}" for n, form, thing in zip(range(1, 8), forms, pool.words("thing", 7), strict=True)
        ]
        return cls(pool.file("txt"), tuple(lines), old, new)

    @property
    def wish(self) -> str:
        return (
            f"Replace {self.old} by {self.new} wherever it is a whole word with a capital letter. Longer names, such "
            f"as {self.old}son, and small letters, such as {self.old.lower()}, stay."
        )

    @property
    def after(self) -> list[str]:
        return [line.replace(f" {self.old},", f" {self.new},") for line in self.lines]

    def oracle(self, hand: OracleActions) -> Work:
        yield from self._replace(hand, ("Match case", "whole word"))

    def wrong(self, hand: OracleActions) -> Work:
        """Wherever it stands."""
        yield from self._replace(hand, ())

    def _replace(self, hand: OracleActions, conditions: tuple[str, ...]) -> Work:
        yield from hand.press("ctrl", "r")
        yield from hand.wait("dialog", "Find and Replace")
        yield from hand.focused("text")
        yield from hand.type(self.old)
        yield from hand.press("tab")
        yield from hand.type(self.new)
        for name in conditions:
            yield from hand.click("check box", name)
        if hand.seen("push button", "Replace All") is None:
            yield from hand.click("check box", "Replace all")
        yield from hand.click("push button", "Replace All")
        yield from hand.press("escape")
        yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class LineMissing(Infeasible, UpperCase):
    """One of the two lines is not there."""

    about: ClassVar = About(
        "mousepad-line-missing", (EDITOR,), "medium", 1, infeasible=True, twin="mousepad-upper-case"
    )

    @property
    def shown(self) -> tuple[str, ...]:
        return tuple(line for n, line in enumerate(self.lines) if n != self.numbers[1])


TEMPLATES: Final = (
    UpperCase,
    LineMissing,
    IndentLines,
    SpecialCharacters,
    DeleteRepeated,
    LineOfLongFile,
    TrailingSpaces,
    SwapColumns,
    WholeWord,
)
