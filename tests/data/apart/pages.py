"""End states of the tasks with web applications: what was posted to them, and what the browser leaves in the home."""

import json

from tests.data.apart.kit import Home, states

PENS = {"number": 586, "state": "closed", "assignee": "Underwood", "priority": "high"}


def browsed(home: Home) -> Home:
    """What Chromium writes on its own."""
    home.put(".config/chromium/Local State", "{}").put(".config/chromium/Default/Preferences", "{}")
    home.put(".config/chromium/Default/History", b"SQLite format 3\x00").put(
        ".pki/nssdb/cert9.db", b"SQLite format 3\x00"
    )
    return home.put(".cache/chromium/Default/Cache/Cache_Data/index", b"\x00")


def noted(home: Home, text: str = "#574", number: int = 586) -> Home:
    return home.post("/comment", number=number, text=text)


def closed(home: Home, **other: object) -> Home:
    return home.post("/change", **{**PENS, **other})


states(
    "web-board-duplicate",
    right_closed_first=lambda home: noted(closed(home)),
    right_comment_first=lambda home: browsed(closed(noted(home))),
    right_wrong_one_opened_again=lambda home: noted(
        closed(
            closed(
                closed(home, number=574, assignee="Ingram", priority="low"),
                number=574,
                state="open",
                assignee="Ingram",
                priority="low",
            )
        )
    ),
    wrong_older=lambda home: noted(closed(home, number=574, assignee="Ingram", priority="low"), "#586", 574),
    wrong_comment_at_the_older=lambda home: noted(closed(home), number=574),
    wrong_without_sign=lambda home: noted(closed(home), "574"),
    wrong_words=lambda home: noted(closed(home), "Duplicate of #574"),
    wrong_own_number=lambda home: noted(closed(home), "#586"),
    wrong_still_open=noted,
    wrong_no_comment=closed,
    spoiled_assignee=lambda home: noted(closed(home, assignee="nobody")),
    spoiled_priority=lambda home: noted(closed(home, priority="low")),
    spoiled_both_closed=lambda home: noted(closed(closed(home), number=574, assignee="Ingram", priority="low")),
    spoiled_comment_twice=lambda home: noted(noted(closed(home))),
    spoiled_comment_at_another=lambda home: noted(noted(closed(home)), "#586", 574),
)


def triaged(home: Home, **other: object) -> Home:
    return home.post("/change", **{"number": 322, "state": "open", "assignee": "Reed", "priority": "low", **other})


states(
    "web-board-triage",
    right=triaged,
    right_in_two_steps=lambda home: browsed(triaged(triaged(home, priority="normal"))),
    right_after_a_mistake=lambda home: triaged(triaged(home, assignee="Lawson", priority="high")),
    wrong_assignee=lambda home: triaged(home, assignee="Lawson"),
    wrong_priority=lambda home: triaged(home, priority="normal"),
    wrong_assignee_as_it_was=lambda home: triaged(home, assignee="Carter"),
    wrong_issue_above=lambda home: triaged(home, number=321),
    wrong_closed=lambda home: triaged(home, state="closed"),
    spoiled_comment=lambda home: triaged(home).post("/comment", number=322, text="done"),
    spoiled_another=lambda home: triaged(triaged(home), number=323),
)


def marked(home: Home, *marks: tuple[str, str], place: str = "bookmark_bar", folder: str = "") -> Home:
    entries: list[dict[str, object]] = [
        {
            "date_added": "13444444444444444",
            "guid": f"00000000-0000-4000-8000-00000000000{n}",
            "id": str(4 + n),
            "name": name,
            "type": "url",
            "url": url,
        }
        for n, (name, url) in enumerate(marks or (("drums 11", "http://127.0.0.1:8080/garden"),))
    ]
    if folder:
        entries = [{"children": entries, "id": "9", "name": folder, "type": "folder"}]
    names = {"bookmark_bar": "Bookmarks bar", "other": "Other bookmarks", "synced": "Mobile bookmarks"}
    roots = {
        key: {"children": entries if key == place else [], "id": str(n), "name": name, "type": "folder"}
        for n, (key, name) in enumerate(names.items(), 1)
    }
    browsed(home)
    return home.put(
        ".config/chromium/Default/Bookmarks", json.dumps({"checksum": "0" * 32, "roots": roots, "version": 1}, indent=3)
    )


HOST = "http://127.0.0.1:8080"
states(
    "web-bookmark",
    right_in_the_bar=marked,
    right_in_other=lambda home: marked(home, place="other"),
    right_with_backup_of_the_browser=lambda home: marked(home).copy(
        ".config/chromium/Default/Bookmarks", ".config/chromium/Default/Bookmarks.bak"
    ),
    wrong_name=lambda home: marked(home, ("Drums 11", HOST + "/garden")),
    wrong_page=lambda home: marked(home, ("drums 11", HOST + "/survey")),
    wrong_start=lambda home: marked(home, ("drums 11", HOST + "/")),
    wrong_title_of_page=lambda home: marked(home, ("garden", HOST + "/garden")),
    wrong_twice=lambda home: marked(home, *[("drums 11", HOST + "/garden")] * 2),
    wrong_port=lambda home: marked(home, ("drums 11", "http://127.0.0.1/garden")),
    wrong_host=lambda home: marked(home, ("drums 11", "http://example.org/garden")),
    wrong_scheme=lambda home: marked(home, ("drums 11", "https://127.0.0.1:8080/garden")),
    wrong_page_below=lambda home: marked(home, ("drums 11", HOST + "/garden/more")),
    wrong_folder_of_that_name=lambda home: marked(home, ("garden", HOST + "/garden"), folder="drums 11"),
    spoiled_second=lambda home: marked(home, ("drums 11", HOST + "/garden"), ("Start", HOST + "/")),
    spoiled_page_saved=lambda home: marked(home).put("Downloads/garden.html", "<h1>garden</h1>"),
    ambiguous_name_of_the_host=lambda home: marked(home, ("drums 11", "http://localhost:8080/garden")),
)
CSV = "year,guests\n2024,902\n"
states(
    "web-download",
    right_by_link=lambda home: browsed(home).put("Downloads/guests-2024.csv", CSV),
    right_folder_alone=lambda home: home.put("Downloads/guests-2024.csv", CSV),
    wrong_year=lambda home: browsed(home).put("Downloads/guests-2015.csv", "year,guests\n2015,533\n"),
    wrong_content_of_another=lambda home: browsed(home).put("Downloads/guests-2024.csv", "year,guests\n2009,938\n"),
    wrong_in_home=lambda home: home.put("guests-2024.csv", CSV),
    wrong_page=lambda home: browsed(home).put(
        "Downloads/guests-2024.csv", f"<html><body><pre>{CSV}</pre></body></html>"
    ),
    wrong_half=lambda home: browsed(home).put("Downloads/guests-2024.csv.crdownload", CSV[:9]),
    wrong_empty=lambda home: browsed(home).put("Downloads/guests-2024.csv", ""),
    wrong_link=lambda home: browsed(home).link("Downloads/guests-2024.csv", "/nowhere/guests-2024.csv"),
    spoiled_two=lambda home: (
        browsed(home).put("Downloads/guests-2024.csv", CSV).put("Downloads/guests-2015.csv", "year,guests\n2015,533\n")
    ),
    spoiled_twice=lambda home: (
        browsed(home).put("Downloads/guests-2024.csv", CSV).put("Downloads/guests-2024 (1).csv", CSV)
    ),
    spoiled_copy_in_home=lambda home: browsed(home).put("Downloads/guests-2024.csv", CSV).put("guests-2024.csv", CSV),
    ambiguous_name=lambda home: browsed(home).put("Downloads/guests.csv", CSV),
)
states(
    "web-facts",
    right=lambda home: home.post("/answer", answer="3797"),
    right_with_what_the_browser_writes=lambda home: browsed(home).post("/answer", answer="3797"),
    wrong_phone=lambda home: home.post("/answer", answer="6680"),
    wrong_box=lambda home: home.post("/answer", answer="3026"),
    wrong_house=lambda home: home.post("/answer", answer="3539"),
    wrong_words=lambda home: home.post("/answer", answer="fax 3797"),
    wrong_digits=lambda home: home.post("/answer", answer="3779"),
    wrong_two_numbers=lambda home: home.post("/answer", answer="3797, 6680"),
    spoiled_twice=lambda home: home.post("/answer", answer="3797").post("/answer", answer="3797"),
    spoiled_second_try=lambda home: home.post("/answer", answer="6680").post("/answer", answer="3797"),
    spoiled_new_file=lambda home: home.post("/answer", answer="3797").put("fax.txt", "3797\n"),
)


def sent(home: Home, **other: object) -> Home:
    return home.post(
        "/send", **{"reply": 8, "to": "olsen@example.org", "subject": "Re: A question", "text": "398", **other}
    )


states(
    "web-mail-answer",
    right_reply=sent,
    right_other_subject=lambda home: browsed(sent(home, subject="Pens")),
    wrong_other_number=lambda home: sent(home, text="362"),
    wrong_word=lambda home: sent(home, text="398 pens"),
    wrong_quoted=lambda home: sent(home, text="398\n\n> How many pens do we need for the delivery?"),
    wrong_to=lambda home: sent(home, to="ingram@example.org"),
    wrong_replied_to_the_other=lambda home: sent(
        home, reply=2, to="ingram@example.org", subject="Re: About the delivery"
    ),
    wrong_two_receivers=lambda home: sent(home, to="olsen@example.org, ingram@example.org"),
    spoiled_twice=lambda home: sent(sent(home)),
    spoiled_moved=lambda home: sent(home).post("/move", id=8, folder="Archive"),
    spoiled_thanks=lambda home: sent(
        sent(home), reply=2, to="ingram@example.org", subject="Re: About the delivery", text="Thanks"
    ),
    ambiguous_new_message=lambda home: sent(home, reply=""),
    ambiguous_moved_and_back=lambda home: (
        sent(home).post("/move", id=8, folder="Work").post("/move", id=8, folder="Inbox")
    ),
)


def written(home: Home, **other: object) -> Home:
    return home.post("/send", **{"reply": "", "to": "ingram@example.org", "subject": "yarn", "text": "35", **other})


states(
    "web-mail-file",
    right_new=written,
    right_as_reply=lambda home: browsed(written(home, reply=4)).editor_traces("museum-41.txt"),
    wrong_number_above=lambda home: written(home, text="47"),
    wrong_line=lambda home: written(home, text="yarn: 35"),
    wrong_to=lambda home: written(home, to="olsen@example.org"),
    wrong_subject=lambda home: written(home, subject="Yarn"),
    wrong_subject_of_reply=lambda home: written(home, reply=4, subject="Re: About the garden"),
    wrong_number_in_mail=lambda home: written(home, text="179"),
    spoiled_two=lambda home: written(written(home), to="olsen@example.org"),
    spoiled_file=lambda home: written(home).put("museum-41.txt", home.text("museum-41.txt") + "sent\n"),
    spoiled_moved=lambda home: written(home).post("/move", id=4, folder="Archive"),
    spoiled_backup=lambda home: written(home).copy("museum-41.txt", "museum-41.txt~"),
)


def filed(home: Home, *numbers: int, folder: str = "Archive") -> Home:
    return home.post("/move", id=list(numbers or (4, 6, 7)), folder=folder)


states(
    "web-mail-sort",
    right_at_once=filed,
    right_one_by_one=lambda home: filed(filed(filed(browsed(home), 7), 4), 6),
    right_by_way_of_work=lambda home: filed(filed(home, folder="Work")),
    right_one_more_and_back=lambda home: filed(filed(home, 4, 5, 6, 7), 5, folder="Inbox"),
    wrong_one_left=lambda home: filed(home, 4, 6),
    wrong_one_more=lambda home: filed(home, 4, 5, 6, 7),
    wrong_folder=lambda home: filed(home, folder="Work"),
    wrong_trash=lambda home: filed(home, folder="Trash"),
    wrong_neighbours=lambda home: filed(home, 3, 5),
    wrong_one_elsewhere=lambda home: filed(filed(home, 4, 6), 7, folder="Work"),
    spoiled_others_to_work=lambda home: filed(filed(home), 1, 2, folder="Work"),
    spoiled_mail=lambda home: filed(home).post(
        "/send", reply=4, to="irwin@example.org", subject="Re: About the survey", text="113"
    ),
    spoiled_text_file=lambda home: filed(home).put("moved.txt", "4 6 7\n"),
)


def reported(home: Home, **other: object) -> Home:
    fields = {
        "building": "Cork",
        "kind": "water",
        "day": "2027-12-19",
        "urgency": "at once",
        "text": "Delivery: no yarn left",
        **other,
    }
    return home.post("/", **fields)


states(
    "web-report",
    right=reported,
    right_second_try=lambda home: browsed(reported(reported(home, kind="choose"))).recent("visitors.txt"),
    wrong_kind=lambda home: reported(home, kind="fire"),
    wrong_building=lambda home: reported(home, building="Lisbon"),
    wrong_day=lambda home: reported(home, day="2027-12-20"),
    wrong_day_and_month=lambda home: reported(home, day="2027-12-09"),
    wrong_urgency=lambda home: reported(home, urgency="this week"),
    wrong_call=lambda home: reported(home, call="on"),
    wrong_full_stop=lambda home: reported(home, text="Delivery: no yarn left."),
    wrong_quoted=lambda home: reported(home, text='"Delivery: no yarn left"'),
    wrong_small=lambda home: reported(home, text="delivery: no yarn left"),
    spoiled_twice=lambda home: reported(reported(home)),
    spoiled_second_mended=lambda home: reported(reported(home, kind="fire")),
    spoiled_file=lambda home: reported(home).put("visitors.txt", home.text("visitors.txt").replace("at once", "sent")),
)
