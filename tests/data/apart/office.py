"""End states of the tasks with Calc and Writer; real LibreOffice changes and saves the documents."""

from collections.abc import Sequence
from pathlib import Path

from tests.data.apart.kit import Home, State, states

BOLD, ITALIC = "CharWeight = 150", "CharPosture = com.sun.star.awt.FontSlant.ITALIC"


def at(cells: str, sheet: int = 0) -> str:
    return f'doc.Sheets({sheet}).getCellRangeByName("{cells}")'


def value(cell: str, number: object, sheet: int = 0) -> str:
    return f"{at(cell, sheet)}.Value = {number}\n"


def text(cell: str, words: str, sheet: int = 0) -> str:
    return f'{at(cell, sheet)}.String = "{words}"\n'


def formula(cell: str, words: str, sheet: int = 0) -> str:
    return f'{at(cell, sheet)}.Formula = "{words}"\n'


def edit(*programs: str) -> State:
    return lambda home: home.office("\n".join(programs))


def document(home: Home) -> Path:
    return next(path for path in home.path.iterdir() if path.suffix in (".ods", ".odt"))


def traces(home: Home) -> Home:
    """What LibreOffice writes on its own, the document still open."""
    return home.later(written)


def written(home: Home) -> Home:
    user = ".config/libreoffice/4/user"
    path = document(home)
    entry = '<item oor:path="/org.openoffice.Office.Views/Windows"/></oor:items>'
    home.swap(f"{user}/registrymodifications.xcu", "</oor:items>", entry)
    home.put(f"{user}/basic/script.xlc", "<x/>").put(f"{user}/database/biblio.odb", b"PK").put(
        f"{user}/config/javasettings_Linux_X86_64.xml", "<x/>"
    )
    return home.put(f".~lock.{path.name}#", ",root,desk,02.01.2027 03:04,file:///root/.config/libreoffice/4;").recent(
        path.name
    )


def elsewhere(name: str, *programs: str) -> State:
    """The work saved under another name, the document as it was."""

    def made(home: Home) -> Home:
        path = document(home)
        content = path.read_bytes()
        home.office("\n".join(programs))
        return home.later(lambda home: home.move(path.name, name).put(path.name, content))

    return made


def style(range_: str, *settings: str) -> str:
    made = 's = doc.createInstance("com.sun.star.style.CellStyle")\ndoc.StyleFamilies.getByName("CellStyles").insertByName("Mine", s)\n'  # noqa: E501
    return made + "".join(f"s.{setting}\n" for setting in settings) + f'{at(range_)}.CellStyle = "Mine"\n'


HEADS = f"{at('A1:C1')}.{BOLD}\n"
PART = f"{at('C3:C4')}.{BOLD}\n"
states(
    "calc-bold",
    right_directly=edit(PART),
    right_one_by_one=edit(*(f"{at(c)}.{BOLD}" for c in ("C4", "C3"))),
    right_by_a_style=edit(style("C3:C4", BOLD)),
    right_with_traces=lambda home: traces(home.office(PART)),
    right_heavier=edit(f"{at('C3:C4')}.CharWeight = 200"),
    wrong_one=edit(f"{at('C3')}.{BOLD}"),
    wrong_italic=edit(f"{at('C3:C4')}.{ITALIC}"),
    wrong_row_below=edit(f"{at('C4:C5')}.{BOLD}"),
    wrong_column_beside=edit(f"{at('B3:B4')}.{BOLD}"),
    wrong_larger=edit(f"{at('C3:C4')}.CharHeight = 14"),
    wrong_saved_elsewhere=elsewhere("visitors-38 bold.ods", PART),
    wrong_style_of_other_name=edit(style("C3:C4", ITALIC)),
    spoiled_italic_too=edit(PART, f"{at('C3:C4')}.{ITALIC}"),
    spoiled_underlined=edit(PART, f"{at('C3:C4')}.CharUnderline = 1"),
    spoiled_colour=edit(PART, f"{at('C3:C4')}.CellBackColor = 16776960"),
    spoiled_headings=edit(PART, HEADS),
    spoiled_word=edit(PART, text("A1", "Thing")),
    spoiled_copy=lambda home: home.copy("visitors-38.ods", "visitors-38.bak.ods").documents.append(
        ("visitors-38.ods", PART)
    ),
    ambiguous_empty_cells_too=edit(PART, f"{at('D3:D4')}.{BOLD}"),
)
RICE = value("C3", 176)
states(
    "calc-change",
    right=edit(RICE),
    right_with_traces=lambda home: traces(home.office(RICE)),
    right_cleared_first=edit(f"{at('C3')}.clearContents(1023)", RICE),
    wrong_as_text=edit(text("C3", "176")),
    wrong_amount=edit(value("B3", 176)),
    wrong_digits=edit(value("C3", 167)),
    wrong_row_below=edit(value("C4", 176)),
    wrong_new_row=edit(text("A7", "rice"), value("B7", 50), value("C7", 176)),
    wrong_shown_only=edit(f'{at("C3")}.NumberFormat = doc.NumberFormats.addNew("""176""", doc.CharLocale)'),
    wrong_saved_elsewhere=elsewhere("museum-30.ods", RICE),
    spoiled_amount_too=edit(RICE, value("B3", 176)),
    spoiled_sheet=edit(RICE, 'doc.Sheets(0).Name = "prices"'),
    spoiled_second_sheet=edit(RICE, 'doc.Sheets.insertNewByName("Sheet2", 1)'),
    spoiled_bold=edit(RICE, f"{at('C3')}.{BOLD}"),
    spoiled_note=edit(RICE, text("D3", "new")),
    ambiguous_formula=edit(formula("C3", "=50+126")),
)
COST = text("D1", "payroll")


def costs(words: str, rows: range = range(2, 7)) -> str:
    return COST + "".join(formula(f"D{row}", words.format(row)) for row in rows)


NAMED = (
    "Dim a As New com.sun.star.table.CellAddress\n"
    'doc.NamedRanges.addNewByName("amounts", "$Sheet1.$B$2:$B$6", a, 0)\ndoc.NamedRanges.addNewByName("prices", "$Sheet1.$C$2:$C$6", a, 0)\n'  # noqa: E501
)
states(
    "calc-column",
    right_product=edit(costs("=B{0}*C{0}")),
    right_other_way_round=edit(costs("=C{0}*B{0}")),
    right_fixed_columns=edit(costs("=$B{0}*$C{0}")),
    right_function=edit(costs("=PRODUCT(B{0};C{0})")),
    right_function_of_a_range=edit(costs("=PRODUCT(B{0}:C{0})")),
    right_array=edit(COST, f'{at("D2:D6")}.ArrayFormula = "=B2:B6*C2:C6"'),
    right_names=edit(NAMED, costs("=INDEX(amounts;ROW()-1)*INDEX(prices;ROW()-1)")),
    right_with_traces=lambda home: traces(home.office(costs("=B{0}*C{0}"))),
    wrong_values=edit(COST, *(value(f"D{n}", v) for n, v in zip(range(2, 7), (1792, 490, 25, 1081, 286), strict=True))),
    wrong_sum=edit(costs("=B{0}+C{0}")),
    wrong_last_row_missing=edit(costs("=B{0}*C{0}", range(2, 6))),
    wrong_one_value=edit(costs("=B{0}*C{0}"), value("D4", 25)),
    wrong_numbers_in_formulas=edit(
        COST,
        *(
            formula(f"D{n}", f"={v}")
            for n, v in zip(range(2, 7), ("56*32", "14*35", "5*5", "47*23", "11*26"), strict=True)
        ),
    ),
    wrong_first_price_for_all=edit(costs("=B{0}*$C$2")),
    wrong_row_below=edit(*(formula(f"D{n}", f"=B{n - 1}*C{n - 1}") for n in range(3, 8)), COST),
    wrong_capital=edit(costs("=B{0}*C{0}"), text("D1", "Payroll")),
    wrong_column=edit(text("E1", "payroll"), *(formula(f"E{n}", f"=B{n}*C{n}") for n in range(2, 7))),
    wrong_square=edit(costs("=B{0}*B{0}")),
    spoiled_total=edit(costs("=B{0}*C{0}"), formula("D7", "=SUM(D2:D6)")),
    spoiled_price=edit(value("C4", 6), costs("=B{0}*C{0}")),
    spoiled_bold_heading=edit(costs("=B{0}*C{0}"), f"{at('A1:D1')}.{BOLD}"),
    spoiled_names=edit(text("A2", "ink"), text("A3", "juice"), costs("=B{0}*C{0}")),
)
ROWS = [("thing", "amount", "price"), ("pens", 29, 26), ("rice", 47, 59), ("oats", 56, 71)]


def table(rows: Sequence[tuple[object, ...]], column: int = 4, first: int = 1) -> str:
    cells = [(f"{chr(65 + column + x)}{first + y}", cell) for y, row in enumerate(rows) for x, cell in enumerate(row)]
    return "".join(text(name, cell) if isinstance(cell, str) else value(name, cell) for name, cell in cells)


states(
    "calc-copy-rows",
    right_typed=edit(table(ROWS)),
    right_copied=edit(
        *(
            f"doc.Sheets(0).copyRange({at(f'E{to}')}.CellAddress, {at(f'A{row}:C{row}')}.RangeAddress)"
            for to, row in enumerate((1, 3, 5, 6), 1)
        )
    ),
    right_with_traces=lambda home: traces(home.office(table(ROWS))),
    wrong_fourteen_too=edit(table([ROWS[0], ("lemons", 14, 98), *ROWS[1:]])),
    wrong_one_missing=edit(table(ROWS[:3])),
    wrong_order=edit(table([ROWS[0], ROWS[3], ROWS[2], ROWS[1]])),
    wrong_gap=edit(table(ROWS[:2]), table(ROWS[2:], first=5)),
    wrong_no_headings=edit(table(ROWS[1:])),
    wrong_column=edit(table(ROWS, 3)),
    wrong_row=edit(table(ROWS, first=2)),
    wrong_numbers_as_text=edit(table([tuple(str(x) for x in row) for row in ROWS])),
    wrong_amount_and_price_exchanged=edit(table([ROWS[0], *((a, c, b) for a, b, c in ROWS[1:])])),
    spoiled_row_hidden=edit(table(ROWS), "doc.Sheets(0).Rows(1).IsVisible = False"),
    spoiled_row_gone=edit(table(ROWS), f"{at('A4:C4')}.clearContents(1023)"),
    spoiled_below=edit(table([*ROWS, ("total", 132, 156)])),
    spoiled_value=edit(table(ROWS), value("B4", 9)),
    ambiguous_references=edit(
        *(formula(f"{c}{n}", f"={r}{m}") for n, m in enumerate((1, 3, 5, 6), 1) for c, r in ("EA", "FB", "GC"))
    ),
)
FREEZE = "doc.CurrentController.freezeAtPosition({}, {})"
NINE_AND_THREE = FREEZE.format(3, 9)
states(
    "calc-freeze",
    right=edit(NINE_AND_THREE),
    right_after_column=edit(FREEZE.format(1, 0), FREEZE.format(0, 0), NINE_AND_THREE),
    right_other_cell_chosen=edit(NINE_AND_THREE, f"doc.CurrentController.select({at('B4')})"),
    right_with_traces=lambda home: traces(home.office(NINE_AND_THREE)),
    wrong_next_column_too=edit(FREEZE.format(4, 9)),
    wrong_rows_alone=edit(FREEZE.format(0, 9)),
    wrong_rows_for_columns=edit(FREEZE.format(9, 3)),
    wrong_split=edit("doc.CurrentController.splitAtPosition(200, 150)"),
    wrong_not_saved=elsewhere("guests-62 frozen.ods", NINE_AND_THREE),
    wrong_repeated_on_print=edit(
        "Dim r As New com.sun.star.table.CellRangeAddress\nr.EndRow = 8\nr.EndColumn = 2\ndoc.Sheets(0).setTitleRows(r)\ndoc.Sheets(0).setPrintTitleRows(True)\n"  # noqa: E501
        "doc.Sheets(0).setTitleColumns(r)\ndoc.Sheets(0).setPrintTitleColumns(True)"
    ),
    spoiled_value=edit(NINE_AND_THREE, value("B2", 12)),
    spoiled_bold=edit(NINE_AND_THREE, HEADS),
    spoiled_sheet=edit(NINE_AND_THREE, 'doc.Sheets.insertNewByName("Sheet2", 1)'),
    spoiled_row_above=edit("doc.Sheets(0).Rows.insertByIndex(0, 1)", NINE_AND_THREE),
)


def shown(cells: str, code: str = "0.00%") -> str:
    known = f'i = doc.NumberFormats.queryKey("{code}", doc.CharLocale, False)\n'
    new = f'If i = -1 Then i = doc.NumberFormats.addNew("{code}", doc.CharLocale)\n'
    return f"{known}{new}{at(cells)}.NumberFormat = i\n"


STANDARD = (
    "{}.NumberFormat = doc.NumberFormats.getStandardFormat(com.sun.star.util.NumberFormat.PERCENT, doc.CharLocale)\n"
)
states(
    "calc-percent",
    right_standard=edit(STANDARD.format(at("B3:B6"))),
    right_one_place=edit(shown("B3:B6", "0.0%")),
    right_by_a_style=edit(
        's = doc.createInstance("com.sun.star.style.CellStyle")\ndoc.StyleFamilies.getByName("CellStyles").insertByName("Part", s)\n'  # noqa: E501
        + STANDARD.format("s")
        + f'{at("B3:B6")}.CellStyle = "Part"'
    ),
    right_with_traces=lambda home: traces(home.office(STANDARD.format(at("B3:B6")))),
    wrong_divided=edit(
        STANDARD.format(at("B3:B6")), *(value(f"B{n}", f"{at(f'B{n}')}.Value / 100") for n in range(3, 7))
    ),
    wrong_last_missing=edit(STANDARD.format(at("B3:B5"))),
    wrong_prices=edit(STANDARD.format(at("C3:C6"))),
    wrong_text=edit(*(text(f"B{n}", f"{v}00%") for n, v in zip(range(3, 7), (59, 14, 23, 2), strict=True))),
    wrong_places_only=edit(shown("B3:B6", "0.00")),
    wrong_scientific=edit(shown("B3:B6", "0.00E+00")),
    spoiled_prices_too=edit(STANDARD.format(at("B3:C6"))),
    spoiled_whole_column=edit(STANDARD.format("doc.Sheets(0).Columns(1)")),
    spoiled_value=edit(STANDARD.format(at("B3:B6")), value("B6", 3)),
    spoiled_bold=edit(STANDARD.format(at("B3:B6")), f"{at('B3:B6')}.{BOLD}"),
    spoiled_heading=edit(STANDARD.format(at("B3:B6")), text("B1", "amount (%)")),
    ambiguous_sign_as_text=edit(shown("B3:B6", '0""%""')),
    ambiguous_empty_cells_below=edit(STANDARD.format(at("B3:B20"))),
)
OUT = "doc.Sheets(0).Rows.removeByIndex({}, 1)\n"
HAMMERS_AND_YARN = OUT.format(7) + OUT.format(4)
UP = "doc.Sheets(0).removeRange({}.RangeAddress, com.sun.star.sheet.CellDeleteMode.UP)"
states(
    "calc-remove-row",
    right_rows=edit(HAMMERS_AND_YARN),
    right_moved_up=edit(
        table([("juice", 59, 29), ("pens", 23, 68), ("maps", 14, 83), ("tiles", 2, 71), ("cheese", 29, 20)], 0, 5),
        f"{at('A10:C11')}.clearContents(1023)",
    ),
    right_cells=edit(UP.format(at("A5:C5")), UP.format(at("A7:C7"))),
    right_with_traces=lambda home: traces(home.office(HAMMERS_AND_YARN)),
    wrong_gap=edit(*(f"{at(cells)}.clearContents(1023)" for cells in ("A5:C5", "A8:C8"))),
    wrong_hidden=edit(*(f"doc.Sheets(0).Rows({n}).IsVisible = False" for n in (4, 7))),
    wrong_row_above=edit(OUT.format(6), OUT.format(3)),
    wrong_one_alone=edit(OUT.format(7)),
    wrong_counted_after_the_first=edit(OUT.format(4), OUT.format(7)),
    wrong_names_only=edit(UP.format(at("A8")), UP.format(at("A5"))),
    wrong_moved_below=edit(table([("yarn", 32, 41), ("hammers", 50, 26)], 0, 14), HAMMERS_AND_YARN),
    wrong_other_sheet=edit(
        'doc.Sheets.copyByName("Sheet1", "Sheet2", 1)', *(f"doc.Sheets(1).Rows.removeByIndex({n}, 1)" for n in (7, 4))
    ),
    spoiled_value=edit(HAMMERS_AND_YARN, value("B5", 58)),
    spoiled_old_sheet_kept=edit('doc.Sheets.copyByName("Sheet1", "old", 1)', HAMMERS_AND_YARN),
    spoiled_heading=edit(HAMMERS_AND_YARN, text("A1", "things")),
)
states(
    "calc-rename-sheet",
    right=edit('doc.Sheets(0).Name = "Zagreb-20"'),
    right_copied_and_removed=edit(
        'doc.Sheets.copyByName("Sheet1", "Zagreb-20", 1)', 'doc.Sheets.removeByName("Sheet1")'
    ),
    right_with_traces=lambda home: traces(home.office('doc.Sheets(0).Name = "Zagreb-20"')),
    wrong_small=edit('doc.Sheets(0).Name = "zagreb-20"'),
    wrong_space=edit('doc.Sheets(0).Name = "Zagreb-20 "'),
    wrong_without_number=edit('doc.Sheets(0).Name = "Zagreb"'),
    wrong_new_sheet=edit('doc.Sheets.insertNewByName("Zagreb-20", 1)'),
    wrong_copy=edit('doc.Sheets.copyByName("Sheet1", "Zagreb-20", 1)'),
    wrong_cell=edit(text("A1", "Zagreb-20")),
    wrong_name_of_file=lambda home: home.move("archive-74.ods", "Zagreb-20.ods"),
    wrong_empty_sheet=edit('doc.Sheets.insertNewByName("Zagreb-20", 1)', 'doc.Sheets.removeByName("Sheet1")'),
    spoiled_second=edit('doc.Sheets(0).Name = "Zagreb-20"', 'doc.Sheets.insertNewByName("Sheet2", 1)'),
    spoiled_value=edit('doc.Sheets(0).Name = "Zagreb-20"', value("C2", 4)),
    spoiled_file=lambda home: home.office('doc.Sheets(0).Name = "Zagreb-20"').later(
        lambda home: home.copy("archive-74.ods", "Zagreb-20.ods")
    ),
)
ORDERED: list[tuple[object, ...]] = [
    ("umbrellas", 2, 26),
    ("tiles", 59, 38),
    ("hammers", 53, 44),
    ("flour", 26, 80),
    ("glue", 14, 92),
]


def sort(cells: str, field: int, up: str = "False", head: str = "True") -> str:
    return (
        "Dim f(0) As New com.sun.star.table.TableSortField\nDim d(1) As New com.sun.star.beans.PropertyValue\n"
        f'f(0).Field = {field}\nf(0).IsAscending = {up}\nd(0).Name = "SortFields"\nd(0).Value = f()\n'
        f'd(1).Name = "ContainsHeader"\nd(1).Value = {head}\n{at(cells)}.sort(d())\n'
    )


def called(name: str) -> str:
    return f'doc.Sheets(0).Name = "{name}"\n'


CALLED = called("Utrecht-29")
SORTED = sort("A1:C6", 2, "True") + CALLED
states(
    "calc-sort",
    right_by_sort=edit(SORTED),
    right_without_headings_chosen=edit(sort("A2:C6", 2, "True", "False"), CALLED),
    right_typed=edit(CALLED, table(ORDERED, 0, 2)),
    right_with_traces=lambda home: traces(home.office(SORTED)),
    wrong_down=edit(sort("A1:C6", 2), CALLED),
    wrong_by_amount=edit(sort("A1:C6", 1, "True"), CALLED),
    wrong_prices_alone=edit(sort("C1:C6", 0, "True"), CALLED),
    wrong_headings_at_the_end=edit(table([*ORDERED, ("thing", "amount", "price")], 0), CALLED),
    wrong_two_columns=edit(sort("B1:C6", 1, "True"), CALLED),
    wrong_two_exchanged=edit(table([ORDERED[1], ORDERED[0], *ORDERED[2:]], 0, 2), CALLED),
    wrong_beside=edit(table([("thing", "amount", "price"), *ORDERED]), CALLED),
    wrong_numbers_as_text=edit(table([tuple(str(x) for x in row) for row in ORDERED], 0, 2), CALLED),
    wrong_not_sorted=edit(CALLED),
    wrong_not_called=edit(sort("A1:C6", 2, "True")),
    wrong_name=edit(SORTED, called("Utrecht 29")),
    wrong_name_in_a_cell=edit(sort("A1:C6", 2, "True"), text("A8", "Utrecht-29")),
    spoiled_numbered=edit(SORTED, *(value(f"D{n}", n - 1) for n in range(2, 7))),
    spoiled_value=edit(SORTED, value("C6", 27)),
    spoiled_bold=edit(SORTED, f"{at('A1:C1')}.{BOLD}"),
)


def total(words: str) -> State:
    return edit(formula("B9", words))


states(
    "calc-sum",
    right_range=total("=SUM(B2:B6)"),
    right_fixed=total("=SUM($B$2:$B$6)"),
    right_added=total("=B2+B3+B4+B5+B6"),
    right_listed=total("=SUM(B2;B3;B4;B5;B6)"),
    right_two_ranges=total("=SUM(B2:B4;B5:B6)"),
    right_subtotal=total("=SUBTOTAL(9;B2:B6)"),
    right_sumproduct=total("=SUMPRODUCT(B2:B6)"),
    right_with_sheet=total("=SUM($Sheet1.B2:B6)"),
    right_array=edit(f'{at("B9")}.ArrayFormula = "=SUM(B2:B6)"'),
    right_name=edit(NAMED, formula("B9", "=SUM(amounts)")),
    right_with_traces=lambda home: traces(home.office(formula("B9", "=SUM(B2:B6)"))),
    wrong_value=edit(value("B9", 175)),
    wrong_text=edit(text("B9", "=SUM(B2:B6)")),
    wrong_numbers=total("=47+44+20+38+26"),
    wrong_one_number=total("=SUM(B2:B5)+26"),
    wrong_short=total("=SUM(B2:B5)"),
    wrong_prices=total("=SUM(C2:C6)"),
    wrong_both_columns=total("=SUM(B2:C6)"),
    wrong_cell=edit(formula("B8", "=SUM(B2:B6)")),
    wrong_other_column=edit(formula("C9", "=SUM(B2:B6)")),
    wrong_result_and_nothing=total("=175+0*SUM(B2:B6)"),
    wrong_mean=total("=AVERAGE(B2:B6)"),
    wrong_text_of_sum=total('=TEXT(SUM(B2:B6);""0"")'),
    spoiled_label=edit(formula("B9", "=SUM(B2:B6)"), text("A9", "total")),
    spoiled_prices_too=edit(formula("B9", "=SUM(B2:B6)"), formula("C9", "=SUM(C2:C6)")),
    spoiled_amount=edit(formula("B9", "=SUM(B2:B6)"), value("B4", 21)),
    spoiled_bold=edit(formula("B9", "=SUM(B2:B6)"), f"{at('B9')}.{BOLD}"),
    ambiguous_empty_cell_too=total("=SUM(B2:B7)"),
    ambiguous_heading_too=total("=SUM(B1:B6)"),
)
LEIDEN = 'doc.Sheets.insertNewByName("Leiden", {})\n'


def third(words: str, cell: str = "A1") -> str:
    return LEIDEN.format(2) + formula(cell, words, 2)


PLUS = third("=$Zagreb.A2+$Cork.A2")
states(
    "calc-three-sheets",
    right_plus=edit(PLUS),
    right_sum=edit(third("=SUM(Zagreb.A2;Cork.A2)")),
    right_range_of_sheets=edit(third("=SUM($Zagreb.A2:$Cork.A2)")),
    right_fixed=edit(third("=$Cork.$A$2+$Zagreb.$A$2")),
    right_names=edit(
        "Dim a As New com.sun.star.table.CellAddress\n"
        'doc.NamedRanges.addNewByName("one", "$Zagreb.$A$2", a, 0)\ndoc.NamedRanges.addNewByName("two", "$Cork.$A$2", a, 0)\n',  # noqa: E501
        third("=one+two"),
    ),
    right_array=edit(LEIDEN.format(2), f'{at("A1", 2)}.ArrayFormula = "=$Zagreb.A2+$Cork.A2"'),
    right_with_traces=lambda home: traces(home.office(PLUS)),
    wrong_value=edit(LEIDEN.format(2), value("A1", 376, 2)),
    wrong_numbers=edit(third("=290+86")),
    wrong_one_number=edit(third("=$Zagreb.A2+86")),
    wrong_first=edit(LEIDEN.format(0), formula("A1", "=$Zagreb.A2+$Cork.A2", 0)),
    wrong_between=edit(LEIDEN.format(1), formula("A1", "=$Zagreb.A2+$Cork.A2", 1)),
    wrong_cell=edit(third("=$Zagreb.A2+$Cork.A2", "A2")),
    wrong_minus=edit(third("=$Zagreb.A2-$Cork.A2")),
    wrong_twice_one=edit(third("=$Zagreb.A2+$Zagreb.A2")),
    wrong_small=edit('doc.Sheets.insertNewByName("leiden", 2)', formula("A1", "=$Zagreb.A2+$Cork.A2", 2)),
    wrong_headings=edit(third("=$Zagreb.A1&$Cork.A1")),
    spoiled_cork=edit(PLUS, value("A2", 87, 1)),
    spoiled_label=edit(PLUS, text("B1", "total", 2)),
    spoiled_fourth=edit(PLUS, 'doc.Sheets.insertNewByName("Sheet4", 3)'),
    spoiled_note_in_zagreb=edit(PLUS, text("B2", "seen", 0)),
)
