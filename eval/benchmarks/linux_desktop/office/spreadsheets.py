"""A saved spreadsheet as judges ask of it: what its cells hold, what its formulas work out, what looks different."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from eval.benchmarks.linux_desktop.office.document_frame import frame_changes, frozen
from eval.benchmarks.linux_desktop.office.document_styles import PLAIN, DocumentStyles, Marks
from eval.benchmarks.linux_desktop.office.documents import Cell, SheetCell, at, parsed, qualified, refers_to, sheets
from eval.benchmarks.linux_desktop.office.formula_values import NotRead
from eval.benchmarks.linux_desktop.office.formulas import Sheets, worked_out

TRIES: Final = 3  # other numbers with which a formula is worked out
CLOSE: Final = 1e-6
# numbers that formulas need which are not read here: the second argument of some functions
HARMLESS: Final = ("0", "1", "2", "9", "109")
ADDED: Final = (
    ("office", "annotation"),
    ("table", "shapes"),
    ("draw", "frame"),
    ("table", "content-validations"),
    ("table", "data-pilot-tables"),
)
Rows = list[list[Cell]]
Numbers = Mapping[str, float]  # by the names of their cells


@dataclass
class Workbook:
    """`sheets`: the cells of each sheet by its name. `parts` is empty where nothing was saved."""

    sheets: Mapping[str, Sequence[Sequence[SheetCell]]]
    parts: Mapping[str, bytes] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # of ranges, in small letters -> as a formula writes it

    @property
    def first(self) -> Sequence[Sequence[SheetCell]]:
        return next(iter(self.sheets.values()), [])

    def kept(self, start: Mapping[str, Rows], but: Callable[[str, str], bool] = lambda sheet, name: False) -> bool:
        """Whether there are these sheets in this order, and each cell holds what it held, a number as a number and no
        formula. but: which cells of a sheet (by its name and theirs) may be anything."""
        if list(self.sheets) != list(start):
            return False
        for sheet, rows in start.items():
            found = self.sheets[sheet]
            for y in range(max(len(rows), len(found))):
                for x in range(max(len(rows[y]) if y < len(rows) else 0, len(found[y]) if y < len(found) else 0)):
                    name = f"{letters(x)}{y + 1}"
                    if but(sheet, name):
                        continue
                    was: Cell = rows[y][x] if y < len(rows) and x < len(rows[y]) else ""
                    cell = found[y][x] if y < len(found) and x < len(found[y]) else SheetCell()
                    if (cell.value, cell.formula) != (was, "") or cell.kind not in ("", "string", "float"):
                        return False
        return True

    def looks(
        self, but: Callable[[str, str], bool] = lambda sheet, name: False, freeze: tuple[int, int] = (0, 0)
    ) -> list[str]:
        """What looks other than plain, or was added beside the cells. freeze: how many rows and columns may be
        frozen."""
        found = [f"{name} looks different" for name in self.marked() if not but(*name.split("!"))]
        rows, columns = frozen(self.parts)
        if rows > freeze[0] or columns > freeze[1]:
            found.append("other rows or columns are frozen")
        if "content.xml" in self.parts:
            root = parsed(self.parts)
            found += frame_changes(self.parts)
            tags = {qualified(*each) for each in ADDED}
            found += [f"a {each.tag.rpartition('}')[2]} was added" for each in root.iter() if each.tag in tags]
            for kind in ("table-row", "table-column"):
                for each in root.iter(qualified("table", kind)):
                    if each.get(qualified("table", "visibility"), "visible") != "visible":
                        found.append(f"a {kind} is hidden")
        return found

    def marked(self) -> dict[str, Marks]:
        """The cells that hold something and are not plain, as Sheet!A1."""
        if not self.parts:
            return {}
        looks = DocumentStyles(self.parts)
        known: dict[str, Marks] = {}
        found = {}
        for sheet, rows in self.sheets.items():
            for y, row in enumerate(rows):
                for x, cell in enumerate(row):
                    marks = known.setdefault(cell.style, looks.of("table-cell", cell.style)) if cell.style else PLAIN
                    if cell.style and cell.kind != "percentage" and looks.numbered(cell.style):
                        marks |= {"numbered"}
                    if marks and (cell.value != "" or cell.formula):
                        found[f"{sheet}!{letters(x)}{y + 1}"] = marks
        return found

    def follows(self, sheet: str, name: str, inputs: Collection[str], wanted: Callable[[Numbers], float]) -> bool:
        """Whether the formula of a cell works out what is wanted, also of other numbers in the cells `inputs`
        (Sheet!B2), in all and in each alone. A formula that is not read here counts if it names all of them and has
        no number of its own."""
        cell = at(self.sheets.get(sheet, []), name)
        if not cell.formula:
            return False
        draws = random.Random(f"{name} {sorted(inputs)}")
        place = _place(name)
        drawn = [{each: float(draws.randint(1001, 9999)) for each in inputs} for _ in range(TRIES)]
        kept = {each: self._number(each) for each in inputs}  # a formula may know the numbers that are there
        for numbers in (*drawn, *({**kept, each: drawn[0][each]} for each in inputs)):
            grids = {
                title: [
                    [numbers.get(f"{title}!{letters(x)}{y + 1}", each.value) for x, each in enumerate(row)]
                    for y, row in enumerate(rows)
                ]
                for title, rows in self.sheets.items()
            }
            try:
                found = worked_out(cell.formula, Sheets(grids, self.names), sheet, place, cell.array)
            except NotRead:
                return self._only_refers(cell.formula, inputs)
            if abs(found - wanted(numbers)) > CLOSE * abs(wanted(numbers)):
                return False
        return True

    def _number(self, where: str) -> float:
        """The number in a cell (Sheet!B2); 0.0 of another value."""
        sheet, _, name = where.partition("!")
        value = at(self.sheets.get(sheet, []), name).value
        return value if isinstance(value, float) else 0.0

    def _only_refers(self, formula: str, inputs: Collection[str]) -> bool:
        whole = formula + "".join(told for name, told in self.names.items() if name in formula.casefold())
        names = [each.partition("!")[2] for each in inputs]
        titles = {each.partition("!")[0] for each in inputs}
        far = len(self.sheets) == 1 or all(title in whole for title in titles)
        rest = re.sub(r"\[[^\]]*\]", "", formula)
        own = [number for number in re.findall(r"\d+(?:\.\d+)?", rest) if number not in HARMLESS]
        return refers_to(whole, names) and far and not own and '"' not in rest


def read_workbook(parts: Mapping[str, bytes] | None) -> Workbook:
    """Raises BrokenByAgent."""
    if parts is None:
        return Workbook({})
    root = parsed(parts)
    names = {}
    for each in root.iter(qualified("table", "named-range")):
        told = each.get(qualified("table", "cell-range-address"), "")
        names[each.get(qualified("table", "name"), "").casefold()] = f"[{told}]"
    for each in root.iter(qualified("table", "named-expression")):
        told = each.get(qualified("table", "expression"), "")
        names[each.get(qualified("table", "name"), "").casefold()] = told.split(":=", 1)[-1]
    return Workbook(sheets(root), parts, names)


def letters(column: int) -> str:
    """The letters of a column, from 0."""
    found = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        found = chr(ord("A") + rest) + found
    return found


def _place(name: str) -> tuple[int, int]:
    return ord(name[0]) - ord("A"), int(name[1:]) - 1
