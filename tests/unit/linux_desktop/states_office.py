"""End states of documents, as LibreOffice writes them."""

from __future__ import annotations

from collections.abc import Iterator

from eval.benchmarks.linux_desktop.office.documents import book_file
from eval.benchmarks.linux_desktop.solutions import (
    BOLD,
    bold_word,
    book,
    cell,
    cells,
    cost_sheet,
    paragraph,
    set_cell,
    style,
    sum_sheet,
    table,
    text,
)
from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import (
    calc,
    calc_looks,
    calc_sheets,
    writer,
)
from tests.support.folder_stage import FolderStage
from tests.unit.linux_desktop.state import (
    Change,
    State,
)

FRAME = '<draw:frame text:anchor-type="as-char"><draw:text-box><text:p>x</text:p></draw:text-box></draw:frame>'


def of_sheets(task: Instance) -> Iterator[State]:
    """Documents of Calc, as LibreOffice writes them."""
    if isinstance(task, calc.SumFormula):
        total = sum(task.amounts)
        for formula in (
            "of:=SUM([.$B$2:.$B$6])",
            "of:=[.B2]+[.B3]+[.B4]+[.B5]+[.B6]",
            "of:=SUM([.B2:.B4];[.B5:.B6])",
            "of:=SUMPRODUCT([.B2:.B6])",
            "of:=SUBTOTAL(9;[.B2:.B6])",
            "of:=SUM([.B2:.B6])*1",
            "of:=COM.MICROSOFT.AGGREGATE(9;0;[.B2:.B6])",
            "of:=-(-SUM([.B2:.B6]))",
            "of:=AVERAGE([.B2:.B6])*COUNT([.B2:.B6])",
            "of:=SUM([.B1:.B7])",
        ):
            yield State(formula, "right", saved(task, sum_sheet(task, formula)))
        ranges = named_range("amounts", "$B$2:.$B$6")
        yield State("a named range", "right", saved(task, sum_sheet(task, "of:=SUM(amounts)", ranges=ranges)))
        yield State("an array formula", "right", saved(task, array_sum(task)))
        for formula in (
            f"of:={total}",
            f"of:={total}+0*SUM([.B2:.B6])",
            f"of:=IF(SUM([.B2:.B6])>0;{total};{total})",
            "of:=SUM([.C2:.C6])",
            f"of:=SUM([.B2:.B5])+{task.amounts[4]}",
            f'of:=VALUE("{total}")+0*SUM([.B2:.B6])',
            f"of:=SUM([.B2:.B6])^0*{total}",
            f"of:=SUM([.B2:.B6])-SUM([.B2:.B6])+{total}",
        ):
            yield State(formula, "wrong", saved(task, sum_sheet(task, formula)))
        grid = cells(task.rows)
        set_cell(grid, "B9", cell(float(total), formula="of:=SUM([.B2:.B6])"))
        yield State("in B9", "wrong", saved(task, book(table(grid))))
        for name, where, what in (
            ("a note in E1", "E1", cell("note")),
            ("a price is a formula", "C2", cell(float(task.prices[0]), formula="of:=1*2")),
            ("an amount is a text", "B2", cell(f"{task.amounts[0]:g}")),
            ("a heading is other", "A1", cell("things")),
            ("a price is percent", "C3", cell(float(task.prices[1]), kind="percentage")),
        ):
            grid = cells(task.rows)
            set_cell(grid, "B8", cell(float(total), formula="of:=SUM([.B2:.B6])"))
            set_cell(grid, where, what)
            yield State(name, "spoiled", saved(task, book(table(grid))))
        grid = cells(task.rows)
        set_cell(grid, "B8", cell(float(total), formula="of:=SUM([.B2:.B6])"))
        yield State("a sheet more", "spoiled", saved(task, book(table(grid), table([], "Sheet2"))))
        grid[1][0] = cell(task.things[0], style_name="ce1")
        yield State(
            "a thing is bold", "spoiled", saved(task, book(table(grid), styles=style("ce1", "table-cell", BOLD)))
        )
    if isinstance(task, calc.NewColumn):
        yield State("one array formula", "right", saved(task, array_cost(task)))
        for formula in (
            "of:=[.C{n}]*[.B{n}]",
            "of:=PRODUCT([.B{n}:.C{n}])",
            "of:=[.$B{n}]*[.$C{n}]",
            "of:=SUMPRODUCT([.B{n}];[.C{n}])",
        ):
            yield State(formula, "right", saved(task, cost_sheet(task, [formula.format(n=n) for n in range(2, 7)])))
        costs = [amount * price for amount, price in zip(task.amounts, task.prices, strict=True)]
        yield State("numbers", "wrong", saved(task, cost_sheet(task, [None] * 5)))
        zero = [f"of:={cost}+0*[.B{n}]*[.C{n}]" for n, cost in enumerate(costs, 2)]
        yield State("numbers and nothing times the cells", "wrong", saved(task, cost_sheet(task, zero)))
        one = ["of:=[.B2]*[.C2]", *[f"of:={cost}" for cost in costs[1:]]]
        yield State("one formula", "wrong", saved(task, cost_sheet(task, one)))
    if isinstance(task, calc_looks.AddSheets):
        yield from of_three_sheets(task)
    if isinstance(task, calc_looks.BoldHeadings):
        yield from of_bold_headings(task)
    if isinstance(task, calc_sheets.Percent):
        grid = cells(task.rows)
        for row, amount in enumerate(task.amounts, 2):
            set_cell(grid, f"B{row}", cell(float(amount), kind="percentage"))
            set_cell(grid, f"C{row}", cell(float(task.prices[row - 2]), kind="percentage"))
        yield State("the prices too", "spoiled", saved(task, book(table(grid))))
    if isinstance(task, calc_sheets.RemoveRow):
        hidden = "<table:table-row>" + "".join(cells(task.rows)[task.row + 1]) + "</table:table-row>"
        whole = book(table(cells(task.rows)))
        yield State("nothing removed, saved", "wrong", saved(task, whole))
        grid = cells(task.left)
        grid[1][0] = cell(str(task.left[1][0]), style_name="ce1")
        assert hidden
        yield State(
            "a thing is bold", "spoiled", saved(task, book(table(grid), styles=style("ce1", "table-cell", BOLD)))
        )
    if isinstance(task, calc_sheets.RenameSheet):
        two = book_file({task.name: task.rows, "Sheet2": []})
        yield State("a sheet more", "spoiled", saved(task, two))


def named_range(name: str, cells_of: str, sheet: str = "Sheet1") -> str:
    return (
        f'<table:named-range table:name="{name}" table:base-cell-address="${sheet}.$A$1" '
        f'table:cell-range-address="${sheet}.{cells_of}"/>'
    )


def array_sum(task: calc.SumFormula) -> bytes:
    grid = cells(task.rows)
    spans = {"number_matrix_columns_spanned": "1", "number_matrix_rows_spanned": "1"}
    set_cell(grid, "B8", cell(float(sum(task.amounts)), formula="of:=SUM([.B2:.B6])", **spans))
    return book(table(grid))


def array_cost(task: calc.NewColumn) -> bytes:
    grid = cells(task.rows)
    set_cell(grid, "D1", cell("cost"))
    for row, (amount, price) in enumerate(zip(task.amounts, task.prices, strict=True), 2):
        spans = {"number_matrix_columns_spanned": "1", "number_matrix_rows_spanned": "5"}
        more = {"formula": "of:=[.B2:.B6]*[.C2:.C6]", **spans} if row == 2 else {}
        set_cell(grid, f"D{row}", cell(float(amount * price), **more))
    return book(table(grid))


def of_three_sheets(task: calc_looks.AddSheets) -> Iterator[State]:
    one, two, new = task.names
    total = float(sum(task.numbers))

    def saved_with(formula: str, *, order: bool = True, **more: str) -> Change:
        sheets = [table(cells(rows), name) for name, rows in task.tables.items()]
        last = table([[cell(total, formula=formula)]], new)
        return saved(task, book(*([*sheets, last] if order else [last, *sheets]), **more))

    for formula in (
        f"of:=SUM([${one}.A2];[${two}.A2])",
        f"of:=SUM([${one}.A2:${two}.A2])",
        f"of:=[${two}.$A$2]+[${one}.$A$2]",
    ):
        yield State(formula, "right", saved_with(formula))
    ranges = named_range("first", "$A$2", one) + named_range("second", "$A$2", two)
    yield State("named ranges", "right", saved_with("of:=first+second", ranges=ranges))
    for formula in (
        f"of:={total:g}",
        f"of:={total:g}+0*([${one}.A2]+[${two}.A2])",
        f"of:=[${one}.A2]+{task.numbers[1]}",
    ):
        yield State(formula, "wrong", saved_with(formula))
    yield State("in front of the others", "wrong", saved_with(f"of:=[${one}.A2]+[${two}.A2]", order=False))


def of_bold_headings(task: calc_looks.BoldHeadings) -> Iterator[State]:
    def saved_with(styles: str, named: str = "", used: str = "ce1", rows: int = 1) -> Change:
        grid = cells(task.rows)
        for row in range(rows):
            grid[row] = [cell(value, style_name=used) for value in task.rows[row]]
        return saved(task, book(table(grid), styles=styles, named=named))

    strong = style("Strong", "table-cell", BOLD, "Default") + style("Default", "table-cell", "")
    yield State("by a named style", "right", saved_with("", strong, "Strong"))
    yield State(
        "by a style that builds on a bold one", "right", saved_with(style("ce1", "table-cell", "", "Strong"), strong)
    )
    yield State(
        "weight 700", "right", saved_with(style("ce1", "table-cell", '<style:text-properties fo:font-weight="700"/>'))
    )
    for name, more in (
        ("italic", 'fo:font-style="italic"'),
        ("underlined", 'style:text-underline-style="solid"'),
        ("red", 'fo:color="#ff0000"'),
        ("struck out", 'style:text-line-through-style="solid"'),
    ):
        both = f'<style:text-properties fo:font-weight="bold" {more}/>'
        yield State(f"bold and {name}", "spoiled", saved_with(style("ce1", "table-cell", both)))
        yield State(
            f"{name} alone", "wrong", saved_with(style("ce1", "table-cell", f"<style:text-properties {more}/>"))
        )
    yield State("the first row of things, too", "wrong", saved_with(style("ce1", "table-cell", BOLD), rows=2))
    columns = '<table:table-column table:number-columns-repeated="3" table:default-cell-style-name="ce1"/>'
    whole = book(table(cells(task.rows), columns=columns), styles=style("ce1", "table-cell", BOLD))
    yield State("whole columns", "wrong", saved(task, whole))


def of_texts(task: Instance) -> Iterator[State]:
    """Documents of Writer."""
    if isinstance(task, writer.BoldWord):
        strong = style("Strong_20_Emphasis", "text", BOLD)
        yield State("by a named style", "right", saved(task, bold_word(task, "Strong_20_Emphasis", named=strong)))
        builds = style("T1", "text", "", "Strong_20_Emphasis")
        yield State(
            "by a style that builds on it", "right", saved(task, bold_word(task, "T1", styles=builds, named=strong))
        )
        for name, more in (("italic", 'fo:font-style="italic"'), ("underlined", 'style:text-underline-style="solid"')):
            both = style("T1", "text", f'<style:text-properties fo:font-weight="bold" {more}/>')
            yield State(f"bold and {name}", "spoiled", saved(task, bold_word(task, "T1", styles=both)))
            alone = style("T1", "text", f"<style:text-properties {more}/>")
            yield State(f"{name} alone", "wrong", saved(task, bold_word(task, "T1", styles=alone)))
        lines = [paragraph(line, "P1" if line == task.line else "") for line in task.lines]
        whole = text(lines, style("P1", "paragraph", BOLD))
        yield State("the whole line", "wrong", saved(task, whole))
        half = task.line.replace(
            task.thing, f'<text:span text:style-name="T1">{task.thing[:-1]}</text:span>{task.thing[-1]}'
        )
        lines = [paragraph(half if line == task.line else line) for line in task.lines]
        yield State("without its last letter", "wrong", saved(task, text(lines, style("T1", "text", BOLD))))
        nested = f'<text:span text:style-name="T1"><text:span text:style-name="T2">{task.thing}</text:span></text:span>'
        lines = [paragraph(task.line.replace(task.thing, nested) if line == task.line else line) for line in task.lines]
        inner = style("T1", "text", BOLD) + style("T2", "text", "")
        yield State("within another span", "right", saved(task, text(lines, inner)))
    if isinstance(task, writer.MoveLine | writer.ReplaceWord):
        plain = [paragraph(line) for line in task.wanted]
        yield State("an empty paragraph at the end", "right", saved(task, text([*plain, paragraph("")])))
        for name, more in (
            ("a table", "<table:table><table:table-row><table:table-cell/></table:table-row></table:table>"),
            ("a comment", paragraph("<office:annotation><text:p>x</text:p></office:annotation>")),
            ("a picture", paragraph(FRAME)),
            ("a line more", paragraph("more")),
        ):
            yield State(f"with {name}", "spoiled", saved(task, text([*plain, more])))
        marked = [paragraph(task.wanted[0], "P1"), *plain[1:]]
        yield State("a line is bold", "spoiled", saved(task, text(marked, style("P1", "paragraph", BOLD))))
    if isinstance(task, writer.Heading):
        for level in (2, 3):
            lines = [
                f'<text:h text:outline-level="{level}">{line}</text:h>' if line == task.line else paragraph(line)
                for line in task.lines
            ]
            yield State(f"a heading {level}", "wrong", saved(task, text(lines)))
        lines = [f'<text:h text:outline-level="1">{line}</text:h>' for line in task.lines]
        yield State("all lines", "spoiled", saved(task, text(lines)))


def saved(task: calc.SheetTask | calc_looks.AddSheets | writer.TextTask, content: bytes) -> Change:
    async def make(stage: FolderStage) -> None:
        await stage.write_file(task.file, content)

    return make
