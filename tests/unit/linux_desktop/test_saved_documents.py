"""What the judges say of documents as LibreOffice saves them (its formulas are those of OpenFormula)."""

from __future__ import annotations

from collections.abc import Mapping
from xml.sax.saxutils import quoteattr

import pytest

from eval.benchmarks.linux_desktop.all_templates import instance
from eval.benchmarks.linux_desktop.office.documents import Cell, SheetCell, parsed, refers_to, sheet_file, sheets
from eval.benchmarks.linux_desktop.office.spreadsheets import Workbook, read_workbook
from eval.benchmarks.linux_desktop.office.writing import TEXT, written
from eval.benchmarks.linux_desktop.solutions import BOLD, book, cell, style, table
from eval.benchmarks.linux_desktop.template import TemplateJudgement
from eval.benchmarks.linux_desktop.templates.calc import NewColumn, SheetTask, SumFormula
from eval.benchmarks.linux_desktop.templates.calc_sheets import CopyRows
from eval.benchmarks.linux_desktop.templates.writer import BulletList
from eval.desktops.reading import read_archive

SEED = 1_000_000


def of_rows(task: SheetTask, rows: list[list[Cell]], formulas: Mapping[str, str] | None = None) -> TemplateJudgement:
    """What is said of a sheet with these rows, whose cells of `formulas` (by name) have one."""
    (first,) = sheets(parsed(read_archive(sheet_file(rows)))).values()
    for name, formula in (formulas or {}).items():
        column, row = ord(name[0]) - ord("A"), int(name[1:]) - 1
        first[row][column] = SheetCell(first[row][column].value, formula)
    return task.judged(Workbook({"Sheet1": first}))


def sheet_task(name: str) -> SheetTask:
    task = instance(name, "test", SEED)
    assert isinstance(task, SheetTask)
    return task


@pytest.mark.parametrize(
    ("formula", "names"),
    [
        ("of:=SUM([.B2:.B6])", True),
        ("of:=SUM([.$B$2:.$B$6])", True),
        ("of:=SUM([$Sheet1.$B$2:.$B$6])", True),
        ("of:=SUM([.B1:.C9])", True),
        ("of:=[.B2]+[.B3]+[.B4]+[.B5]+[.B6]", True),
        ("of:=SUM([.$B2:.B$4])+SUM([.B5];[.B6])", True),
        ("of:=SUM([.B2:.B5])+17", False),
        ("of:=SUM([.B20:.B60])", False),
        ("of:=SUM([.AB2:.AB6])", False),
        ('of:=LEN("[.B2] B2 to B6")', False),
        ("of:=12+34", False),
        ("", False),
    ],
)
def test_a_formula_names_its_cells(formula: str, names: bool) -> None:
    assert refers_to(formula, ["B2", "B3", "B4", "B5", "B6"]) is names


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("of:=SUM([.{c}2:.{c}6])", 1.0),
        ("of:=SUM([.${c}$2:.${c}$6])", 1.0),
        ("of:=[.{c}2]+{rest}", 0.5),
        ("of:={total}", 0.5),
        ("", 0.5),
    ],
)
def test_the_sum_is_a_formula_over_what_is_asked(formula: str, value: float) -> None:
    """Those with absolute cells too; not the known sum, written as a formula."""
    task = sheet_task("calc-sum")
    assert isinstance(task, SumFormula)
    total, row, column = sum(task.numbers), int(task.cell[1:]), ord(task.cell[0]) - ord("A")
    rows: list[list[Cell]] = [*task.rows, *([] for _ in range(len(task.rows), row - 1)), [""] * column + [float(total)]]
    told = formula.format(total=total, rest=total - task.numbers[0], c=task.column)
    assert of_rows(task, rows, {task.cell: told}).value == value


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("of:=[.B{n}]*[.C{n}]", 1.0),
        ("of:=PRODUCT([.$B{n}:.$C{n}])", 1.0),
        ("of:={cost}", 0.0),
        ("of:=[.B{n}]*{price}", 0.0),
        ("", 0.0),
    ],
)
def test_a_cost_is_a_formula_over_the_amount_and_the_price(formula: str, value: float) -> None:
    task = sheet_task("calc-column")
    assert isinstance(task, NewColumn)
    gap: list[Cell] = [""] * (ord(task.column) - ord("D"))
    rows, formulas = [[*task.rows[0], *gap, task.heading]], {}
    for n, (amount, price, row) in enumerate(zip(task.amounts, task.prices, task.rows[1:], strict=True), 2):
        rows.append([*row, *gap, float(amount * price)])
        formulas[f"{task.column}{n}"] = formula.format(n=n, cost=amount * price, price=price)
    assert of_rows(task, rows, formulas).value == value


def copied_from(task: CopyRows, places: list[int]) -> TemplateJudgement:
    """With the rows that are wanted beside the rows of these numbers, from 0."""
    rows = [[*row] for row in task.rows] + [[""] * 3 for _ in range(8)]
    for place, row in zip(places, task.wanted, strict=True):
        rows[place] = [*rows[place], "", *row]
    return of_rows(task, rows)


def test_rows_are_copied_from_the_first_row_on_and_without_gaps() -> None:
    for seed in range(SEED, SEED + 20):
        task = instance("calc-copy-rows", "test", seed)
        assert isinstance(task, CopyRows)
        many = len(task.wanted)
        assert copied_from(task, list(range(many))).value == 1.0
        assert not copied_from(task, [task.rows.index(row) for row in task.wanted]).success, "each beside its own row"
        assert not copied_from(task, [0, *range(2, many + 1)]).success, "a gap below the headings"
        assert copied_from(task, list(range(2, many + 2))).value == 0.0, "from row 3 on"


def test_equal_cells_that_are_written_once_look_as_their_own_columns_say() -> None:
    """As LibreOffice writes two equal numbers side by side, of which one is bold."""
    columns = '<table:table-column/><table:table-column table:default-cell-style-name="ce1"/>'
    told = book(
        table([[cell(56.0, number_columns_repeated="2")]], columns=columns), styles=style("ce1", "table-cell", BOLD)
    )
    assert read_workbook(read_archive(told)).marked() == {"Sheet1!B1": {"bold"}}


BULLET = '<text:list-level-style-bullet text:level="1" text:style-name="Bullet_20_Symbols" text:bullet-char="•"/>'
NUMBER = '<text:list-level-style-number text:level="1" style:num-suffix="." style:num-format="1"/>'
SPACES = (
    'xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0" '
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0" '
    'xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'
)


def list_parts(task: BulletList, level: str, in_styles: bool = False) -> dict[str, bytes]:
    """Its text, with the lines that are meant in a list of this style, which the document or its styles define."""
    style = f'<text:list-style style:name="L1">{level}</text:list-style>'
    items = "".join(f"<text:list-item><text:p>{line}</text:p></text:list-item>" for line in task.some)
    above, below = (
        "".join(f"<text:p>{line}</text:p>" for line in lines)
        for lines in (task.lines[: task.first], task.lines[task.last + 1 :])
    )
    content = (
        f"<office:document-content {SPACES} office:mimetype={quoteattr(TEXT)}>"
        f"<office:automatic-styles>{'' if in_styles else style}</office:automatic-styles><office:body><office:text>"
        f'{above}<text:list text:style-name="L1">{items}</text:list>{below}'
        "</office:text></office:body></office:document-content>"
    )
    styles = f"<office:document-styles {SPACES}><office:styles>{style}</office:styles></office:document-styles>"
    return {"content.xml": content.encode(), **({"styles.xml": styles.encode()} if in_styles else {})}


@pytest.mark.parametrize("in_styles", [False, True])
def test_a_numbered_list_is_no_list_with_bullets(in_styles: bool) -> None:
    task = instance("writer-list", "test", SEED)
    assert isinstance(task, BulletList)
    assert task.reached(written(list_parts(task, BULLET, in_styles))).value == 1.0
    assert task.reached(written(list_parts(task, NUMBER, in_styles))).value == 0.0
