"""End states of tasks with files, by a third author: the start states of FRESH_SEED, labels written before any judge
was asked. The templates were drawn with `random.Random(20261130).sample(sorted(STATES), 48)`."""

from collections.abc import Callable, Iterable

from tests.data.apart.kit import Home, State, fresh


def sh(command: str) -> State:
    return lambda home: home.sh(command)


def then(*steps: Callable[[Home], object]) -> State:
    def made(home: Home) -> None:
        for step in steps:
            step(home)

    return made


def put(name: str, content: str | bytes) -> State:
    return lambda home: home.put(name, content)


def swap(name: str, old: str, new: str, times: int = -1) -> State:
    return lambda home: home.swap(name, old, new, times)


def text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


DO = (
    "rm museum.txt; mv parking.txt 'payroll new.txt'; mv design.txt Oslo-89; "
    "echo 'all done' >> 'to do journey Oslo-89.txt'"
)
fresh(
    "editor-thunar-to-do",
    right_with_a_trash=then(
        lambda home: home.trash("museum.txt"), sh(DO.removeprefix("rm museum.txt; ")), lambda home: home.viewer_traces()
    ),
    right_without_the_last_line_end=sh(DO.replace("echo", "printf")),
    wrong_deleted_by_moving=sh(DO.replace("rm museum.txt", "mv museum.txt Oslo-89")),
    wrong_copied_in_place_of_renamed=sh(DO.replace("mv parking", "cp parking")),
    wrong_done_at_the_top=sh(DO.split("; echo")[0] + "; sed -i '1i all done' 'to do journey Oslo-89.txt'"),
    spoiled_done_lines_taken_out=sh(DO.split("; echo")[0] + "; echo 'all done' > 'to do journey Oslo-89.txt'"),
    spoiled_survey_too=sh(DO + "; rm survey.txt"),
)
NAME = "sed -i 's/meeting.csv/schedule.csv/' garden.sh"
fresh(
    "editor-xterm-script",
    right_run_twice=then(
        sh(f"{NAME}; sh garden.sh; sh garden.sh"),
        lambda home: home.editor_traces("garden.sh"),
        lambda home: home.shell_traces("sh garden.sh", "sh garden.sh"),
    ),
    wrong_data_under_the_old_name=sh("cp schedule.csv meeting.csv; sh garden.sh; rm meeting.csv"),
    wrong_result_by_hand=sh("echo total 3166 > visitors.txt"),
    wrong_not_run=sh(NAME),
    wrong_run_before=sh(f"sh garden.sh 2> /dev/null; {NAME}"),
    spoiled_made_a_program=sh(f"{NAME}; sh garden.sh; chmod +x garden.sh"),
    spoiled_link_of_the_old_name=sh(f"{NAME}; sh garden.sh; ln -s schedule.csv meeting.csv"),
    spoiled_remark_gone=sh(f"{NAME}; sed -i 2d garden.sh; sh garden.sh"),
)
ORDER = "journey-95.txt"
fresh(
    "gpicview-galculator-editor",
    right=then(
        put(ORDER, "17 cheese 799\n38 drums 2812\ntotal 3611\n"), lambda home: home.editor_traces(ORDER).viewer_traces()
    ),
    right_without_the_last_line_end=put(ORDER, "17 cheese 799\n38 drums 2812\ntotal 3611"),
    wrong_price_of_the_line_above=put(ORDER, "17 cheese 1156\n38 drums 2812\ntotal 3968\n"),
    wrong_sign_of_the_sum=put(ORDER, "17 cheese 799\n38 drums 2812\ntotal = 3611\n"),
    wrong_total_of_pieces=put(ORDER, "17 cheese 799\n38 drums 2812\ntotal 55\n"),
    wrong_comma=put(ORDER, "17 cheese 799\n38 drums 2,812\ntotal 3,611\n"),
    spoiled_old_text_kept=then(
        lambda home: home.copy(ORDER, f"{ORDER}~"), put(ORDER, "17 cheese 799\n38 drums 2812\ntotal 3611\n")
    ),
)
BLUE = "mv 29.png 86.png Naples"
fresh(
    "gpicview-thunar-colour",
    right=then(sh(f"cd Florence; {BLUE}"), lambda home: home.viewer_traces()),
    right_copied_and_removed=sh("cd Florence; cp -p 29.png 86.png Naples; rm 29.png 86.png"),
    wrong_one=sh("cd Florence; mv 29.png Naples"),
    wrong_yellow=sh("cd Florence; mv 11.png 71.png Naples"),
    wrong_folder_of_the_home=sh("cd Florence; mkdir ../Naples; mv 29.png 86.png ../Naples"),
    wrong_exchanged_names=sh("cd Florence; mv 29.png Naples/86.png; mv 86.png Naples/29.png"),
    spoiled_green_too=sh(f"cd Florence; {BLUE}; mv 17.png Naples"),
    spoiled_another_turned=sh(f"cd Florence; {BLUE}; cp 71.png 11.png"),
)
NUMBERS = "meeting-89.txt"
fresh(
    "gpicview-to-editor",
    right=then(put(NUMBERS, "2840\n5405\n"), lambda home: home.editor_traces(NUMBERS).viewer_traces()),
    right_without_the_last_line_end=put(NUMBERS, "2840\n5405"),
    wrong_exchanged=put(NUMBERS, "5405\n2840\n"),
    wrong_empty_line_between=put(NUMBERS, "2840\n\n5405\n"),
    wrong_digit=put(NUMBERS, "2840\n5406\n"),
    spoiled_picture_saved_anew=then(
        put(NUMBERS, "2840\n5405\n"), sh("python3 -c \"open('Oslo/picture 2.png', 'ab').write(b'x')\"")
    ),
)
fresh(
    "mousepad-append",
    right_without_the_last_line_end=sh("printf '92 juice' >> delivery.txt"),
    wrong_file_of_the_same_text=sh("echo 92 juice >> parking.txt"),
    wrong_in_the_middle=sh("sed -i '1a 92 juice' delivery.txt"),
    wrong_two_lines=sh("printf '92\\njuice\\n' >> delivery.txt"),
    spoiled_other_file_too=sh("for f in delivery parking; do echo 92 juice >> $f.txt; done"),
    spoiled_sorted=sh("echo 92 juice >> delivery.txt; sort -o delivery.txt delivery.txt"),
)
fresh(
    "mousepad-change-number",
    right=then(swap("schedule-38.txt", "32 lemons", "46 lemons"), lambda home: home.editor_traces("schedule-38.txt")),
    wrong_less=swap("schedule-38.txt", "32 lemons", "18 lemons"),
    wrong_added_below=swap("schedule-38.txt", "32 lemons\n", "32 lemons\n14 lemons\n"),
    wrong_written_beside=swap("schedule-38.txt", "32 lemons", "32 + 14 lemons"),
    spoiled_another_line=then(
        swap("schedule-38.txt", "32 lemons", "46 lemons"), swap("schedule-38.txt", "17 maps", "31 maps")
    ),
)
LESS = "garden-65.txt"
LINES = "44 ink\n62 yarn\n38 tiles\n"
fresh(
    "mousepad-delete-line",
    right=then(sh(f"sed -i 5,7d {LESS}"), lambda home: home.editor_traces(LESS)),
    wrong_blank_left=swap(LESS, LINES, " \n"),
    wrong_joined=swap(LESS, f"\n{LINES}", " "),
    wrong_marked=sh(f"sed -i '5,7s/^/# /' {LESS}"),
    spoiled_empty_lines_below=then(sh(f"sed -i 5,7d {LESS}"), lambda home: home.put(LESS, home.text(LESS) + "\n\n")),
    spoiled_kept_in_a_file=sh(f"sed -n 5,7p {LESS} > deleted.txt; sed -i 5,7d {LESS}"),
)
ENDS, MAC = "museum-50.txt", "visitors-32.txt"
TO_MAC = f"tr '\\n' '\\r' < {ENDS} > {MAC}"
fresh(
    "mousepad-line-ends",
    right=then(sh(TO_MAC), lambda home: home.editor_traces(ENDS, MAC)),
    wrong_of_windows=sh(f"sed 's/$/\\r/' {ENDS} > {MAC}"),
    wrong_twice=sh(f"tr '\\n' '\\r' < {ENDS} | sed 's/\\r/\\r\\r/g' > {MAC}"),
    wrong_way_round=sh(f"{{ printf '\\r'; tr '\\n' '\\r' < {ENDS} | head -c -1; }} > {MAC}"),
    spoiled_mark_of_the_encoding=sh(f"{TO_MAC}; sed -i '1s/^/\\xef\\xbb\\xbf/' {MAC}"),
    spoiled_backup=sh(f"{TO_MAC}; cp {ENDS} {ENDS}.bak"),
)
LONG = "parking-53.txt"
fresh(
    "mousepad-line-number",
    right=then(sh(f"sed -i '221s/.*/Oslo 74/' {LONG}"), lambda home: home.editor_traces(LONG)),
    wrong_line_above=sh(f"sed -i '220s/.*/Oslo 74/' {LONG}"),
    wrong_inserted=sh(f"sed -i '221i Oslo 74' {LONG}"),
    wrong_added_to_it=sh(f"sed -i '221s/$/ Oslo 74/' {LONG}"),
    spoiled_line_below_gone=sh(f"sed -i -e '221s/.*/Oslo 74/' -e 222d {LONG}"),
    spoiled_first_line=sh(f"sed -i -e '221s/.*/Oslo 74/' -e '1s/^/ /' {LONG}"),
)
LAMPS = "journal-14.txt"
UP, DOWN = "23 ink\n50 rice\n68 pens\n20 umbrellas\n2 glue\n", "77 lemons\n14 tiles\n"
fresh(
    "mousepad-move-line",
    right=then(put(LAMPS, f"{UP}{DOWN}26 lamps\n44 candles\n"), lambda home: home.editor_traces(LAMPS)),
    wrong_exchanged=put(LAMPS, f"{UP}44 candles\n{DOWN}26 lamps\n"),
    wrong_other_one_moved=put(LAMPS, f"{UP}44 candles\n26 lamps\n{DOWN}"),
    wrong_joined_with_the_next=put(LAMPS, f"{UP}{DOWN}26 lamps44 candles\n"),
    spoiled_number_of_another=put(LAMPS, f"{UP}{DOWN}26 lamps\n44 candles\n".replace("23 ink", "32 ink")),
)
fresh(
    "mousepad-save-as",
    right_by_the_editor=then(sh("umask 022; cat visitors.txt > Cadiz/survey.txt"), lambda home: home.editor_traces()),
    right_with_its_time=sh("cp -p visitors.txt Cadiz/survey.txt"),
    wrong_in_the_home=sh("cp visitors.txt survey.txt"),
    wrong_link=sh("ln -s ../visitors.txt Cadiz/survey.txt"),
    wrong_two_ends=sh("cp visitors.txt Cadiz/survey.txt.txt"),
    wrong_old_name_in_the_folder=sh("cp visitors.txt Cadiz"),
    spoiled_moved=sh("mv visitors.txt Cadiz/survey.txt"),
    spoiled_old_name_too=sh("cp visitors.txt Cadiz/survey.txt; cp visitors.txt Cadiz"),
    spoiled_read_me_gone=sh("cp visitors.txt Cadiz/survey.txt; rm Cadiz/*me.txt"),
)
SIGNS, ODD = "parking-38.txt", "Leiden: Größe 74 °C, naïve façade, 89 £ → Ω"


def above(line: str) -> State:
    return lambda home: home.put(SIGNS, f"{line}\n{home.text(SIGNS)}")


fresh(
    "mousepad-special-characters",
    right=then(above(ODD), lambda home: home.editor_traces(SIGNS)),
    wrong_double_s=above(ODD.replace("ß", "ss")),
    wrong_arrow=above(ODD.replace("→", "->")),
    wrong_ohm_for_omega=above(ODD.replace("Ω", "\u2126")),
    wrong_ordinal_for_degree=above(ODD.replace("°", "º")),
    wrong_below_the_first=lambda home: home.swap(SIGNS, "11 glue\n", f"11 glue\n{ODD}\n"),
    spoiled_empty_line=lambda home: home.put(SIGNS, f"{ODD}\n\n{home.text(SIGNS)}"),
    spoiled_mark_of_the_encoding=lambda home: home.put(SIGNS, f"\ufeff{ODD}\n{home.text(SIGNS)}"),
)
LEFT = "Weber 95 doors\nLawson 65 cheese\nFoster 56 rice\n"
FISHER = "Fisher 47 shovels\nFisher 62 candles\n"


def tabs(first: str, second: str) -> State:
    return lambda home: home.put("journey.txt", first).put("schedule.txt", second)


fresh(
    "mousepad-two-tabs",
    right=then(tabs(LEFT, f"moved:\n{FISHER}"), lambda home: home.editor_traces("journey.txt", "schedule.txt")),
    right_without_the_last_line_end=tabs(LEFT, f"moved:\n{FISHER}"[:-1]),
    wrong_copied=lambda home: home.add("schedule.txt", FISHER),
    wrong_above=tabs(LEFT, f"{FISHER}moved:\n"),
    wrong_foster_too=tabs("Weber 95 doors\nLawson 65 cheese\n", f"moved:\n{FISHER}Foster 56 rice\n"),
    wrong_taken_out_only=put("journey.txt", LEFT),
    spoiled_heading=tabs(LEFT, f"Moved:\n{FISHER}"),
    spoiled_rest_in_order=tabs("Foster 56 rice\nLawson 65 cheese\nWeber 95 doors\n", f"moved:\n{FISHER}"),
)
fresh(
    "mousepad-undo",
    wrong_text_of_the_other_file=sh("{ cat schedule-83.md; echo 71 shovels; } > journal-26.txt"),
    wrong_line_alone=sh("echo 71 shovels > journal-26.txt"),
)
NAMED = "visitors-65.txt"
BOTH = f"sed -i -e 's/Olsen from Rouen/OLSEN FROM ROUEN/' -e 's/Lewis from Kiel/LEWIS FROM KIEL/' {NAMED}"
fresh(
    "mousepad-upper-case",
    right=then(sh(BOTH), lambda home: home.editor_traces(NAMED)),
    wrong_names_only=sh(
        f"sed -i -e 's/Olsen from Rouen/OLSEN from ROUEN/' -e 's/Lewis from Kiel/LEWIS from KIEL/' {NAMED}"
    ),
    wrong_one=sh(f"sed -i 's/Lewis from Kiel/LEWIS FROM KIEL/' {NAMED}"),
    wrong_title_case=sh(f"sed -i '/Olsen\\|Lewis/s/from/From/' {NAMED}"),
    spoiled_another_line=sh(f"{BOTH}; sed -i 's/Reed from Leiden/REED FROM LEIDEN/' {NAMED}"),
    spoiled_together=sh(f"{BOTH}; sort -o {NAMED} {NAMED}"),
)
PAY = "payroll-26.txt"
fresh(
    "mousepad-whole-word",
    right=then(sh(f"sed -i 's/\\bShaw\\b/Weber/' {PAY}"), lambda home: home.editor_traces(PAY)),
    wrong_all=sh(f"sed -i 's/Shaw/Weber/' {PAY}"),
    wrong_small_too=sh(f"sed -i 's/\\b[Ss]haw\\b/Weber/' {PAY}"),
    wrong_first_only=swap(PAY, "2 Shaw,", "2 Weber,"),
    wrong_in_capitals=sh(f"sed -i 's/\\bShaw\\b/WEBER/' {PAY}"),
    spoiled_lawson=sh(f"sed -i -e 's/\\bShaw\\b/Weber/' -e 's/Lawson/Weberson/' {PAY}"),
)
THREE = "Florence/schedule\\ 1{64,01,85}.txt"
fresh(
    "thunar-copy-several",
    right=then(sh(f"cp {THREE} Utrecht"), lambda home: home.viewer_traces()),
    wrong_moved=sh(f"mv {THREE} Utrecht"),
    wrong_links=sh(f"ln -sr {THREE} Utrecht"),
    wrong_next_number=sh("cp Florence/schedule\\ 1{64,07,85}.txt Utrecht"),
    wrong_folder_in_it=sh(f"mkdir Utrecht/Florence; cp {THREE} Utrecht/Florence"),
    spoiled_into_florence_too=sh(f"cp {THREE} Utrecht; cp Utrecht/old.txt Florence"),
    spoiled_mode_in_florence=sh(f"cp {THREE} Utrecht; chmod 444 Florence/*107.txt"),
    spoiled_copy_of_a_copy=sh(f"cp {THREE} Utrecht; cp Utrecht/*164.txt 'Utrecht/schedule 164 (copy 1).txt'"),
)
fresh(
    "thunar-delete-kind",
    right_to_the_trash=then(
        lambda home: home.trash(*(f"Zagreb-35/{name}.log" for name in ("garden", "museum", "schedule"))),
        lambda home: home.viewer_traces(),
    ),
    right=sh("rm Zagreb-35/*.log"),
    wrong_emptied=sh("for f in Zagreb-35/*.log; do : > $f; done"),
    wrong_hidden=sh("cd Zagreb-35; for f in *.log; do mv $f .$f; done"),
    wrong_renamed=sh("cd Zagreb-35; for f in *.log; do mv $f $f.old; done"),
    spoiled_mode_of_the_folder=sh("rm Zagreb-35/*.log; chmod 700 Zagreb-35"),
    spoiled_text_emptied=sh("rm Zagreb-35/*.log; : > Zagreb-35/design.txt"),
)
MAY = "design-59.txt"
fresh(
    "thunar-editor-collect",
    right=then(put(MAY, "74 tiles\n32 ink\n68 onions\n"), lambda home: home.editor_traces(MAY)),
    right_without_the_last_line_end=put(MAY, "74 tiles\n32 ink\n68 onions"),
    wrong_order_of_the_names=put(MAY, "32 ink\n68 onions\n74 tiles\n"),
    wrong_june_too=put(MAY, "74 tiles\n98 lamps\n32 ink\n68 onions\n"),
    wrong_days=put(MAY, "3 May: 74 tiles\n11 May: 32 ink\n20 May: 68 onions\n"),
    spoiled_note_renamed=then(
        put(MAY, "74 tiles\n32 ink\n68 onions\n"), lambda home: home.move("Utrecht/3 May.txt", "Utrecht/03 May.txt")
    ),
)
INGRAM = 'for n in 20 29; do mv "garden $n.txt" "Ingram garden $n.txt"; done'
fresh(
    "thunar-editor-rename",
    right=then(sh(f"cd Naples; {INGRAM}"), lambda home: home.editor_traces().viewer_traces()),
    wrong_longer_name_too=sh(f"cd Naples; {INGRAM.replace('20 29', '20 26 29')}"),
    wrong_line_below=sh(f"cd Naples; {INGRAM.replace('Ingram ', 'Ingram_')}"),
    wrong_behind=sh('cd Naples; for n in 20 29; do mv "garden $n.txt" "garden $n Ingram.txt"; done'),
    wrong_copies=sh(f"cd Naples; {INGRAM.replace('mv', 'cp')}"),
    spoiled_name_inside=sh(f"cd Naples; {INGRAM}; sed -i 's/Ingram/Lewis/' 'Ingram garden 29.txt'"),
    spoiled_another_renamed=sh(f"cd Naples; {INGRAM}; mv 'garden 56.txt' 'Irwin garden 56.txt'"),
)
fresh(
    "thunar-hidden",
    right=then(sh("mv .Rouen-62.conf Rouen-62-now.conf"), lambda home: home.viewer_traces()),
    wrong_visible_one=sh("mv Rouen-62.conf Rouen-62-now.conf"),
    wrong_copied=sh("cp .Rouen-62.conf Rouen-62-now.conf"),
    wrong_written_over_the_visible=sh("mv .Rouen-62.conf Rouen-62.conf"),
    spoiled_other_hidden_one=sh("mv .Rouen-62.conf Rouen-62-now.conf; mv .Zagreb.conf Zagreb.conf"),
    spoiled_content=sh("mv .Rouen-62.conf Rouen-62-now.conf; cp Rouen-62.conf Rouen-62-now.conf"),
)
fresh(
    "thunar-move",
    right=then(sh("mv guests-59.txt Leiden"), lambda home: home.viewer_traces()),
    wrong_new_name=sh("mv guests-59.txt 'Leiden/guests-59 (copy 1).txt'"),
    wrong_linked_back=sh("mv guests-59.txt Leiden; ln -s Leiden/guests-59.txt guests-59.txt"),
    wrong_into_the_file_below=sh("cat guests-59.txt >> Leiden/old.txt; rm guests-59.txt"),
    wrong_folder_of_that_name=sh("mkdir Leiden/guests-59.txt; mv guests-59.txt Leiden/guests-59.txt/"),
    spoiled_over_another=sh("mv guests-59.txt Leiden; mv Lisbon/old.txt Leiden/old.txt"),
    spoiled_name_of_the_other_folder=sh("mv guests-59.txt Leiden; mv Lisbon Lisbon-old"),
)
fresh(
    "thunar-new-folder",
    right_for_its_user_alone=sh("mkdir -m 700 Cork/Zagreb"),
    right_renamed_after=then(
        sh("mkdir 'Cork/New Folder'; mv 'Cork/New Folder' Cork/Zagreb"), lambda home: home.viewer_traces()
    ),
    wrong_file=sh(": > Cork/Zagreb"),
    wrong_beside=sh("mkdir Zagreb"),
    wrong_space_behind=sh("mkdir 'Cork/Zagreb '"),
    wrong_folder_within=sh("mkdir -p Cork/Zagreb/Zagreb"),
    spoiled_first_try_left=sh("mkdir 'Cork/New Folder' Cork/Zagreb"),
    spoiled_file_of_cork=sh("mkdir Cork/Zagreb; rm Cork/journey-17.txt"),
)
VISITORS = "visitors-50.sh"
fresh(
    "thunar-permissions",
    right=then(lambda home: home.mode(VISITORS, 0o740), lambda home: home.viewer_traces()),
    right_group_may_run_it=lambda home: home.mode(VISITORS, 0o750),
    wrong_group_may_write=lambda home: home.mode(VISITORS, 0o760),
    wrong_nobody_may_run_it=lambda home: home.mode(VISITORS, 0o640),
    wrong_others_may_write=lambda home: home.mode(VISITORS, 0o742),
    spoiled_owner_may_not_write=lambda home: home.mode(VISITORS, 0o540),
    spoiled_all_of_them=lambda home: home.sh("chmod 740 *.sh"),
)
fresh(
    "thunar-rename",
    right=then(sh("mv payroll-38.txt 'Ghent 35.txt'"), lambda home: home.viewer_traces()),
    wrong_end=sh("mv payroll-38.txt 'Ghent 35'"),
    wrong_two_spaces=sh("mv payroll-38.txt 'Ghent  35.txt'"),
    wrong_hard_link=sh("ln payroll-38.txt 'Ghent 35.txt'"),
    spoiled_line=sh("mv payroll-38.txt 'Ghent 35.txt'; echo >> 'Ghent 35.txt'"),
    spoiled_another=sh("mv payroll-38.txt 'Ghent 35.txt'; mv guests-83.txt 'Ghent 36.txt'"),
)
fresh(
    "xterm-count",
    right_without_the_last_line_end=sh("printf %s $(grep -c Carter meeting.log) > journey.txt"),
    right_by_awk=then(
        sh("awk '/Carter/ { n++ } END { print n }' meeting.log > journey.txt"), lambda home: home.shell_traces("awk")
    ),
    wrong_name_of_the_file_too=sh("echo $(grep -c Carter meeting.log) meeting.log > journey.txt"),
    wrong_lines=sh("grep -n Carter meeting.log > journey.txt"),
    wrong_one_more=sh("echo $(($(grep -c Carter meeting.log) + 1)) > journey.txt"),
    spoiled_log_sorted=sh("grep -c Carter meeting.log > journey.txt; sort -o meeting.log meeting.log"),
    spoiled_lines_in_a_file=sh("grep Carter meeting.log > found.txt; wc -l < found.txt > journey.txt"),
)
RECODE = "iconv -f ISO-8859-1 -t UTF-8 guests.txt | tr -d '\\r'"
fresh(
    "xterm-encoding",
    right=sh(f"{RECODE} > garden.txt"),
    right_by_python=sh(
        "python3 -c \"open('garden.txt', 'w', encoding='utf8').write(open('guests.txt', encoding='latin1').read())\""
    ),
    wrong_without_accents=sh("iconv -f ISO-8859-1 -t ASCII//TRANSLIT guests.txt | tr -d '\\r' > garden.txt"),
    wrong_recoded_twice=sh(f"{RECODE} | iconv -f ISO-8859-1 -t UTF-8 > garden.txt"),
    wrong_line_ends_alone=sh("tr -d '\\r' < guests.txt > garden.txt"),
    wrong_utf_16=sh(f"{RECODE} | iconv -t UTF-16 > garden.txt"),
    spoiled_guests_too=sh(f"{RECODE} > garden.txt; cp garden.txt guests.txt"),
    spoiled_step_between=sh(f"iconv -f ISO-8859-1 -t UTF-8 guests.txt > guests.utf8; {RECODE} > garden.txt"),
)
PACK = "tar -czf Irwin.tar.gz"
fresh(
    "xterm-pack",
    right_files_alone=sh(f"find Cadiz -type f ! -name '*.tmp' | {PACK} -T -"),
    right_strong_and_posix=sh("tar --format=pax --exclude='*.tmp' -cf - Cadiz | gzip -9 > Irwin.tar.gz"),
    wrong_text_with_tmp_in_its_name=sh(f"{PACK} --exclude='*tmp*' Cadiz"),
    wrong_below_kept=sh(f"{PACK} --no-wildcards-match-slash --exclude='Cadiz/*.tmp' Cadiz"),
    wrong_without_gzip=sh("tar -cf Irwin.tar.gz --exclude='*.tmp' Cadiz"),
    wrong_zip=sh("python3 -m zipfile -c Irwin.tar.gz Cadiz"),
    wrong_emptied_files=sh(
        f"cp -r Cadiz x; cd x; find . -name '*.tmp' -delete; for f in *.txt; do : > $f; done; cd ..; "
        f"mv x y; mkdir x; mv y x/Cadiz; {PACK} -C x Cadiz; rm -r x"
    ),
    spoiled_tmp_deleted=sh(f"find Cadiz -name '*.tmp' -delete; {PACK} Cadiz"),
    spoiled_list_left=sh(f"find Cadiz -type f ! -name '*.tmp' > files; {PACK} -T files"),
)
fresh(
    "xterm-permissions",
    right=then(sh("chmod u=rwx,go= design.sh"), lambda home: home.shell_traces("chmod u=rwx,go= design.sh")),
    wrong_all_may_run_it=sh("chmod 711 design.sh"),
    wrong_may_not_be_run=sh("chmod 600 design.sh"),
    wrong_other_script=sh("chmod 700 garden.sh"),
    spoiled_both=sh("chmod 700 *.sh"),
    spoiled_run_into_a_file=sh("chmod 700 design.sh; ./design.sh > out.txt"),
    spoiled_line_more=sh("chmod 700 design.sh; echo true >> design.sh"),
)
SORTED = "sort -u museum.txt archive.txt"
fresh(
    "xterm-sort-unique",
    right_by_awk=sh("awk '!seen[$0]++' archive.txt museum.txt | sort > meeting.txt"),
    wrong_not_in_order=sh("awk '!seen[$0]++' archive.txt museum.txt > meeting.txt"),
    wrong_those_of_both=sh("sort museum.txt archive.txt | uniq -d > meeting.txt"),
    wrong_those_of_one=sh("sort museum.txt archive.txt | uniq -u > meeting.txt"),
    wrong_in_one_line=sh(f"echo $({SORTED}) > meeting.txt"),
    wrong_numbered=sh(f"{SORTED} | cat -n > meeting.txt"),
    spoiled_sorted_in_place=sh(f"sort -o museum.txt museum.txt; {SORTED} > meeting.txt"),
)
fresh(
    "xterm-unpack",
    right=sh("unzip -qoj Reed.zip new/visitors.txt -d Naples"),
    right_with_python=sh(
        "python3 -c \"import zipfile; open('Naples/visitors.txt', 'wb').write("
        "zipfile.ZipFile('Reed.zip').read('new/visitors.txt'))\""
    ),
    wrong_old=sh("unzip -qoj Reed.zip old/visitors.txt -d Naples"),
    wrong_with_its_folder=sh("unzip -qo Reed.zip new/visitors.txt -d Naples"),
    wrong_all_of_new=sh("unzip -qoj Reed.zip 'new/*' -d Naples"),
    spoiled_folder_left=sh("unzip -qo Reed.zip new/visitors.txt; cp new/visitors.txt Naples"),
    spoiled_archive_gone=sh("unzip -qoj Reed.zip new/visitors.txt -d Naples; rm Reed.zip"),
)
