"""Further end states of templates of every family, written on 30 November after the others were judged."""

from tests.data.apart.kit import Home, states
from tests.data.apart.office import (
    BOLD,
    COST,
    HAMMERS_AND_YARN,
    ITALIC,
    PART,
    SORTED,
    at,
    costs,
    edit,
    formula,
    shown,
    total,
    value,
)
from tests.data.apart.pages import HOST, marked
from tests.data.apart.shell import ADD, ALIAS, ALIASES, PACK
from tests.data.apart.texts import KEYS, MAC, NAMES, SET, TABLE, UNIX
from tests.data.apart.writing import BELOW, DONE, FIFTH, LEIDEN, VERONA, WORD, paragraphs


def inside(*cells: str, end: bool = True) -> str:
    """Bold for the text within cells, as who edits it makes it; else for its first letter."""
    to = "c.gotoEnd(True)" if end else "c.goRight(1, True)"
    return "\n".join(f"c = {at(cell)}.createTextCursor()\nc.gotoStart(False)\n{to}\nc.{BOLD}" for cell in cells)


def page(*settings: str) -> str:
    style = 's = doc.StyleFamilies.getByName("PageStyles").getByName(c.PageStyleName)\n'
    return paragraphs() + style + "\n".join(f"s.{setting}" for setting in settings)


def into_a_trash_of_the_home(home: Home) -> Home:
    return home.sh("mkdir -p .Trash-0/files .Trash-0/info; mv Cadiz-47/*.log .Trash-0/files")


states(
    "calc-bold",
    right_all_and_the_others_back=edit(f"{at('A1:C6')}.{BOLD}", f"{at('A1:C6')}.CharWeight = 100", PART),
    wrong_numbers_as_texts=edit(inside("C3", "C4")),
    spoiled_comment=edit(PART, f'doc.Sheets(0).Annotations.insertNew({at("B3")}.CellAddress, "x")'),
)
states(
    "calc-sum",
    right_offset=total("=SUM(OFFSET(B1;1;0;5;1))"),
    wrong_double_half=total("=SUM(B2:B6;B2:B6)"),
    wrong_largest_twice=total("=SUM(B2:B5)+B5"),
    spoiled_sheet_protected=edit(formula("B9", "=SUM(B2:B6)"), 'doc.Sheets(0).protect("")'),
)
states(
    "calc-column",
    right_whole_columns=edit(COST, *(formula(f"D{n}", "=B:B*C:C") for n in range(2, 7))),
    right_in_brackets=edit(costs("=(B{0})*(C{0})")),
    wrong_amount_of_the_row_above=edit(costs("=B{0}*C{0}"), formula("D6", "=B5*C6")),
    spoiled_row_hidden=edit(costs("=B{0}*C{0}"), "doc.Sheets(0).Rows(3).IsVisible = False"),
)
states(
    "calc-change",
    spoiled_comment=edit(value("C3", 176), f'doc.Sheets(0).Annotations.insertNew({at("C3")}.CellAddress, "new")'),
    spoiled_protected=edit(value("C3", 176), 'doc.Sheets(0).protect("")'),
)
states("calc-sort", spoiled_row_hidden=edit(SORTED, "doc.Sheets(0).Rows(5).IsVisible = False"))
states(
    "calc-remove-row",
    spoiled_number_as_text=edit(HAMMERS_AND_YARN, f"v = {at('C4')}.String\n{at('C4')}.String = v"),
)
states(
    "calc-rename-sheet",
    spoiled_colour_of_the_tab=edit('doc.Sheets(0).Name = "Zagreb-20"', "doc.Sheets(0).TabColor = 16711680"),
)
states(
    "writer-bold",
    right_in_two_parts=edit(
        WORD.format("Leid"), f"c.{ITALIC}", LEIDEN, "c.collapseToEnd()", "c.goLeft(2, True)", f"c.{ITALIC}"
    ),
    wrong_for_asian_letters=edit(LEIDEN, "c.CharPostureAsian = com.sun.star.awt.FontSlant.ITALIC"),
    spoiled_margin=edit(LEIDEN, f"c.{ITALIC}", page("LeftMargin = 5000")),
)
states(
    "writer-heading",
    spoiled_comment=edit(
        FIFTH.format("Heading 5"),
        'a = doc.createInstance("com.sun.star.text.textfield.Annotation")\na.Content = "x"\n'
        "doc.Text.insertTextContent(doc.Text.createTextCursor(), a, False)",
    ),
    spoiled_landscape=edit(FIFTH.format("Heading 5"), page("Width = 29700", "Height = 21000")),
)
states("writer-list", spoiled_line_as_heading=edit(paragraphs(BELOW, 'If i = 7 Then c.ParaStyleName = "Heading 2"')))
states(
    "writer-move",
    spoiled_header=edit(DONE, page("HeaderIsOn = True", 'HeaderText.String = "moved"')),
)
states("writer-replace", ambiguous_recorded=edit("doc.RecordChanges = True", VERONA))
states(
    "xterm-count",
    right_for_its_user_alone=lambda home: home.sh("umask 077; grep -c Irwin meeting.log > schedule.txt"),
    wrong_number_of_the_names=lambda home: home.sh(
        "grep -oE '[A-Z][a-z]+' meeting.log | sort -u | wc -l > schedule.txt"
    ),
    spoiled_log_for_its_user_alone=lambda home: home.sh(
        "grep -c Irwin meeting.log > schedule.txt; chmod 600 meeting.log"
    ),
)
states(
    "xterm-sort-unique",
    wrong_windows_ends=lambda home: home.sh("sort -u schedule.txt journal.txt | sed 's/$/\\r/' > guests.txt"),
    wrong_indented=lambda home: home.sh("sort -u schedule.txt journal.txt | sed 's/^/ /' > guests.txt"),
    spoiled_empty_file_beside=lambda home: home.sh("sort -u schedule.txt journal.txt > guests.txt; : > names"),
)
states(
    "xterm-table-sums",
    wrong_two_spaces=lambda home: home.sh(ADD.replace("print c,s[c]", 'print c"  "s[c]')),
    wrong_tab=lambda home: home.sh(ADD.replace("print c,s[c]", 'print c"\\t"s[c]')),
    wrong_points=lambda home: home.sh(ADD.replace("print c,s[c]", 'print c" "s[c]".0"')),
)
states(
    "xterm-pack",
    right_by_python=lambda home: home.sh(
        "python3 -c \"import tarfile; some = lambda m: None if m.name.endswith('.tmp') else m; "
        "tarfile.open('Bishop.tar.gz', 'w:gz').add('Kiel', filter=some)\""
    ),
    wrong_whole_paths=lambda home: home.sh(f"{PACK} -P --exclude='*.tmp' \"$PWD/Kiel\""),
    wrong_zipped_twice=lambda home: home.sh(
        f"{PACK} --exclude='*.tmp' Kiel; gzip -c Bishop.tar.gz > x; mv x Bishop.tar.gz"
    ),
)
states(
    "xterm-unpack",
    spoiled_may_be_run=lambda home: home.sh(
        "unzip -qp Owens.zip new/visitors.txt > Cadiz/visitors.txt; chmod 755 Cadiz/visitors.txt"
    ),
)
states(
    "xterm-alias",
    wrong_other_quotes=lambda home: home.add(ALIASES, 'alias journey="ls -a ~/Cork"\n'),
    wrong_empty_line_after_it=lambda home: home.add(ALIASES, f"{ALIAS}\n\n"),
)
states("xterm-permissions", wrong_of_the_group=lambda home: home.mode("journal.sh", 0o2700))
states(
    "thunar-delete-kind",
    spoiled_in_a_trash_of_the_home=into_a_trash_of_the_home,
    right_trash_in_parts=lambda home: home.trash("Cadiz-47/schedule.log", "Cadiz-47/garden.log").remove(
        "Cadiz-47/delivery.log"
    ),
)
states("thunar-new-folder", wrong_hidden_file_inside=lambda home: home.put("Rouen/Cadiz/.directory", "[Dolphin]\n"))
states(
    "thunar-copy-several",
    right_for_its_user_alone=lambda home: home.sh("install -m 600 Florence/parking\\ 1{73,67,64}.txt Riga"),
    spoiled_read_by_all_and_written=lambda home: home.sh("install -m 666 Florence/parking\\ 1{73,67,64}.txt Riga"),
)
states(
    "thunar-move",
    right_with_a_new_time=lambda home: home.move("delivery-95.txt", "Lisbon/delivery-95.txt").sh("touch Lisbon/*"),
)
states("thunar-permissions", spoiled_group_of_its_own=lambda home: home.mode("parking-56.sh", 0o2740))
states(
    "mousepad-line-ends",
    wrong_last_line_of_windows=lambda home: home.sh(f"tr '\\n' '\\r' < {UNIX} > {MAC}; echo >> {MAC}"),
)
states("mousepad-indent", wrong_tab_and_space=lambda home: home.sh("sed -i '4,8s/^/\\t /' survey-44.txt"))
states(
    "mousepad-sort",
    wrong_empty_line_first=lambda home: home.put(NAMES, "\n" + "".join(f"{x}\n" for x in sorted(home.lines(NAMES)))),
)
states(
    "mousepad-swap-columns",
    right_saved_anew=lambda home: home.sh(
        f"umask 022; awk -F: '{{print $2\"=\"$1}}' {TABLE} > {TABLE}.new; mv {TABLE}.new {TABLE}"
    ),
)
states("mousepad-settings", spoiled_word_wrap=lambda home: home.put(KEYS, SET + "word-wrap=true\n"))
states(
    "web-bookmark",
    right_on_the_phone=lambda home: marked(home, place="synced"),
    wrong_space_behind=lambda home: marked(home, ("drums 11 ", HOST + "/garden")),
    wrong_question=lambda home: marked(home, ("drums 11", HOST + "/garden?page=2")),
)


def look_of(family: str, name: str, *settings: str) -> str:
    """Changes a named style."""
    style = f's = doc.StyleFamilies.getByName("{family}").getByName("{name}")\n'
    return style + "\n".join(f"s.{setting}" for setting in settings)


SUM = formula("B9", "=SUM(B2:B6)")
RENAMED = 'doc.Sheets(0).Name = "Zagreb-20"'
BROWSING = "c = doc.CurrentController\n"
FILTER = (
    'Dim a As New com.sun.star.table.CellRangeAddress\na = {}.RangeAddress\ndoc.DatabaseRanges.addNewByName("d", a)\n'
    'doc.DatabaseRanges.getByName("d").AutoFilter = True'
)
CONDITION = (
    "f = {0}.ConditionalFormat\nDim p(2) As New com.sun.star.beans.PropertyValue\n"
    'p(0).Name = "Operator"\np(0).Value = com.sun.star.sheet.ConditionOperator.GREATER\np(1).Name = "Formula1"\n'
    'p(1).Value = "1"\np(2).Name = "StyleName"\np(2).Value = "Accent"\nf.addNew(p())\n{0}.ConditionalFormat = f'
)
# beside the work: how the window shows the document is no part of it
states(
    "calc-bold",
    right_other_zoom_and_cell=edit(PART, BROWSING, "c.ZoomValue = 150", f"c.select({at('F20')})"),
    spoiled_merged=edit(PART, f"{at('A8:B8')}.merge(True)"),
    spoiled_condition=edit(PART, CONDITION.format(at("B2:B6"))),
    spoiled_plain_cells=edit(PART, look_of("CellStyles", "Default", "CharHeight = 14")),
)
states(
    "calc-sum",
    right_two_ranges_added=total("=SUM(B2:B3)+SUM(B4:B6)"),
    right_rows_fixed=total("=SUM(B$2:B$6)"),
    wrong_rows_below=total("=SUM(OFFSET(B1;2;0;5;1))"),
    spoiled_filter=edit(SUM, FILTER.format(at("A1:C6"))),
    spoiled_wide_column=edit(SUM, "doc.Sheets(0).Columns(0).Width = 6000"),
    spoiled_high_row=edit(SUM, "doc.Sheets(0).Rows(2).Height = 2000"),
    spoiled_frozen=edit(SUM, BROWSING, "c.freezeAtPosition(0, 1)"),
    spoiled_margin=edit(SUM, look_of("PageStyles", "Default", "LeftMargin = 6000")),
)
states("calc-column", wrong_whole_columns_of_one=edit(COST, *(formula(f"D{n}", "=B:B*B:B") for n in range(2, 7))))
states(
    "calc-rename-sheet",
    spoiled_structure_protected=edit(RENAMED, 'doc.protect("")'),
    spoiled_title=edit(RENAMED, 'doc.DocumentProperties.Title = "Zagreb-20"'),
)
states(
    "calc-three-sheets",
    right_first_sheet_shown=edit(
        'doc.Sheets.insertNewByName("Leiden", 2)',
        formula("A1", "=$Zagreb.A2+$Cork.A2", 2),
        BROWSING,
        "c.setActiveSheet(doc.Sheets(0))",
    ),
    spoiled_hidden=edit(
        'doc.Sheets.insertNewByName("Leiden", 2)',
        formula("A1", "=$Zagreb.A2+$Cork.A2", 2),
        "doc.Sheets(1).IsVisible = False",
    ),
)
ITALIC_WORD = f"{LEIDEN}c.{ITALIC}\n"
MARK = (
    'm = doc.createInstance("com.sun.star.text.Bookmark")\n'
    "doc.Text.insertTextContent(doc.Text.createTextCursor(), m, False)"
)
states(
    "writer-bold",
    right_other_zoom=edit(ITALIC_WORD, BROWSING, "c.ViewSettings.ZoomValue = 150"),
    spoiled_plain_text=edit(ITALIC_WORD, look_of("ParagraphStyles", "Standard", "CharHeight = 14")),
    spoiled_footer=edit(ITALIC_WORD, page("FooterIsOn = True", 'FooterText.String = "x"')),
    spoiled_bookmark=edit(ITALIC_WORD, MARK),
    spoiled_link=edit(ITALIC_WORD, WORD.format("Verona"), 'c.HyperLinkURL = "http://example.org/"'),
    spoiled_page_break=edit(
        ITALIC_WORD, paragraphs("If i = 3 Then c.BreakType = com.sun.star.style.BreakType.PAGE_BEFORE")
    ),
    spoiled_coloured_page=edit(ITALIC_WORD, page("BackColor = 16776960")),
    spoiled_title=edit(ITALIC_WORD, 'doc.DocumentProperties.Title = "Leiden"'),
    spoiled_top=edit(ITALIC_WORD, page("TopMargin = 500")),
)
LINE = "Dim b As New com.sun.star.table.BorderLine2\nb.OuterLineWidth = 50\n{}.BottomBorder = b"
states(
    "calc-column",
    right_another_cell_chosen=edit(costs("=B{0}*C{0}"), f"doc.CurrentController.select({at('C3')})"),
    spoiled_places_of_prices=edit(costs("=B{0}*C{0}"), shown("C2:C6", "0.00")),
    ambiguous_places_of_costs=edit(costs("=B{0}*C{0}"), shown("D2:D6", "#,##0.000")),
)
states(
    "calc-change",
    spoiled_colour_of_an_empty_cell=edit(value("C3", 176), f"{at('F9')}.CellBackColor = 16776960"),
    spoiled_line_below_an_empty_cell=edit(value("C3", 176), LINE.format(at("F9"))),
    spoiled_turned=edit(value("C3", 176), f"{at('A1')}.RotateAngle = 4500"),
)
