"""End states of the tasks with pictures, and of those with several programs."""

from tests.data.apart.kit import Home, states

TODO = "to do journal Zagreb-11.txt"


def listed(home: Home, line: str = "all done\n") -> Home:
    return home.move("guests.txt", "design new.txt").move("journey.txt", "Zagreb-11/journey.txt").add(TODO, line)


states(
    "editor-thunar-to-do",
    right_by_shell=lambda home: listed(home).sh("rm parking.txt"),
    right_by_trash=lambda home: listed(home).trash("parking.txt").viewer_traces().recent(TODO),
    right_without_last_line_end=lambda home: listed(home, "all done").remove("parking.txt"),
    wrong_line=lambda home: listed(home, "All done\n").remove("parking.txt"),
    wrong_no_line=lambda home: listed(home, "").remove("parking.txt"),
    wrong_hidden_for_deleted=lambda home: listed(home).move("parking.txt", ".parking.txt"),
    wrong_copied=lambda home: listed(home).remove("parking.txt").copy("Zagreb-11/journey.txt", "journey.txt"),
    wrong_name=lambda home: listed(home).remove("parking.txt").move("design new.txt", "design_new.txt"),
    wrong_line_first=lambda home: listed(home, "").remove("parking.txt").put(TODO, "all done\n" + home.text(TODO)),
    wrong_old_name_stays=lambda home: listed(home).remove("parking.txt").copy("design new.txt", "guests.txt"),
    spoiled_old=lambda home: listed(home).remove("parking.txt").move("Zagreb-11/old.txt", "Zagreb-11/older.txt"),
    spoiled_list=lambda home: listed(home).remove("parking.txt").swap(TODO, "delete parking", "deleted parking"),
    spoiled_schedule=lambda home: listed(home).remove("parking.txt").add("schedule.txt", "1 list\n"),
    spoiled_content=lambda home: listed(home).remove("parking.txt").put("Zagreb-11/journey.txt", "47 Yarn\n"),
)
SCRIPT = "parking.sh"


def script(home: Home, name: str = "delivery.csv") -> Home:
    return home.swap(SCRIPT, "payroll.csv", name)


states(
    "editor-xterm-script",
    right_by_sed=lambda home: home.sh(f"sed -i s/payroll/delivery/ {SCRIPT}; sh {SCRIPT}"),
    right_with_traces=lambda home: script(home).sh(f"sh {SCRIPT}").shell_traces(f"sh {SCRIPT}").editor_traces(SCRIPT),
    right_run_twice=lambda home: script(home).sh(f"sh {SCRIPT}; sh {SCRIPT}"),
    wrong_not_run=script,
    wrong_run_before=lambda home: script(home.put("archive.txt", "total 0\n")),
    wrong_script_as_it_was=lambda home: home.put("archive.txt", "total 2287\n"),
    wrong_data_renamed=lambda home: home.move("delivery.csv", "payroll.csv").sh(f"sh {SCRIPT}"),
    wrong_data_copied=lambda home: home.copy("delivery.csv", "payroll.csv").sh(f"sh {SCRIPT}"),
    wrong_sum=lambda home: script(home).put("archive.txt", "total 2286\n"),
    wrong_script_gone=lambda home: script(home).sh(f"sh {SCRIPT}; rm {SCRIPT}"),
    spoiled_other_column=lambda home: script(home).swap(SCRIPT, "second", "2nd").sh(f"sh {SCRIPT}"),
    spoiled_executable=lambda home: script(home).sh(f"chmod +x {SCRIPT}; ./{SCRIPT}"),
    spoiled_data=lambda home: script(home).sh(f"sh {SCRIPT}; echo '6 May;0' >> delivery.csv"),
    ambiguous_path=lambda home: script(home, "./delivery.csv").sh(f"sh {SCRIPT}"),
)
PRICES = "archive-86.txt"
states(
    "galculator-to-editor",
    right_by_awk=lambda home: home.sh(f"awk '{{s+=$2}}END{{print \"total\",s}}' {PRICES} >> {PRICES}"),
    right_with_what_the_editor_writes=lambda home: home.add(PRICES, "total 1694").editor_traces(PRICES),
    right_with_settings_of_the_calculator=lambda home: home.add(PRICES, "total 1694\n").put(
        ".config/galculator/galculator.conf", "0\n"
    ),
    wrong_one_less=lambda home: home.add(PRICES, "total 1693\n"),
    wrong_without_the_last=lambda home: home.add(PRICES, "total 1287\n"),
    wrong_colon=lambda home: home.add(PRICES, "total: 1694\n"),
    wrong_capital=lambda home: home.add(PRICES, "Total 1694\n"),
    wrong_at_top=lambda home: home.put(PRICES, "total 1694\n" + home.text(PRICES)),
    wrong_number_alone=lambda home: home.add(PRICES, "1694\n"),
    spoiled_price=lambda home: home.add(PRICES, "total 1694\n").swap(PRICES, "doors 260", "doors 206"),
    spoiled_result_file=lambda home: home.add(PRICES, "total 1694\n").put("sum.txt", "1694\n"),
)
ONE, TWO, OTHER = (f"Oslo/picture {number}.png" for number in ("03", "04", "05"))
states(
    "gpicview-delete",
    right_by_rm=lambda home: home.sh(f"rm '{ONE}' '{TWO}'"),
    right_by_trash=lambda home: home.trash(ONE, TWO).viewer_traces(),
    right_with_what_the_viewer_writes=lambda home: home.remove(ONE, TWO).viewer_traces(),
    wrong_one_alone=lambda home: home.remove(TWO),
    wrong_another=lambda home: home.remove(ONE, OTHER),
    wrong_hidden=lambda home: home.remove(TWO).move(ONE, "Oslo/.picture 03.png"),
    wrong_moved_up=lambda home: home.remove(TWO).move(ONE, "picture 03.png"),
    wrong_emptied=lambda home: home.remove(TWO).put(ONE, b""),
    wrong_ending=lambda home: home.remove(TWO).move(ONE, f"{ONE}.deleted"),
    wrong_hidden_folder=lambda home: home.move(ONE, ".old/picture 03.png").move(TWO, ".old/picture 04.png"),
    spoiled_names=lambda home: home.remove(ONE, TWO).move(OTHER, ONE),
    spoiled_other_picture=lambda home: home.remove(ONE, TWO).put(OTHER, (home / OTHER).read_bytes() + b"\n"),
    spoiled_copy_of_another=lambda home: home.remove(ONE, TWO).copy(OTHER, "Oslo/picture 13.png"),
)
CITIES = "meeting-50.txt"
states(
    "gpicview-editor-chart",
    right_by_echo=lambda home: home.sh(f"printf 'Riga\\nCadiz\\n' > {CITIES}"),
    right_without_last_line_end=lambda home: home.put(CITIES, "Riga\nCadiz").editor_traces(CITIES),
    wrong_order=lambda home: home.put(CITIES, "Cadiz\nRiga\n"),
    wrong_second_highest=lambda home: home.put(CITIES, "Ghent\nCadiz\n"),
    wrong_second_lowest=lambda home: home.put(CITIES, "Riga\nCork\n"),
    wrong_one_line=lambda home: home.put(CITIES, "Riga Cadiz\n"),
    wrong_all=lambda home: home.put(CITIES, "Riga\nGhent\nCork\nCadiz\n"),
    wrong_words=lambda home: home.put(CITIES, "highest: Riga\nlowest: Cadiz\n"),
    wrong_file=lambda home: home.put("meeting-51.txt", "Riga\nCadiz\n"),
    spoiled_chart=lambda home: home.put(CITIES, "Riga\nCadiz\n").remove("chart.png"),
    spoiled_chart_renamed=lambda home: home.put(CITIES, "Riga\nCadiz\n").move("chart.png", "Chart.png"),
    spoiled_picture_of_the_screen=lambda home: home.put(CITIES, "Riga\nCadiz\n").copy("chart.png", "Screenshot.png"),
)
ORDER = "delivery-11.txt"
states(
    "gpicview-galculator-editor",
    right_by_shell=lambda home: home.sh(f"sed -i '1s/$/ 4048/;2s/$/ 391/;$a total 4439' {ORDER}"),
    right_without_last_line_end=lambda home: home.put(ORDER, "44 glue 4048\n23 candles 391\ntotal 4439").editor_traces(
        ORDER
    ),
    wrong_price_of_drums=lambda home: home.put(ORDER, "44 glue 4048\n23 candles 1909\ntotal 5957\n"),
    wrong_sum=lambda home: home.put(ORDER, "44 glue 4048\n23 candles 391\ntotal 4438\n"),
    wrong_sum_of_prices=lambda home: home.put(ORDER, "44 glue 92\n23 candles 17\ntotal 109\n"),
    wrong_no_total=lambda home: home.put(ORDER, "44 glue 4048\n23 candles 391\n"),
    wrong_equals=lambda home: home.put(ORDER, "44 glue = 4048\n23 candles = 391\ntotal 4439\n"),
    wrong_total_first=lambda home: home.put(ORDER, "total 4439\n44 glue 4048\n23 candles 391\n"),
    spoiled_order=lambda home: home.put(ORDER, "23 candles 391\n44 glue 4048\ntotal 4439\n"),
    spoiled_picture=lambda home: home.put(ORDER, "44 glue 4048\n23 candles 391\ntotal 4439\n").mode(
        "prices.png", 0o600
    ),
    spoiled_original=lambda home: home.copy(ORDER, "delivery-11 (original).txt").put(
        ORDER, "44 glue 4048\n23 candles 391\ntotal 4439\n"
    ),
)


def red(home: Home) -> Home:
    return home.move("Zagreb/41.png", "Zagreb/Leiden/41.png").move("Zagreb/68.png", "Zagreb/Leiden/68.png")


states(
    "gpicview-thunar-colour",
    right_by_mv=lambda home: home.sh("mv -t Zagreb/Leiden Zagreb/41.png Zagreb/68.png"),
    right_with_what_the_programs_write=lambda home: red(home).viewer_traces(),
    right_by_cp_and_rm=lambda home: home.sh("cd Zagreb; cp 41.png 68.png Leiden; rm 41.png 68.png"),
    wrong_one=lambda home: home.move("Zagreb/41.png", "Zagreb/Leiden/41.png"),
    wrong_yellow_too=lambda home: red(home).move("Zagreb/65.png", "Zagreb/Leiden/65.png"),
    wrong_blue=lambda home: home.sh("mv -t Zagreb/Leiden Zagreb/11.png Zagreb/38.png"),
    wrong_copied=lambda home: home.sh("cp -t Zagreb/Leiden Zagreb/41.png Zagreb/68.png"),
    wrong_links=lambda home: home.sh("cd Zagreb/Leiden; ln -s ../41.png ../68.png ."),
    wrong_new_folder_in_home=lambda home: home.sh("mkdir Leiden; mv -t Leiden Zagreb/41.png Zagreb/68.png"),
    wrong_exchanged_names=lambda home: (
        red(home)
        .sh("cd Zagreb/Leiden; mv 41.png 4.png; mv 68.png 41.png; mv 4.png 68.png")
        .put("Zagreb/Leiden/41.png", (home / "Zagreb/65.png").read_bytes())
    ),
    spoiled_others_renamed=lambda home: red(home).move("Zagreb/65.png", "Zagreb/yellow.png"),
    spoiled_old=lambda home: red(home).remove("Zagreb/Leiden/old.txt"),
    spoiled_copies_left=lambda home: red(home).copy("Zagreb/Leiden/41.png", "Zagreb/.41.png"),
)


def named(home: Home, first: str = "173", second: str = "788", third: str = "944") -> Home:
    for number, name in enumerate((first, second, third), 1):
        home.move(f"Lisbon-47/picture {number}.png", f"Lisbon-47/{name}.png")
    return home


states(
    "gpicview-thunar-names",
    right_by_mv=named,
    right_with_what_the_programs_write=lambda home: named(home).viewer_traces(),
    wrong_two_exchanged=lambda home: named(home, "788", "173"),
    wrong_digit=lambda home: named(home, "178"),
    wrong_capital_ending=lambda home: named(home).move("Lisbon-47/944.png", "Lisbon-47/944.PNG"),
    wrong_ending_twice=lambda home: named(home, "173.png", "788.png", "944.png"),
    wrong_old_names_too=lambda home: named(home).copy("Lisbon-47/173.png", "Lisbon-47/picture 1.png"),
    wrong_word_kept=lambda home: named(home, "picture 173", "picture 788", "picture 944"),
    wrong_links=lambda home: home.sh(
        "cd Lisbon-47; ln -s 'picture 1.png' 173.png; ln -s 'picture 2.png' 788.png; ln -s 'picture 3.png' 944.png"
    ),
    spoiled_list=lambda home: named(home).put("Lisbon-47/names.txt", "173\n788\n944\n"),
    spoiled_folder=lambda home: named(home).move("Lisbon-47", "Lisbon"),
    spoiled_mode=lambda home: named(home).mode("Lisbon-47/944.png", 0o600),
)
NUMBERS = "meeting-38.txt"
states(
    "gpicview-to-editor",
    right_by_echo=lambda home: home.sh(f"echo 7571 > {NUMBERS}; echo 4478 >> {NUMBERS}"),
    right_without_last_line_end=lambda home: home.put(NUMBERS, "7571\n4478").editor_traces(NUMBERS).viewer_traces(),
    wrong_order=lambda home: home.put(NUMBERS, "4478\n7571\n"),
    wrong_digit=lambda home: home.put(NUMBERS, "7511\n4478\n"),
    wrong_one_line=lambda home: home.put(NUMBERS, "7571 4478\n"),
    wrong_only_first=lambda home: home.put(NUMBERS, "7571\n"),
    wrong_empty_line_first=lambda home: home.put(NUMBERS, "\n7571\n4478\n"),
    wrong_names=lambda home: home.put(NUMBERS, "picture 1: 7571\npicture 2: 4478\n"),
    spoiled_picture_renamed=lambda home: home.put(NUMBERS, "7571\n4478\n").move(
        "Zagreb/picture 1.png", "Zagreb/7571.png"
    ),
    spoiled_third_line=lambda home: home.put(NUMBERS, "7571\n4478\n12049\n"),
    spoiled_new_file=lambda home: home.put(NUMBERS, "7571\n4478\n").put("Zagreb/numbers.txt", "7571\n4478\n"),
)
states(
    "gpicview-xterm-number",
    right_by_sh=lambda home: home.sh("sh schedule.sh 1514"),
    right_with_traces=lambda home: home.sh("sh schedule.sh 1514").shell_traces("sh schedule.sh 1514").viewer_traces(),
    right_second_try=lambda home: home.sh("sh schedule.sh 1541; sh schedule.sh 1514"),
    wrong_number=lambda home: home.sh("sh schedule.sh 1541"),
    wrong_no_number=lambda home: home.put("parking.txt", "ticket 5\n"),
    wrong_number_itself=lambda home: home.put("parking.txt", "ticket 1514\n"),
    wrong_folder=lambda home: home.sh("mkdir out; cd out; sh ../schedule.sh 1514"),
    wrong_saved_elsewhere=lambda home: home.sh("sh schedule.sh 1514; mv parking.txt Parking.txt"),
    spoiled_script=lambda home: home.sh("sed -i s/.1/1514/ schedule.sh; sh schedule.sh"),
    spoiled_executable=lambda home: home.sh("chmod +x schedule.sh; ./schedule.sh 1514"),
    spoiled_note=lambda home: home.sh("sh schedule.sh 1514 > output.txt"),
)
