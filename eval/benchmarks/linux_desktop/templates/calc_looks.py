"""How sheets of LibreOffice look, and formulas over several sheets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
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
    ROWS,
    SHEET_NAME,
    SheetTask,
    Table,
    go_to,
    open_sheet,
    save,
)
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

# the corners of the parts of A1:C6 that have two cells at least, and are not all of it
PARTS: Final = [
    (f"{left}{top}", f"{right}{bottom}")
    for left, right in combinations_with_replacement("ABC", 2)
    for top, bottom in combinations_with_replacement(range(1, ROWS + 2), 2)
    if (left, top) != (right, bottom) and (left, right, top, bottom) != ("A", "C", 1, ROWS + 1)
]


@dataclass(frozen=True)
class BoldCells(SheetTask):
    """A part of the table is bold, and nothing else is."""

    about: ClassVar = About("calc-bold", (CALC,), "easy", 4)
    asks: ClassVar = (
        "{self.file} is open. Make the cells {self.first} to {self.last} bold, nothing else, and save the file."
    )
    first: str
    last: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(*Table.draw(pool), *pool.choose(PARTS))

    def judged(self, book: Workbook) -> TemplateJudgement:
        bold = {f"{SHEET_NAME}!{cell}": frozenset({"bold"}) for cell in self.cells}
        return judged(("the cells are bold", 1.0, self.kept(book) and book.marked() == bold))

    @property
    def cells(self) -> list[str]:
        """From the first to the last, row by row."""
        columns = "ABC"["ABC".index(self.first[0]) : "ABC".index(self.last[0]) + 1]
        return [f"{column}{row}" for row in range(int(self.first[1]), int(self.last[1]) + 1) for column in columns]

    def may_look(self, name: str) -> bool:
        return name in self.cells

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, f"{self.first}:{self.last}")
        yield from hand.press("ctrl", "b")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """One after the other."""
        for cell in reversed(self.cells):
            yield from go_to(hand, cell)
            yield from hand.press("ctrl", "b")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The whole table."""
        yield from go_to(hand, "A1:C6")
        yield from hand.press("ctrl", "b")
        yield from save(hand)


@dataclass(frozen=True)
class FreezeCells(SheetTask):
    """The first rows and columns stay when one scrolls. `row` and `column`: the last of them."""

    about: ClassVar = About("calc-freeze", (CALC,), "medium", 5)
    asks: ClassVar = (
        "{self.file} is open. Freeze the rows 1 to {self.row} and the columns A to {self.column}, so that they stay "
        "when one scrolls. Save the file."
    )
    row: int
    column: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(*Table.draw(pool), pool.whole(2, 9), pool.choose("BCDEFG"))

    @property
    def may_freeze(self) -> tuple[int, int]:
        return self.row, ord(self.column) - ord("A") + 1

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("they are frozen", 1.0, self.kept(book) and frozen(book.parts) == self.may_freeze))

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, f"{chr(ord(self.column) + 1)}{self.row + 1}")
        yield from hand.menu("View", "Freeze Rows and Columns")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """The first row was frozen already, and the cursor goes by the arrow keys."""
        yield from hand.menu("View", "Freeze Cells", "Freeze First Row")
        yield from hand.menu("View", "Freeze Rows and Columns")
        rows, columns = self.may_freeze
        for key in ("down",) * rows + ("right",) * columns:
            yield from hand.press(key)
        yield from hand.menu("View", "Freeze Rows and Columns")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The cursor is in the last row and column that are meant: these are left out."""
        yield from go_to(hand, f"{self.column}{self.row}")
        yield from hand.menu("View", "Freeze Rows and Columns")
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


TEMPLATES: Final = (BoldCells, FreezeCells, AddSheets, NoSuchSheet)
