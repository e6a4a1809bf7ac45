"""End states of the tasks with the file manager."""

from tests.data.apart.kit import Home, states

NUMBERS = ("11", "74", "92", "98")


def renamed(home: Home, numbers: tuple[str, ...] = NUMBERS, name: str = "Utrecht/meeting {}.txt") -> Home:
    for number in numbers:
        home.move(f"Utrecht/schedule {number}.txt", name.format(number))
    return home


states(
    "thunar-bulk-rename",
    right_by_shell=lambda home: home.sh('cd Utrecht; for f in schedule*; do mv "$f" "meeting${f#schedule}"; done'),
    right_with_what_thunar_writes=lambda home: renamed(home).viewer_traces(),
    wrong_one_left=lambda home: renamed(home, NUMBERS[:3]),
    wrong_survey_too=lambda home: renamed(home).move("Utrecht/survey schedule.txt", "Utrecht/survey meeting.txt"),
    wrong_numbered=lambda home: [
        home.move(f"Utrecht/schedule {n}.txt", f"Utrecht/meeting {i}.txt") for i, n in enumerate(NUMBERS)
    ],
    wrong_capital=lambda home: renamed(home, name="Utrecht/Meeting {}.txt"),
    wrong_no_space=lambda home: renamed(home, name="Utrecht/meeting{}.txt"),
    wrong_moved_up=lambda home: renamed(home, name="meeting {}.txt"),
    wrong_contents_too=lambda home: renamed(home).sh("sed -i s/schedule/meeting/ Utrecht/meeting*"),
    wrong_copies=lambda home: home.sh('cd Utrecht; for f in schedule*; do cp "$f" "meeting${f#schedule}"; done'),
    spoiled_survey=lambda home: renamed(home).mode("Utrecht/survey schedule.txt", 0o400),
    spoiled_exchanged=lambda home: renamed(home).sh(
        "cd Utrecht; mv 'meeting 11.txt' t; mv 'meeting 74.txt' 'meeting 11.txt'; mv t 'meeting 74.txt'"
    ),
    spoiled_new_folder=lambda home: renamed(home).folder("Utrecht/old"),
)


def copied(home: Home) -> Home:
    return home.sh("cp Florence/parking\\ 1{73,67,64}.txt Riga")


states(
    "thunar-copy-several",
    right_by_cp=copied,
    right_keeping_times=lambda home: home.sh(
        "cd Florence; cp -p 'parking 173.txt' 'parking 167.txt' 'parking 164.txt' ../Riga"
    ).viewer_traces(),
    right_by_tar=lambda home: home.sh("cd Florence; tar c parking\\ 1{73,67,64}.txt | tar x -C ../Riga"),
    wrong_one_missing=lambda home: copied(home).remove("Riga/parking 164.txt"),
    wrong_neighbour=lambda home: copied(home).move("Riga/parking 164.txt", "Riga/parking 155.txt"),
    wrong_moved=lambda home: home.sh("mv Florence/parking\\ 1{73,67,64}.txt Riga"),
    wrong_one_more=lambda home: copied(home).copy("Florence/parking 185.txt", "Riga/parking 185.txt"),
    wrong_links=lambda home: home.sh("cd Riga; ln -s ../Florence/parking\\ 1{73,67,64}.txt ."),
    wrong_folder_copied=lambda home: home.sh("cp -r Florence Riga"),
    wrong_copy_names=lambda home: copied(home).move("Riga/parking 173.txt", "Riga/parking 173 (copy 1).txt"),
    wrong_empty=lambda home: home.sh("cd Riga; touch parking\\ 1{73,67,64}.txt"),
    spoiled_florence=lambda home: copied(home).remove("Florence/parking 185.txt"),
    spoiled_old=lambda home: copied(home).put("Riga/old.txt", "OLD\n"),
    spoiled_copy_in_florence=lambda home: copied(home).copy(
        "Florence/parking 173.txt", "Florence/parking 173 (copy 1).txt"
    ),
)
LOGS = tuple(f"Cadiz-47/{name}.log" for name in ("delivery", "garden", "schedule"))
states(
    "thunar-delete-kind",
    right_by_rm=lambda home: home.sh("rm Cadiz-47/*.log"),
    right_by_trash=lambda home: home.trash(*LOGS).viewer_traces(),
    right_by_find=lambda home: home.sh("find Cadiz-47 -name '*.log' -delete"),
    right_trash_emptied=lambda home: home.trash(*LOGS).sh("rm -r .local/share/Trash/files/* .local/share/Trash/info/*"),
    wrong_one_left=lambda home: home.remove(*LOGS[:2]),
    wrong_one_more=lambda home: home.remove(*LOGS, "Cadiz-47/visitors.txt"),
    wrong_hidden=lambda home: home.sh("cd Cadiz-47; for f in *.log; do mv $f .$f; done"),
    wrong_ending=lambda home: home.sh("cd Cadiz-47; for f in *.log; do mv $f ${f%.log}.old; done"),
    wrong_new_trash_folder=lambda home: home.sh("mkdir Trash; mv Cadiz-47/*.log Trash"),
    wrong_hidden_cache=lambda home: home.sh("mkdir -p .cache/old; mv Cadiz-47/*.log .cache/old"),
    wrong_emptied=lambda home: home.sh("for f in Cadiz-47/*.log; do : > $f; done"),
    spoiled_case=lambda home: home.remove(*LOGS).move("Cadiz-47/parking.txt", "Cadiz-47/Parking.txt"),
    spoiled_text_trashed=lambda home: home.trash(*LOGS, "Cadiz-47/parking.txt"),
    spoiled_archive=lambda home: home.sh("tar czf logs.tgz Cadiz-47/*.log; rm Cadiz-47/*.log"),
)
DIARY = "schedule-59.txt"
MAY = "86 pens\n32 ink\n20 maps\n"
states(
    "thunar-editor-collect",
    right_by_cat=lambda home: home.sh(f"cd Lisbon; cat '3 May.txt' '10 May.txt' '20 May.txt' > ../{DIARY}"),
    right_without_last_line_end=lambda home: home.put(DIARY, MAY.rstrip()).editor_traces(DIARY).viewer_traces(),
    wrong_order_of_names=lambda home: home.sh(f"cat Lisbon/*May.txt > {DIARY}"),
    wrong_june_too=lambda home: home.put(DIARY, MAY + "62 candles\n"),
    wrong_one_missing=lambda home: home.put(DIARY, "86 pens\n32 ink\n"),
    wrong_days_too=lambda home: home.put(DIARY, "3 May: 86 pens\n10 May: 32 ink\n20 May: 20 maps\n"),
    wrong_empty_lines_between=lambda home: home.put(DIARY, MAY.replace("\n", "\n\n")),
    wrong_links=lambda home: home.remove(DIARY).link(DIARY, "Lisbon/3 May.txt"),
    spoiled_note_gone=lambda home: home.put(DIARY, MAY).remove("Lisbon/4 June.txt"),
    spoiled_note_renamed=lambda home: home.put(DIARY, MAY).move("Lisbon/3 May.txt", "Lisbon/03 May.txt"),
    spoiled_new_file=lambda home: home.put(DIARY, MAY).put("Lisbon/May.txt", MAY),
)


def signed(home: Home, numbers: tuple[str, ...] = ("59", "83"), name: str = "Verona/Irwin delivery {}.txt") -> Home:
    for number in numbers:
        home.move(f"Verona/delivery {number}.txt", name.format(number))
    return home


states(
    "thunar-editor-rename",
    right_by_grep=lambda home: home.sh(
        'cd Verona; grep -lx "written by Irwin" * | while read -r f; do mv "$f" "Irwin $f"; done'
    ),
    right_with_traces=lambda home: signed(home).viewer_traces().recent("Verona/delivery 20.txt"),
    wrong_irwinson_too=lambda home: signed(home, ("59", "83", "20")),
    wrong_irwinson_for_one=lambda home: signed(home, ("59", "20")),
    wrong_one=lambda home: signed(home, ("83",)),
    wrong_behind=lambda home: signed(home, name="Verona/delivery {} Irwin.txt"),
    wrong_no_space=lambda home: signed(home, name="Verona/Irwindelivery {}.txt"),
    wrong_small=lambda home: signed(home, name="Verona/irwin delivery {}.txt"),
    wrong_folder=lambda home: signed(home, name="Verona/Irwin/delivery {}.txt"),
    spoiled_content=lambda home: signed(home).swap("Verona/Irwin delivery 59.txt", "Irwin", "Irwin."),
    spoiled_copy=lambda home: signed(home).copy("Verona/Irwin delivery 59.txt", "Verona/delivery 59.txt"),
    spoiled_lewis_too=lambda home: signed(home).move("Verona/delivery 53.txt", "Verona/Lewis delivery 53.txt"),
)
CONF, NOW = ".Florence-83.conf", "Florence-83-now.conf"
states(
    "thunar-hidden",
    right_by_mv=lambda home: home.move(CONF, NOW),
    right_with_what_thunar_writes=lambda home: home.move(CONF, NOW).viewer_traces(),
    wrong_copied=lambda home: home.copy(CONF, NOW),
    wrong_the_visible_one=lambda home: home.move("Florence-83.conf", NOW),
    wrong_other_hidden=lambda home: home.move(".Florence.conf", NOW),
    wrong_still_hidden=lambda home: home.move(CONF, "." + NOW),
    wrong_over_the_visible=lambda home: home.move(CONF, "Florence-83.conf"),
    wrong_case=lambda home: home.move(CONF, "Florence-83-Now.conf"),
    wrong_link=lambda home: home.link(NOW, CONF),
    spoiled_visible_gone=lambda home: home.move(CONF, NOW).remove("Florence-83.conf"),
    spoiled_content=lambda home: home.move(CONF, NOW).add(NOW, "\n"),
    spoiled_hidden_copy=lambda home: home.copy(CONF, ".Florence-83.conf~").move(CONF, NOW),
)


def largest(home: Home, *numbers: str) -> Home:
    """Moves the largest files but for those of these ranks."""
    sizes = sorted((home / "Cork").iterdir(), key=lambda path: -path.stat().st_size)
    for rank in numbers:
        home.move(f"Cork/{sizes[int(rank)].name}", f"Zagreb/{sizes[int(rank)].name}")
    return home


states(
    "thunar-largest",
    right_by_ls=lambda home: home.sh('cd Cork; ls -S | head -2 | while read -r f; do mv "$f" ../Zagreb; done'),
    right_with_what_thunar_writes=lambda home: largest(home, "1", "0").viewer_traces(),
    wrong_one=lambda home: largest(home, "0"),
    wrong_first_and_third=lambda home: largest(home, "0", "2"),
    wrong_three=lambda home: largest(home, "0", "1", "2"),
    wrong_smallest=lambda home: home.sh('cd Cork; ls -Sr | head -2 | while read -r f; do mv "$f" ../Zagreb; done'),
    wrong_largest_names=lambda home: home.sh("cd Cork; mv 'scan 97373.txt' 'scan 92342.txt' ../Zagreb"),
    wrong_copied=lambda home: home.sh('cd Cork; ls -S | head -2 | while read -r f; do cp "$f" ../Zagreb; done'),
    wrong_in_home=lambda home: home.sh('cd Cork; ls -S | head -2 | while read -r f; do mv "$f" ..; done'),
    spoiled_cut_short=lambda home: largest(home, "0", "1").sh('f=$(ls Zagreb/scan* | head -1); truncate -s -1 "$f"'),
    spoiled_old=lambda home: largest(home, "0", "1").remove("Zagreb/old.txt"),
    spoiled_another_gone=lambda home: largest(home, "0", "1").sh('cd Cork; rm "$(ls -Sr | head -1)"'),
)
LONE = ("delivery", "payroll", "schedule")


def merged(home: Home, *names: str) -> Home:
    for name in names or LONE:
        home.move(f"Izmir/{name}.txt", f"Zagreb/{name}.txt")
    return home


states(
    "thunar-merge",
    right_by_mv_n=lambda home: home.sh('cd Izmir; for f in *; do test -e "../Zagreb/$f" || mv "$f" ../Zagreb; done'),
    right_with_what_thunar_writes=lambda home: merged(home).viewer_traces(),
    wrong_replaced=lambda home: home.sh("mv -f Izmir/* Zagreb"),
    wrong_one_replaced=lambda home: merged(home, *LONE, "journey"),
    wrong_one_left=lambda home: merged(home, "delivery", "payroll"),
    wrong_copied=lambda home: home.sh("cp -n Izmir/* Zagreb || true"),
    wrong_both_kept=lambda home: (
        merged(home)
        .move("Izmir/journey.txt", "Zagreb/journey (copy 1).txt")
        .move("Izmir/visitors.txt", "Zagreb/visitors (copy 1).txt")
    ),
    wrong_doubles_deleted=lambda home: merged(home).remove("Izmir/journey.txt", "Izmir/visitors.txt"),
    wrong_other_direction=lambda home: home.move("Zagreb/journal.txt", "Izmir/journal.txt"),
    spoiled_exchanged=lambda home: (
        merged(home)
        .move("Izmir/journey.txt", "t")
        .move("Zagreb/journey.txt", "Izmir/journey.txt")
        .move("t", "Zagreb/journey.txt")
    ),
    spoiled_zagreb=lambda home: merged(home).move("Zagreb/journal.txt", "Zagreb/Journal.txt"),
    spoiled_list=lambda home: merged(home).put("Izmir/moved.txt", "delivery\n"),
)
FILE = "delivery-95.txt"
states(
    "thunar-move",
    right_by_mv=lambda home: home.move(FILE, f"Lisbon/{FILE}"),
    right_by_cp_and_trash=lambda home: home.sh(f"cp {FILE} Lisbon").trash(FILE),
    right_with_what_thunar_writes=lambda home: home.move(FILE, f"Lisbon/{FILE}").viewer_traces(),
    wrong_folder=lambda home: home.move(FILE, f"Oslo/{FILE}"),
    wrong_copied=lambda home: home.copy(FILE, f"Lisbon/{FILE}"),
    wrong_link=lambda home: home.link(f"Lisbon/{FILE}", f"../{FILE}"),
    wrong_renamed=lambda home: home.move(FILE, "Lisbon/delivery.txt"),
    wrong_new_folder_inside=lambda home: home.move(FILE, f"Lisbon/Lisbon/{FILE}"),
    wrong_link_left=lambda home: home.move(FILE, f"Lisbon/{FILE}").link(FILE, f"Lisbon/{FILE}"),
    spoiled_two=lambda home: home.move(FILE, f"Lisbon/{FILE}").move("guests-74.txt", "Lisbon/guests-74.txt"),
    spoiled_content=lambda home: home.move(FILE, f"Lisbon/{FILE}").add(f"Lisbon/{FILE}", " "),
    spoiled_old=lambda home: home.move(FILE, f"Lisbon/{FILE}").move("Lisbon/old.txt", "old.txt"),
)
states(
    "thunar-new-folder",
    right_by_mkdir=lambda home: home.folder("Rouen/Cadiz"),
    right_with_what_thunar_writes=lambda home: home.folder("Rouen/Cadiz").viewer_traces(),
    right_made_twice=lambda home: home.folder("Rouen/New Folder").move("Rouen/New Folder", "Rouen/Cadiz"),
    wrong_in_home=lambda home: home.folder("Cadiz"),
    wrong_file=lambda home: home.put("Rouen/Cadiz", ""),
    wrong_case=lambda home: home.folder("Rouen/cadiz"),
    wrong_not_empty=lambda home: home.folder("Rouen/Cadiz").put("Rouen/Cadiz/.keep", ""),
    wrong_link=lambda home: home.folder("Cadiz").link("Rouen/Cadiz", "../Cadiz"),
    wrong_twice_deep=lambda home: home.folder("Rouen/Cadiz/Cadiz"),
    spoiled_second_folder=lambda home: home.folder("Rouen/Cadiz").folder("Rouen/New Folder"),
    spoiled_file_moved=lambda home: home.folder("Rouen/Cadiz").move("Rouen/guests-53.txt", "guests-53.txt"),
    spoiled_in_home_too=lambda home: home.folder("Rouen/Cadiz").folder("Cadiz"),
)
PROGRAM = "parking-56.sh"
states(
    "thunar-permissions",
    right_740=lambda home: home.mode(PROGRAM, 0o740),
    right_symbolic=lambda home: home.sh(f"chmod u+x,g=r,o= {PROGRAM}").viewer_traces(),
    wrong_others_read=lambda home: home.mode(PROGRAM, 0o744),
    wrong_group_writes=lambda home: home.mode(PROGRAM, 0o760),
    wrong_no_program=lambda home: home.mode(PROGRAM, 0o640),
    wrong_group_nothing=lambda home: home.mode(PROGRAM, 0o700),
    wrong_file=lambda home: home.mode("meeting-71.sh", 0o740),
    wrong_others_write=lambda home: home.mode(PROGRAM, 0o742),
    spoiled_all=lambda home: home.sh("chmod 740 *.sh"),
    spoiled_copy=lambda home: home.copy(PROGRAM, "parking-56 (copy 1).sh").mode(PROGRAM, 0o740),
    spoiled_content=lambda home: home.put(PROGRAM, "#!/bin/sh\n" + home.text(PROGRAM)).mode(PROGRAM, 0o740),
    ambiguous_owner_may_not_write=lambda home: home.mode(PROGRAM, 0o540),
    ambiguous_group_may_run=lambda home: home.mode(PROGRAM, 0o750),
)
OLD, NEW = "design-50.txt", "Ghent 74.txt"
states(
    "thunar-rename",
    right_by_mv=lambda home: home.move(OLD, NEW),
    right_with_what_thunar_writes=lambda home: home.move(OLD, NEW).viewer_traces(),
    wrong_copied=lambda home: home.copy(OLD, NEW),
    wrong_other_file=lambda home: home.move("museum-53.txt", NEW),
    wrong_hyphen=lambda home: home.move(OLD, "Ghent-74.txt"),
    wrong_ending_twice=lambda home: home.move(OLD, NEW + ".txt"),
    wrong_two_spaces=lambda home: home.move(OLD, "Ghent  74.txt"),
    wrong_link=lambda home: home.link(NEW, OLD),
    spoiled_content=lambda home: home.move(OLD, NEW).put(NEW, "Ghent 74\n"),
    spoiled_another=lambda home: home.move(OLD, NEW).move("visitors-86.txt", "visitors 86.txt"),
    spoiled_mode=lambda home: home.move(OLD, NEW).mode(NEW, 0o600),
)
SORTED = "mv *.log Leiden; mv *.txt Florence; mv *.csv Rouen"
states(
    "thunar-sort-kinds",
    right_by_mv=lambda home: home.sh(SORTED),
    right_with_what_thunar_writes=lambda home: home.sh(SORTED).viewer_traces(),
    wrong_two_folders_exchanged=lambda home: home.sh("mv *.log Leiden; mv *.txt Rouen; mv *.csv Florence"),
    wrong_dat_too=lambda home: home.sh(SORTED + "; mv *.dat Rouen"),
    wrong_one_left=lambda home: home.sh(SORTED + "; mv Rouen/survey.csv ."),
    wrong_copied=lambda home: home.sh(SORTED.replace("mv", "cp")),
    wrong_one_in_the_wrong_folder=lambda home: home.sh(SORTED + "; mv Florence/meeting.txt Leiden"),
    spoiled_old_together=lambda home: home.sh(SORTED + "; mv Rouen/old.dat Rouen/older.dat"),
    spoiled_dat=lambda home: home.sh(SORTED + "; echo 2 > parking.dat"),
    spoiled_new_folder=lambda home: home.sh(SORTED + "; mkdir dat"),
)
SWAP = "mv journey-50.txt t; mv parking-44.txt journey-50.txt; mv t parking-44.txt"
states(
    "thunar-swap-names",
    right_by_mv=lambda home: home.sh(SWAP),
    right_with_what_thunar_writes=lambda home: home.sh(SWAP).viewer_traces(),
    right_by_contents=lambda home: home.sh(
        "cp journey-50.txt t; cat parking-44.txt > journey-50.txt; cat t > parking-44.txt; rm t"
    ),
    wrong_nothing=lambda home: home,
    wrong_both_the_same=lambda home: home.sh("cp parking-44.txt journey-50.txt"),
    wrong_one_name=lambda home: home.sh("mv journey-50.txt parking-44b.txt; mv parking-44.txt journey-50.txt"),
    wrong_links=lambda home: home.sh(
        "mv journey-50.txt a; mv parking-44.txt b; ln -s b journey-50.txt; ln -s a parking-44.txt"
    ),
    wrong_other_pair=lambda home: home.sh("mv journey-50.txt t; mv guests-65.txt journey-50.txt; mv t guests-65.txt"),
    spoiled_file_behind=lambda home: home.sh(
        "cp journey-50.txt t; mv parking-44.txt journey-50.txt; cp t parking-44.txt"
    ),
    spoiled_hidden_file_behind=lambda home: home.sh(SWAP + "; cp parking-44.txt .t"),
    spoiled_a_third=lambda home: home.sh(SWAP + "; mv payroll-20.txt payroll-02.txt"),
)
