"""Values of formulas of sheets: single ones, areas of cells, and the functions that work them out."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

Scalar = str | float
LARGEST: Final = 20_000  # cells of an area


class NotRead(Exception):
    """The formula has something that is not known here, or that has no value."""


@dataclass(frozen=True)
class Area:
    """The values of a range, and where its first cell is (column, row), from 0. sheet: "" of worked out values."""

    rows: tuple[tuple[Scalar, ...], ...]
    column: int
    row: int
    sheet: str = ""

    @property
    def high(self) -> int:
        return len(self.rows)

    @property
    def wide(self) -> int:
        return len(self.rows[0])


Value = Scalar | Area


def one_of(area: Area, at: tuple[int, int]) -> Scalar:
    """One value of an area; one row or one column stands for all beside it."""
    column = 0 if len(area.rows[0]) == 1 else at[0]
    row = 0 if len(area.rows) == 1 else at[1]
    if not (0 <= row < len(area.rows) and 0 <= column < len(area.rows[0])):
        raise NotRead("outside of the range")
    return area.rows[row][column]


def number_of(value: Scalar) -> float:
    if isinstance(value, str):
        if value == "":
            return 0.0
        raise NotRead("a text")
    return value


def text_of(value: Scalar) -> str:
    return value if isinstance(value, str) else f"{value:.15g}"


def joined(left: Scalar, right: Scalar) -> str:
    return text_of(left) + text_of(right)


def of_numbers(sign: Callable[[float, float], float]) -> Callable[[Scalar, Scalar], Scalar]:
    return lambda left, right: float(sign(number_of(left), number_of(right)))


# how strongly a sign binds, and what it works out
SIGNS: Final[dict[str, tuple[int, Callable[[Scalar, Scalar], Scalar]]]] = {
    **{sign: (1, of_numbers(of)) for sign, of in (("=", operator.eq), ("<>", operator.ne), ("<", operator.lt))},
    **{sign: (1, of_numbers(of)) for sign, of in ((">", operator.gt), ("<=", operator.le), (">=", operator.ge))},
    "&": (2, joined),
    "+": (3, of_numbers(operator.add)),
    "-": (3, of_numbers(operator.sub)),
    "*": (4, of_numbers(operator.mul)),
    "/": (4, of_numbers(operator.truediv)),
    "^": (6, of_numbers(operator.pow)),
}
SIGNED: Final = 5  # how strongly a sign in front of a number binds
TIMES: Final = of_numbers(operator.mul)


def on_each(sign: Callable[[Scalar, Scalar], Scalar], left: Value, right: Value) -> Value:
    """An operation on two values; of areas, on each pair."""
    if not isinstance(left, Area) and not isinstance(right, Area):
        try:
            return sign(left, right)
        except (ArithmeticError, TypeError, ValueError):
            raise NotRead("no value") from None
    areas = [each for each in (left, right) if isinstance(each, Area)]
    high, wide = max(each.high for each in areas), max(each.wide for each in areas)
    if high * wide > LARGEST:
        raise NotRead("too large")
    rows = []
    for row in range(high):
        pairs = [
            [one_of(each, (column, row)) if isinstance(each, Area) else each for each in (left, right)]
            for column in range(wide)
        ]
        rows.append(tuple(_of_pair(sign, one, other) for one, other in pairs))
    return Area(tuple(rows), areas[0].column, areas[0].row)


def _of_pair(sign: Callable[[Scalar, Scalar], Scalar], left: Scalar, right: Scalar) -> Scalar:
    """One value of an operation on areas; nan where there is none: who does not show it does not need it."""
    try:
        return sign(left, right)
    except (NotRead, ArithmeticError, TypeError, ValueError):
        return math.nan


def numbers_of(values: Sequence[Value]) -> list[float]:
    """All numbers, as SUM takes them: texts of ranges are passed over."""
    found: list[float] = []
    for value in values:
        if isinstance(value, Area):
            found += [each for row in value.rows for each in row if not isinstance(each, str)]
        else:
            found.append(number_of(value))
    return found


def whole(value: Value) -> int:
    """A whole number. Raises NotRead."""
    if isinstance(value, Area) or (number := number_of(value)) % 1:
        raise NotRead("no whole number")
    return int(number)


def scalar(value: Value) -> Scalar:
    if isinstance(value, Area):
        raise NotRead("an area")
    return value


def _sum(values: Sequence[Value]) -> float:
    return math.fsum(numbers_of(values))


def _sum_of_products(values: Sequence[Value]) -> float:
    product: Value = values[0]
    for value in values[1:]:
        product = on_each(TIMES, product, value)
    return _sum([product])


def _subtotal(values: Sequence[Value]) -> float:
    """Of sums alone; the other kinds are not read."""
    if values[0] not in (9.0, 109.0):
        raise NotRead("another subtotal")
    return _sum(values[1:])


def _aggregate(values: Sequence[Value]) -> float:
    """AGGREGATE(kind; what is left out; values ...)."""
    if whole(values[1]) not in range(8):
        raise NotRead("another aggregate")
    return _subtotal([values[0], *values[2:]])


_CRITERION: Final = re.compile(r"(<>|<=|>=|[<>=])?(.*)", re.DOTALL)


_COMPARED: Final = {"<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def _fits(criterion: Scalar) -> Callable[[Scalar], bool]:
    """What SUMIF asks of a cell: a number or a text, with a sign of comparison in front."""
    found = _CRITERION.fullmatch(text_of(criterion))
    assert found is not None, "fits every text"
    sign, told = found.groups()
    wanted: Scalar = told.casefold()
    with suppress(ValueError):
        wanted = float(told)
    if isinstance(wanted, str) and sign not in (None, "=", "<>"):
        raise NotRead("a text in order")

    def fits(cell: Scalar) -> bool:
        if isinstance(cell, str) != isinstance(wanted, str):
            return bool(sign == "<>")
        told = cell.casefold() if isinstance(cell, str) else cell
        return bool(_COMPARED.get(sign or "", operator.eq)(told, wanted))

    return fits


def _sum_if(values: Sequence[Value]) -> float:
    """SUMIF(cells; criterion; what is added up)."""
    return _sum_ifs([values[2] if len(values) > 2 else values[0], *values[:2]])


def _sum_ifs(values: Sequence[Value]) -> float:
    """SUMIFS(what is added up; cells; criterion; ...)."""
    first, pairs = values[0], list(zip(values[1::2], values[2::2], strict=True))
    if not isinstance(first, Area) or not pairs:
        raise NotRead("SUMIFS")
    found = []
    for y, row in enumerate(first.rows):
        for x, cell in enumerate(row):
            if all(_fits(scalar(wanted))(one_of(area, (x, y))) for area, wanted in pairs if isinstance(area, Area)):
                found.append(cell)
    return math.fsum(each for each in found if not isinstance(each, str))


def _if(values: Sequence[Value]) -> Value:
    return values[1] if number_of(scalar(values[0])) else (*values, 0.0)[2]


FUNCTIONS: Final[dict[str, Callable[[Sequence[Value]], Value]]] = {
    "SUM": _sum,
    "PRODUCT": lambda values: math.prod(numbers_of(values)),
    "SUMPRODUCT": _sum_of_products,
    "SUBTOTAL": _subtotal,
    "AGGREGATE": _aggregate,
    "COM.MICROSOFT.AGGREGATE": _aggregate,
    "IF": _if,
    "SUMIF": _sum_if,
    "SUMIFS": _sum_ifs,
    "AVERAGE": lambda values: _sum(values) / len(numbers_of(values)),
    "COUNT": lambda values: float(len(numbers_of(values))),
    "MIN": lambda values: min(numbers_of(values)),
    "MAX": lambda values: max(numbers_of(values)),
    "ABS": lambda values: abs(*numbers_of(values)),
    "INT": lambda values: float(math.floor(*numbers_of(values))),
    "N": lambda values: numbers_of(values)[0],
    "VALUE": lambda values: float(scalar(*values)),
    "ROUND": lambda values: round(numbers_of(values)[0], int((*numbers_of(values), 0)[1])),
}
