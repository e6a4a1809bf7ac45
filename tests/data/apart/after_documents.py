"""End states of the templates with documents and web applications that fresh_documents leaves out (see after_files)."""

from tests.data.apart.fresh_documents import BROWSING, PRINTED, pressed, remark
from tests.data.apart.kit import Home, after
from tests.data.apart.office import BOLD, ITALIC, OUT, at, edit, formula, table, text, third, traces, value
from tests.data.apart.pages import browsed
from tests.data.apart.writing import REPLACE, WORD, paragraphs

JUICE = value("C3", 167)
after(
    "calc-change",
    right=lambda home: traces(home.office(JUICE)),
    right_in_two_steps=edit(value("C3", 16), JUICE),
    right_another_changed_and_back=edit(value("C4", 167), value("C4", 11), JUICE),
    wrong_row_above=edit(value("C2", 167)),
    wrong_more_by_it=edit(value("C3", 253)),
    wrong_tenths=edit(value("C3", 16.7)),
    spoiled_remark=edit(JUICE, remark("C3")),
    spoiled_two_places=edit(JUICE, f"{at('C3')}.NumberFormat = 2"),
    spoiled_row_of_another=edit(JUICE, text("A2", "Pens")),
)
HEADING = text("F1", "parking")


def products(words: str) -> str:
    return HEADING + "".join(formula(f"F{row}", words.format(row)) for row in range(2, 7))


after(
    "calc-column",
    right_sum_of_one_product=edit(products("=SUMPRODUCT(B{0};C{0})")),
    right_by_places=edit(products("=OFFSET($A{0};0;1)*OFFSET($A{0};0;2)")),
    right_by_numbers_of_rows=edit(products("=INDEX(B$2:B$6;ROW()-1)*C{0}")),
    right_filled_down=edit(
        HEADING,
        formula("F2", "=B2*C2"),
        f"{at('F2:F6')}.fillAuto(com.sun.star.sheet.FillDirection.TO_BOTTOM, 1)",
    ),
    wrong_quotient=edit(products("=B{0}/C{0}")),
    wrong_power=edit(products("=B{0}^C{0}")),
    wrong_one_fixed_row=edit(products("=B$2*C{0}")),
    wrong_text=edit(products('=B{0}*C{0}&"" EUR""')),
    wrong_beside_the_table=edit(text("D1", "parking"), *(formula(f"D{n}", f"=B{n}*C{n}") for n in range(2, 7))),
    spoiled_remark=edit(products("=B{0}*C{0}"), remark("F1")),
    spoiled_sum_in_the_next_column=edit(products("=B{0}*C{0}"), formula("G2", "=SUM(F2:F6)")),
    spoiled_steps_in_the_empty_columns=edit(products("=D{0}*C{0}"), *(formula(f"D{n}", f"=B{n}") for n in range(2, 7))),
)
TILES_AND_CHEESE = OUT.format(9) + OUT.format(2)
after(
    "calc-remove-row",
    right_by_the_menu=edit(
        pressed(".uno:DeleteRows", cells="A10"),
        f"c.select({at('B3')})",
        's.executeDispatch(c.Frame, ".uno:DeleteRows", "", 0, none())',
    ),
    right_above_taken_back=edit(
        OUT.format(9),
        OUT.format(1),
        "doc.Sheets(0).Rows.insertByIndex(1, 1)",
        text("A2", "flour"),
        value("B2", 5),
        value("C2", 95),
        OUT.format(2),
    ),
    wrong_row_below=edit(OUT.format(10), OUT.format(2)),
    wrong_amounts_nothing=edit(value("B3", 0), value("B10", 0)),
    wrong_moved_to_the_end=edit(TILES_AND_CHEESE, table([("cheese", 2, 80), ("tiles", 11, 98)], 0, 10)),
    spoiled_sorted=edit(TILES_AND_CHEESE, table([("onions", 44, 32), ("flour", 5, 95)], 0, 2)),
    spoiled_printed_part=edit(TILES_AND_CHEESE, PRINTED.format(at("A1:C9"))),
)
after(
    "calc-three-sheets",
    right_sum_of_one_and_the_other=edit(third("=SUM($Riga.A2)+$Cadiz.A2")),
    right_other_way_round=edit(third("=$Cadiz.A2+$Riga.A2")),
    right_sum_of_products=edit(third("=SUMPRODUCT($Riga.A2+$Cadiz.A2)")),
    right_by_address=edit(third('=INDIRECT(""Riga.A2"")+INDIRECT(""Cadiz.A2"")')),
    right_copied_sheet_made_empty=edit(
        'doc.Sheets.copyByName("Cadiz", "Leiden", 2)',
        f"{at('A1:A2', 2)}.clearContents(1023)",
        formula("A1", "=$Riga.A2+$Cadiz.A2", 2),
    ),
    wrong_a1=edit(third("=$Riga.A1+$Cadiz.A1")),
    wrong_mean=edit(third("=AVERAGE($Riga.A2;$Cadiz.A2)")),
    wrong_half_a_number=edit(third("=$Riga.A2+74")),
    wrong_text=edit(third("=$Riga.A2&$Cadiz.A2")),
    spoiled_riga_copied=edit(third("=$Riga.A2+$Cadiz.A2"), 'doc.Sheets.copyByName("Riga", "Riga 2", 3)'),
    spoiled_colour_in_cadiz=edit(third("=$Riga.A2+$Cadiz.A2"), f"{at('A2', 1)}.CellBackColor = 255"),
)
SLANT = "com.sun.star.awt.FontSlant.ITALIC"
WEBER = WORD.format("Weber")
after(
    "writer-bold",
    right_by_the_menu=edit(WEBER, BROWSING, "doc.CurrentController.select(doc.findFirst(s))", pressed(".uno:Italic")),
    right_for_all_scripts=edit(WEBER, *(f"c.CharPosture{of} = {SLANT}" for of in ("", "Asian", "Complex"))),
    wrong_word_behind=edit(WORD.format("Weber in"), f"c.{ITALIC}"),
    wrong_every_line=edit(paragraphs(f"c.{ITALIC}")),
    wrong_larger=edit(WEBER, "c.CharHeight = 20"),
    spoiled_bold=edit(WEBER, f"c.{BOLD}", f"c.{ITALIC}"),
    spoiled_number_in_colour=edit(WEBER, f"c.{ITALIC}", WORD.format("26"), "c.CharColor = 255"),
)
LINE = paragraphs('If i = 3 Then c.ParaStyleName = "Heading 3"')
after(
    "writer-heading",
    right=lambda home: traces(home.office(LINE)),
    right_by_the_title_first=edit(paragraphs('If i = 3 Then c.ParaStyleName = "Title"'), LINE),
    right_by_the_menu=edit(
        BROWSING + "c.ViewCursor.gotoStart(False)\nc.ViewCursor.goDown(2, False)\n",
        'h = createUnoService("com.sun.star.frame.DispatchHelper")\nDim w(1) As New com.sun.star.beans.PropertyValue\n'
        'w(0).Name = "Template"\nw(0).Value = "Heading 3"\nw(1).Name = "Family"\nw(1).Value = 2\n'
        'h.executeDispatch(c.Frame, ".uno:StyleApply", "", 0, w())',
    ),
    wrong_line_below=edit(paragraphs('If i = 4 Then c.ParaStyleName = "Heading 3"')),
    wrong_level=edit(paragraphs('If i = 3 Then c.ParaStyleName = "Heading 4"')),
    wrong_subtitle=edit(paragraphs('If i = 3 Then c.ParaStyleName = "Subtitle"')),
    spoiled_slanted=edit(LINE, paragraphs(f"If i = 3 Then c.{ITALIC}")),
    spoiled_line_below_larger=edit(LINE, paragraphs("If i = 4 Then c.CharHeight = 18")),
)
ROUEN = REPLACE.format("Lisbon", "Rouen-65")
after(
    "writer-replace",
    right=lambda home: traces(home.office(ROUEN)),
    right_by_typing=edit(
        paragraphs(
            'If i = 1 Then c.String = "68 doors for Ingram in Rouen-65"',
            'If i = 3 Then c.String = "38 umbrellas for Lawson in Rouen-65"',
            'If i = 5 Then c.String = "98 tiles for Clark in Rouen-65"',
        )
    ),
    wrong_first_only=edit(WORD.format("Lisbon"), 'c.String = "Rouen-65"'),
    wrong_town=edit(REPLACE.format("town", "Rouen-65")),
    wrong_both_words=edit(REPLACE.format("Lisbon", "Lisbon Rouen-65")),
    wrong_without_the_number=edit(REPLACE.format("Lisbon", "Rouen")),
    spoiled_town_too=edit(ROUEN, REPLACE.format("town", "Rouen-65")),
    spoiled_slanted=edit(ROUEN, WORD.format("Rouen-65"), f"c.{ITALIC}"),
)
CSV = "year,parking\n2024,713\n"
after(
    "web-download",
    right=lambda home: browsed(home).put("Downloads/parking-2024.csv", CSV),
    wrong_year=lambda home: browsed(home).put("Downloads/parking-2012.csv", "year,parking\n2012,446\n"),
    wrong_page_saved=lambda home: browsed(home).put("Downloads/Files.html", f"<a>{CSV}</a>"),
    wrong_content=lambda home: browsed(home).put("Downloads/parking-2024.csv", CSV.replace("713", "731")),
    spoiled_all=lambda home: (
        browsed(home)
        .put("Downloads/parking-2024.csv", CSV)
        .put("Downloads/parking-1994.csv", "year,parking\n1994,206\n")
    ),
    spoiled_note=lambda home: browsed(home).put("Downloads/parking-2024.csv", CSV).put("Desktop/note", "x"),
)


def answered(home: Home, words: str) -> Home:
    return home.post("/answer", answer=words)


after(
    "web-facts",
    right=lambda home: answered(browsed(home), "6158"),
    wrong_fax=lambda home: answered(home, "5585"),
    wrong_house_of_another=lambda home: answered(home, "8144"),
    wrong_word=lambda home: answered(home, "post box 6158"),
    spoiled_second_try=lambda home: answered(answered(home, "5027"), "6158"),
    spoiled_said_twice=lambda home: answered(answered(home, "6158"), "6158"),
)


def replied(home: Home, **other: object) -> Home:
    fields = {"reply": 8, "to": "fisher@example.org", "subject": "Re: A question", "text": "287"}
    return home.post("/send", **{**fields, **other})


after(
    "web-mail-answer",
    right=lambda home: replied(browsed(home)),
    right_own_subject=lambda home: replied(home, subject="Flour"),
    wrong_number_of_another=lambda home: replied(home, text="281"),
    wrong_sentence=lambda home: replied(home, text="We need 287 flour."),
    wrong_to_who_wrote_it=lambda home: replied(home, reply=6, to="ingram@example.org", subject="Re: About the journal"),
    spoiled_to_both=lambda home: replied(
        replied(home), reply=6, to="ingram@example.org", subject="Re: About the journal"
    ),
    spoiled_question_away=lambda home: replied(home).post("/move", id=8, folder="Archive"),
)


def sent(home: Home, **other: object) -> Home:
    fields = {"reply": "", "to": "bishop@example.org", "subject": "hammers", "text": "86"}
    return home.post("/send", **{**fields, **other})


after(
    "web-mail-file",
    right=lambda home: sent(browsed(home)),
    right_as_a_reply=lambda home: sent(home, reply=4),
    wrong_line_below=lambda home: sent(home, text="89"),
    wrong_subject=lambda home: sent(home, subject="hammers: 86"),
    wrong_receiver=lambda home: sent(home, to="lawson@example.org"),
    spoiled_twice=lambda home: sent(sent(home, text="68")),
    spoiled_line_gone=lambda home: sent(home).sh("sed -i 1d journey-14.txt"),
)


def filed(home: Home, *numbers: int, folder: str = "Archive") -> Home:
    return home.post("/move", id=list(numbers), folder=folder)


after(
    "web-mail-sort",
    right=lambda home: filed(browsed(home), 2, 6, 7),
    right_by_way_of_another_folder=lambda home: filed(filed(home, 2, 6, 7, folder="Work"), 7, 6, 2),
    right_one_too_many_moved_back=lambda home: filed(filed(home, 2, 4, 6, 7), 4, folder="Inbox"),
    wrong_two=lambda home: filed(home, 2, 6),
    wrong_folder=lambda home: filed(home, 2, 6, 7, folder="Work"),
    wrong_all_of_ingram=lambda home: filed(home, 3, 5),
    spoiled_one_of_young=lambda home: filed(home, 1, 2, 6, 7),
    spoiled_answered=lambda home: filed(home, 2, 6, 7).post(
        "/send", reply=2, to="foster@example.org", subject="Re: About the journey", text="filed"
    ),
)


def reported(home: Home, **other: object) -> Home:
    fields = {
        "building": "Leiden",
        "kind": "fire",
        "day": "2027-02-22",
        "urgency": "at once",
        "text": "Meeting: no doors left",
    }
    return home.post("/", **{**fields, **other})


after(
    "web-report",
    right=lambda home: reported(browsed(home)),
    right_after_a_refusal=lambda home: reported(reported(home, building="choose")),
    wrong_kind=lambda home: reported(home, kind="water"),
    wrong_day=lambda home: reported(home, day="2027-02-21"),
    wrong_text=lambda home: reported(home, text="Meeting: no door left"),
    wrong_may_call=lambda home: reported(home, call="on"),
    spoiled_twice=lambda home: reported(reported(home)),
    spoiled_mended_by_a_second=lambda home: reported(reported(home, urgency="this week")),
)


def booked(home: Home, **other: object) -> Home:
    fields = {
        "id": "",
        "title": "parking 92",
        "room": "Lisbon",
        "day": "2027-02-08",
        "begin": "13:00",
        "end": "14:00",
        "people": "6",
    }
    return home.post("/book", **{**fields, **other})


after(
    "web-rooms-book",
    right=lambda home: booked(browsed(home)),
    right_after_a_day_too_late=lambda home: booked(booked(home, day="2027-02-09", begin="14:00", end="15:00"), id=21),
    wrong_too_small=lambda home: booked(home, room="Rouen", people="4"),
    wrong_evening=lambda home: booked(home, begin="17:00", end="18:00"),
    wrong_day=lambda home: booked(home, day="2027-02-10"),
    spoiled_leiden_made_free=lambda home: booked(home.post("/cancel", id=10), room="Leiden"),
    spoiled_second_hour=lambda home: booked(booked(home), begin="12:00", end="13:00"),
)


def cart(home: Home, remove: tuple[int, ...] = (1,), onions: int = 3, yarn: int = 1, cheese: int = 5) -> Home:
    held = {"amount-7": 2, "amount-1": onions, "amount-9": yarn, "amount-14": cheese}
    return home.post("/cart", remove=list(remove), **held)


after(
    "web-shop-cart",
    right=lambda home: cart(browsed(home)),
    right_onions_first=lambda home: cart(cart(home, yarn=4), ()),
    wrong_onions_one=lambda home: cart(home, (), onions=1),
    wrong_yarn_out=lambda home: cart(home, (1, 9)),
    wrong_yarn_as_it_was=lambda home: cart(home, yarn=4),
    spoiled_cheese=lambda home: cart(home, cheese=1),
    spoiled_ordered=lambda home: cart(home).post(
        "/order", name="Reed", city="Cork", delivery="standard", payment="card"
    ),
)


def one(home: Home, article: int = 1, amount: int = 1) -> Home:
    return home.post("/cart/add", id=article, amount=amount)


after(
    "web-shop-compare",
    right=lambda home: one(browsed(home)),
    right_two_made_one=lambda home: one(home, amount=2).post("/cart", **{"amount-1": 1}),
    right_cheaper_one_taken_out=lambda home: one(one(home, 12)).post(
        "/cart", **{"amount-12": 1, "amount-1": 1}, remove=12
    ),
    wrong_cheapest_of_all=lambda home: one(home, 12),
    wrong_other_category=lambda home: one(home, 4),
    wrong_best_rating_dearer=lambda home: one(home, 8),
    spoiled_drums_too=lambda home: one(one(home), 2),
    spoiled_ordered=lambda home: one(home).post(
        "/order", name="Reed", city="Cork", delivery="standard", payment="card"
    ),
)


def registered(home: Home, **other: object) -> Home:
    chosen = {"course": "delivery", "day": "2027-08-17", "meal": "vegetarian", "extras": ["certificate"], **other}
    home.post("/", name="Ingram", city=chosen.get("city", "Cork"))
    home.post("/course", course=chosen["course"], day=chosen["day"])
    return home.post("/extras", meal=chosen["meal"], extras=chosen["extras"])


def sure(home: Home) -> Home:
    return home.post("/confirm", sure="on")


after(
    "web-wizard",
    right=lambda home: sure(registered(browsed(home))),
    right_from_the_start_again=lambda home: sure(registered(registered(home, city="Kiel", extras=["book"]))),
    wrong_no_extra=lambda home: sure(registered(home, extras=[])),
    wrong_meal=lambda home: sure(registered(home, meal="with fish")),
    wrong_city=lambda home: sure(registered(home, city="Kiel")),
    wrong_two_extras=lambda home: sure(registered(home, extras=["certificate", "book"])),
    spoiled_two_days=lambda home: sure(registered(sure(registered(home)), day="2027-08-14")),
)
