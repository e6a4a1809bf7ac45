"""What a formula of a saved sheet works out when the numbers change (OpenFormula 1.3, the part that sums and products
need): a number that was written down beside a reference stays the same, a formula does not."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

Scalar = str | float
Grid = Sequence[Sequence[Scalar]]
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<ref>\[[^\]]{1,200}\])|(?P<number>\d{1,15}(?:\.\d{1,15})?)|(?P<text>\"[^\"]{0,200}\")"
    r"|(?P<name>[A-Za-z_][\w.]{0,100})|(?P<sign><>|<=|>=|[-+*/^%();=<>]))"
)
_CORNER: Final = re.compile(
    r"(?:\$?(?P<sheet>'(?:[^']|'')*'|[^.\[\]:']*))?\.(?:\$?(?P<column>[A-Z]{1,3}))?(?:\$?(?P<row>\d{1,7}))?"
)
LONGEST: Final = 2000  # characters of a formula that is read
DEEPEST: Final = 40  # parts of a formula in each other, and names in each other
LARGEST: Final = 20_000  # cells of a range


class NotRead(Exception):
    """The formula has something that is not known here, or that has no value."""


@dataclass(frozen=True)
class Area:
    """The values of a range, and where its first cell is (column, row), from 0."""

    rows: tuple[tuple[Scalar, ...], ...]
    column: int
    row: int


Value = Scalar | Area


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
    reader = _Reader(text, sheets, sheet, 0)
    value = reader.all()
    if isinstance(value, Area):
        value = _one(value, array or (place[0] - value.column, place[1] - value.row))
    if isinstance(value, str) or not math.isfinite(value):
        raise NotRead("no number")
    return value


def _one(area: Area, at: tuple[int, int]) -> Scalar:
    """One value of an area; one row or one column stands for all beside it."""
    column = 0 if len(area.rows[0]) == 1 else at[0]
    row = 0 if len(area.rows) == 1 else at[1]
    if not (0 <= row < len(area.rows) and 0 <= column < len(area.rows[0])):
        raise NotRead("outside of the range")
    return area.rows[row][column]


def _number(value: Scalar) -> float:
    if isinstance(value, str):
        if value == "":
            return 0.0
        raise NotRead("a text")
    return value


_SIGNS: Final[dict[str, tuple[int, Callable[[float, float], float]]]] = {
    "=": (1, operator.eq),
    "<>": (1, operator.ne),
    "<": (1, operator.lt),
    ">": (1, operator.gt),
    "<=": (1, operator.le),
    ">=": (1, operator.ge),
    "+": (2, operator.add),
    "-": (2, operator.sub),
    "*": (3, operator.mul),
    "/": (3, operator.truediv),
    "^": (5, operator.pow),
}


def _each(sign: Callable[[float, float], float], left: Value, right: Value) -> Value:
    """An operation on two values; of areas, on each pair."""
    if not isinstance(left, Area) and not isinstance(right, Area):
        try:
            return float(sign(_number(left), _number(right)))
        except (ArithmeticError, TypeError, ValueError):
            raise NotRead("no value") from None
    first = left if isinstance(left, Area) else right
    assert isinstance(first, Area)
    high = max(len(each.rows) for each in (left, right) if isinstance(each, Area))
    wide = max(len(each.rows[0]) for each in (left, right) if isinstance(each, Area))
    rows = []
    for row in range(high):
        pairs = [
            [_one(each, (column, row)) if isinstance(each, Area) else each for each in (left, right)]
            for column in range(wide)
        ]
        rows.append(tuple(_of_pair(sign, one, other) for one, other in pairs))
    return Area(tuple(rows), first.column, first.row)


def _of_pair(sign: Callable[[float, float], float], left: Scalar, right: Scalar) -> float:
    """One value of an operation on areas; nan where there is none: who does not show it does not need it."""
    try:
        return float(sign(_number(left), _number(right)))
    except (NotRead, ArithmeticError, TypeError, ValueError):
        return math.nan


def _numbers(values: Sequence[Value]) -> list[float]:
    """All numbers, as SUM takes them: texts of ranges are passed over."""
    found: list[float] = []
    for value in values:
        if isinstance(value, Area):
            found += [each for row in value.rows for each in row if not isinstance(each, str)]
        else:
            found.append(_number(value))
    return found


def _sum_of_products(values: Sequence[Value]) -> float:
    product: Value = values[0]
    for value in values[1:]:
        product = _each(operator.mul, product, value)
    return math.fsum(_numbers([product]))


def _subtotal(values: Sequence[Value]) -> float:
    if values[0] not in (9.0, 109.0):
        raise NotRead("another subtotal")
    return math.fsum(_numbers(values[1:]))


_FUNCTIONS: Final[dict[str, Callable[[Sequence[Value]], float]]] = {
    "SUM": lambda values: math.fsum(_numbers(values)),
    "PRODUCT": lambda values: math.prod(_numbers(values)),
    "SUMPRODUCT": _sum_of_products,
    "SUBTOTAL": _subtotal,
    "AVERAGE": lambda values: math.fsum(_numbers(values)) / len(_numbers(values)),
    "COUNT": lambda values: float(len(_numbers(values))),
    "ABS": lambda values: abs(*_numbers(values)),
    "N": lambda values: _numbers(values)[0],
    "ROUND": lambda values: round(_numbers(values)[0], int((*_numbers(values), 0)[1])),
}


class _Reader:
    """Reads a formula from the left, and works it out on the way."""

    def __init__(self, text: str, sheets: Sheets, sheet: str, deep: int) -> None:
        if len(text) > LONGEST or deep > DEEPEST:
            raise NotRead("too long")
        self.sheets, self.sheet, self.deep = sheets, sheet, deep
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

    def sum(self, weakest: int) -> Value:
        """Operations that bind more than `weakest`."""
        self.deep += 1
        if self.deep > DEEPEST:
            raise NotRead("too deep")
        value = self.part()
        while (sign := _SIGNS.get(self.peek())) is not None and sign[0] > weakest:
            self.next()
            value = _each(sign[1], value, self.sum(sign[0]))
        self.deep -= 1
        return value

    def part(self) -> Value:
        kind, text = self.next()
        value: Value
        if kind == "number":
            value = float(text)
        elif kind == "text":
            value = text[1:-1]
        elif kind == "ref":
            value = self.range(text)
        elif kind == "name" and self.peek() == "(":
            value = self.call(text.upper())
        elif kind == "name":
            if text.casefold() not in self.sheets.names:
                raise NotRead(text)
            value = _Reader(self.sheets.names[text.casefold()], self.sheets, self.sheet, self.deep + 1).all()
        elif text == "(":
            value = self.sum(0)
            self.expect(")")
        elif text in "+-":
            value = _each(operator.mul, 1.0 if text == "+" else -1.0, self.sum(4))
        else:
            raise NotRead(text)
        while self.peek() == "%":
            self.next()
            value = _each(operator.truediv, value, 100.0)
        return value

    def expect(self, sign: str) -> None:
        if self.next()[1] != sign:
            raise NotRead(sign)

    def call(self, name: str) -> Value:
        if name == "OFFSET":
            return self.offset()
        if name not in _FUNCTIONS:
            raise NotRead(name)
        self.expect("(")
        values = [self.sum(0)]
        while self.peek() == ";":
            self.next()
            values.append(self.sum(0))
        self.expect(")")
        try:
            return float(_FUNCTIONS[name](values))
        except (ArithmeticError, IndexError, TypeError, ValueError):
            raise NotRead(name) from None

    def offset(self) -> Value:
        """OFFSET(cell; rows; columns; height; width), all five."""
        self.expect("(")
        first = _CORNER.fullmatch(self.next()[1].strip("[]"))
        numbers: list[int] = []
        for _ in range(4):
            self.expect(";")
            value = self.sum(0)
            if not isinstance(value, float) or value % 1:
                raise NotRead("OFFSET")
            numbers.append(int(value))
        self.expect(")")
        column, row = (None, None) if first is None else _place(first)
        down, right, high, wide = numbers
        if first is None or column is None or row is None or min(column + right, row + down, high - 1, wide - 1) < 0:
            raise NotRead("OFFSET")
        left, top = column + right, row + down
        return self.area(self.titled(first["sheet"]), (left, top), (left + wide - 1, top + high - 1))

    def titled(self, told: str | None) -> str:
        """The sheet that a reference names, or this one."""
        name = (told or "").strip()
        name = name[1:-1].replace("''", "'") if name.startswith("'") else name
        if (name or self.sheet) not in self.sheets.values:
            raise NotRead(name)
        return name or self.sheet

    def range(self, text: str) -> Value:
        first, _, last = text[1:-1].partition(":")
        one = _CORNER.fullmatch(first)
        two = _CORNER.fullmatch(last) if last else one
        if one is None or two is None:
            raise NotRead(text)
        sheet = self.titled(one["sheet"])
        (left, top), (right, bottom) = _place(one), _place(two)
        if (left is None and top is None) or (not last and (left is None or top is None)):
            raise NotRead(text)
        if not last and left is not None and top is not None:
            return _at(self.sheets.values[sheet], left, top)
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
        return Area(
            tuple(tuple(_at(rows, x, y) for x in range(left, right + 1)) for y in range(top, bottom + 1)), left, top
        )

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
