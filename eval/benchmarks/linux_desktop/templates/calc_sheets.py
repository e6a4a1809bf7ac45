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
    Table,
    go_to,
    save,
)

LONG: Final = 10  # rows of the table of which two are removed


def typed(rows: list[list[Cell]]) -> str:
    """Rows as one types them: after the last cell of a row the cursor goes to the begin of the next."""
    return "".join("\t".join(cell if isinstance(cell, str) else f"{cell:g}" for cell in row) + "\n" for row in rows)


def rename_sheet(hand: OracleActions, name: str) -> Work:
    yield from hand.menu("Sheet", "Rename Sheet")
    yield from hand.wait("dialog", "Rename Sheet")
    yield from hand.focused("text")
    yield from hand.press("ctrl", "a")
    yield from hand.type(f"{name}\n")
    yield from hand.wait_gone("dialog", "Rename Sheet")


@dataclass(frozen=True)
class SortRows(SheetTask):
    """The whole table in another order, and the sheet's name says which."""

    about: ClassVar = About("calc-sort", (CALC,), "medium", 9)
    asks: ClassVar = (
        "{self.file} is open. Sort the rows by the {self.by}, the {self.first} first. The headings stay on top. "
        "Call the sheet {self.name}, and save the file."
    )
    by: str
    first: str
    name: str

    @property
    def sorted_rows(self) -> list[list[Cell]]:
        numbers = {"amount": self.amounts, "price": self.prices}[self.by]
        order = sorted(range(ROWS), key=lambda number: numbers[number], reverse=self.first == "largest")
        return [self.rows[0], *(self.rows[number + 1] for number in order)]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        while True:
            base, by = Table.draw(pool), pool.choose(("amount", "price"))
            task = cls(*base, by, pool.choose(("largest", "smallest")), pool.folder())
            if task.sorted_rows != task.rows:
                return task

    def judged(self, book: Workbook) -> TemplateJudgement:
        name = next(iter(book.sheets), "")
        right = book.kept({name: self.sorted_rows})
        named = name == self.name and (right or book.kept({name: self.rows}))
        return judged(("the rows are sorted", 0.7, right), ("the sheet has the name", 0.3, named))

    def targets(self) -> dict[str, bytes]:
        return {self.file: sheet_file(self.sorted_rows, self.name)}

    @property
    def column(self) -> int:
        return ["thing", "amount", "price"].index(self.by)

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, f"{'ABC'[self.column]}2")
        yield from hand.menu("Data", {"largest": "Sort Descending", "smallest": "Sort Ascending"}[self.first])
        yield from rename_sheet(hand, self.name)
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Types the rows anew, and the name first."""
        yield from rename_sheet(hand, self.name)
        yield from go_to(hand, "A2")
        yield from hand.type(typed(self.sorted_rows[1:]))
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """One column alone is typed in its order: the rows no longer belong together."""
        yield from go_to(hand, f"{'ABC'[self.column]}2")
        yield from hand.type("".join(f"{row[self.column]:g}\n" for row in self.sorted_rows[1:]))
        yield from rename_sheet(hand, self.name)
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
            base = Table.draw(pool)
            limit = sorted(base.amounts)[pool.whole(1, 2)]
            if base.amounts[0] <= limit:
                return cls(*base, limit)

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
    """Two rows go, and those below them move up. `row` and `other`: from 0, without the headings."""

    about: ClassVar = About("calc-remove-row", (CALC,), "easy", 9)
    asks: ClassVar = (
        "{self.file} is open. Remove the whole rows of {self.gone[0]} and {self.gone[1]}, without gaps, and save the "
        "file."
    )
    row: int
    other: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(*Table.draw(pool, LONG), *pool.sample(range(LONG), 2))

    @property
    def gone(self) -> tuple[str, str]:
        return self.things[self.row], self.things[self.other]

    @property
    def left(self) -> list[list[Cell]]:
        return [row for row in self.rows if row[0] not in self.gone]

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("the rows are gone", 1.0, book.kept({SHEET_NAME: self.left})))

    def targets(self) -> dict[str, bytes]:
        return {self.file: sheet_file(self.left)}

    def oracle(self, hand: OracleActions) -> Work:
        for place in sorted((self.row, self.other), reverse=True):
            yield from go_to(hand, f"A{place + 2}")
            yield from hand.menu("Sheet", "Delete Rows")
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """Types the others anew, and clears the last rows."""
        yield from go_to(hand, "A2")
        yield from hand.type(typed(self.left[1:]))
        yield from go_to(hand, f"A{LONG}:C{LONG + 1}")
        yield from hand.press("delete")
        yield from save(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Clears their cells, which leaves gaps."""
        for place in (self.row, self.other):
            yield from go_to(hand, f"A{place + 2}:C{place + 2}")
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
        return cls(*Table.draw(pool), pool.folder())

    def judged(self, book: Workbook) -> TemplateJudgement:
        return judged(("the sheet has the name", 1.0, book.kept({self.name: self.rows})))

    def targets(self) -> dict[str, bytes]:
        return {self.file: sheet_file(self.rows, self.name)}

    def oracle(self, hand: OracleActions) -> Work:
        yield from rename_sheet(hand, self.name)
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
    """How some cells are shown: from row `first` to row `last`, of one column or of two."""

    about: ClassVar = About("calc-percent", (CALC,), "medium", 4)
    asks: ClassVar = (
        "{self.file} is open. Show the cells {self.ends[0]} to {self.ends[1]} as percent, without changing "
        "their values, and nothing else. Save the file."
    )
    columns: str
    first: int
    last: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        table, columns = Table.draw(pool), pool.choose(("B", "C", "BC"))
        first, last = sorted(pool.sample(range(2, ROWS + 2), 2))
        return cls(*table, columns, first, last)

    @property
    def ends(self) -> tuple[str, str]:
        return f"{self.columns[0]}{self.first}", f"{self.columns[-1]}{self.last}"

    @property
    def numbers(self) -> dict[str, float]:
        """The cells, and what they hold."""
        held = {"B": self.amounts, "C": self.prices}
        places = range(self.first, self.last + 1)
        return {f"{column}{row}": float(held[column][row - 2]) for column in self.columns for row in places}

    def judged(self, book: Workbook) -> TemplateJudgement:
        found = {name: at(book.first, name) for name in self.numbers}
        same = all((cell.value, cell.formula) == (self.numbers[name], "") for name, cell in found.items())
        kept = same and self.kept(book, *found)
        kinds = [cell.kind == "percentage" for cell in found.values()]
        return judged(("one is shown as percent", 0.3, kept and any(kinds)), ("all are", 0.7, kept and all(kinds)))

    def oracle(self, hand: OracleActions) -> Work:
        yield from go_to(hand, ":".join(self.ends))
        yield from hand.press("ctrl", "shift", "5")
        yield from save(hand)

    def type_with_sign(self, hand: OracleActions, times: int) -> Work:
        for column in self.columns:
            yield from go_to(hand, f"{column}{self.first}")
            mine = (number for name, number in self.numbers.items() if name[0] == column)
            yield from hand.type("".join(f"{number * times:g}%\n" for number in mine))
        yield from save(hand)

    def second(self, hand: OracleActions) -> Work:
        """By typing them with their sign."""
        yield from self.type_with_sign(hand, 100)

    def wrong(self, hand: OracleActions) -> Work:
        """A hundredth of each, which shows the old numbers with a sign."""
        yield from self.type_with_sign(hand, 1)


@dataclass(frozen=True)
class NoSuchRow(Infeasible, RemoveRow):
    """The table does not have one of the rows."""

    about: ClassVar = About("calc-no-such-row", (CALC,), "easy", 1, infeasible=True, twin="calc-remove-row")

    @property
    def start(self) -> bytes:
        return sheet_file([row for row in self.rows if row[0] != self.gone[1]])


TEMPLATES: Final = (
    SortRows,
    CopyRows,
    RemoveRow,
    RenameSheet,
    Percent,
    NoSuchRow,
)
