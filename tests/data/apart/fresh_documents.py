"""End states of tasks with documents and web applications, by the third author (see fresh_files)."""

from tests.data.apart.further import inside
from tests.data.apart.kit import Home, State, fresh
from tests.data.apart.office import (
    BOLD,
    FREEZE,
    STANDARD,
    at,
    called,
    document,
    edit,
    formula,
    shown,
    sort,
    table,
    text,
    traces,
    value,
)
from tests.data.apart.pages import HOST, browsed, marked
from tests.data.apart.writing import LIST, lined, paragraphs

BROWSING = "c = doc.CurrentController\n"


def pressed(*commands: str, cells: str = "") -> str:
    """What the menus do, by their names."""
    chosen = f"c.select({at(cells)})\n" if cells else ""
    helper = 'Dim none()\ns = createUnoService("com.sun.star.frame.DispatchHelper")\n'
    return (
        BROWSING + chosen + helper + "\n".join(f's.executeDispatch(c.Frame, "{it}", "", 0, none())' for it in commands)
    )


def remark(cell: str) -> str:
    return f'doc.Sheets(0).Annotations.insertNew({at(cell)}.CellAddress, "seen")'


PRINTED = (
    "Dim pr(0) As New com.sun.star.table.CellRangeAddress\npr(0) = {}.RangeAddress\ndoc.Sheets(0).setPrintAreas(pr())"
)
PART = f"{at('B1:C5')}.{BOLD}"
fresh(
    "calc-bold",
    right_by_the_button=edit(pressed(".uno:Bold", cells="B1:C5")),
    right_for_all_scripts=edit(PART, f"{at('B1:C5')}.CharWeightAsian = 150", f"{at('B1:C5')}.CharWeightComplex = 150"),
    right_headings_within_the_cells=edit(f"{at('B2:C5')}.{BOLD}", inside("B1", "C1")),
    wrong_pressed_twice=edit(pressed(".uno:Bold", ".uno:Bold", cells="B1:C5")),
    wrong_larger=edit(f"{at('B1:C5')}.CharHeight = 16"),
    wrong_for_asian_letters=edit(f"{at('B1:C5')}.CharWeightAsian = 150"),
    wrong_a_letter_of_the_heading=edit(f"{at('B2:C5')}.{BOLD}", inside("B1"), inside("C1", end=False)),
    wrong_two_cells=edit(f"{at('B1')}.{BOLD}", f"{at('C5')}.{BOLD}"),
    spoiled_last_row=edit(f"{at('B1:C6')}.{BOLD}"),
    spoiled_underlined=edit(PART, f"{at('B1')}.CharUnderline = 1"),
    spoiled_printed_part=edit(PART, PRINTED.format(at("A1:C6"))),
    spoiled_wrapped=edit(PART, f"{at('B1:C5')}.IsTextWrapped = True"),
)
ROWS = [("thing", "amount", "price"), ("ink", 23, 14), ("candles", 35, 50), ("yarn", 47, 53)]
fresh(
    "calc-copy-rows",
    right_from_below=edit(*(table([row], first=n) for n, row in reversed([*enumerate(ROWS, 1)]))),
    wrong_by_the_price=edit(table([ROWS[0], ("onions", 5, 56), ROWS[2], ROWS[3]])),
    wrong_prices_of_the_row_below=edit(table([ROWS[0], ("ink", 23, 50), ("candles", 35, 5), ROWS[3]])),
    wrong_column_beside=edit(table(ROWS, 5)),
    spoiled_rows_moved=edit(table(ROWS), *(f"{at(f'A{n}:C{n}')}.clearContents(1023)" for n in (3, 4, 6))),
    spoiled_remark=edit(table(ROWS), remark("A3")),
    spoiled_coloured_rows=edit(table(ROWS), *(f"{at(f'A{n}:C{n}')}.CellBackColor = 16776960" for n in (3, 4, 6))),
)
FIVE_AND_TWO = FREEZE.format(2, 5)
fresh(
    "calc-freeze",
    right_by_the_menu=edit(pressed(".uno:FreezePanes", cells="C6")),
    right_zoomed=edit(FIVE_AND_TWO, BROWSING, "c.ZoomValue = 140"),
    wrong_melted_again=edit(FIVE_AND_TWO, FREEZE.format(0, 0)),
    wrong_at_the_last_cell=edit(pressed(".uno:FreezePanes", cells="B5")),
    spoiled_hidden_column=edit(FIVE_AND_TWO, "doc.Sheets(0).Columns(2).IsVisible = False"),
    spoiled_high_row=edit(FIVE_AND_TWO, "doc.Sheets(0).Rows(0).Height = 1200"),
)
fresh(
    "calc-percent",
    right_by_the_button=edit(pressed(".uno:NumberFormatPercent", cells="B4:C6")),
    right_three_places=edit(shown("B4:C6", "0.000%")),
    wrong_first_missing=edit(STANDARD.format(at("B5:C6"))),
    wrong_per_mille=edit(shown("B4:C6", '0""‰""')),
    wrong_money=edit(pressed(".uno:NumberFormatCurrency", cells="B4:C6")),
    spoiled_heading_too=edit(STANDARD.format(at("B4:C6")), f"{at('B1')}.HoriJustify = 3"),
    spoiled_empty_cell_below=edit(STANDARD.format(at("B4:C6")), value("B7", 2)),
    spoiled_narrow=edit(STANDARD.format(at("B4:C6")), "doc.Sheets(0).Columns(1).Width = 900"),
)
NEW = 'doc.Sheets(0).Name = "Utrecht-11"'
fresh(
    "calc-rename-sheet",
    right_in_two_steps=edit('doc.Sheets(0).Name = "Table"', NEW),
    wrong_capitals=edit('doc.Sheets(0).Name = "UTRECHT-11"'),
    wrong_title_alone=edit('doc.DocumentProperties.Title = "Utrecht-11"'),
    wrong_named_range=edit(
        "Dim a As New com.sun.star.table.CellAddress\n"
        'doc.NamedRanges.addNewByName("Utrecht_11", "$Sheet1.$A$1:$C$6", a, 0)'
    ),
    spoiled_word_in_a_cell=edit(NEW, text("A8", "Utrecht-11")),
    spoiled_printed_part=edit(NEW, PRINTED.format(at("A1:C6"))),
    spoiled_document_as_a_page=lambda home: home.office(NEW).later(
        lambda home: home.put("survey-62.html", "<table></table>")
    ),
)
IN_ORDER: list[tuple[object, ...]] = [
    ("flour", 26, 14),
    ("onions", 29, 53),
    ("oats", 38, 44),
    ("doors", 44, 35),
    ("drums", 56, 23),
]
CALLED = called("Naples-44")
SORTED = sort("A1:C6", 1, "True") + CALLED


def up(row: int, to: int) -> str:
    """Moves a row up to the place of another."""
    return (
        f"doc.Sheets(0).Rows.insertByIndex({to - 1}, 1)\n"
        f"doc.Sheets(0).moveRange({at(f'A{to}')}.CellAddress, {at(f'A{row + 1}:C{row + 1}')}.RangeAddress)\n"
        f"doc.Sheets(0).Rows.removeByIndex({row}, 1)\n"
    )


fresh(
    "calc-sort",
    right_by_moving_rows=edit(up(4, 2), up(6, 3), up(5, 4), CALLED),
    right_with_a_helping_column_taken_out=edit(
        CALLED, *(formula(f"E{n}", f"=-B{n}") for n in range(2, 7)), SORTED, f"{at('E2:E6')}.clearContents(1023)"
    ),
    wrong_by_name=edit(sort("A1:C6", 0, "True"), CALLED),
    wrong_by_price_and_amount_alone=edit(sort("B1:C6", 0, "True"), CALLED),
    wrong_headings_below_the_first=edit(table([IN_ORDER[0], ("thing", "amount", "price"), *IN_ORDER[1:]], 0), CALLED),
    wrong_gap=edit(table(IN_ORDER[:2], 0, 2), f"{at('A4:C7')}.clearContents(1023)", table(IN_ORDER[2:], 0, 5), CALLED),
    wrong_document_called_so=lambda home: home.office(sort("A1:C6", 1, "True")).later(
        lambda home: home.move("meeting-77.ods", "Naples-44.ods")
    ),
    spoiled_ranks_as_colours=edit(SORTED, f"{at('B2')}.CellBackColor = 65280"),
    spoiled_old_order_kept=edit('doc.Sheets.copyByName("Sheet1", "before", 1)', SORTED),
)
SUM = formula("E10", "=SUM(C2:C6)")


def prices(words: str) -> State:
    return edit(formula("E10", words))


fresh(
    "calc-sum",
    right_first_and_the_others=prices("=C2+SUM(C3:C6)"),
    right_by_the_menu=edit(
        BROWSING,
        f"c.select({at('E10')})",
        's = createUnoService("com.sun.star.frame.DispatchHelper")\n'
        "Dim w(0) As New com.sun.star.beans.PropertyValue\n"
        'w(0).Name = "StringName"\nw(0).Value = "=SUM(C2:C6)"\n'
        's.executeDispatch(c.Frame, ".uno:EnterString", "", 0, w())',
    ),
    right_rounded_by_nothing=prices("=AGGREGATE(9;4;C2:C6)"),
    right_to_a_place=prices("=SUM(C2:INDEX(C2:C6;5))"),
    wrong_choice_of_a_constant=prices("=IF(1=1;208;SUM(C2:C6))"),
    wrong_largest_and_a_constant=prices("=MAX(C2:C6)+137"),
    wrong_half=prices("=SUM(C2:C6)/2"),
    wrong_products=prices("=SUMPRODUCT(B2:B6;C2:C6)"),
    wrong_amounts=prices("=SUM(B2:B6)"),
    wrong_below_the_prices=edit(formula("C10", "=SUM(C2:C6)")),
    wrong_sheet=edit('doc.Sheets.insertNewByName("Sheet2", 1)', formula("E10", "=SUM($Sheet1.C2:C6)", 1)),
    spoiled_line_above=edit(SUM, text("E9", "-----")),
    spoiled_remark=edit(SUM, remark("E10")),
    spoiled_hidden_column=edit(SUM, "doc.Sheets(0).Columns(2).IsVisible = False"),
)
PART = f"If i > 4 And i < 9 Then {LIST}"
fresh(
    "writer-list",
    right_by_the_menu_one_by_one=edit(
        *(
            f"doc.CurrentController.ViewCursor.gotoStart(False)\ndoc.CurrentController.ViewCursor.goDown({n}, False)\n"
            + pressed(".uno:DefaultBullet").replace("Dim none()\n", "Dim none()\n" if n == 4 else "")
            for n in range(4, 8)
        )
    ),
    right_third_kind=edit(paragraphs('If i > 4 And i < 9 Then c.NumberingStyleName = "List 3"')),
    wrong_middle_missing=edit(paragraphs(f"If i > 4 And i < 9 And i <> 6 Then {LIST}")),
    wrong_hyphens=edit(paragraphs('If i > 4 And i < 9 Then c.String = "- " & c.String')),
    wrong_letters=edit(paragraphs('If i > 4 And i < 9 Then c.NumberingStyleName = "Numbering ABC"')),
    wrong_to_the_end=edit(paragraphs(f"If i > 4 Then {LIST}")),
    spoiled_order=edit(
        paragraphs(PART),
        paragraphs(
            'If i = 6 Then c.String = "11 hammers for Irwin in Florence"',
            'If i = 7 Then c.String = "98 ink for Carter in Rouen"',
        ),
    ),
    spoiled_centred=edit(
        paragraphs(PART, "If i > 4 And i < 9 Then c.ParaAdjust = com.sun.star.style.ParagraphAdjust.CENTER")
    ),
    spoiled_larger=edit(paragraphs(PART, "If i = 5 Then c.CharHeight = 20")),
)
CHEESE, INK = "32 cheese for Shaw in Naples", "53 ink for Irwin in Ghent"
BETWEEN = (
    "71 glue for Olsen in Zagreb",
    "89 yarn for Carter in Oslo",
    "20 maps for Young in Rouen",
    "26 doors for Lewis in Leiden",
    "38 oats for Foster in Utrecht",
    "86 tiles for Underwood in Izmir",
)
PENS = "35 pens for Clark in Lisbon"
LOWER = lined(*BETWEEN, CHEESE, INK, PENS)
MENU = 's.executeDispatch(c.Frame, ".uno:MoveDown", "", 0, none())'
DOWN = BROWSING + "c.ViewCursor.gotoStart(False)\n" + pressed(".uno:MoveDown")
fresh(
    "writer-move",
    right_by_the_menu=edit(DOWN, *[MENU] * 5),
    right_typed=lambda home: traces(home.office(LOWER)),
    wrong_one_place=edit(DOWN),
    wrong_exchanged=edit(lined(INK, *BETWEEN, CHEESE, PENS)),
    wrong_below=edit(DOWN, *[MENU] * 6),
    wrong_reversed=edit(lined(*reversed((CHEESE, *BETWEEN, INK, PENS)))),
    spoiled_heading=edit(LOWER, paragraphs('If i = 7 Then c.ParaStyleName = "Title"')),
    spoiled_space_behind=edit(lined(*BETWEEN, f"{CHEESE} ", INK, PENS)),
    spoiled_saved_twice=lambda home: home.office(LOWER).later(
        lambda home: home.copy(document(home).name, "guests-32 (new).odt")
    ),
)


def noted(home: Home, words: str = "#700", number: int = 713) -> Home:
    return home.post("/comment", number=number, text=words)


def closed(home: Home, **other: object) -> Home:
    return home.post(
        "/change", **{"number": 713, "state": "closed", "assignee": "Lewis", "priority": "normal", **other}
    )


fresh(
    "web-board-duplicate",
    right=lambda home: noted(closed(browsed(home))),
    right_comment_first=lambda home: closed(noted(home)),
    wrong_older_closed=lambda home: noted(closed(home, number=700), "#713", 700),
    wrong_point_behind=lambda home: noted(closed(home), "#700."),
    wrong_two_signs=lambda home: noted(closed(home), "##700"),
    wrong_neighbour=lambda home: noted(closed(home, number=712, priority="high"), "#700", 712),
    spoiled_title_of_another_noted=lambda home: noted(noted(closed(home)), "#713", 700),
    spoiled_given_to_the_reader=lambda home: noted(closed(home, assignee="Foster")),
)


def triaged(home: Home, **other: object) -> Home:
    return home.post("/change", **{"number": 407, "state": "open", "assignee": "Foster", "priority": "high", **other})


fresh(
    "web-board-triage",
    right=lambda home: triaged(browsed(home)),
    right_priority_first=lambda home: triaged(triaged(home, assignee="Reed")),
    wrong_priority=lambda home: triaged(home, priority="normal"),
    wrong_issue_below=lambda home: triaged(home, number=408),
    spoiled_all_of_foster=lambda home: triaged(triaged(home), number=393),
    spoiled_said=lambda home: triaged(home).post("/comment", number=407, text="Foster"),
)
DESIGN = ("ink 86", f"{HOST}/design")
fresh(
    "web-bookmark",
    right=lambda home: marked(home, DESIGN),
    right_in_other=lambda home: marked(home, DESIGN, place="other"),
    wrong_capital=lambda home: marked(home, ("Ink 86", DESIGN[1])),
    wrong_page_below=lambda home: marked(home, ("ink 86", f"{HOST}/payroll")),
    wrong_page_as_name=lambda home: marked(home, ("design", f"{HOST}/ink 86")),
    spoiled_page_under_its_own_name_too=lambda home: marked(home, DESIGN, ("design", DESIGN[1])),
    spoiled_bookmarks_exported=lambda home: marked(home, DESIGN).put("Downloads/bookmarks.html", "<!DOCTYPE x>"),
)


def moved(home: Home, **other: object) -> Home:
    fields = {
        "id": 19,
        "title": "planning Izmir",
        "room": "Izmir",
        "day": "2027-11-11",
        "begin": "13:00",
        "end": "15:00",
        "people": "2",
    }
    return home.post("/book", **{**fields, **other})


fresh(
    "web-rooms-move",
    right=lambda home: moved(browsed(home)),
    right_after_a_wrong_hour=lambda home: moved(moved(home, begin="14:00", end="16:00")),
    wrong_hour=lambda home: moved(home, begin="12:00", end="14:00"),
    wrong_day_before=lambda home: moved(home, day="2027-11-10"),
    wrong_other_booking_of_the_day=lambda home: moved(home, id=18, title="party Cadiz", room="Izmir"),
    spoiled_name=lambda home: moved(home, title="planning"),
    spoiled_booking_of_the_new_day_gone=lambda home: moved(home.post("/cancel", id=15)),
)


def settled(home: Home, on: tuple[str, ...] = (), **other: str) -> Home:
    home.post("/", name=other.get("name", "Foster"), city=other.get("city", "Izmir"))
    home.post("/display", language=other.get("language", "English"), size=other.get("size", "25"))
    return home.post("/messages", on=list(on))


fresh(
    "web-settings",
    right=lambda home: settled(browsed(home)),
    right_after_all_on=lambda home: settled(settled(home, ("news", "replies", "weekly"), size="100", name="F")),
    wrong_news_stay=lambda home: settled(home, ("news",)),
    wrong_language_not_saved=lambda home: home.post("/", name="Foster", city="Izmir").post("/messages", on=[]),
    wrong_city_for_name=lambda home: settled(home, name="Izmir", city="Kiel"),
    spoiled_replies=lambda home: settled(home, ("replies",)),
    spoiled_rows=lambda home: settled(home, size="10"),
)


def carted(home: Home, amount: int = 4, article: int = 16) -> Home:
    return home.post("/cart/add", id=article, amount=amount)


def ordered(home: Home, **other: object) -> Home:
    return home.post(
        "/order", **{"name": "Reed", "city": "Utrecht", "delivery": "express", "payment": "invoice", **other}
    )


fresh(
    "web-shop-order",
    right_three_and_one=lambda home: ordered(carted(carted(browsed(home), 3), 1)),
    right_more_made_less=lambda home: ordered(carted(home, 8).post("/cart", **{"amount-16": 4})),
    wrong_article_above=lambda home: ordered(carted(home, 4, 15)),
    wrong_delivery=lambda home: ordered(carted(home), delivery="standard"),
    wrong_orders_of_two=lambda home: ordered(carted(ordered(carted(home, 2)), 2)),
    wrong_city=lambda home: ordered(carted(home), city="Utrecht 4"),
    spoiled_oats_too=lambda home: ordered(carted(carted(home), 1, 15)),
    spoiled_second_order=lambda home: ordered(carted(ordered(carted(home)), 1, 1)),
)


def archived(home: Home, *numbers: int) -> Home:
    return home.post("/archive", id=list(numbers))


fresh(
    "web-table-archive",
    right=lambda home: archived(browsed(home), 18, 9, 6),
    right_in_two_steps=lambda home: archived(archived(home, 6), 9, 18),
    wrong_of_all=lambda home: archived(home, 2, 18, 13),
    wrong_fourth_for_third=lambda home: archived(home, 18, 9, 17),
    wrong_smallest=lambda home: archived(home, 14, 7, 8),
    wrong_two=lambda home: archived(home, 18, 9),
    spoiled_first_of_riga=lambda home: archived(home, 18, 9, 6, 2),
)
