"""The spreadsheet of LibreOffice. The saved document is judged."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.documents import (
    PROFILE,
    Cell,
    SheetCell,
    at,
    profile,
    refers_to,
    saved,
    sheet_file,
    sheets,
    values,
)
from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.hand import Hand, Work
from eval.benchmarks.linux_desktop.steps import open_window
from eval.benchmarks.linux_desktop.template import About, Infeasible, Instance, TemplateJudgement, judged
from eval.desktops.stage import DesktopStage

CALC: Final = "localc"
OPTIONS: Final = ("--norestore", "--nologo", "--nofirststartwizard")
ROWS: Final = 5


async def open_sheet(stage: DesktopStage, file: str, content: bytes) -> None:
    await stage.write_file(PROFILE, profile())
    await stage.write_file(file, content)
    await open_window(stage, [CALC, *OPTIONS, file], 1, file, shows="document spreadsheet")


def go_to(hand: Hand, cell: str) -> Work:
    """Puts the cursor into a cell: by the box for its name."""
    yield from hand.press("ctrl", "shift", "t")
    yield from hand.type(f"{cell}\n")


def save(hand: Hand) -> Work:
    yield from hand.press("ctrl", "s")


@dataclass(frozen=True)
class SheetTask(Instance):
    """A table of things, amounts and prices, in A1 to C6."""

    file: str
    things: tuple[str, ...]
    amounts: tuple[int, ...]
    prices: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        things, amounts, prices = pool.words("thing", ROWS), pool.numbers(2, 60, ROWS), pool.numbers(3, 99, ROWS)
        return cls(f"{pool.word('topic')}.ods", tuple(things), tuple(amounts), tuple(prices))

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

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        root = await saved(stage, self.file, self.start)
        found = {} if root is None else sheets(root)
        return self.judged(found, next(iter(found.values()), []))

    @abstractmethod
    def judged(self, found: dict[str, list[list[SheetCell]]], first: list[list[SheetCell]]) -> TemplateJudgement:
        """Judges the sheets by name, of which `first` is the first; without any where nothing was saved."""

    def disguise(self, path: str, text: str) -> bytes:
        return sheet_file([[text]])


def table_kept(first: list[list[SheetCell]], rows: list[list[Cell]], columns: int = 3) -> bool:
    """Whether the given rows still stand at the top."""
    return [row[:columns] for row in values(first[: len(rows)])] == [row[:columns] for row in rows]


@dataclass(frozen=True)
class SumFormula(SheetTask):
    """The sum of a column, by a formula."""

    about: ClassVar = About("calc-sum", (CALC,), "medium", 5)

    @property
    def instruction(self) -> str:
        return f"{self.file} is open. Write a formula into B8 that adds up the amounts (B2 to B6), and save the file."

    def judged(self, found: dict[str, list[list[SheetCell]]], first: list[list[SheetCell]]) -> TemplateJudgement:
        cell, total = at(first, "B8"), float(sum(self.amounts))
        kept = table_kept(first, self.rows)
        right = cell.value == total and kept
        formula = right and refers_to(cell.formula, [f"B{number}" for number in range(2, ROWS + 2)])
        return judged(("the sum is in B8", 0.5, right), ("it is a formula", 0.5, formula))

    def targets(self) -> dict[str, bytes]:
        return {}

    def oracle(self, hand: Hand) -> Work:
        yield from go_to(hand, "B8")
        yield from hand.type("=SUM(B2:B6)\n")
        yield from save(hand)

    def second(self, hand: Hand) -> Work:
        """By the arrow keys, without a function."""
        yield from hand.press("ctrl", "home")
        yield from hand.press("right")
        for _ in range(7):
            yield from hand.press("down")
        yield from hand.type("=B2+B3+B4+B5+B6\n")
        yield from save(hand)

    def wrong(self, hand: Hand) -> Work:
        """The prices."""
        yield from go_to(hand, "B8")
        yield from hand.type("=SUM(C2:C6)\n")
        yield from save(hand)


@dataclass(frozen=True)
class NewColumn(SheetTask):
    """A column with the product of two others."""

    about: ClassVar = About("calc-column", (CALC,), "hard", 10)

    @property
    def instruction(self) -> str:
        return (
            f"{self.file} is open. Add a column D with the heading cost: in each row the amount times the price, as a "
            "formula. Save the file."
        )

    def judged(self, found: dict[str, list[list[SheetCell]]], first: list[list[SheetCell]]) -> TemplateJudgement:
        kept = table_kept(first, self.rows)
        wanted = [float(amount * price) for amount, price in zip(self.amounts, self.prices, strict=True)]
        right = []
        for number, want in enumerate(wanted, 2):
            cell = at(first, f"D{number}")
            right.append(cell.value == want and refers_to(cell.formula, [f"B{number}", f"C{number}"]))
        return judged(
            ("a row has its cost", 0.2, kept and any(right)),
            ("all rows have it", 0.5, kept and all(right)),
            ("the heading is there", 0.3, kept and any(right) and at(first, "D1").value == "cost"),
        )

    def oracle(self, hand: Hand) -> Work:
        yield from go_to(hand, "D1")
        yield from hand.type("cost\n")
        for row in range(2, ROWS + 2):
            yield from hand.type(f"=B{row}*C{row}\n")
        yield from save(hand)

    def second(self, hand: Hand) -> Work:
        """One formula, filled down."""
        yield from go_to(hand, "D2")
        yield from hand.type("=C2*B2\n")
        yield from go_to(hand, "D2:D6")
        yield from hand.press("ctrl", "d")
        yield from go_to(hand, "D1")
        yield from hand.type("cost\n")
        yield from save(hand)

    def wrong(self, hand: Hand) -> Work:
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
    def instruction(self) -> str:
        return f"{self.file} is open. The price of {self.things[self.row]} is {self.price} now. Change it and save."

    def judged(self, found: dict[str, list[list[SheetCell]]], first: list[list[SheetCell]]) -> TemplateJudgement:
        rows = self.rows
        rows[self.row + 1][2] = float(self.price)
        return judged(("the price is right", 1.0, values(first) == rows))

    def targets(self) -> dict[str, bytes]:
        rows = self.rows
        rows[self.row + 1][2] = float(self.price)
        return {self.file: sheet_file(rows)}

    def oracle(self, hand: Hand) -> Work:
        yield from go_to(hand, f"C{self.row + 2}")
        yield from hand.type(f"{self.price}\n")
        yield from save(hand)

    def second(self, hand: Hand) -> Work:
        """By the arrow keys and the menu."""
        yield from hand.press("ctrl", "home")
        for key in ("right", "right", *["down"] * (self.row + 1)):
            yield from hand.press(key)
        yield from hand.type(f"{self.price}\t")
        yield from save(hand)

    def wrong(self, hand: Hand) -> Work:
        """The amount."""
        yield from go_to(hand, f"B{self.row + 2}")
        yield from hand.type(f"{self.price}\n")
        yield from save(hand)


@dataclass(frozen=True)
class NoSuchSheet(Infeasible):
    """A sheet that the document does not have."""

    about: ClassVar = About("calc-no-such-sheet", (CALC,), "medium", 1, infeasible=True)
    file: str
    sheet: str
    number: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(f"{pool.word('topic')}.ods", pool.word("city"), pool.number(10, 99))

    @property
    def content(self) -> bytes:
        return sheet_file([["number"], [float(self.number)]])

    @property
    def instruction(self) -> str:
        return f"{self.file} is open. Copy the total of its sheet {self.sheet} into A3 of the first sheet, and save it."

    async def prepare(self, stage: DesktopStage) -> None:
        await open_sheet(stage, self.file, self.content)

    def untouched(self) -> dict[str, bytes]:
        return {self.file: self.content}


TEMPLATES: Final = (SumFormula, NewColumn, ChangeCell, NoSuchSheet)
