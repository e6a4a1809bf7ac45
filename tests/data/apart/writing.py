"""End states of the tasks with Writer; real LibreOffice changes and saves the documents."""

from tests.data.apart.kit import states
from tests.data.apart.office import BOLD, ITALIC, edit, elsewhere, traces

WORD = 's = doc.createSearchDescriptor()\ns.SearchString = "{}"\nc = doc.findFirst(s)\n'
LEIDEN = WORD.format("Leiden")


def paragraphs(*each: str) -> str:
    """A program for the paragraphs `c`, the first is `i` = 1."""
    body = "\n".join(each)
    return f"t = doc.Text.createEnumeration()\ni = 0\nDo While t.hasMoreElements()\nc = t.nextElement()\ni = i + 1\n{body}\nLoop\n"  # noqa: E501


OWN = 't = doc.createInstance("com.sun.star.style.CharacterStyle")\ndoc.StyleFamilies.getByName("CharacterStyles").insertByName("Mine", t)\n'  # noqa: E501
states(
    "writer-bold",
    right_directly=edit(LEIDEN, f"c.{ITALIC}"),
    right_emphasis=edit(LEIDEN, 'c.CharStyleName = "Emphasis"'),
    right_own_style=edit(OWN, f"t.{ITALIC}", LEIDEN, 'c.CharStyleName = "Mine"'),
    right_with_traces=lambda home: traces(home.office(f"{LEIDEN}c.{ITALIC}")),
    wrong_line=edit(paragraphs(f"If i = 5 Then c.{ITALIC}")),
    wrong_other_word=edit(WORD.format("shovels"), f"c.{ITALIC}"),
    wrong_part=edit(WORD.format("Leide"), f"c.{ITALIC}"),
    wrong_name_too=edit(WORD.format("Reed in Leiden"), f"c.{ITALIC}"),
    wrong_bold=edit(LEIDEN, f"c.{BOLD}"),
    wrong_strong=edit(LEIDEN, 'c.CharStyleName = "Strong Emphasis"'),
    wrong_capitals=edit(LEIDEN, 'c.String = "LEIDEN"'),
    wrong_saved_elsewhere=elsewhere("parking-14 italic.odt", LEIDEN, f"c.{ITALIC}"),
    spoiled_bold_too=edit(LEIDEN, f"c.{BOLD}", f"c.{ITALIC}"),
    spoiled_red=edit(LEIDEN, f"c.{ITALIC}", "c.CharColor = 16711680"),
    spoiled_second_word=edit(LEIDEN, f"c.{ITALIC}", WORD.format("lemons"), f"c.{ITALIC}"),
    spoiled_text=edit(LEIDEN, f"c.{ITALIC}", WORD.format("Verona"), 'c.String = "Verona."'),
    spoiled_centred=edit(
        LEIDEN, f"c.{ITALIC}", paragraphs("If i = 5 Then c.ParaAdjust = com.sun.star.style.ParagraphAdjust.CENTER")
    ),
    ambiguous_space_too=edit(WORD.format(" Leiden"), f"c.{ITALIC}"),
)
FIFTH = paragraphs('If i = 5 Then c.ParaStyleName = "{}"')
states(
    "writer-heading",
    right_style=edit(FIFTH.format("Heading 5")),
    right_after_another=edit(FIFTH.format("Heading 3"), FIFTH.format("Heading 5")),
    right_with_traces=lambda home: traces(home.office(FIFTH.format("Heading 5"))),
    wrong_level=edit(FIFTH.format("Heading 1")),
    wrong_title=edit(FIFTH.format("Title")),
    wrong_heading_without_level=edit(FIFTH.format("Heading")),
    wrong_look_only=edit(paragraphs(f"If i = 5 Then c.{BOLD}", "If i = 5 Then c.CharHeight = 18")),
    wrong_line_above=edit(paragraphs('If i = 4 Then c.ParaStyleName = "Heading 5"')),
    wrong_all=edit(paragraphs('c.ParaStyleName = "Heading 5"')),
    wrong_outline_only=edit(paragraphs("If i = 5 Then c.OutlineLevel = 5")),
    spoiled_second=edit(paragraphs('If i > 4 Then c.ParaStyleName = "Heading 5"')),
    spoiled_text=edit(FIFTH.format("Heading 5"), paragraphs('If i = 5 Then c.String = "44 Glue for Clark in Kiel"')),
    spoiled_others=edit(FIFTH.format("Heading 5"), paragraphs(f"If i <> 5 Then c.{ITALIC}")),
    spoiled_copy=lambda home: home.office(FIFTH.format("Heading 5")).later(
        lambda home: home.copy("museum-59.odt", "museum-59 (1).odt")
    ),
)
LIST = 'c.NumberingStyleName = "List 1"'
BELOW = f"If i > 5 Then {LIST}"
DISPATCH = (
    "Dim none()\nc = doc.CurrentController\nc.ViewCursor.gotoStart(False)\nc.ViewCursor.goDown(5, False)\n"
    "c.ViewCursor.gotoEnd(True)\n"
    's = createUnoService("com.sun.star.frame.DispatchHelper")\ns.executeDispatch(c.Frame, ".uno:DefaultBullet", "", 0, none())\n'  # noqa: E501
)
states(
    "writer-list",
    right_style=edit(paragraphs(BELOW)),
    right_button=edit(DISPATCH),
    right_other_bullets=edit(paragraphs('If i > 5 Then c.NumberingStyleName = "List 2"')),
    right_with_traces=lambda home: traces(home.office(paragraphs(BELOW))),
    wrong_last_missing=edit(paragraphs(f"If i > 5 And i < 9 Then {LIST}")),
    wrong_first_missing=edit(paragraphs(f"If i > 6 Then {LIST}")),
    wrong_numbers=edit(paragraphs('If i > 5 Then c.NumberingStyleName = "Numbering 123"')),
    wrong_typed=edit(paragraphs('If i > 5 Then c.String = Chr(8226) & " " & c.String')),
    wrong_indented=edit(paragraphs("If i > 5 Then c.ParaLeftMargin = 1000")),
    wrong_one=edit(paragraphs(f"If i = 6 Then {LIST}")),
    wrong_all=edit(paragraphs(LIST)),
    wrong_others=edit(paragraphs(f"If i < 6 Then {LIST}")),
    spoiled_line_above=edit(paragraphs(f"If i > 4 Then {LIST}")),
    spoiled_bold=edit(paragraphs(BELOW, f"If i > 5 Then c.{BOLD}")),
    spoiled_text=edit(paragraphs(BELOW, 'If i = 8 Then c.String = "14 glue for Bishop in Riga."')),
    spoiled_item_more=edit(
        paragraphs(BELOW),
        "c = doc.Text.createTextCursorByRange(doc.Text.End)",
        "doc.Text.insertControlCharacter(c, 0, False)",
        'doc.Text.insertString(c, "end", False)',
    ),
)
LINES = ("68 cheese for Fisher in Oslo", "38 drums for Lewis in Cork", "29 onions for Shaw in Cadiz")
MOVED = "41 doors for Ingram in Zagreb"
REST = (
    "50 yarn for Underwood in Ghent",
    "11 flour for Irwin in Verona",
    "53 lemons for Clark in Riga",
    "95 tiles for Weber in Lisbon",
    "86 lamps for Reed in Naples",
)


def lined(*lines: str) -> str:
    return paragraphs(*(f'If i = {n} Then c.String = "{line}"' for n, line in enumerate(lines, 1)))


CUT = "Dim p\np = Null\n" + paragraphs("If i = 6 Then p = c") + "doc.Text.removeTextContent(p)\n"


def written_above(line: int) -> str:
    """The line that is moved, written once more above the line of this number."""
    return (
        f"Dim q\nq = Null\n{paragraphs(f'If i = {line} Then q = c')}c = doc.Text.createTextCursorByRange(q.Start)\n"
        f'doc.Text.insertString(c, "{MOVED}", False)\ndoc.Text.insertControlCharacter(c, 0, False)\n'
    )


DONE = lined(*LINES, MOVED, *REST)
states(
    "writer-move",
    right_cut_and_paste=edit(CUT, written_above(4)),
    right_typed=edit(DONE),
    right_with_traces=lambda home: traces(home.office(DONE)),
    wrong_copied=edit(written_above(4)),
    wrong_below=edit(lined(*LINES, REST[0], MOVED, *REST[1:])),
    wrong_exchanged=edit(lined(*LINES, MOVED, REST[1], REST[0], *REST[2:])),
    wrong_top=edit(lined(MOVED, *LINES, *REST)),
    wrong_deleted=edit(CUT),
    wrong_joined=edit(CUT, WORD.format("50 yarn"), f'c.String = "{MOVED} 50 yarn"'),
    wrong_empty_line_left=edit(paragraphs('If i = 6 Then c.String = ""'), written_above(4)),
    spoiled_others_order=edit(lined(LINES[0], LINES[2], LINES[1], MOVED, *REST)),
    spoiled_bold=edit(DONE, paragraphs(f"If i = 4 Then c.{BOLD}")),
    spoiled_text=edit(lined(*LINES, MOVED, *REST[:-1], REST[-1].replace("86", "87"))),
)
REPLACE = 's = doc.createReplaceDescriptor()\ns.SearchString = "{}"\ns.ReplaceString = "{}"\ndoc.replaceAll(s)\n'
VERONA = REPLACE.format("Rouen", "Verona-89")
states(
    "writer-replace",
    right_all=edit(VERONA),
    right_one_by_one=edit(*[WORD.format("Rouen") + 'c.String = "Verona-89"'] * 3),
    right_with_traces=lambda home: traces(home.office(VERONA)),
    wrong_one_left=edit(*[WORD.format("Rouen") + 'c.String = "Verona-89"'] * 2),
    wrong_small=edit(REPLACE.format("Rouen", "verona-89")),
    wrong_spelling=edit(REPLACE.format("Rouen", "Verona-8")),
    wrong_town_too=edit(VERONA, REPLACE.format("town", "Verona-89")),
    wrong_other_way_round=edit(REPLACE.format("town", "Rouen")),
    wrong_saved_elsewhere=elsewhere("visitors-50-verona.odt", VERONA),
    spoiled_bold=edit(VERONA, WORD.format("Verona-89"), f"c.{BOLD}"),
    spoiled_name=edit(VERONA, REPLACE.format("Bishop", "Foster")),
    spoiled_line=edit(
        VERONA,
        "c = doc.Text.createTextCursorByRange(doc.Text.Start)",
        'doc.Text.insertString(c, "Verona-89", False)',
        "doc.Text.insertControlCharacter(c, 0, False)",
    ),
)
