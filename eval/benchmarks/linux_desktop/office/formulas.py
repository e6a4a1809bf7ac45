"""What a formula of a saved sheet works out when the numbers change (OpenFormula 1.3, the part that sums and products
need): a number that was written down beside a reference stays the same, a formula does not."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from eval.benchmarks.linux_desktop.office.formula_values import (
    FUNCTIONS,
    LARGEST,
    SIGNED,
    SIGNS,
    TIMES,
    Area,
    NotRead,
    Scalar,
    Value,
    on_each,
    one_of,
    scalar,
    whole,
)

Grid = Sequence[Sequence[Scalar]]
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<ref>\[[^\]]{1,200}\])|(?P<number>\d{1,15}(?:\.\d{1,15})?)|(?P<text>\"[^\"]{0,200}\")"
    r"|(?P<name>[A-Za-z_][\w.]{0,100})|(?P<sign><>|<=|>=|[-+*/^%&:();=<>]))"
)
_CORNER: Final = re.compile(
    r"(?:\$?(?P<sheet>'(?:[^']|'')*'|[^.\[\]:']*))?\.(?:\$?(?P<column>[A-Z]{1,3}))?(?:\$?(?P<row>\d{1,7}))?"
)
LONGEST: Final = 2000  # characters of a formula that is read
DEEPEST: Final = 40  # parts of a formula in each other, and names in each other


@dataclass(frozen=True)
class Sheets:
    """The values of all sheets by name, and the ranges that have a name, as a formula writes them ([Sheet.B2:.B6])."""

    values: Mapping[str, Grid]
    names: Mapping[str, str]


def worked_out(
    formula: str, sheets: Sheets, sheet: str, place: tuple[int, int], array: tuple[int, int] | None
) -> float:
    """The number that a formula gives in the cell `place` (column, row, from 0) of a sheet.

    array  of an array formula: which of its values this cell shows (column, row)
    Raises NotRead.
    """
    text = formula.split(":=", 1)[-1] if formula.startswith(("of:", "oooc:")) else formula.removeprefix("=")
    value = _Reader(text, sheets, sheet, place if array is None else None, 0).all()
    if isinstance(value, Area):
        value = one_of(value, array or (place[0] - value.column, place[1] - value.row))
    if isinstance(value, str) or not math.isfinite(value):
        raise NotRead("no number")
    return value


class _Reader:
    """Reads a formula from the left, and works it out on the way. place: of its cell; None in an array formula, where
    ROW() and COLUMN() are not read."""

    def __init__(self, text: str, sheets: Sheets, sheet: str, place: tuple[int, int] | None, deep: int) -> None:
        if len(text) > LONGEST or deep > DEEPEST:
            raise NotRead("too long")
        self.sheets, self.sheet, self.place, self.deep = sheets, sheet, place, deep
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise NotRead(text[at : at + 20])
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self.at = 0

    def all(self) -> Value:
        value = self.sum(0)
        if self.at < len(self.tokens):
            raise NotRead(self.tokens[self.at][1])
        return value

    def next(self) -> tuple[str, str]:
        if self.at >= len(self.tokens):
            raise NotRead("the end")
        self.at += 1
        return self.tokens[self.at - 1]

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def expect(self, sign: str) -> None:
        if self.next()[1] != sign:
            raise NotRead(sign)

    def sum(self, weakest: int) -> Value:
        """Operations that bind more than `weakest`."""
        self.deep += 1
        if self.deep > DEEPEST:
            raise NotRead("too deep")
        value = self.part()
        while (sign := SIGNS.get(self.peek())) is not None and sign[0] > weakest:
            self.next()
            value = on_each(sign[1], value, self.sum(sign[0]))
        self.deep -= 1
        return value

    def part(self) -> Value:
        kind, text = self.next()
        value: Value
        if kind == "number":
            value = float(text)
        elif kind == "text":
            value = text[1:-1]
        elif kind == "name" and self.peek() == "(" and text.upper() not in _CELLS:
            value = self.call(text.upper())
        elif kind in ("ref", "name"):
            self.at -= 1
            value = _one_cell(self.cells())
        elif text == "(":
            value = self.sum(0)
            self.expect(")")
        elif text in "+-":
            value = on_each(TIMES, 1.0 if text == "+" else -1.0, self.sum(SIGNED))
        else:
            raise NotRead(text)
        while self.peek() == "%":
            self.next()
            value = on_each(TIMES, value, 0.01)
        return value

    def call(self, name: str) -> Value:
        if name not in FUNCTIONS:
            raise NotRead(name)
        self.expect("(")
        values = [self.sum(0), *self.others()]
        try:
            return FUNCTIONS[name](values)
        except (ArithmeticError, IndexError, TypeError, ValueError):
            raise NotRead(name) from None

    def others(self) -> list[Value]:
        """The arguments behind the first, to the closing bracket."""
        values = []
        while self.peek() == ";":
            self.next()
            values.append(self.sum(0))
        self.expect(")")
        return values

    def cells(self) -> Value:
        """What a reference names; with a colon, all between two."""
        found = self.named(*self.next())
        while self.peek() == ":":
            self.next()
            other = self.named(*self.next())
            if not isinstance(found, Area) or not isinstance(other, Area) or not found.sheet == other.sheet != "":
                raise NotRead(":")
            ends = [(each.column + each.wide - 1, each.row + each.high - 1) for each in (found, other)]
            begin = min(found.column, other.column), min(found.row, other.row)
            found = self.area(found.sheet, begin, (max(x for x, _ in ends), max(y for _, y in ends)))
        return found

    def named(self, kind: str, text: str) -> Value:
        """A reference, a function that gives one, or a name."""
        if kind == "ref":
            return self.range(text)
        if self.peek() == "(" and text.upper() in _CELLS:
            self.next()
            return _CELLS[text.upper()](self)
        if kind != "name" or text.casefold() not in self.sheets.names:
            raise NotRead(text)
        told = self.sheets.names[text.casefold()]
        return _Reader(told, self.sheets, self.sheet, self.place, self.deep + 1).all()

    def first(self) -> Area:
        """The first argument of a function that wants cells, not their values. Raises NotRead."""
        before = self.at
        value = self.cells()
        if self.peek() not in (";", ")"):
            self.at = before
            value = self.sum(0)
        if not isinstance(value, Area):
            raise NotRead("no cells")
        return value

    def offset(self) -> Area:
        """OFFSET(cells; rows; columns; height; width), the last two as the cells are where they are left out."""
        area = self.first()
        told = [whole(value) for value in self.others()]
        if not 2 <= len(told) <= 4:
            raise NotRead("OFFSET")
        down, right, high, wide = (*told, *(area.high, area.wide)[len(told) - 2 :])
        left, top = area.column + right, area.row + down
        if min(left, top, high - 1, wide - 1) < 0:
            raise NotRead("OFFSET")
        return self.area(area.sheet or self.sheet, (left, top), (left + wide - 1, top + high - 1))

    def index(self) -> Area:
        """INDEX(cells; row; column); 0, or what is left out, is all of them."""
        area = self.first()
        told = [whole(value) for value in self.others()]
        row, column = (0, told[0]) if len(told) == 1 and area.high == 1 else (*told, 0, 0)[:2]
        if not 0 <= row <= area.high or not 0 <= column <= area.wide:
            raise NotRead("INDEX")
        rows = area.rows[row - 1 : row] if row else area.rows
        found = tuple(each[column - 1 : column] if column else each for each in rows)
        return Area(found, area.column + max(column - 1, 0), area.row + max(row - 1, 0), area.sheet)

    def indirect(self) -> Area:
        """INDIRECT(text), where the text is as Calc writes a reference: Sheet.B2, $Sheet.$B$2:$B$6."""
        words = scalar(self.sum(0))
        if self.others() or not isinstance(words, str):
            raise NotRead("INDIRECT")
        corners = [each if "." in each else f".{each}" for each in words.upper().split(":")]
        title = words.rpartition(".")[0] if ":" not in words else words.partition(":")[0].rpartition(".")[0]
        corners[0] = f"{title}.{corners[0].rpartition('.')[2]}"
        return self.range(f"[{':'.join(corners)}]")

    def rows(self) -> Area:
        return self.counted(1)

    def columns(self) -> Area:
        return self.counted(0)

    def counted(self, axis: int) -> Area:
        """ROW and COLUMN of cells, or of the formula's own."""
        if self.peek() == ")":
            self.next()
            if self.place is None:
                raise NotRead("in an array formula")
            return Area(((float(self.place[axis] + 1),),), *self.place)
        area = self.first()
        self.expect(")")
        if axis:
            return Area(tuple((float(area.row + y + 1),) for y in range(area.high)), area.column, area.row)
        return Area((tuple(float(area.column + x + 1) for x in range(area.wide)),), area.column, area.row)

    def titled(self, told: str | None) -> str:
        """The sheet that a reference names, or this one."""
        name = (told or "").strip().removeprefix("$")
        name = name[1:-1].replace("''", "'") if name.startswith("'") else name
        if (name or self.sheet) not in self.sheets.values:
            raise NotRead(name)
        return name or self.sheet

    def range(self, text: str) -> Area:
        first, _, last = text[1:-1].partition(":")
        one = _CORNER.fullmatch(first)
        two = _CORNER.fullmatch(last) if last else one
        if one is None or two is None:
            raise NotRead(text)
        sheet = self.titled(one["sheet"])
        (left, top), (right, bottom) = _place(one), _place(two)
        if (left is None and top is None) or (not last and (left is None or top is None)):
            raise NotRead(text)
        begin = left or 0, top or 0
        end = LARGEST if right is None else right, LARGEST if bottom is None else bottom  # whole rows, whole columns
        other = (two["sheet"] or "").strip().strip("'")
        if other not in ("", sheet):
            return self.through(sheet, other, begin, end)
        return self.area(sheet, begin, end)

    def area(self, sheet: str, begin: tuple[int, int], end: tuple[int, int]) -> Area:
        """The values between two corners (column, row)."""
        rows = self.sheets.values[sheet]
        left, right = sorted((begin[0], end[0]))
        top, bottom = sorted((begin[1], end[1]))
        # beyond what the sheet holds all is empty: whole columns are cut there
        bottom, right = min(bottom, max(top, len(rows))), min(right, left + 50)
        if (bottom - top + 1) * (right - left + 1) > LARGEST:
            raise NotRead("too large")
        values = tuple(tuple(_at(rows, x, y) for x in range(left, right + 1)) for y in range(top, bottom + 1))
        return Area(values, left, top, sheet)

    def through(self, first: str, last: str, begin: tuple[int, int], end: tuple[int, int]) -> Area:
        """The same cells of all sheets from one to another, below each other."""
        order = list(self.sheets.values)
        if last not in order:
            raise NotRead(last)
        low, high = sorted((order.index(first), order.index(last)))
        wide, tall = end[0] - begin[0] + 1, end[1] - begin[1] + 1
        if not 0 < wide * tall * (high - low + 1) <= LARGEST:
            raise NotRead("too large")
        rows = [
            tuple(_at(self.sheets.values[name], begin[0] + x, begin[1] + y) for x in range(wide))
            for name in order[low : high + 1]
            for y in range(tall)
        ]
        return Area(tuple(rows), *begin)


def _place(corner: re.Match[str]) -> tuple[int | None, int | None]:
    """Column and row, from 0; None for all of them."""
    column = 0
    for letter in corner["column"] or "":
        column = column * 26 + ord(letter) - ord("A") + 1
    return column - 1 if column else None, int(corner["row"]) - 1 if corner["row"] else None


def _at(rows: Grid, column: int, row: int) -> Scalar:
    return rows[row][column] if row < len(rows) and column < len(rows[row]) else ""


def _one_cell(value: Value) -> Value:
    """A single cell is its value."""
    return value.rows[0][0] if isinstance(value, Area) and value.high == value.wide == 1 else value


_CELLS: Final = {
    "OFFSET": _Reader.offset,
    "INDEX": _Reader.index,
    "INDIRECT": _Reader.indirect,
    "ROW": _Reader.rows,
    "COLUMN": _Reader.columns,
}
