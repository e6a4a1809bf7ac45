"""The word processor of LibreOffice. The saved document is judged."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.office.document_styles import PLAIN
from eval.benchmarks.linux_desktop.office.documents import PROFILE, profile, saved_parts
from eval.benchmarks.linux_desktop.office.writing import HEADING, Written, text_file, written
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.calc import OPTIONS, save
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

WRITER: Final = "lowriter"
LINES: Final = 5


async def open_text(stage: DesktopStage, file: str, content: bytes) -> None:
    await stage.write_file(PROFILE, profile())
    await stage.write_file(file, content)
    title = file.removesuffix(".odt")  # the document is called so, and the window begins with it
    await open_window(stage, [WRITER, *OPTIONS, file], 1, title, shows="document text")


def drawn_lines(pool: WordPool) -> tuple[str, ...]:
    """Lines of four words; the second word of each is in no other line."""
    names, things = pool.words("name", LINES), pool.words("thing", LINES)
    cities, numbers = pool.words("city", LINES), pool.numbers(10, 99, LINES)
    return tuple(f"{numbers[n]} {things[n]} for {names[n]} in {cities[n]}" for n in range(LINES))


def to_line(hand: OracleActions, number: int) -> Work:
    """The cursor to the begin of a line, from 0."""
    yield from hand.press("ctrl", "home")
    for _ in range(number):
        yield from hand.press("down")


@dataclass(frozen=True)
class TextTask(Instance):
    """A text of five lines, each a paragraph."""

    file: str
    lines: tuple[str, ...]
    number: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(pool.file("odt"), drawn_lines(pool), pool.whole(1, LINES - 2))

    @property
    def line(self) -> str:
        """The line that is meant."""
        return self.lines[self.number]

    @property
    def thing(self) -> str:
        return self.line.split()[1]

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
class ReplaceWord(TextTask):
    """A word that comes several times is another one everywhere."""

    about: ClassVar = About("writer-replace", (WRITER,), "medium", 8, max_steps=35)
    asks: ClassVar = "{self.file} is open. Replace the word {self.old} by {self.new} everywhere, and save the file."
    old: str
    new: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        base = Heading.draw(pool)
        old, new = pool.words("city", 2)
        lines = tuple(
            " ".join([*line.split()[:-1], old if n % 2 == 0 else "town"]) for n, line in enumerate(base.lines)
        )
        return cls(base.file, lines, base.number, old, new)

    @property
    def wanted(self) -> list[str]:
        return [line.replace(self.old, self.new) for line in self.lines]

    def reached(self, found: Written) -> TemplateJudgement:
        return judged(("it is replaced everywhere", 1.0, found.lines == self.wanted), spoiled=self.changed(found))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_file(self.wanted)}

    def oracle(self, hand: OracleActions) -> Work:
        """Each in its place: the last word of the line is written anew."""
        for number in range(0, LINES, 2):
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
class Heading(TextTask):
    """A line becomes a heading, by its style."""

    about: ClassVar = About("writer-heading", (WRITER,), "easy", 5)
    asks: ClassVar = '{self.file} is open. Make the line "{self.line}" a Heading 1, and save the file.'

    def reached(self, found: Written) -> TemplateJudgement:
        mine = [each for each in found.paragraphs if each.text == self.line]
        heading = len(mine) == 1 and mine[0].level == 1 and HEADING in mine[0].styles
        return judged(
            ("it is a heading", 1.0, heading and self.kept(found)),
            spoiled={
                **self.changed(found, self.line),
                "the heading looks otherwise than its style": any(each.departs for each in mine),
            },
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        yield from hand.press("ctrl", "1")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By the menu."""
        yield from to_line(hand, self.number)
        yield from hand.menu("Styles", "Heading 1")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Only bold, which looks like one."""
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "end")
        yield from hand.press("ctrl", "b")
        yield from save(hand)


@dataclass(frozen=True)
class BoldWord(TextTask):
    """One word is bold."""

    about: ClassVar = About("writer-bold", (WRITER,), "medium", 7)
    asks: ClassVar = "{self.file} is open. Make the word {self.thing} bold, and nothing else, and save the file."

    def reached(self, found: Written) -> TemplateJudgement:
        mine = [each for each in found.paragraphs if each.text == self.line]
        # how each letter looks; of a space nobody sees it
        letters = [(letter, marks) for each in mine for text, marks in each.runs for letter in text if letter != " "]
        begin = self.line.replace(" ", "").index(self.thing)
        bold, plain = frozenset({"bold"}), PLAIN
        right = all(
            marks == (bold if begin <= n < begin + len(self.thing) else plain) for n, (_, marks) in enumerate(letters)
        )
        heading = any(each.level or each.listed for each in mine)
        return judged(
            ("the word is bold", 1.0, right and not heading and self.kept(found)),
            spoiled=self.changed(found, self.line),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        yield from hand.press("ctrl", "right")
        yield from hand.press("ctrl", "shift", "right")
        yield from hand.press("shift", "left")
        yield from hand.press("ctrl", "b")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Letter by letter, and the button."""
        yield from to_line(hand, self.number)
        yield from hand.press("ctrl", "right")
        for _ in self.thing:
            yield from hand.press("shift", "right")
        yield from hand.click("toggle button", "=Bold")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The whole line."""
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "end")
        yield from hand.press("ctrl", "b")
        yield from save(hand)


@dataclass(frozen=True)
class MoveLine(TextTask):
    """A line goes to the top."""

    about: ClassVar = About("writer-move", (WRITER,), "easy", 6)
    asks: ClassVar = '{self.file} is open. Move the line "{self.line}" to the top of the text, and save the file.'

    @property
    def wanted(self) -> list[str]:
        return [self.line, *(line for line in self.lines if line != self.line)]

    def reached(self, found: Written) -> TemplateJudgement:
        return judged(("it is on top", 1.0, found.lines == self.wanted), spoiled=self.changed(found))

    def targets(self) -> dict[str, bytes]:
        return {self.file: text_file(self.wanted)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from to_line(hand, self.number)
        for _ in range(self.number):
            yield from hand.press("ctrl", "alt", "up")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By cutting and pasting."""
        yield from to_line(hand, self.number)
        yield from hand.press("shift", "down")
        yield from hand.press("ctrl", "x")
        yield from hand.press("ctrl", "home")
        yield from hand.press("ctrl", "v")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Writes it on top, and leaves the old one."""
        yield from hand.press("ctrl", "home")
        yield from hand.type(f"{self.line}\n")
        yield from save(hand)


@dataclass(frozen=True)
class BulletList(TextTask):
    """All lines become a list."""

    about: ClassVar = About("writer-list", (WRITER,), "medium", 4)

    @property
    def request(self) -> str:
        first = self.lines[0]
        return f'{self.file} is open; it begins with "{first}". Make a list with bullets of all its lines, and save it.'

    def reached(self, found: Written) -> TemplateJudgement:
        listed = [each.listed for each in found.paragraphs if each.text]
        kept = self.kept(found)
        spoiled = self.changed(found)
        del spoiled["another line is in a list"]
        return judged(
            ("a line is in a list", 0.3, kept and any(listed)), ("all are", 0.7, kept and all(listed)), spoiled=spoiled
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.press("ctrl", "a")
        yield from hand.press("shift", "f12")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Line by line."""
        for number in range(LINES):
            yield from to_line(hand, number)
            yield from hand.press("shift", "f12")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Signs that only look like a list."""
        yield from hand.press("ctrl", "a")
        yield from hand.type("\n".join(f"* {line}"[:60] for line in self.lines))
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
