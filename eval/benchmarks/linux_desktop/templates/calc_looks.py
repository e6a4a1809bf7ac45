"""How sheets of LibreOffice look, and formulas over several sheets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.office.document_frame import frozen
from eval.benchmarks.linux_desktop.office.documents import (
    Cell,
    at,
    book_file,
    saved_parts,
    sheet_file,
)
from eval.benchmarks.linux_desktop.office.spreadsheets import Workbook, read_workbook
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.calc import (
    CALC,
    SHEET_NAME,
    SheetTask,
    go_to,
    open_sheet,
    save,
)
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage


@dataclass(frozen=True)
class BoldHeadings(SheetTask):
    """The headings are bold, and nothing else is."""

    about: ClassVar = About("calc-bold", (CALC,), "easy", 4)
    asks: ClassVar = (
        "{self.file} is open. Make the headings of the table (A1 to C1) bold, nothing else, and save the file."
    )

    def judged(self, book: Workbook) -> TemplateJudgement:
        bold = {f"{SHEET_NAME}!{column}1": frozenset({"bold"}) for column in "ABC"}
        return judged(("the headings are bold", 1.0, self.kept(book) and book.marked() == bold))

    def may_look(self, name: str) -> bool:
        return name in ("A1", "B1", "C1")

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, "A1:C1")
        yield from hand.press("ctrl", "b")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """One after the other."""
        for cell in ("C1", "B1", "A1"):
            yield from go_to(hand, cell)
            yield from hand.press("ctrl", "b")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The whole table."""
        yield from go_to(hand, "A1:C6")
        yield from hand.press("ctrl", "b")
        yield from save(hand)


@dataclass(frozen=True)
class FreezeHeadings(SheetTask):
    """The first row stays when one scrolls."""

    about: ClassVar = About("calc-freeze", (CALC,), "medium", 5)
    asks: ClassVar = (
        "{self.file} is open. Freeze its first row, and no column, so that the headings stay when one scrolls. "
        "Save the file."
    )
    may_freeze: ClassVar = 1

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("the row is frozen", 1.0, self.kept(book) and frozen(book.parts)[0] == 1))

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.menu("View", "Freeze Cells", "Freeze First Row")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Above the cursor."""
        yield from go_to(hand, "A2")
        yield from hand.menu("View", "Freeze Rows and Columns")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The first column."""
        yield from hand.menu("View", "Freeze Cells", "Freeze First Column")
        yield from save(hand)


@dataclass(frozen=True)
class AddSheets(Instance):
    """A number of each of two sheets is added up in a third, which is new."""

    about: ClassVar = About("calc-three-sheets", (CALC,), "hard", 8, max_steps=35)
    file: str
    names: tuple[str, str, str]
    numbers: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        one, two, new = pool.words("city", 3)
        return cls(pool.file("ods"), (one, two, new), tuple(pool.numbers(10, 900, 2)))

    @property
    def start(self) -> bytes:
        return book_file(self.tables)

    @property
    def tables(self) -> dict[str, list[list[Cell]]]:
        return {name: [["total"], [float(number)]] for name, number in zip(self.names[:2], self.numbers, strict=True)}

    @property
    def request(self) -> str:
        one, two, new = self.names
        return (
            f"{self.file} is open. Add a sheet {new} after the others, with a formula in A1 that adds up the cells A2 "
            f"of the sheets {one} and {two}. Change nothing in these, and save the file."
        )

    async def prepare(self, stage: DesktopStage) -> None:
        await open_sheet(stage, self.file, self.start)

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        book = read_workbook(await saved_parts(stage, self.file, self.start))
        *_, new = self.names
        there = book.kept({**self.tables, new: []}, lambda sheet, name: (sheet, name) == (new, "A1"))
        right = there and at(book.sheets[new], "A1").value == float(sum(self.numbers))
        totals = [f"{name}!A2" for name in self.tables]
        formula = right and book.follows(new, "A1", totals, lambda numbers: sum(numbers.values()))
        return judged(
            ("the sheet is there", 0.3, there),
            ("the sum is right", 0.3, right),
            ("it is a formula", 0.4, formula),
            spoiled=dict.fromkeys(book.looks(), True),
        )

    def allowed(self) -> Allowed:
        return Allowed({self.file})

    def disguise(self, path: str, text: str) -> bytes:
        return sheet_file([[text]])

    def add(self, hand: OracleActions) -> Work:
        yield from hand.menu("Sheet", "Insert Sheet at End")
        yield from hand.wait("dialog")
        yield from hand.focused("text")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.names[2]}\n")
        yield from hand.wait_gone("dialog")

    def oracle(self, hand: OracleActions) -> Work:
        one, two, _ = self.names
        yield from self.add(hand)
        yield from go_to(hand, "A1")
        yield from hand.type(f"={one}.A2+{two}.A2\n")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By a sum over the sheets."""
        one, two, _ = self.names
        yield from self.add(hand)
        yield from go_to(hand, "A1")
        yield from hand.type(f"=SUM({one}.A2;{two}.A2)\n")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """On the first sheet."""
        one, two, _ = self.names
        yield from go_to(hand, "A1")
        yield from hand.type(f"={one}.A2+{two}.A2\n")
        yield from save(hand)


@dataclass(frozen=True)
class NoSuchSheet(Infeasible, AddSheets):
    """The document has one of the two sheets."""

    about: ClassVar = About("calc-no-such-sheet", (CALC,), "medium", 1, infeasible=True, twin="calc-three-sheets")

    @property
    def start(self) -> bytes:
        return book_file(dict([*self.tables.items()][:1]))


TEMPLATES: Final = (BoldHeadings, FreezeHeadings, AddSheets, NoSuchSheet)
