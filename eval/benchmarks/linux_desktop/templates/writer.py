"""The word processor of LibreOffice. The saved document is judged."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.accessibility.tree import TreeNode
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.office.document_styles import PLAIN
from eval.benchmarks.linux_desktop.office.documents import PROFILE, profile, saved_parts
from eval.benchmarks.linux_desktop.office.writing import Written, text_file, written
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.calc import OPTIONS, save
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

WRITER: Final = "lowriter"
LINES: Final = 9
SHORT: Final = 5  # lines of a text in which a word is replaced
LEVELS: Final = 5  # of headings, each with a key
BOX: Final = 150  # pixels of the box for styles, at the least
PLACES: Final = (1, 3, 5)  # in a line: of the thing, the name and the city


async def open_text(stage: DesktopStage, file: str, content: bytes) -> None:
    await stage.write_file(PROFILE, profile())
    await stage.write_file(file, content)
    title = file.removesuffix(".odt")  # the document is called so, and the window begins with it
    await open_window(stage, [WRITER, *OPTIONS, file], 1, title, shows="document text")


def drawn_lines(pool: WordPool, many: int = LINES) -> tuple[str, ...]:
    """Lines of six words; the thing, the name and the city of each are in no other line."""
    names, things = pool.words("name", many), pool.words("thing", many)
    cities, numbers = pool.words("city", many), pool.numbers(10, 99, many)
    return tuple(f"{numbers[n]} {things[n]} for {names[n]} in {cities[n]}" for n in range(many))


def to_line(hand: OracleActions, number: int) -> Work:
    """The cursor to the begin of a line, from 0."""
    yield from hand.press("ctrl", "home")
    for _ in range(number):
        yield from hand.press("down")


@dataclass(frozen=True)
class TextTask(Instance):
    """A text of some lines, each a paragraph."""

    file: str
    lines: tuple[str, ...]

    @property
    def start(self) -> bytes:
        return text_file(self.lines)

    async def prepare(self, stage: DesktopStage) -> None:
        await open_text(stage, self.file, self.start)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        parts = await saved_parts(stage, self.file, self.start)
        return self.reached(Written() if parts is None else written(parts))

    @abstractmethod
    def reached(self, found: Written) -> TemplateJudgement:
        """Judges the text; it is empty where nothing was saved."""

    def kept(self, found: Written) -> bool:
        """Whether the lines are the old ones."""
        return found.lines == list(self.lines)

    def changed(self, found: Written, *but: str) -> dict[str, bool]:
        """What is spoiled: something besides lines was added or changed, or a line became a heading, a list or looks
        different. Of the lines `but`, nothing is said."""
        others = [each for each in found.paragraphs if each.text.strip() and each.text not in but]
        return {
            **dict.fromkeys(found.added, True),
            "another line is a heading": any(each.level for each in others),
            "another line is in a list": any(each.listed for each in others),
            "another line looks different": any(
                marks - {"indented"} if each.listed else marks
                for each in others
                for text, marks in each.runs
                if text.strip()
            ),
        }

    def allowed(self) -> Allowed:
        return Allowed({self.file})

    def disguise(self, path: str, text: str) -> bytes:
        return text_file([text])


@dataclass(frozen=True)
class LineTask(TextTask):
    """A task with one of the lines."""

    number: int

    @property
    def line(self) -> str:
        """The line that is meant."""
        return self.lines[self.number]


@dataclass(frozen=True)
class ReplaceWord(TextTask):
    """A word that comes several times is another one everywhere."""

    about: ClassVar = About("writer-replace", (WRITER,), "medium", 14, max_steps=35)
    asks: ClassVar = "{self.file} is open. Replace the word {self.old} by {self.new} everywhere, and save the file."
    old: str
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, drawn = pool.file("odt"), drawn_lines(pool, SHORT)
        old, city = pool.words("city", 2)
        lines = tuple(" ".join([*line.split()[:-1], old if n % 2 == 0 else "town"]) for n, line in enumerate(drawn))
        return cls(file, lines, old, f"{city}-{pool.number(10, 99)}")

    @property
    def wanted(self) -> list[str]:
        return [line.replace(self.old, self.new) for line in self.lines]

    def reached(self, found: Written) -> TemplateJudgement:
        return judged(("it is replaced everywhere", 1.0, found.lines == self.wanted), spoiled=self.changed(found))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_file(self.wanted)}

    def oracle(self, hand: OracleActions) -> Work:
        """Each in its place: the last word of the line is written anew."""
        for number in range(0, SHORT, 2):
            yield from to_line(hand, number)
            yield from hand.press("end")
            yield from hand.press("ctrl", "shift", "left")
            yield from hand.type(self.new)
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Types the whole text anew."""
        yield from hand.press("ctrl", "a")
        yield from hand.type("\n".join(self.wanted))
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The first one alone."""
        yield from to_line(hand, 0)
        yield from hand.press("end")
        yield from hand.press("ctrl", "shift", "left")
        yield from hand.type(self.new)
        yield from save(hand)


@dataclass(frozen=True)
class Heading(LineTask):
    """A line becomes a heading, by its style."""

    about: ClassVar = About("writer-heading", (WRITER,), "easy", 7)
    asks: ClassVar = '{self.file} is open. Make the line "{self.line}" a Heading {self.level}, and save the file.'
    level: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.file("odt"), drawn_lines(pool), pool.whole(0, LINES - 1), pool.whole(1, LEVELS))

    def reached(self, found: Written) -> TemplateJudgement:
        mine = [each for each in found.paragraphs if each.text == self.line]
        heading = len(mine) == 1 and mine[0].level == mine[0].heading == self.level
        return judged(
            ("it is a heading", 1.0, heading and self.kept(found)),
            spoiled={
                **self.changed(found, self.line),
                "the heading looks otherwise than its style": any(each.departs for each in mine),
            },
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        yield from hand.press("ctrl", str(self.level))
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By the box with the name of the style."""
        yield from to_line(hand, self.number)
        bar = yield from hand.wait("tool bar", "Formatting")
        assert bar.bounds is not None
        left, top, _, high = bar.bounds  # the box is its first part
        yield from hand.click_on(TreeNode(role="text", bounds=(left, top, BOX, high)))
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"Heading {self.level}\n")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Only bold, which looks like one."""
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "end")
        yield from hand.press("ctrl", "b")
        yield from save(hand)


@dataclass(frozen=True)
class BoldWord(LineTask):
    """One word is bold, or italic. `place`: of the word in its line."""

    about: ClassVar = About("writer-bold", (WRITER,), "medium", 12)
    asks: ClassVar = "{self.file} is open. Make the word {self.word} {self.mark}, and nothing else, and save the file."
    place: int
    mark: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, lines, number = pool.file("odt"), drawn_lines(pool), pool.whole(0, LINES - 1)
        return cls(file, lines, number, pool.choose(PLACES), pool.choose(("bold", "italic")))

    @property
    def word(self) -> str:
        return self.line.split()[self.place]

    def reached(self, found: Written) -> TemplateJudgement:
        mine = [each for each in found.paragraphs if each.text == self.line]
        # how each letter looks; of a space nobody sees it
        letters = [(letter, marks) for each in mine for text, marks in each.runs for letter in text if letter != " "]
        begin = sum(map(len, self.line.split()[: self.place]))
        inside = range(begin, begin + len(self.word))
        right = all(marks == ({self.mark} if n in inside else PLAIN) for n, (_, marks) in enumerate(letters))
        heading = any(each.level or each.listed for each in mine)
        return judged(
            (f"the word is {self.mark}", 1.0, right and not heading and self.kept(found)),
            spoiled=self.changed(found, self.line),
        )

    def to_word(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        for _ in range(self.place):
            yield from hand.press("ctrl", "right")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.to_word(hand)
        yield from hand.press("ctrl", "shift", "right")
        if self.place < PLACES[-1]:  # the space behind the word
            yield from hand.press("shift", "left")
        yield from hand.press("ctrl", self.mark[0])
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Letter by letter, and the button."""
        yield from self.to_word(hand)
        for _ in self.word:
            yield from hand.press("shift", "right")
        yield from hand.click("toggle button", f"={self.mark.capitalize()}")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The whole line."""
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "end")
        yield from hand.press("ctrl", self.mark[0])
        yield from save(hand)


@dataclass(frozen=True)
class MoveLine(LineTask):
    """A line goes above another one. `below`: the number of the other."""

    about: ClassVar = About("writer-move", (WRITER,), "easy", 9, max_steps=40)
    asks: ClassVar = (
        '{self.file} is open. Move the line "{self.line}" directly above the line "{self.other}", and save the file.'
    )
    below: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, lines = pool.file("odt"), drawn_lines(pool)
        places = range(LINES)
        return cls(file, lines, *pool.choose([(n, to) for n in places for to in places if to not in (n, n + 1)]))

    @property
    def other(self) -> str:
        return self.lines[self.below]

    @property
    def to(self) -> int:
        """The line's number when it is moved."""
        return self.below - (self.number < self.below)

    @property
    def wanted(self) -> list[str]:
        lines = [line for line in self.lines if line != self.line]
        return [*lines[: self.to], self.line, *lines[self.to :]]

    def reached(self, found: Written) -> TemplateJudgement:
        return judged(("it is in its place", 1.0, found.lines == self.wanted), spoiled=self.changed(found))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_file(self.wanted)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        for _ in range(abs(self.to - self.number)):
            yield from hand.press("ctrl", "alt", "up" if self.to < self.number else "down")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By cutting and pasting. What is left empty of the last line is no line."""
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "end")
        yield from hand.press("ctrl", "x")
        yield from hand.press("delete")
        yield from to_line(hand, self.to)
        yield from hand.press("ctrl", "v")
        yield from hand.press("enter")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Writes it there, and leaves the old one."""
        yield from to_line(hand, self.below)
        yield from hand.type(f"{self.line}\n")
        yield from save(hand)


@dataclass(frozen=True)
class BulletList(TextTask):
    """Some lines become a list, from the line `first` to the line `last`."""

    about: ClassVar = About("writer-list", (WRITER,), "medium", 8, max_steps=35)
    asks: ClassVar = (
        '{self.file} is open. Make a list with bullets of the lines from "{self.begin}" to "{self.end}", these two '
        "included, leave the other lines as they are, and save the file."
    )
    first: int
    last: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        file, lines = pool.file("odt"), drawn_lines(pool)
        places = range(LINES)
        return cls(file, lines, *pool.choose([(n, to) for n in places for to in places if 1 <= to - n < LINES - 1]))

    @property
    def some(self) -> tuple[str, ...]:
        """The lines that are meant."""
        return self.lines[self.first : self.last + 1]

    @property
    def begin(self) -> str:
        return self.some[0]

    @property
    def end(self) -> str:
        return self.some[-1]

    def reached(self, found: Written) -> TemplateJudgement:
        listed = [each.listed for each in found.paragraphs if each.text in self.some]
        others = any(each.listed for each in found.paragraphs if each.text.strip() and each.text not in self.some)
        kept = self.kept(found)
        return judged(
            ("a line is in the list", 0.3, kept and any(listed)),
            ("all are", 0.7, kept and all(listed)),
            spoiled={**self.changed(found), "another line is in a list": others},
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.first)
        for _ in self.some[1:]:
            yield from hand.press("shift", "down")
        yield from hand.press("shift", "end")
        yield from hand.press("shift", "f12")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Line by line, from the last one."""
        yield from to_line(hand, self.last)
        for _ in self.some[1:]:
            yield from hand.press("shift", "f12")
            yield from hand.press("up")
        yield from hand.press("shift", "f12")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """All lines."""
        yield from hand.press("ctrl", "a")
        yield from hand.press("shift", "f12")
        yield from save(hand)


@dataclass(frozen=True)
class NoSuchParagraph(Infeasible, Heading):
    """The text does not have the line."""

    about: ClassVar = About("writer-no-such-line", (WRITER,), "easy", 1, infeasible=True, twin="writer-heading")

    @property
    def start(self) -> bytes:
        return text_file([line for line in self.lines if line != self.line])


TEMPLATES: Final = (
    Heading,
    BoldWord,
    ReplaceWord,
    MoveLine,
    BulletList,
    NoSuchParagraph,
)
