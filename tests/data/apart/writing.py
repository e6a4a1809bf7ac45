"""End states of the tasks with Writer; real LibreOffice changes and saves the documents."""

from tests.data.apart.kit import states
from tests.data.apart.office import BOLD, ITALIC, edit, elsewhere, traces

WORD = 's = doc.createSearchDescriptor()\ns.SearchString = "{}"\nc = doc.findFirst(s)\n'
CHEESE = WORD.format("cheese")


def paragraphs(*each: str) -> str:
    """A program for the paragraphs `c`, the first is `i` = 1."""
    body = "\n".join(each)
    return f"t = doc.Text.createEnumeration()\ni = 0\nDo While t.hasMoreElements()\nc = t.nextElement()\ni = i + 1\n{body}\nLoop\n"  # noqa: E501


OWN = 't = doc.createInstance("com.sun.star.style.CharacterStyle")\ndoc.StyleFamilies.getByName("CharacterStyles").insertByName("Mine", t)\n'  # noqa: E501
states(
    "writer-bold",
    right_directly=edit(CHEESE, f"c.{BOLD}"),
    right_strong=edit(CHEESE, 'c.CharStyleName = "Strong Emphasis"'),
    right_own_style=edit(OWN, f"t.{BOLD}", CHEESE, 'c.CharStyleName = "Mine"'),
    right_with_traces=lambda home: traces(home.office(f"{CHEESE}c.{BOLD}")),
    wrong_line=edit(paragraphs(f"If i = 2 Then c.{BOLD}")),
    wrong_other_word=edit(WORD.format("candles"), f"c.{BOLD}"),
    wrong_part=edit(WORD.format("chees"), f"c.{BOLD}"),
    wrong_number_too=edit(WORD.format("56 cheese"), f"c.{BOLD}"),
    wrong_italic=edit(CHEESE, f"c.{ITALIC}"),
    wrong_emphasis=edit(CHEESE, 'c.CharStyleName = "Emphasis"'),
    wrong_capitals=edit(CHEESE, 'c.String = "CHEESE"'),
    wrong_saved_elsewhere=elsewhere("parking-14 bold.odt", CHEESE, f"c.{BOLD}"),
    spoiled_italic_too=edit(CHEESE, f"c.{BOLD}", f"c.{ITALIC}"),
    spoiled_red=edit(CHEESE, f"c.{BOLD}", "c.CharColor = 16711680"),
    spoiled_second_word=edit(CHEESE, f"c.{BOLD}", WORD.format("tiles"), f"c.{BOLD}"),
    spoiled_text=edit(CHEESE, f"c.{BOLD}", WORD.format("Naples"), 'c.String = "Naples."'),
    spoiled_centred=edit(
        CHEESE, f"c.{BOLD}", paragraphs("If i = 2 Then c.ParaAdjust = com.sun.star.style.ParagraphAdjust.CENTER")
    ),
    ambiguous_space_too=edit(WORD.format("cheese "), f"c.{BOLD}"),
)
FOURTH = paragraphs('If i = 4 Then c.ParaStyleName = "{}"')
states(
    "writer-heading",
    right_style=edit(FOURTH.format("Heading 1")),
    right_after_another=edit(FOURTH.format("Heading 3"), FOURTH.format("Heading 1")),
    right_with_traces=lambda home: traces(home.office(FOURTH.format("Heading 1"))),
    wrong_level=edit(FOURTH.format("Heading 2")),
    wrong_title=edit(FOURTH.format("Title")),
    wrong_heading_without_level=edit(FOURTH.format("Heading")),
    wrong_look_only=edit(paragraphs(f"If i = 4 Then c.{BOLD}", "If i = 4 Then c.CharHeight = 18")),
    wrong_line_above=edit(paragraphs('If i = 3 Then c.ParaStyleName = "Heading 1"')),
    wrong_all=edit(paragraphs('c.ParaStyleName = "Heading 1"')),
    wrong_outline_only=edit(paragraphs("If i = 4 Then c.OutlineLevel = 1")),
    spoiled_second=edit(paragraphs('If i > 3 Then c.ParaStyleName = "Heading 1"')),
    spoiled_text=edit(
        FOURTH.format("Heading 1"), paragraphs('If i = 4 Then c.String = "17 Hammers for Bishop in Verona"')
    ),
    spoiled_others=edit(FOURTH.format("Heading 1"), paragraphs(f"If i <> 4 Then c.{ITALIC}")),
    spoiled_copy=lambda home: home.office(FOURTH.format("Heading 1")).later(
        lambda home: home.copy("museum-59.odt", "museum-59 (1).odt")
    ),
)
LIST = 'c.NumberingStyleName = "List 1"'
DISPATCH = (
    "Dim none()\nc = doc.CurrentController\nc.ViewCursor.gotoStart(False)\nc.ViewCursor.gotoEnd(True)\n"
    's = createUnoService("com.sun.star.frame.DispatchHelper")\ns.executeDispatch(c.Frame, ".uno:DefaultBullet", "", 0, none())\n'  # noqa: E501
)
states(
    "writer-list",
    right_style=edit(paragraphs(LIST)),
    right_button=edit(DISPATCH),
    right_other_bullets=edit(paragraphs('c.NumberingStyleName = "List 2"')),
    right_with_traces=lambda home: traces(home.office(paragraphs(LIST))),
    wrong_last_missing=edit(paragraphs(f"If i < 5 Then {LIST}")),
    wrong_first_missing=edit(paragraphs(f"If i > 1 Then {LIST}")),
    wrong_numbers=edit(paragraphs('c.NumberingStyleName = "Numbering 123"')),
    wrong_typed=edit(paragraphs('c.String = Chr(8226) & " " & c.String')),
    wrong_indented=edit(paragraphs("c.ParaLeftMargin = 1000")),
    wrong_one=edit(paragraphs(f"If i = 1 Then {LIST}")),
    spoiled_bold=edit(paragraphs(LIST, f"c.{BOLD}")),
    spoiled_text=edit(paragraphs(LIST, 'If i = 3 Then c.String = "17 drums for Young in Lisbon."')),
    spoiled_item_more=edit(
        paragraphs(LIST),
        "c = doc.Text.createTextCursorByRange(doc.Text.End)",
        "doc.Text.insertControlCharacter(c, 0, False)",
        'doc.Text.insertString(c, "end", False)',
    ),
)
LINES = ("38 candles for Fisher in Izmir", "29 umbrellas for Lewis in Leiden", "35 juice for Shaw in Cadiz")
MOVED, LAST = "59 cheese for Underwood in Cork", "11 drums for Irwin in Oslo"


def lined(*lines: str) -> str:
    return paragraphs(*(f'If i = {n} Then c.String = "{line}"' for n, line in enumerate(lines, 1)))


CUT = "Dim p\np = Null\n" + paragraphs("If i = 4 Then p = c") + "doc.Text.removeTextContent(p)\n"
TOP = f'c = doc.Text.createTextCursorByRange(doc.Text.Start)\ndoc.Text.insertString(c, "{MOVED}", False)\ndoc.Text.insertControlCharacter(c, 0, False)\n'  # noqa: E501
states(
    "writer-move",
    right_cut_and_paste=edit(CUT, TOP),
    right_typed=edit(lined(MOVED, *LINES, LAST)),
    right_with_traces=lambda home: traces(home.office(lined(MOVED, *LINES, LAST))),
    wrong_copied=edit(TOP),
    wrong_second=edit(lined(LINES[0], MOVED, *LINES[1:], LAST)),
    wrong_exchanged=edit(lined(MOVED, *LINES[1:], LINES[0], LAST)),
    wrong_last=edit(lined(*LINES, LAST, MOVED)),
    wrong_deleted=edit(CUT),
    wrong_joined=edit(CUT, f'doc.Text.insertString(doc.Text.Start, "{MOVED} ", False)'),
    wrong_empty_line_left=edit(paragraphs('If i = 4 Then c.String = ""'), TOP),
    spoiled_others_order=edit(lined(MOVED, LINES[0], LINES[2], LINES[1], LAST)),
    spoiled_bold=edit(lined(MOVED, *LINES, LAST), paragraphs(f"If i = 1 Then c.{BOLD}")),
    spoiled_text=edit(lined(MOVED, *LINES, LAST.replace("11", "12"))),
)
REPLACE = 's = doc.createReplaceDescriptor()\ns.SearchString = "{}"\ns.ReplaceString = "{}"\ndoc.replaceAll(s)\n'
NAPLES = REPLACE.format("Utrecht", "Naples")
states(
    "writer-replace",
    right_all=edit(NAPLES),
    right_one_by_one=edit(*[WORD.format("Utrecht") + 'c.String = "Naples"'] * 3),
    right_with_traces=lambda home: traces(home.office(NAPLES)),
    wrong_one_left=edit(*[WORD.format("Utrecht") + 'c.String = "Naples"'] * 2),
    wrong_small=edit(REPLACE.format("Utrecht", "naples")),
    wrong_spelling=edit(REPLACE.format("Utrecht", "Naple")),
    wrong_town_too=edit(NAPLES, REPLACE.format("town", "Naples")),
    wrong_other_way_round=edit(REPLACE.format("town", "Utrecht")),
    wrong_saved_elsewhere=elsewhere("visitors-50-naples.odt", NAPLES),
    spoiled_bold=edit(NAPLES, WORD.format("Naples"), f"c.{BOLD}"),
    spoiled_name=edit(NAPLES, REPLACE.format("Bishop", "Foster")),
    spoiled_line=edit(NAPLES, TOP.replace(MOVED, "Naples")),
)
