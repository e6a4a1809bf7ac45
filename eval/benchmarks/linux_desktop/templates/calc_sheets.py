"""Sheets of LibreOffice as a whole: their rows, their names, how numbers are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.office.documents import (
    Cell,
    at,
    sheet_file,
    values,
)
from eval.benchmarks.linux_desktop.office.spreadsheets import Workbook
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, Infeasible, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.calc import (
    CALC,
    ROWS,
    SHEET_NAME,
    SheetTask,
    SumFormula,
    go_to,
    save,
)


def typed(rows: list[list[Cell]]) -> str:
    """Rows as one types them: after the last cell of a row the cursor goes to the begin of the next."""
    return "".join("\t".join(cell if isinstance(cell, str) else f"{cell:g}" for cell in row) + "\n" for row in rows)


@dataclass(frozen=True)
class SortRows(SheetTask):
    """The whole table in another order."""

    about: ClassVar = About("calc-sort", (CALC,), "medium", 6)
    asks: ClassVar = (
        "{self.file} is open. Sort the rows by the amount, the largest first. The headings stay on top. Save it."
    )

    @property
    def sorted_rows(self) -> list[list[Cell]]:
        order = sorted(range(ROWS), key=lambda number: -self.amounts[number])
        return [self.rows[0], *(self.rows[number + 1] for number in order)]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        while True:
            task = super().draw(pool)
            if task.sorted_rows != task.rows:
                return task

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("the rows are sorted", 1.0, book.kept({SHEET_NAME: self.sorted_rows})))

    def targets(self) -> dict[str, bytes]:
        return {self.file: sheet_file(self.sorted_rows)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, "B2")
        yield from hand.menu("Data", "Sort Descending")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Types the rows anew."""
        yield from go_to(hand, "A2")
        yield from hand.type(typed(self.sorted_rows[1:]))
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """One column alone is typed in its order: the rows no longer belong together."""
        yield from go_to(hand, "B2")
        yield from hand.type("".join(f"{row[1]:g}\n" for row in self.sorted_rows[1:]))
        yield from save(hand)


@dataclass(frozen=True)
class CopyRows(SheetTask):
    """The rows that hold a condition, once more beside the table."""

    about: ClassVar = About("calc-copy-rows", (CALC,), "hard", 6, max_steps=35)
    asks: ClassVar = (
        "{self.file} is open. Write the headings, and below them all rows with an amount above {self.limit}, "
        "into the columns E to G from row 1 on, in the order of the table and without gaps. Leave A to C as they "
        "are. Save the file."
    )
    limit: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        while True:
            base = SumFormula.draw(pool)
            limit = sorted(base.amounts)[pool.whole(1, 2)]
            if base.amounts[0] <= limit:
                return cls(base.file, base.things, base.amounts, base.prices, limit)

    @property
    def wanted(self) -> list[list[Cell]]:
        head, *rows = self.rows
        return [head, *(row for row in rows if isinstance(row[1], float) and row[1] > self.limit)]

    def judged(self, book: Workbook) -> TemplateJudgement:
        copied = [row[4:] for row in values(book.first)]
        while copied and not copied[-1]:  # below the copy, where the table is longer
            copied.pop()
        kept = book.kept({SHEET_NAME: self.rows}, lambda sheet, name: name[0] in "EFG" and name[1].isdigit())
        return judged(
            ("the first of the rows is there", 0.3, kept and copied[:2] == self.wanted[:2]),
            ("all are there, and no others", 0.7, kept and copied == self.wanted),
        )

    def oracle(self, hand: OracleActions) -> Work:
        for number, row in enumerate(self.wanted):
            yield from go_to(hand, f"E{number + 1}")
            yield from hand.type(typed([row]))
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By copying."""
        for number, row in enumerate(self.wanted):
            place = self.rows.index(row) + 1
            yield from go_to(hand, f"A{place}:C{place}")
            yield from hand.press("ctrl", "c")
            yield from go_to(hand, f"E{number + 1}")
            yield from hand.press("ctrl", "v")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """All rows."""
        yield from go_to(hand, "A1:C6")
        yield from hand.press("ctrl", "c")
        yield from go_to(hand, "E1")
        yield from hand.press("ctrl", "v")
        yield from save(hand)


@dataclass(frozen=True)
class RemoveRow(SheetTask):
    """A row goes, and those below it move up."""

    about: ClassVar = About("calc-remove-row", (CALC,), "easy", 5)
    row: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        base = SumFormula.draw(pool)
        return cls(base.file, base.things, base.amounts, base.prices, pool.whole(0, ROWS - 2))

    @property
    def left(self) -> list[list[Cell]]:
        return [row for row in self.rows if row[0] != self.things[self.row]]

    @property
    def request(self) -> str:
        return (
            f"{self.file} is open. Remove the whole row of {self.things[self.row]}, without a gap, and save the file."
        )

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("the row is gone", 1.0, book.kept({SHEET_NAME: self.left})))

    def targets(self) -> dict[str, bytes]:
        return {self.file: sheet_file(self.left)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, f"A{self.row + 2}")
        yield from hand.menu("Sheet", "Delete Rows")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Types the rest anew, and clears the last row."""
        yield from go_to(hand, f"A{self.row + 2}")
        yield from hand.type(typed(self.left[self.row + 1 :]))
        yield from go_to(hand, "A6:C6")
        yield from hand.press("delete")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Clears its cells, which leaves a gap."""
        yield from go_to(hand, f"A{self.row + 2}:C{self.row + 2}")
        yield from hand.press("delete")
        yield from save(hand)


@dataclass(frozen=True)
class RenameSheet(SheetTask):
    """Another name for the sheet."""

    about: ClassVar = About("calc-rename-sheet", (CALC,), "easy", 5)
    asks: ClassVar = "{self.file} is open. Call its sheet {self.name}, and save the file."
    name: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        base = SumFormula.draw(pool)
        return cls(base.file, base.things, base.amounts, base.prices, pool.word("city"))

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("the sheet has the name", 1.0, book.kept({self.name: self.rows})))

    def targets(self) -> dict[str, bytes]:
        return {self.file: sheet_file(self.rows, self.name)}

    def rename(self, hand: OracleActions, name: str) -> Work:
        yield from hand.wait("dialog", "Rename Sheet")
        yield from hand.focused("text")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{name}\n")
        yield from hand.wait_gone("dialog", "Rename Sheet")

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.menu("Sheet", "Rename Sheet")
        yield from self.rename(hand, self.name)
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """A new sheet with this name: the table is copied, and the old sheet is removed."""
        yield from hand.press("ctrl", "a")
        yield from hand.press("ctrl", "c")
        yield from hand.menu("Sheet", "Insert Sheet at End")
        yield from hand.wait("dialog")
        yield from hand.focused("text")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{self.name}\n")
        yield from hand.wait_gone("dialog")
        yield from hand.press("ctrl", "v")
        yield from hand.press("ctrl", "pageup")
        yield from hand.menu("Sheet", "Delete Sheet")
        yield from hand.click("push button", "Yes")
        yield from hand.wait_gone("push button", "Yes")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Writes the name into a cell."""
        yield from go_to(hand, "A1")
        yield from hand.type(f"{self.name}\n")
        yield from save(hand)


@dataclass(frozen=True)
class Percent(SheetTask):
    """How a column is shown."""

    about: ClassVar = About("calc-percent", (CALC,), "medium", 5)
    asks: ClassVar = (
        "{self.file} is open. Show the amounts (B2 to B6) as percent, without changing their values, and nothing "
        "else. Save the file."
    )

    def judged(self, book: Workbook) -> TemplateJudgement:
        amounts = [at(book.first, f"B{number}") for number in range(2, ROWS + 2)]
        same = [(cell.value, cell.formula) for cell in amounts] == [(float(amount), "") for amount in self.amounts]
        kept = same and self.kept(book, *(f"B{number}" for number in range(2, ROWS + 2)))
        kinds = [cell.kind == "percentage" for cell in amounts]
        return judged(("one is shown as percent", 0.3, kept and any(kinds)), ("all are", 0.7, kept and all(kinds)))

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, "B2:B6")
        yield from hand.press("ctrl", "shift", "5")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By typing them with their sign."""
        yield from go_to(hand, "B2")
        yield from hand.type("".join(f"{amount * 100}%\n" for amount in self.amounts))
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """A hundredth of each, which shows the old numbers with a sign."""
        yield from go_to(hand, "B2")
        yield from hand.type("".join(f"{amount}%\n" for amount in self.amounts))
        yield from save(hand)


@dataclass(frozen=True)
class NoSuchRow(Infeasible, RemoveRow):
    """The table does not have the row."""

    about: ClassVar = About("calc-no-such-row", (CALC,), "easy", 1, infeasible=True, twin="calc-remove-row")

    @property
    def start(self) -> bytes:
        return sheet_file(self.left)


TEMPLATES: Final = (
    SortRows,
    CopyRows,
    RemoveRow,
    RenameSheet,
    Percent,
    NoSuchRow,
)
