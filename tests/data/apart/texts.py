"""End states of the tasks with the editor alone."""

import unicodedata

from tests.data.apart.kit import Home, states

VIEW = "[org/xfce/mousepad/preferences/view]\n"
KEYS = ".config/glib-2.0/settings/keyfile"


def appended(home: Home) -> Home:
    return home.add("museum.txt", "41 oats\n")


states(
    "mousepad-append",
    right_by_echo=lambda home: home.sh("echo '41 oats' >> museum.txt"),
    right_without_last_line_end=lambda home: home.add("museum.txt", "41 oats"),
    right_with_what_the_editor_writes=lambda home: appended(home).editor_traces("museum.txt"),
    wrong_capital=lambda home: home.add("museum.txt", "41 Oats\n"),
    wrong_file=lambda home: home.add("design.txt", "41 oats\n"),
    wrong_at_top=lambda home: home.put("museum.txt", "41 oats\n" + home.text("museum.txt")),
    wrong_twice=lambda home: home.add("museum.txt", "41 oats\n41 oats\n"),
    wrong_space_at_end=lambda home: home.add("museum.txt", "41 oats \n"),
    wrong_empty_line_between=lambda home: home.add("museum.txt", "\n41 oats\n"),
    spoiled_other_file_too=lambda home: appended(home).add("design.txt", "41 oats\n"),
    spoiled_backup=lambda home: home.copy("museum.txt", "museum.txt~").add("museum.txt", "41 oats\n"),
    spoiled_mode=lambda home: appended(home).mode("museum.txt", 0o755),
)
states(
    "mousepad-change-number",
    right_by_sed=lambda home: home.sh("sed -i 's/^5 flour$/19 flour/' garden-38.txt"),
    right_with_what_the_editor_writes=lambda home: home.swap("garden-38.txt", "5 flour", "19 flour").editor_traces(
        "garden-38.txt"
    ),
    wrong_only_the_new_ones=lambda home: home.swap("garden-38.txt", "5 flour", "14 flour"),
    wrong_put_together=lambda home: home.swap("garden-38.txt", "5 flour", "514 flour"),
    wrong_formula=lambda home: home.swap("garden-38.txt", "5 flour", "5+14 flour"),
    wrong_one_less=lambda home: home.swap("garden-38.txt", "5 flour", "18 flour"),
    wrong_line_below=lambda home: home.swap("garden-38.txt", "56 umbrellas", "70 umbrellas"),
    spoiled_other_number=lambda home: home.swap("garden-38.txt", "5 flour", "19 flour").swap(
        "garden-38.txt", "14 yarn", "28 yarn"
    ),
    spoiled_new_folder=lambda home: home.swap("garden-38.txt", "5 flour", "19 flour").folder("Templates"),
)
CUT = "garden-50.txt"
REMOVED = "92 lamps\n83 umbrellas\n98 lemons\n80 flour\n89 cheese\n"
states(
    "mousepad-delete-line",
    right_by_head=lambda home: home.sh(f"head -n 7 {CUT} > t; cat t > {CUT}; rm t"),
    right_with_recent_files=lambda home: home.swap(CUT, REMOVED, "").recent(CUT),
    wrong_empty_line=lambda home: home.swap(CUT, REMOVED, "\n"),
    wrong_space_left=lambda home: home.swap(CUT, REMOVED, " \n"),
    wrong_only_the_two_named=lambda home: home.swap(CUT, "92 lamps\n", "").swap(CUT, "89 cheese\n", ""),
    wrong_lines_joined=lambda home: home.swap(CUT, f"\n{REMOVED}", " "),
    wrong_struck_out=lambda home: home.sh(f"sed -i '8,12s/^/# /' {CUT}"),
    wrong_saved_elsewhere=lambda home: home.put("garden-50 (copy).txt", home.text(CUT).replace(REMOVED, "")),
    spoiled_case_of_another=lambda home: home.swap(CUT, REMOVED, "").swap(CUT, "62 rice", "62 Rice"),
    spoiled_hidden_copy=lambda home: home.copy(CUT, f".{CUT}.swp").swap(CUT, REMOVED, ""),
)
IN = "survey-44.txt"
BLOCK = "50 shovels\n29 tiles\n2 maps\n8 lemons\n5 doors\n"
TABS = "\t50 shovels\n\t29 tiles\n\t2 maps\n\t8 lemons\n\t5 doors\n"
states(
    "mousepad-indent",
    right_by_sed=lambda home: home.sh(f"sed -i '4,8s/^/\\t/' {IN}"),
    right_with_what_the_editor_writes=lambda home: home.swap(IN, BLOCK, TABS).editor_traces(IN),
    wrong_eight_spaces=lambda home: home.swap(IN, BLOCK, TABS.replace("\t", " " * 8)),
    wrong_two_tabs=lambda home: home.swap(IN, BLOCK, TABS.replace("\t", "\t\t")),
    wrong_without_the_last=lambda home: home.swap(IN, BLOCK, TABS.replace("\t5 doors", "5 doors")),
    wrong_one_more=lambda home: home.swap(IN, f"{BLOCK}95", f"{TABS}\t95"),
    wrong_tab_after_number=lambda home: home.swap(IN, BLOCK, BLOCK.replace(" ", "\t")),
    spoiled_last_line_gone=lambda home: home.swap(IN, BLOCK, TABS).swap(IN, "32 onions\n", ""),
    spoiled_mode=lambda home: home.swap(IN, BLOCK, TABS).mode(IN, 0o600),
)
UNIX, MAC = "garden-65.txt", "payroll-44.txt"


def ended(home: Home, end: str, name: str = MAC) -> Home:
    return home.put(name, home.text(UNIX).replace("\n", end))


states(
    "mousepad-line-ends",
    right_by_tr=lambda home: home.sh(f"tr '\\n' '\\r' < {UNIX} > {MAC}"),
    right_with_what_the_editor_writes=lambda home: ended(home, "\r").editor_traces(UNIX, MAC),
    wrong_but_the_last=lambda home: home.put(MAC, home.text(UNIX).replace("\n", "\r", 4)),
    wrong_of_windows=lambda home: ended(home, "\r\n"),
    wrong_doubled=lambda home: ended(home, "\r\r"),
    wrong_in_the_old_file=lambda home: ended(home, "\r", UNIX),
    spoiled_word=lambda home: ended(home, "\r").swap(MAC, "cheese", "Cheese"),
    spoiled_byte_order_mark=lambda home: home.put(MAC, "\ufeff" + ended(home, "\r").text(MAC)),
    spoiled_old_file_gone=lambda home: ended(home, "\r").remove(UNIX),
)
LOG = "journal-53.txt"
states(
    "mousepad-line-number",
    right_by_sed=lambda home: home.sh(f"sed -i '182c Rouen 65' {LOG}"),
    right_with_recent_files=lambda home: home.sh(f"sed -i '182s/.*/Rouen 65/' {LOG}").recent(LOG),
    wrong_one_above=lambda home: home.sh(f"sed -i '181c Rouen 65' {LOG}"),
    wrong_one_below=lambda home: home.sh(f"sed -i '183c Rouen 65' {LOG}"),
    wrong_inserted=lambda home: home.sh(f"sed -i '182i Rouen 65' {LOG}"),
    wrong_quoted=lambda home: home.sh(f"sed -i '182c \"Rouen 65\"' {LOG}"),
    spoiled_first_line_too=lambda home: home.sh(f"sed -i '182c Rouen 65' {LOG}; sed -i '1s/.*/Rouen 65/' {LOG}"),
    spoiled_last_line_gone=lambda home: home.sh(f"sed -i -e '182c Rouen 65' -e '$d' {LOG}"),
    spoiled_list_of_numbers=lambda home: home.sh(f"sed -i '182c Rouen 65' {LOG}; nl {LOG} > numbered.txt"),
)
ARCHIVE = "archive-14.txt"
TOP, UNDER, LOW = "56 cheese\n35 yarn\n2 shovels\n", "80 juice\n", "29 maps\n68 hammers\n74 candles\n62 umbrellas\n"
PUT = f"{TOP}{UNDER}32 doors\n{LOW}"
states(
    "mousepad-move-line",
    right_by_shell=lambda home: home.sh(f"sed -i -e 1d -e '5i 80 juice' {ARCHIVE}"),
    right_with_what_the_editor_writes=lambda home: home.put(ARCHIVE, PUT).editor_traces(ARCHIVE),
    wrong_copied=lambda home: home.put(ARCHIVE, UNDER + PUT),
    wrong_below=lambda home: home.put(ARCHIVE, f"{TOP}32 doors\n{UNDER}{LOW}"),
    wrong_exchanged=lambda home: home.put(ARCHIVE, f"32 doors\n{TOP}{UNDER}{LOW}"),
    wrong_too_high=lambda home: home.put(ARCHIVE, PUT).swap(ARCHIVE, "2 shovels\n80 juice", "80 juice\n2 shovels"),
    wrong_empty_line_left=lambda home: home.put(ARCHIVE, f"\n{PUT}"),
    spoiled_order=lambda home: home.put(ARCHIVE, PUT).swap(ARCHIVE, "29 maps\n68 hammers\n", "68 hammers\n29 maps\n"),
    spoiled_copy_of_the_old=lambda home: home.copy(ARCHIVE, "archive-14.old").put(ARCHIVE, PUT),
)
LISTED = "payroll-74.txt"
states(
    "mousepad-repeated-lines",
    right_by_awk=lambda home: home.sh(f"awk '!seen[$0]++' {LISTED} > t; cat t > {LISTED}; rm t"),
    right_with_recent_files=lambda home: home.put_lines(LISTED, list(dict.fromkeys(home.lines(LISTED)))).recent(LISTED),
    wrong_last_ones_kept=lambda home: home.put_lines(LISTED, list(dict.fromkeys(home.lines(LISTED)[::-1]))[::-1]),
    wrong_sorted=lambda home: home.sh(f"sort -u -o {LISTED} {LISTED}"),
    wrong_both_gone=lambda home: home.put_lines(
        LISTED, [x for x in home.lines(LISTED) if home.lines(LISTED).count(x) == 1]
    ),
    wrong_one_pair_left=lambda home: home.swap(LISTED, "2 hammers\n98 cheese\n35", "98 cheese\n35"),
    wrong_similar_one_gone=lambda home: home.put_lines(LISTED, list(dict.fromkeys(home.lines(LISTED)))).swap(
        LISTED, "41 rice x\n", ""
    ),
    spoiled_saved_twice=lambda home: home.put_lines(LISTED, list(dict.fromkeys(home.lines(LISTED)))).copy(
        LISTED, "payroll-74 new.txt"
    ),
)
HAS = "parking-17.txt"
states(
    "mousepad-replace",
    right_by_sed=lambda home: home.sh(f"sed -i 's/Weber/Shaw/g' {HAS}"),
    right_with_what_the_editor_writes=lambda home: home.swap(HAS, "Weber", "Shaw").editor_traces(HAS),
    wrong_one_left=lambda home: home.swap(HAS, "Weber", "Shaw", 2),
    wrong_small=lambda home: home.swap(HAS, "Weber", "shaw"),
    wrong_spelling=lambda home: home.swap(HAS, "Weber", "Shawn"),
    wrong_saved_elsewhere=lambda home: home.put("parking-17-new.txt", home.text(HAS).replace("Weber", "Shaw")),
    spoiled_another_name=lambda home: home.swap(HAS, "Weber", "Shaw").swap(HAS, "Reed", "Shaw"),
    spoiled_number=lambda home: home.swap(HAS, "Weber", "Shaw").swap(HAS, "53", "35"),
    spoiled_link=lambda home: home.swap(HAS, "Weber", "Shaw").link("latest.txt", HAS),
)
states(
    "mousepad-save-as",
    right_by_cp=lambda home: home.sh("cp guests.txt Izmir/design.txt"),
    right_with_what_the_editor_writes=lambda home: home.copy("guests.txt", "Izmir/design.txt").editor_traces(
        "Izmir/design.txt"
    ),
    wrong_in_home=lambda home: home.copy("guests.txt", "design.txt"),
    wrong_link=lambda home: home.link("Izmir/design.txt", "../guests.txt"),
    wrong_capital=lambda home: home.copy("guests.txt", "Izmir/Design.txt"),
    wrong_empty=lambda home: home.put("Izmir/design.txt", ""),
    wrong_one_line_short=lambda home: home.sh("head -3 guests.txt > Izmir/design.txt"),
    wrong_old_name=lambda home: home.copy("guests.txt", "Izmir/guests.txt"),
    spoiled_moved=lambda home: home.move("guests.txt", "Izmir/design.txt"),
    spoiled_read_me=lambda home: home.copy("guests.txt", "Izmir/design.txt").add("Izmir/read me.txt", "design.txt\n"),
    spoiled_two_copies=lambda home: home.copy("guests.txt", "Izmir/design.txt").copy("guests.txt", "design.txt"),
    ambiguous_second_name_of_one_file=lambda home: home.sh("ln guests.txt Izmir/design.txt"),
)
SET = VIEW + "tab-width=11\nmatch-braces=true\n"
states(
    "mousepad-settings",
    right_as_gsettings_writes=lambda home: home.put(KEYS, SET),
    right_other_order_and_window=lambda home: home.put(
        KEYS, f"[org/xfce/mousepad/state/window]\nwidth=800\n\n{VIEW}match-braces=true\ntab-width=11\n"
    ),
    right_another_switched_on_and_off=lambda home: home.put(KEYS, SET + "show-line-numbers=false\n"),
    wrong_width=lambda home: home.put(KEYS, SET.replace("11", "1")),
    wrong_only_width=lambda home: home.put(KEYS, VIEW + "tab-width=11\n"),
    wrong_only_brackets=lambda home: home.put(KEYS, VIEW + "match-braces=true\n"),
    wrong_switched_off=lambda home: home.put(KEYS, SET.replace("true", "false")),
    wrong_indent_width=lambda home: home.put(KEYS, SET.replace("tab-width", "indent-width")),
    wrong_group=lambda home: home.put(KEYS, SET.replace("/view", "/window")),
    spoiled_line_numbers=lambda home: home.put(KEYS, SET + "show-line-numbers=true\n"),
    spoiled_spaces_for_tabs=lambda home: home.put(KEYS, SET + "insert-spaces=true\n"),
    spoiled_text=lambda home: home.put(KEYS, SET).swap("journey-59.txt", "5 candles", "\t5 candles"),
)
NAMES = "design-53.txt"
states(
    "mousepad-sort",
    right_by_sort=lambda home: home.sh(f"sort -o {NAMES} {NAMES}"),
    right_without_last_line_end=lambda home: home.put(NAMES, "\n".join(sorted(home.lines(NAMES)))),
    right_with_recent_files=lambda home: home.put_lines(NAMES, sorted(home.lines(NAMES))).recent(NAMES),
    wrong_backwards=lambda home: home.sh(f"sort -r -o {NAMES} {NAMES}"),
    wrong_two_exchanged=lambda home: home.put_lines(NAMES, ["Bishop", "Ingram", "Owens", "Reed", "Weber", "Shaw"]),
    wrong_in_one_line=lambda home: home.put_lines(NAMES, [", ".join(sorted(home.lines(NAMES)))]),
    wrong_one_missing=lambda home: home.put_lines(NAMES, sorted(home.lines(NAMES))[:-1]),
    wrong_small_letters=lambda home: home.put(NAMES, "\n".join(sorted(home.lines(NAMES))).lower() + "\n"),
    spoiled_heading=lambda home: home.put_lines(NAMES, ["Names:", *sorted(home.lines(NAMES))]),
    spoiled_unsorted_copy=lambda home: home.copy(NAMES, "unsorted.txt").put_lines(NAMES, sorted(home.lines(NAMES))),
)
SPECIAL, NOTE = "Cork: Größe 86 °C, naïve façade, 86 £ → Ω", "survey-65.txt"


def special(home: Home, line: str) -> Home:
    return home.put(NOTE, f"{line}\n" + home.text(NOTE))


states(
    "mousepad-special-characters",
    right_by_shell=lambda home: home.sh(f"{{ echo '{SPECIAL}'; cat {NOTE}; }} > t; cat t > {NOTE}; rm t"),
    right_with_what_the_editor_writes=lambda home: special(home, SPECIAL).editor_traces(NOTE),
    wrong_without_accents=lambda home: special(home, "Cork: Grosse 86 C, naive facade, 86 £ -> Ω"),
    wrong_arrow=lambda home: special(home, SPECIAL.replace("→", "->")),
    wrong_ordinal_for_degree=lambda home: special(home, SPECIAL.replace("°", "º")),
    wrong_ohm_sign=lambda home: special(home, SPECIAL.replace("Ω", "\u2126")),
    wrong_at_the_end=lambda home: home.add(NOTE, SPECIAL + "\n"),
    wrong_quoted=lambda home: special(home, f'"{SPECIAL}"'),
    wrong_letters_seen_as_others=lambda home: home.put(
        NOTE, SPECIAL.encode().decode("cp1252", "replace") + "\n" + home.text(NOTE)
    ),
    spoiled_empty_line_below=lambda home: special(home, SPECIAL + "\n"),
    spoiled_line_gone=lambda home: special(home, SPECIAL).swap(NOTE, "8 yarn\n", ""),
    ambiguous_letters_and_accents_apart=lambda home: special(home, unicodedata.normalize("NFD", SPECIAL)),
)
TABLE = "journey-32.txt"
states(
    "mousepad-swap-columns",
    right_by_awk=lambda home: home.sh(f"awk -F: '{{print $2\"=\"$1}}' {TABLE} > t; cat t > {TABLE}; rm t"),
    right_by_sed=lambda home: home.sh(f"sed -i -E 's/(.*):(.*)/\\2=\\1/' {TABLE}").recent(TABLE),
    wrong_last_line_left=lambda home: home.sh(f"sed -i -E '$!s/(.*):(.*)/\\2=\\1/' {TABLE}"),
    wrong_divided_as_before=lambda home: home.sh(f"sed -i -E 's/(.*):(.*)/\\2:\\1/' {TABLE}"),
    wrong_space=lambda home: home.sh(f"sed -i -E 's/(.*):(.*)/\\2= \\1/' {TABLE}"),
    wrong_twice=lambda home: home.sh(f"sed -i -E 's/(.*):(.*)/\\2=\\1=/' {TABLE}"),
    spoiled_sorted=lambda home: home.sh(f"sed -i -E 's/(.*):(.*)/\\2=\\1/' {TABLE}; sort -n -o {TABLE} {TABLE}"),
    spoiled_old_kept=lambda home: home.sh(f"sed -i.bak -E 's/(.*):(.*)/\\2=\\1/' {TABLE}"),
)
SPACED = "visitors-80.txt"
STRIP = f"sed -i '2,6s/ *$//' {SPACED}"
states(
    "mousepad-trailing-spaces",
    right_by_sed=lambda home: home.sh(STRIP),
    right_with_what_the_editor_writes=lambda home: home.sh(STRIP).editor_traces(SPACED),
    wrong_one_left=lambda home: home.sh(f"{STRIP}; sed -i 's/doors$/doors /' {SPACED}"),
    wrong_in_front_too=lambda home: home.sh(f"{STRIP}; sed -i '2,6s/^ *//' {SPACED}"),
    wrong_one_each=lambda home: home.sh(f"sed -i '2,6s/ $//' {SPACED}"),
    wrong_all_lines=lambda home: home.sh(f"sed -i 's/ *$//' {SPACED}"),
    wrong_last_line_left=lambda home: home.sh(f"sed -i '2,5s/ *$//' {SPACED}"),
    spoiled_tabs=lambda home: home.sh(f"{STRIP}; sed -i 's/ /\\t/g' {SPACED}"),
    spoiled_new_file=lambda home: home.sh(f"{STRIP}; wc {SPACED} > count.txt"),
)
TO, OF = "parking.txt", "garden.txt"
MOVED = "moved:\nFisher 98 juice\nFisher 62 maps\n"
REST = "Bishop 92 hammers\nWeber 38 shovels\nLawson 68 lemons\n"
states(
    "mousepad-two-tabs",
    right_by_grep=lambda home: home.sh(f"grep ^Fisher {OF} >> {TO}; sed -i /^Fisher/d {OF}"),
    right_without_last_line_end=lambda home: home.put(OF, REST).put(TO, MOVED.rstrip()).editor_traces(OF, TO),
    wrong_copied=lambda home: home.put(TO, MOVED),
    wrong_order=lambda home: home.put(OF, REST).put(TO, "moved:\nFisher 62 maps\nFisher 98 juice\n"),
    wrong_above=lambda home: home.put(OF, REST).put(TO, "Fisher 98 juice\nFisher 62 maps\nmoved:\n"),
    wrong_only_first=lambda home: home.swap(OF, "Fisher 98 juice\n", "").put(TO, "moved:\nFisher 98 juice\n"),
    wrong_deleted=lambda home: home.put(OF, REST),
    wrong_empty_lines_left=lambda home: (
        home.swap(OF, "Fisher 98 juice", "").swap(OF, "Fisher 62 maps", "").put(TO, MOVED)
    ),
    spoiled_other_line_changed=lambda home: home.put(OF, REST.replace("Lawson", "Lawsen")).put(TO, MOVED),
    spoiled_heading=lambda home: home.put(OF, REST).put(TO, MOVED.replace("moved:", "Moved:")),
    spoiled_backups=lambda home: home.copy(OF, OF + "~").copy(TO, TO + "~").put(OF, REST).put(TO, MOVED),
)
states(  # the old text is in the editor alone: no right state can be written on folders
    "mousepad-undo",
    wrong_empty=lambda home: home,
    wrong_other_text=lambda home: home.put("guests-95.txt", home.text("payroll-47.md") + "5 cheese\n"),
    wrong_deleted=lambda home: home.remove("guests-95.txt"),
)
PLACES = "delivery-32.txt"
REED, CARTER = "Reed from Utrecht", "Carter from Naples"
states(
    "mousepad-upper-case",
    right_by_sed=lambda home: home.sh(f"sed -i -E '/^({REED}|{CARTER})$/s/.*/\\U&/' {PLACES}"),
    right_with_what_the_editor_writes=lambda home: (
        home.swap(PLACES, REED, REED.upper()).swap(PLACES, CARTER, CARTER.upper()).editor_traces(PLACES)
    ),
    wrong_one=lambda home: home.swap(PLACES, REED, REED.upper()),
    wrong_names_only=lambda home: home.swap(PLACES, "Reed", "REED").swap(PLACES, "Carter", "CARTER"),
    wrong_title=lambda home: home.swap(PLACES, REED, REED.title()).swap(PLACES, CARTER, CARTER.title()),
    wrong_all=lambda home: home.put(PLACES, home.text(PLACES).upper()),
    wrong_from_small=lambda home: home.swap(PLACES, REED, "REED from UTRECHT").swap(
        PLACES, CARTER, "CARTER from NAPLES"
    ),
    spoiled_neighbour=lambda home: (
        home.put(PLACES, home.text(PLACES).replace("\nYoung from Riga", "\nYOUNG FROM RIGA"))
        .swap(PLACES, REED, REED.upper())
        .swap(PLACES, CARTER, CARTER.upper())
    ),
    spoiled_order=lambda home: home.put_lines(
        PLACES, [REED.upper(), CARTER.upper(), *(x for x in home.lines(PLACES) if x not in (REED, CARTER))]
    ),
)
WORDS = "schedule-38.txt"
states(
    "mousepad-whole-word",
    right_by_sed=lambda home: home.sh(f"sed -i 's/\\bLawson\\b/Shaw/g' {WORDS}"),
    right_with_recent_files=lambda home: home.swap(WORDS, " Lawson,", " Shaw,").recent(WORDS),
    wrong_everywhere=lambda home: home.swap(WORDS, "Lawson", "Shaw"),
    wrong_small_too=lambda home: home.swap(WORDS, " Lawson,", " Shaw,").swap(WORDS, "lawson", "shaw"),
    wrong_last_left=lambda home: home.swap(WORDS, " Lawson,", " Shaw,", 2),
    wrong_small_new_name=lambda home: home.swap(WORDS, " Lawson,", " shaw,"),
    spoiled_number=lambda home: home.swap(WORDS, " Lawson,", " Shaw,").swap(WORDS, "5 Lawsons", "6 Lawsons"),
    spoiled_mode=lambda home: home.swap(WORDS, " Lawson,", " Shaw,").mode(WORDS, 0o444),
)
