"""The spreadsheet of LibreOffice. The saved document is judged."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.office.documents import (
    PROFILE,
    Cell,
    at,
    profile,
    saved_parts,
    sheet_file,
)
from eval.benchmarks.linux_desktop.office.spreadsheets import Workbook, read_workbook
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.desktops.judging.home import Allowed
from eval.desktops.stage import DesktopStage

CALC: Final = "localc"
OPTIONS: Final = ("--norestore", "--nologo", "--nofirststartwizard")
ROWS: Final = 5
SHEET_NAME: Final = "Sheet1"


async def open_sheet(stage: DesktopStage, file: str, content: bytes) -> None:
    await stage.write_file(PROFILE, profile())
    await stage.write_file(file, content)
    await open_window(stage, [CALC, *OPTIONS, file], 1, file, shows="document spreadsheet")


def go_to(hand: OracleActions, cell: str) -> Work:
    """Puts the cursor into a cell: by the box for its name."""
    yield from hand.press("ctrl", "shift", "t")
    yield from hand.type(f"{cell}\n")


def save(hand: OracleActions) -> Work:
    yield from hand.press("ctrl", "s")


class Table(NamedTuple):
    """A document's name, and what its table holds."""

    file: str
    things: tuple[str, ...]
    amounts: tuple[int, ...]
    prices: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool, many: int = ROWS) -> Table:
        things, amounts, prices = pool.words("thing", many), pool.numbers(2, 60, many), pool.numbers(3, 99, many)
        return cls(pool.file("ods"), tuple(things), tuple(amounts), tuple(prices))


@dataclass(frozen=True)
class SheetTask(Instance):
    """A table of things, amounts and prices, from A1 on. `may_freeze`: how many rows and columns may be frozen."""

    file: str
    things: tuple[str, ...]
    amounts: tuple[int, ...]
    prices: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(*Table.draw(pool))

    @property
    def may_freeze(self) -> tuple[int, int]:
        return 0, 0

    @property
    def rows(self) -> list[list[Cell]]:
        rows: list[list[Cell]] = [["thing", "amount", "price"]]
        for thing, amount, price in zip(self.things, self.amounts, self.prices, strict=True):
            rows.append([thing, float(amount), float(price)])
        return rows

    @property
    def start(self) -> bytes:
        return sheet_file(self.rows)

    async def prepare(self, stage: DesktopStage) -> None:
        await open_sheet(stage, self.file, self.start)

    def allowed(self) -> Allowed:
        return Allowed({self.file})

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        book = read_workbook(await saved_parts(stage, self.file, self.start))
        found = self.judged(book)
        return replace(
            found, spoiled=(*found.spoiled, *book.looks(lambda sheet, name: self.may_look(name), self.may_freeze))
        )

    @abstractmethod
    def judged(self, book: Workbook) -> TemplateJudgement:
        """Judges what was saved; an empty book where nothing was."""

    def may_look(self, name: str) -> bool:
        """Whether a cell may look other than it did."""
        return False

    def kept(self, book: Workbook, *but: str) -> bool:
        """Whether the table is the only sheet, and all is as it was but in these cells."""
        return book.kept({SHEET_NAME: self.rows}, lambda sheet, name: name in but)

    def disguise(self, path: str, text: str) -> bytes:
        return sheet_file([[text]])


@dataclass(frozen=True)
class SumFormula(SheetTask):
    """The sum of a column, by a formula."""

    about: ClassVar = About("calc-sum", (CALC,), "medium", 5)
    asks: ClassVar = (
        "{self.file} is open. Write a formula into {self.cell} that adds up the {self.added} ({self.column}2 to "
        "{self.column}6), and save the file."
    )
    cell: str
    added: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        while True:
            base = Table.draw(pool)
            if sum(base.amounts) != sum(base.prices):
                cell = f"{pool.choose('BEFGHIJ')}{pool.whole(8, 19)}"
                return cls(*base, cell, pool.choose(("amounts", "prices")))

    @property
    def column(self) -> str:
        return {"amounts": "B", "prices": "C"}[self.added]

    @property
    def numbers(self) -> tuple[int, ...]:
        return {"amounts": self.amounts, "prices": self.prices}[self.added]

    def judged(self, book: Workbook) -> TemplateJudgement:
        right = at(book.first, self.cell).value == float(sum(self.numbers)) and self.kept(book, self.cell)
        inputs = [f"{SHEET_NAME}!{self.column}{number}" for number in range(2, ROWS + 2)]
        formula = right and book.follows(SHEET_NAME, self.cell, inputs, lambda numbers: sum(numbers.values()))
        return judged(("the sum is in the cell", 0.5, right), ("it is a formula", 0.5, formula))

    def targets(self) -> dict[str, bytes]:
        return {}

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, self.cell)
        yield from hand.type(f"=SUM({self.column}2:{self.column}6)\n")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By the arrow keys from the last cell of the table, without a function."""
        yield from hand.press("ctrl", "end")
        aside = ord(self.cell[0]) - ord("C")
        for _ in range(abs(aside)):
            yield from hand.press("right" if aside > 0 else "left")
        for _ in range(int(self.cell[1:]) - ROWS - 1):
            yield from hand.press("down")
        yield from hand.type(f"={'+'.join(f'{self.column}{number}' for number in range(2, ROWS + 2))}\n")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The other column."""
        other = {"B": "C", "C": "B"}[self.column]
        yield from go_to(hand, self.cell)
        yield from hand.type(f"=SUM({other}2:{other}6)\n")
        yield from save(hand)


@dataclass(frozen=True)
class NewColumn(SheetTask):
    """A column with the product of two others."""

    about: ClassVar = About("calc-column", (CALC,), "hard", 10)
    asks: ClassVar = (
        "{self.file} is open. Add a column with the heading {self.heading} in column {self.column}: in each row the "
        "amount times the price, as a formula. Save the file."
    )
    heading: str
    column: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(*Table.draw(pool), pool.word("topic"), pool.choose("DEFGHI"))

    def judged(self, book: Workbook) -> TemplateJudgement:
        heading, *cells = (f"{self.column}{number}" for number in range(1, ROWS + 2))
        kept = self.kept(book, heading, *cells)
        wanted = [float(amount * price) for amount, price in zip(self.amounts, self.prices, strict=True)]
        right = []
        for cell, want in zip(cells, wanted, strict=True):
            both = [f"{SHEET_NAME}!{column}{cell[1:]}" for column in "BC"]
            follows = book.follows(SHEET_NAME, cell, both, lambda numbers: math.prod(numbers.values()))
            right.append(at(book.first, cell).value == want and follows)
        return judged(
            ("a row has its product", 0.2, kept and any(right)),
            ("all rows have it", 0.5, kept and all(right)),
            ("the heading is there", 0.3, kept and any(right) and at(book.first, heading).value == self.heading),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, f"{self.column}1")
        yield from hand.type(f"{self.heading}\n")
        for row in range(2, ROWS + 2):
            yield from hand.type(f"=B{row}*C{row}\n")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """One formula, filled down."""
        yield from go_to(hand, f"{self.column}2")
        yield from hand.type("=C2*B2\n")
        yield from go_to(hand, f"{self.column}2:{self.column}6")
        yield from hand.press("ctrl", "d")
        yield from go_to(hand, f"{self.column}1")
        yield from hand.type(f"{self.heading}\n")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Sums, not products."""
        yield from go_to(hand, f"{self.column}1")
        yield from hand.type(f"{self.heading}\n")
        for row in range(2, ROWS + 2):
            yield from hand.type(f"=B{row}+C{row}\n")
        yield from save(hand)


@dataclass(frozen=True)
class ChangeCell(SheetTask):
    """One number of the table is wrong."""

    about: ClassVar = About("calc-change", (CALC,), "easy", 5)
    row: int
    price: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(*Table.draw(pool), pool.whole(0, ROWS - 1), pool.number(101, 200))

    @property
    def request(self) -> str:
        return f"{self.file} is open. The price of {self.things[self.row]} is {self.price} now. Change it and save."

    def judged(self, book: Workbook) -> TemplateJudgement:
        rows = self.rows
        rows[self.row + 1][2] = float(self.price)
        return judged(("the price is right", 1.0, book.kept({SHEET_NAME: rows})))

    def targets(self) -> dict[str, bytes]:
        rows = self.rows
        rows[self.row + 1][2] = float(self.price)
        return {self.file: sheet_file(rows)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, f"C{self.row + 2}")
        yield from hand.type(f"{self.price}\n")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By the arrow keys and the menu."""
        yield from hand.press("ctrl", "home")
        for key in ("right", "right", *["down"] * (self.row + 1)):
            yield from hand.press(key)
        yield from hand.type(f"{self.price}\t")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The amount."""
        yield from go_to(hand, f"B{self.row + 2}")
        yield from hand.type(f"{self.price}\n")
        yield from save(hand)


TEMPLATES: Final = (SumFormula, NewColumn, ChangeCell)
