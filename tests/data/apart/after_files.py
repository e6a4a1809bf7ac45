"""End states of the templates with files that fresh_files leaves out, by the same author, from the start states of
AFTER_SEED: the labels were written before the judges were mended by the first, and before any judge was asked."""

from tests.data.apart.fresh_files import put, sh, swap, then
from tests.data.apart.kit import State, after
from tests.data.apart.texts import KEYS, VIEW

PRICES = "schedule-41.txt"
after(
    "galculator-to-editor",
    right=then(sh(f"echo total 1835 >> {PRICES}"), lambda home: home.editor_traces(PRICES)),
    right_without_the_last_line_end=sh(f"printf 'total 1835' >> {PRICES}"),
    wrong_one_price_missing=sh(f"echo total 1347 >> {PRICES}"),
    wrong_point=sh(f"echo total 1835. >> {PRICES}"),
    wrong_at_the_top=sh(f"sed -i '1i total 1835' {PRICES}"),
    spoiled_price=sh(f"sed -i 's/542/452/' {PRICES}; echo total 1835 >> {PRICES}"),
)
after(
    "gpicview-delete",
    right_to_the_trash=then(
        lambda home: home.trash("Utrecht/picture 05.png", "Utrecht/picture 07.png"), lambda home: home.viewer_traces()
    ),
    right=sh("cd Utrecht; rm 'picture 05.png' 'picture 07.png'"),
    wrong_similar_number=sh("cd Utrecht; rm 'picture 01.png' 'picture 07.png'"),
    wrong_emptied=sh("cd Utrecht; : > 'picture 05.png'; rm 'picture 07.png'"),
    wrong_to_another_folder=sh("mkdir old; mv 'Utrecht/picture 05.png' 'Utrecht/picture 07.png' old"),
    spoiled_third=sh("cd Utrecht; rm 'picture 05.png' 'picture 06.png' 'picture 07.png'"),
    spoiled_renumbered=sh("cd Utrecht; rm 'picture 05.png'; mv 'picture 06.png' 'picture 05.png'; rm 'picture 07.png'"),
)
CHART = "delivery-20.txt"
after(
    "gpicview-editor-chart",
    right=then(put(CHART, "Cork\nVerona\n"), lambda home: home.editor_traces(CHART).viewer_traces()),
    right_without_the_last_line_end=put(CHART, "Cork\nVerona"),
    wrong_exchanged=put(CHART, "Verona\nCork\n"),
    wrong_second_highest=put(CHART, "Utrecht\nVerona\n"),
    wrong_all_in_order=put(CHART, "Cork\nUtrecht\nGhent\nVerona\n"),
    wrong_small=put(CHART, "cork\nverona\n"),
    spoiled_chart_gone=then(put(CHART, "Cork\nVerona\n"), sh("rm chart.png")),
)
PICTURES = "cd Oslo-20; mv 'picture 1.png' 506.png; mv 'picture 2.png' 827.png; mv 'picture 3.png' 773.png"
after(
    "gpicview-thunar-names",
    right=then(sh(PICTURES), lambda home: home.viewer_traces()),
    wrong_two_exchanged=sh(PICTURES.replace("827", "x").replace("773", "827").replace("x", "773", 1)),
    wrong_zero_in_front=sh(PICTURES.replace("506", "0506")),
    wrong_capital_end=sh(PICTURES.replace("773.png", "773.PNG")),
    wrong_third_as_it_was=sh(PICTURES.split("; mv 'picture 3")[0]),
    spoiled_copies_kept=sh(f"cp -r Oslo-20 old; {PICTURES}"),
    spoiled_content=sh(f"{PICTURES}; cp 506.png 773.png"),
)
after(
    "gpicview-xterm-number",
    right=then(sh("sh parking.sh 2093"), lambda home: home.shell_traces("sh parking.sh 2093").viewer_traces()),
    right_after_a_wrong_number=sh("sh parking.sh 2039; sh parking.sh 2093"),
    wrong_number=sh("sh parking.sh 2039"),
    wrong_number_alone=sh("echo 2093 > museum.txt"),
    wrong_nothing_as_the_number=sh("sh parking.sh 0"),
    wrong_other_file=sh("mkdir x; cd x; sh ../parking.sh 2093; cd ..; mv x/museum.txt museum; rmdir x"),
    spoiled_script=sh("sed -i 's/17/18/' parking.sh; echo ticket 35586 > museum.txt"),
)
TAB = "parking-89.txt"
after(
    "mousepad-indent",
    right=then(sh(f"sed -i '5,6s/^/\\t/' {TAB}"), lambda home: home.editor_traces(TAB)),
    wrong_eight_spaces=sh(f"sed -i '5,6s/^/        /' {TAB}"),
    wrong_one=sh(f"sed -i '5s/^/\\t/' {TAB}"),
    wrong_behind_the_number=sh(f"sed -i '5,6s/ /\\t/' {TAB}"),
    wrong_at_the_end=sh(f"sed -i '5,6s/$/\\t/' {TAB}"),
    spoiled_line_below=sh(f"sed -i '5,7s/^/\\t/' {TAB}"),
)
TWICE = "delivery-11.txt"
after(
    "mousepad-repeated-lines",
    right=then(sh(f"awk '!seen[$0]++' {TWICE} > x; cat x > {TWICE}; rm x"), lambda home: home.editor_traces(TWICE)),
    wrong_first_ones_deleted=sh(f"tac {TWICE} | awk '!seen[$0]++' | tac > x; mv x {TWICE}"),
    wrong_in_order=sh(f"sort -u -o {TWICE} {TWICE}"),
    wrong_near_line_too=sh(f"awk '!seen[$0]++' {TWICE} | grep -v ' x$' > x; mv x {TWICE}"),
    wrong_empty_lines=sh(f"awk 'seen[$0]++ {{ $0 = \"\" }} 1' {TWICE} > x; mv x {TWICE}"),
    spoiled_near_line_made_equal=sh(f"awk '!seen[$0]++' {TWICE} | sed 's/ x$/ y/' > x; mv x {TWICE}"),
)
CARTER = "visitors-41.txt"
after(
    "mousepad-replace",
    right=then(sh(f"sed -i 's/Carter/Lewis/' {CARTER}"), lambda home: home.editor_traces(CARTER)),
    wrong_one_left=swap(CARTER, "Carter", "Lewis", 2),
    wrong_capitals=swap(CARTER, "Carter", "LEWIS"),
    wrong_space=swap(CARTER, "Carter", "Lewis "),
    spoiled_clark_too=sh(f"sed -i 's/Carter\\|Clark/Lewis/' {CARTER}"),
    spoiled_old_text=sh(f"cp {CARTER} old.txt; sed -i 's/Carter/Lewis/' {CARTER}"),
)
SET = f"{VIEW}tab-width=14\nshow-line-numbers=true\n"
after(
    "mousepad-settings",
    right=then(put(KEYS, SET), lambda home: home.put(".config/Mousepad/accels.scm", "; x\n")),
    right_with_the_window=put(KEYS, f"{SET}\n[org/xfce/mousepad/state/window]\nwidth=700\nheight=500\n"),
    right_with_the_search=put(KEYS, f"{SET}\n[org/xfce/mousepad/state/search]\nmatch-case=false\n"),
    wrong_width=put(KEYS, SET.replace("14", "41")),
    wrong_off=put(KEYS, SET.replace("true", "false")),
    spoiled_wrapped=put(KEYS, f"{SET}word-wrap=true\n"),
    spoiled_file_saved=then(put(KEYS, SET), sh("echo x >> parking-86.txt")),
)
SORTED = "parking-14.txt"
after(
    "mousepad-sort",
    right=then(sh(f"sort -o {SORTED} {SORTED}"), lambda home: home.editor_traces(SORTED)),
    wrong_backwards=sh(f"sort -r -o {SORTED} {SORTED}"),
    wrong_two_exchanged=put(SORTED, "Carter\nClark\nFisher\nOlsen\nUnderwood\nShaw\n"),
    wrong_with_commas=put(SORTED, "Carter, Clark, Fisher, Olsen, Shaw, Underwood\n"),
    spoiled_name_twice=sh(f"echo Clark >> {SORTED}; sort -o {SORTED} {SORTED}"),
)
COLUMNS = "design-83.txt"
CHANGED = f"sed -i 's/\\(.*\\)&\\(.*\\)/\\2=\\1/' {COLUMNS}"
after(
    "mousepad-swap-columns",
    right=then(sh(CHANGED), lambda home: home.editor_traces(COLUMNS)),
    wrong_space_behind_the_sign=sh(CHANGED.replace("\\2=", "\\2= ")),
    wrong_comma=sh(CHANGED.replace("\\2=", "\\2,")),
    wrong_last_line=sh(CHANGED.replace("'s", "'1,13s")),
    spoiled_in_order=sh(f"{CHANGED}; sort -o {COLUMNS} {COLUMNS}"),
    spoiled_one_number=sh(f"{CHANGED}; sed -i 's/^479/497/' {COLUMNS}"),
)
SPACES = "garden-80.txt"
after(
    "mousepad-trailing-spaces",
    right=then(sh(f"sed -i '3,7s/ *$//' {SPACES}"), lambda home: home.editor_traces(SPACES)),
    wrong_one_space_each=sh(f"sed -i '3,7s/ $//' {SPACES}"),
    wrong_last_left=sh(f"sed -i '3,6s/ *$//' {SPACES}"),
    spoiled_in_front_too=sh(f"sed -i -e '3,7s/ *$//' -e 's/^ *//' {SPACES}"),
    spoiled_two_made_one=sh(f"sed -i -e '3,7s/ *$//' -e 's/  */ /g' {SPACES}"),
)
after(
    "thunar-bulk-rename",
    right=then(
        sh('cd Verona; for f in design*; do mv "$f" "journey${f#design}"; done'), lambda home: home.viewer_traces()
    ),
    wrong_everywhere=sh('cd Verona; for f in *design*; do mv "$f" "${f/design/journey}"; done'),
    wrong_one_left=sh('cd Verona; for n in 29 32 35; do mv "design $n.txt" "journey $n.txt"; done'),
    wrong_number_gone=sh('cd Verona; n=1; for f in design*; do mv "$f" "journey $n.txt"; n=$((n + 1)); done'),
    wrong_capital=sh('cd Verona; for f in design*; do mv "$f" "Journey${f#design}"; done'),
    spoiled_inside_too=sh(
        'cd Verona; for f in design*; do sed -i s/design/journey/ "$f"; mv "$f" "journey${f#design}"; done'
    ),
)
after(
    "thunar-largest",
    right=then(sh("mv Cork/scan\\ {36842,25223}.txt Izmir"), lambda home: home.viewer_traces()),
    wrong_third=sh("mv Cork/scan\\ {36842,45533}.txt Izmir"),
    wrong_largest_numbers=sh("mv Cork/scan\\ {99206,97331}.txt Izmir"),
    wrong_copied=sh("cp Cork/scan\\ {36842,25223}.txt Izmir"),
    wrong_smallest=sh("mv Cork/scan\\ {72542,37655}.txt Izmir"),
    spoiled_three=sh("mv Cork/scan\\ {36842,25223,45533}.txt Izmir"),
    spoiled_old_gone=sh("mv Cork/scan\\ {36842,25223}.txt Izmir; rm Izmir/old.txt"),
)
after(
    "thunar-merge",
    right=then(sh("mv -f Leiden/* Naples"), lambda home: home.viewer_traces()),
    right_copied_and_removed=sh("cp -p Leiden/* Naples; rm Leiden/*"),
    wrong_kept_where_there=sh("mv -n Leiden/* Naples"),
    wrong_copied=sh("cp Leiden/* Naples"),
    spoiled_backups=sh("mv --backup=numbered Leiden/* Naples"),
    wrong_whole_folder=sh("mv Leiden Naples"),
    spoiled_meeting_gone=sh("rm Naples/*; mv Leiden/* Naples"),
)
KINDS = "mv *.log Zagreb; mv *.txt Utrecht; mv *.csv Naples"
after(
    "thunar-sort-kinds",
    right=then(sh(KINDS), lambda home: home.viewer_traces()),
    wrong_two_folders_exchanged=sh("mv *.txt Zagreb; mv *.log Utrecht; mv *.csv Naples"),
    wrong_one_left=sh("mv *.log Zagreb; mv guests.txt Utrecht; mv *.csv Naples"),
    wrong_copied=sh(KINDS.replace("mv", "cp")),
    spoiled_dat_too=sh(f"{KINDS}; mv garden.dat Naples"),
    spoiled_old_together=sh(f"{KINDS}; rm Zagreb/old.dat"),
)
EXCHANGE = "mv delivery-35.txt x; mv schedule-17.txt delivery-35.txt; mv x schedule-17.txt"
after(
    "thunar-swap-names",
    right=then(sh(EXCHANGE), lambda home: home.viewer_traces()),
    right_by_contents=sh(
        'a=$(cat delivery-35.txt); cat schedule-17.txt > delivery-35.txt; echo "$a" > schedule-17.txt'
    ),
    wrong_one_twice=sh("cp schedule-17.txt delivery-35.txt"),
    wrong_half=sh("mv delivery-35.txt x; mv schedule-17.txt delivery-35.txt"),
    wrong_other_pair=sh(EXCHANGE.replace("delivery-35", "journey-53").replace("schedule-17", "museum-38")),
    spoiled_step_left=sh("cp delivery-35.txt x; mv schedule-17.txt delivery-35.txt; cp x schedule-17.txt"),
    spoiled_hidden_copy=sh(f"cp delivery-35.txt .old; {EXCHANGE}"),
)
ALIASES, ALIAS = ".bash_aliases", "alias journey='ls -a ~/Oslo'"


def added(line: str) -> State:
    return lambda home: home.add(ALIASES, line)


after(
    "xterm-alias",
    right=then(added(f"{ALIAS}\n"), lambda home: home.shell_traces("nano .bash_aliases")),
    right_without_the_last_line_end=added(ALIAS),
    wrong_top=lambda home: home.put(ALIASES, f"{ALIAS}\n{home.text(ALIASES)}"),
    wrong_other_option=added("alias journey='ls -l ~/Oslo'\n"),
    wrong_typographic_quotes=added("alias journey=‘ls -a ~/Oslo’\n"),
    wrong_file=put(".bash_alias", f"{ALIAS}\n"),
    spoiled_bashrc=then(added(f"{ALIAS}\n"), put(".bashrc", ". ~/.bash_aliases\n")),
    spoiled_size_of_the_history=then(added(f"{ALIAS}\n"), swap(ALIASES, "581", "5810")),
)
after(
    "xterm-checksums",
    right=then(
        sh("rm Oslo-32/garden.dat Oslo-32/design.dat"), lambda home: home.shell_traces("sha256sum -c SHA256SUMS")
    ),
    right_to_the_trash=lambda home: home.trash("Oslo-32/garden.dat", "Oslo-32/design.dat"),
    wrong_one=sh("rm Oslo-32/garden.dat"),
    wrong_those_that_match=sh("cd Oslo-32; rm delivery.dat meeting.dat schedule.dat guests.dat parking.dat"),
    wrong_mended_in_place=sh("cd Oslo-32; printf '53 glue' > garden.dat; printf '35 candles' > design.dat"),
    spoiled_sums_made_anew=sh("cd Oslo-32; rm garden.dat design.dat; sha256sum *.dat > SHA256SUMS"),
    spoiled_lines_of_the_deleted=sh("cd Oslo-32; rm garden.dat design.dat; sed -i '/garden\\|design/d' SHA256SUMS"),
)
THREE = "diff delivery.txt visitors.txt | sed -n 's/^> //p'"
after(
    "xterm-difference",
    right=sh(f"{THREE} > payroll.txt; true"),
    right_by_grep=sh("grep -vxFf delivery.txt visitors.txt > payroll.txt"),
    wrong_of_the_other_file=sh("diff visitors.txt delivery.txt | sed -n 's/^> //p' > payroll.txt; true"),
    wrong_with_signs=sh("diff delivery.txt visitors.txt | grep '^>' > payroll.txt; true"),
    wrong_order=sh(f"{THREE} | tac > payroll.txt; true"),
    wrong_two=sh(f"{THREE} | head -2 > payroll.txt; true"),
    spoiled_made_the_same=sh(f"{THREE} > payroll.txt; cp visitors.txt delivery.txt"),
    spoiled_patch=sh(f"{THREE} > payroll.txt; diff delivery.txt visitors.txt > x.patch || true"),
)
OUTPUT = "result 17 is 1061\nresult 29 is 1805\nresult 56 is 3479"
after(
    "xterm-editor-output",
    right=then(
        swap("meeting.txt", "OUTPUT HERE", OUTPUT),
        lambda home: home.editor_traces("meeting.txt").shell_traces("sh archive.sh"),
    ),
    wrong_line_stays=swap("meeting.txt", "OUTPUT HERE", f"OUTPUT HERE\n{OUTPUT}"),
    wrong_numbers_alone=swap("meeting.txt", "OUTPUT HERE", "1061\n1805\n3479"),
    wrong_at_the_end=sh("sed -i '/OUTPUT/d' meeting.txt; sh archive.sh >> meeting.txt"),
    wrong_two_lines=swap("meeting.txt", "OUTPUT HERE", OUTPUT.rsplit("\n", 1)[0]),
    spoiled_output_in_a_file=then(swap("meeting.txt", "OUTPUT HERE", OUTPUT), sh("sh archive.sh > out")),
    spoiled_line_above_it=then(swap("meeting.txt", "OUTPUT HERE", OUTPUT), swap("meeting.txt", "35 juice", "35 Juice")),
)
after(
    "xterm-find-large",
    right=then(
        sh("find Ghent -type f -size +54272c -exec mv -t Leiden {} +"), lambda home: home.shell_traces("find Ghent")
    ),
    wrong_by_thousands=sh("find Ghent -type f -size +53000c -exec mv -t Leiden {} +"),
    wrong_not_the_deep_one=sh("find Ghent -maxdepth 2 -type f -size +54272c -exec mv -t Leiden {} +"),
    wrong_with_folders=sh("cd Ghent; find . -type f -size +54272c -exec cp --parents -t ../Leiden {} \\; -delete"),
    wrong_copied=sh("find Ghent -type f -size +54272c -exec cp -t Leiden {} +"),
    spoiled_empty_folders_gone=sh("find Ghent -type f -size +54272c -exec mv -t Leiden {} +; rmdir Ghent/two/three"),
    spoiled_smaller_deleted=sh("find Ghent -type f -size +54272c -exec mv -t Leiden {} +; rm Ghent/two/schedule.dat"),
)
ANSWERS = "printf 'Oslo\\n2603\\nyes\\nwrite\\n' | sh setup.sh"
after(
    "xterm-questions",
    right=then(sh(ANSWERS), lambda home: home.shell_traces("sh setup.sh")),
    right_after_a_stop=sh(f"printf 'Oslo\\n2603\\nno\\nstop\\n' | sh setup.sh || true; {ANSWERS}"),
    wrong_no_log=sh(ANSWERS.replace("yes", "no")),
    wrong_port=sh(ANSWERS.replace("2603", "2630")),
    wrong_small=sh(ANSWERS.replace("Oslo", "oslo")),
    wrong_stopped=sh(ANSWERS.replace("write", "stop") + " || true"),
    spoiled_script=sh(f"{ANSWERS}; echo >> setup.sh"),
)
TEXT = 'find Verona-59 -name "*.text" | while read -r f; do mv "$f" "${f%.text}.txt"; done'
after(
    "xterm-rename-ending",
    right=then(sh(TEXT), lambda home: home.shell_traces(TEXT)),
    wrong_top_alone=sh(TEXT.replace("Verona-59 -name", "Verona-59 -maxdepth 1 -name")),
    wrong_both_ends=sh(TEXT.replace("${f%.text}.txt", "$f.txt")),
    wrong_all_moved_up=sh(TEXT.replace("${f%.text}.txt", 'Verona-59/$(basename "${f%.text}").txt')),
    spoiled_bak_too=sh(f'{TEXT}; find Verona-59 -name \'*.bak\' | while read -r f; do mv "$f" "${{f%.bak}}"; done'),
    spoiled_bak_deleted=sh(f"{TEXT}; find Verona-59 -name '*.bak' -delete"),
)
after(
    "xterm-some-lines",
    right=sh("sed -n 50,67p meeting.log > schedule.txt"),
    right_by_head_and_tail=sh("head -67 meeting.log | tail -18 > schedule.txt"),
    wrong_last_missing=sh("sed -n 50,66p meeting.log > schedule.txt"),
    wrong_counted_from_0=sh("sed -n 51,68p meeting.log > schedule.txt"),
    wrong_numbered=sh("cat -n meeting.log | sed -n 50,67p > schedule.txt"),
    spoiled_taken_out=sh("sed -n 50,67p meeting.log > schedule.txt; sed -i 50,67d meeting.log"),
    spoiled_name_of_the_log=sh("sed -n 50,67p meeting.log > schedule.txt; cp meeting.log meeting.log.1"),
)
SUMS = "awk -F';' '{ s[$2] += $3 } END { for (c in s) print c, s[c] }' journal.csv | sort"
after(
    "xterm-table-sums",
    right=sh(f"{SUMS} > museum.txt"),
    right_by_python=sh(
        'python3 -c "import collections; s = collections.Counter();\n'
        "for line in open('journal.csv'): s[line.split(';')[1]] += int(line.split(';')[2])\n"
        "print(*(f'{c} {s[c]}' for c in sorted(s)), sep='\\n', file=open('museum.txt', 'w'))\""
    ),
    wrong_by_the_sum=sh(f"{SUMS} -k2nr > museum.txt"),
    wrong_counted=sh("cut -d';' -f2 journal.csv | sort | uniq -c | awk '{ print $2, $1 }' > museum.txt"),
    wrong_whole_sum_too=sh(
        f"{SUMS} > museum.txt; awk '{{ s += $2 }} END {{ print \"total\", s }}' museum.txt >> museum.txt"
    ),
    wrong_sign=sh(f"{SUMS} | tr ' ' ';' > museum.txt"),
    spoiled_table_sorted=sh(f"{SUMS} > museum.txt; sort -t';' -k2 -o journal.csv journal.csv"),
)
after(
    "xterm-thunar-count",
    right=then(
        sh("cd Utrecht; mv journal.log 'journal 353.log'; mv museum.log 'museum 326.log'"),
        lambda home: home.viewer_traces().shell_traces("wc -l *"),
    ),
    wrong_exchanged=sh("cd Utrecht; mv journal.log 'journal 326.log'; mv museum.log 'museum 353.log'"),
    wrong_one_less=sh("cd Utrecht; mv journal.log 'journal 352.log'; mv museum.log 'museum 325.log'"),
    wrong_behind_the_ending=sh("cd Utrecht; mv journal.log 'journal.log 353'; mv museum.log 'museum.log 326'"),
    wrong_copies=sh("cd Utrecht; cp journal.log 'journal 353.log'; cp museum.log 'museum 326.log'"),
    spoiled_delivery_too=sh('cd Utrecht; for f in *.log; do mv $f "${f%.log} $(wc -l < $f).log"; done'),
)
