"""The spreadsheet of LibreOffice. The saved document is judged."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

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


@dataclass(frozen=True)
class SheetTask(Instance):
    """A table of things, amounts and prices, in A1 to C6. `may_freeze`: how many rows may be frozen."""

    may_freeze: ClassVar = 0

    file: str
    things: tuple[str, ...]
    amounts: tuple[int, ...]
    prices: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        things, amounts, prices = pool.words("thing", ROWS), pool.numbers(2, 60, ROWS), pool.numbers(3, 99, ROWS)
        return cls(pool.file("ods"), tuple(things), tuple(amounts), tuple(prices))

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
        "{self.file} is open. Write a formula into B8 that adds up the amounts (B2 to B6), and save the file."
    )

    def judged(self, book: Workbook) -> TemplateJudgement:
        right = at(book.first, "B8").value == float(sum(self.amounts)) and self.kept(book, "B8")
        amounts = [f"{SHEET_NAME}!B{number}" for number in range(2, ROWS + 2)]
        formula = right and book.follows(SHEET_NAME, "B8", amounts, lambda numbers: sum(numbers.values()))
        return judged(("the sum is in B8", 0.5, right), ("it is a formula", 0.5, formula))

    def targets(self) -> dict[str, bytes]:
        return {}

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, "B8")
        yield from hand.type("=SUM(B2:B6)\n")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By the arrow keys, without a function."""
        yield from hand.press("ctrl", "home")
        yield from hand.press("right")
        for _ in range(7):
            yield from hand.press("down")
        yield from hand.type("=B2+B3+B4+B5+B6\n")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """The prices."""
        yield from go_to(hand, "B8")
        yield from hand.type("=SUM(C2:C6)\n")
        yield from save(hand)


@dataclass(frozen=True)
class NewColumn(SheetTask):
    """A column with the product of two others."""

    about: ClassVar = About("calc-column", (CALC,), "hard", 10)
    asks: ClassVar = (
        "{self.file} is open. Add a column D with the heading cost: in each row the amount times the price, as a "
        "formula. Save the file."
    )

    def judged(self, book: Workbook) -> TemplateJudgement:
        kept = self.kept(book, *(f"D{number}" for number in range(1, ROWS + 2)))
        wanted = [float(amount * price) for amount, price in zip(self.amounts, self.prices, strict=True)]
        right = []
        for number, want in enumerate(wanted, 2):
            both = [f"{SHEET_NAME}!{column}{number}" for column in "BC"]
            follows = book.follows(SHEET_NAME, f"D{number}", both, lambda numbers: math.prod(numbers.values()))
            right.append(at(book.first, f"D{number}").value == want and follows)
        return judged(
            ("a row has its cost", 0.2, kept and any(right)),
            ("all rows have it", 0.5, kept and all(right)),
            ("the heading is there", 0.3, kept and any(right) and at(book.first, "D1").value == "cost"),
        )

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, "D1")
        yield from hand.type("cost\n")
        for row in range(2, ROWS + 2):
            yield from hand.type(f"=B{row}*C{row}\n")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """One formula, filled down."""
        yield from go_to(hand, "D2")
        yield from hand.type("=C2*B2\n")
        yield from go_to(hand, "D2:D6")
        yield from hand.press("ctrl", "d")
        yield from go_to(hand, "D1")
        yield from hand.type("cost\n")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Sums, not products."""
        yield from go_to(hand, "D1")
        yield from hand.type("cost\n")
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
        base = SumFormula.draw(pool)
        return cls(base.file, base.things, base.amounts, base.prices, pool.whole(0, ROWS - 1), pool.number(101, 200))

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
