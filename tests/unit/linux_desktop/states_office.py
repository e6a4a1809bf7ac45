"""End states of documents, as LibreOffice writes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from eval.benchmarks.linux_desktop.office.documents import book_file, sheet_file
from eval.benchmarks.linux_desktop.solutions import (
    BOLD,
    MARKS,
    book,
    cell,
    cells,
    cost_sheet,
    frozen_sheet,
    listed,
    marked_sheet,
    marked_word,
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
        yield from of_sum(task)
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
        product = [f"of:=[.B{n}]*[.C{n}]" for n in range(2, 7)]
        beside = replace(task, column=chr(ord(task.column) + 1))
        yield State("one column further", "wrong", saved(task, cost_sheet(beside, product)))
        capitals = replace(task, heading=task.heading.upper())
        yield State("a heading in capitals", "wrong", saved(task, cost_sheet(capitals, product)))
    if isinstance(task, calc_looks.AddSheets):
        yield from of_three_sheets(task)
    if isinstance(task, calc_looks.BoldCells):
        yield from of_bold_cells(task)
    if isinstance(task, calc_sheets.SortRows):
        yield from of_sorted_rows(task)
    if isinstance(task, calc_looks.FreezeCells):
        rows, columns = task.may_freeze
        for name, *many in (
            ("the rows alone", rows, 0),
            ("the columns alone", 0, columns),
            ("a row less", rows - 1, columns),
            ("a column more", rows, columns + 1),
        ):
            yield State(name, "wrong", saved(task, frozen_sheet(task, *many)))
    if isinstance(task, calc_sheets.Percent):
        held = replace(task, columns="BC", first=2, last=6).numbers
        for each in held:
            grid = cells(task.rows)
            for name in {*task.numbers} ^ {each}:
                set_cell(grid, name, cell(held[name], kind="percentage"))
            kind = "wrong" if each in task.numbers else "spoiled"
            yield State(f"{each} as it should not be", kind, saved(task, book(table(grid))))
    if isinstance(task, calc_sheets.RemoveRow):
        whole = book(table(cells(task.rows)))
        yield State("nothing removed, saved", "wrong", saved(task, whole))
        for gone in task.gone:
            one = cells([row for row in task.rows if row[0] != gone])
            yield State(f"only {gone} removed", "wrong", saved(task, book(table(one))))
        grid = cells(task.left)
        grid[1][0] = cell(str(task.left[1][0]), style_name="ce1")
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


def of_sum(task: calc.SumFormula) -> Iterator[State]:
    total, column, other = sum(task.numbers), task.column, {"B": "C", "C": "B"}[task.column]
    amounts = f"[.{column}2:.{column}6]"
    plus = "+".join(f"[.{column}{row}]" for row in range(2, 7))
    for formula in (
        f"of:=SUM([.${column}$2:.${column}$6])",
        f"of:={plus}",
        f"of:=SUM([.{column}2:.{column}4];[.{column}5:.{column}6])",
        f"of:=SUMPRODUCT({amounts})",
        f"of:=SUBTOTAL(9;{amounts})",
        f"of:=SUM({amounts})*1",
        f"of:=COM.MICROSOFT.AGGREGATE(9;0;{amounts})",
        f"of:=-(-SUM({amounts}))",
        f"of:=AVERAGE({amounts})*COUNT({amounts})",
        f"of:=SUM([.{column}1:.{column}7])",
    ):
        yield State(formula, "right", saved(task, sum_sheet(task, formula)))
    ranges = named_range("numbers", f"${column}$2:.${column}$6")
    yield State("a named range", "right", saved(task, sum_sheet(task, "of:=SUM(numbers)", ranges=ranges)))
    yield State("an array formula", "right", saved(task, array_sum(task)))
    for formula in (
        f"of:={total}",
        f"of:={total}+0*SUM({amounts})",
        f"of:=IF(SUM({amounts})>0;{total};{total})",
        f"of:=SUM([.{other}2:.{other}6])",
        f"of:=SUM([.{column}2:.{column}5])+{task.numbers[4]}",
        f'of:=VALUE("{total}")+0*SUM({amounts})',
        f"of:=SUM({amounts})^0*{total}",
        f"of:=SUM({amounts})-SUM({amounts})+{total}",
    ):
        yield State(formula, "wrong", saved(task, sum_sheet(task, formula)))
    solved = cell(float(total), formula=f"of:=SUM({amounts})")
    below = f"{task.cell[0]}{int(task.cell[1:]) + 1}"
    for name in ("B7", below, f"D{task.cell[1:]}"):
        grid = cells(task.rows)
        set_cell(grid, name, solved)
        yield State(f"in {name}", "wrong", saved(task, book(table(grid))))
    for name, where, what in (
        ("a note in D1", "D1", cell("note")),
        ("a price is a formula", "C2", cell(float(task.prices[0]), formula="of:=1*2")),
        ("an amount is a text", "B2", cell(f"{task.amounts[0]:g}")),
        ("a heading is other", "A1", cell("things")),
        ("a price is percent", "C3", cell(float(task.prices[1]), kind="percentage")),
    ):
        grid = cells(task.rows)
        set_cell(grid, task.cell, solved)
        set_cell(grid, where, what)
        yield State(name, "spoiled", saved(task, book(table(grid))))
    grid = cells(task.rows)
    set_cell(grid, task.cell, solved)
    yield State("a sheet more", "spoiled", saved(task, book(table(grid), table([], "Sheet2"))))
    grid[1][0] = cell(task.things[0], style_name="ce1")
    bold = style("ce1", "table-cell", BOLD)
    yield State("a thing is bold", "spoiled", saved(task, book(table(grid), styles=bold)))


def array_sum(task: calc.SumFormula) -> bytes:
    grid = cells(task.rows)
    spans = {"number_matrix_columns_spanned": "1", "number_matrix_rows_spanned": "1"}
    formula = f"of:=SUM([.{task.column}2:.{task.column}6])"
    set_cell(grid, task.cell, cell(float(sum(task.numbers)), formula=formula, **spans))
    return book(table(grid))


def array_cost(task: calc.NewColumn) -> bytes:
    grid = cells(task.rows)
    set_cell(grid, f"{task.column}1", cell(task.heading))
    for row, (amount, price) in enumerate(zip(task.amounts, task.prices, strict=True), 2):
        spans = {"number_matrix_columns_spanned": "1", "number_matrix_rows_spanned": "5"}
        more = {"formula": "of:=[.B2:.B6]*[.C2:.C6]", **spans} if row == 2 else {}
        set_cell(grid, f"{task.column}{row}", cell(float(amount * price), **more))
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


def of_sorted_rows(task: calc_sheets.SortRows) -> Iterator[State]:
    by, first = {"amount": "price", "price": "amount"}, {"largest": "smallest", "smallest": "largest"}
    for name, other in (
        ("by the other column", replace(task, by=by[task.by])),
        ("the other way round", replace(task, first=first[task.first])),
    ):
        if other.sorted_rows != task.sorted_rows:
            yield State(name, "wrong", saved(task, sheet_file(other.sorted_rows, task.name)))
    yield State("not sorted", "wrong", saved(task, sheet_file(task.rows, task.name)))
    yield State("not renamed", "wrong", saved(task, sheet_file(task.sorted_rows)))
    yield State("as the city alone", "wrong", saved(task, sheet_file(task.sorted_rows, task.name.split("-")[0])))
    more = book_file({task.name: task.sorted_rows, "Sheet1": task.rows})
    yield State("the old sheet stays", "spoiled", saved(task, more))


def of_bold_cells(task: calc_looks.BoldCells) -> Iterator[State]:
    def saved_with(styles: str, named: str = "", used: str = "ce1", also: str = "") -> Change:
        return saved(task, marked_sheet(task, styles, named, used, also))

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
    beside = next(name for row in range(1, 7) for column in "ABC" if (name := f"{column}{row}") not in task.cells)
    yield State(f"{beside} too", "wrong", saved_with(style("ce1", "table-cell", BOLD), also=beside))
    fewer = replace(task, first=task.cells[1]) if task.first[0] == task.last[0] else replace(task, last=task.cells[-2])
    yield State("not all", "wrong", saved(task, marked_sheet(fewer, style("ce1", "table-cell", BOLD))))
    columns = '<table:table-column table:number-columns-repeated="3" table:default-cell-style-name="ce1"/>'
    whole = book(table(cells(task.rows), columns=columns), styles=style("ce1", "table-cell", BOLD))
    yield State("whole columns", "wrong", saved(task, whole))


def of_texts(task: Instance) -> Iterator[State]:
    """Documents of Writer."""
    if isinstance(task, writer.BoldWord):
        mark = MARKS[task.mark]
        other = next(name for name in MARKS if name != task.mark)
        strong = style("Strong_20_Emphasis", "text", mark)
        yield State("by a named style", "right", saved(task, marked_word(task, "Strong_20_Emphasis", named=strong)))
        builds = style("T1", "text", "", "Strong_20_Emphasis")
        yield State(
            "by a style that builds on it", "right", saved(task, marked_word(task, "T1", styles=builds, named=strong))
        )
        lined = '<style:text-properties style:text-underline-style="solid"/>'
        for name, more in ((other, MARKS[other]), ("underlined", lined)):
            both = style("T1", "text", mark + more)
            yield State(f"{name} too", "spoiled", saved(task, marked_word(task, "T1", styles=both)))
            alone = style("T1", "text", more)
            yield State(f"{name} alone", "wrong", saved(task, marked_word(task, "T1", styles=alone)))
        lines = [paragraph(line, "P1" if line == task.line else "") for line in task.lines]
        whole = text(lines, style("P1", "paragraph", mark))
        yield State("the whole line", "wrong", saved(task, whole))
        for place in {*writer.PLACES} - {task.place}:
            word = replace(task, place=place)
            another = marked_word(word, "T1", styles=style("T1", "text", mark))
            yield State(f"the word {word.word}", "wrong", saved(task, another))
        half = task.line.replace(
            task.word, f'<text:span text:style-name="T1">{task.word[:-1]}</text:span>{task.word[-1]}'
        )
        lines = [paragraph(half if line == task.line else line) for line in task.lines]
        yield State("without its last letter", "wrong", saved(task, text(lines, style("T1", "text", mark))))
        nested = f'<text:span text:style-name="T1"><text:span text:style-name="T2">{task.word}</text:span></text:span>'
        lines = [paragraph(task.line.replace(task.word, nested) if line == task.line else line) for line in task.lines]
        inner = style("T1", "text", mark) + style("T2", "text", "")
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

        def heading(line: str, level: int, style_name: str = "") -> str:
            named = style_name or f"Heading_20_{level}"
            return f'<text:h text:style-name="{named}" text:outline-level="{level}">{line}</text:h>'

        for level in {*range(1, 7)} - {task.level}:
            lines = [heading(line, level) if line == task.line else paragraph(line) for line in task.lines]
            yield State(f"a heading {level}", "wrong", saved(task, text(lines)))
            named = f"Heading_20_{level}"
            lines = [heading(line, task.level, named) if line == task.line else paragraph(line) for line in task.lines]
            yield State(f"the style {level} with the level", "wrong", saved(task, text(lines)))
        lines = [heading(line, task.level) for line in task.lines]
        yield State("all lines", "spoiled", saved(task, text(lines)))
    if isinstance(task, writer.BulletList):
        for name, kind, first, last in (
            ("a line less above", "wrong", task.first + 1, task.last),
            ("a line less below", "wrong", task.first, task.last - 1),
            ("a line more above", "spoiled", task.first - 1, task.last),
            ("a line more below", "spoiled", task.first, task.last + 1),
            ("all lines", "spoiled", 0, len(task.lines) - 1),
        ):
            if first >= 0 and last < len(task.lines):
                lines = [listed(line) if first <= n <= last else paragraph(line) for n, line in enumerate(task.lines)]
                yield State(name, kind, saved(task, text(lines)))
        lines = [paragraph(f"• {line}" if line in task.some else line) for line in task.lines]
        yield State("signs in the place of a list", "wrong", saved(task, text(lines)))


def saved(task: calc.SheetTask | calc_looks.AddSheets | writer.TextTask, content: bytes) -> Change:
    async def make(stage: FolderStage) -> None:
        await stage.write_file(task.file, content)

    return make
