"""End states of the tasks with web applications: what was posted to them, and what the browser leaves in the home."""

import json

from tests.data.apart.kit import Home, states

PENS = {"number": 586, "state": "closed", "assignee": "Underwood", "priority": "high"}


def browsed(home: Home) -> Home:
    """What Chromium writes on its own."""
    home.put(".config/chromium/Local State", "{}").put(".config/chromium/Default/Preferences", "{}")
    home.put(".config/chromium/Default/History", b"SQLite format 3\x00").put(".pki/nssdb/cert9.db", b"SQLite format 3\x00")
    return home.put(".cache/chromium/Default/Cache/Cache_Data/index", b"\x00").folder("Downloads")


def noted(home: Home, text: str = "#574", number: int = 586) -> Home:
    return home.post("/comment", number=number, text=text)


def closed(home: Home, **other: object) -> Home:
    return home.post("/change", **{**PENS, **other})


states(
    "web-board-duplicate",
    right_closed_first=lambda home: noted(closed(home)),
    right_comment_first=lambda home: browsed(closed(noted(home))),
    right_wrong_one_opened_again=lambda home: noted(
        closed(closed(closed(home, number=574, assignee="Ingram", priority="low"), number=574, state="open", assignee="Ingram", priority="low"))
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
        {"date_added": "13444444444444444", "guid": f"00000000-0000-4000-8000-00000000000{n}", "id": str(4 + n), "name": name, "type": "url", "url": url}
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
    return home.put(".config/chromium/Default/Bookmarks", json.dumps({"checksum": "0" * 32, "roots": roots, "version": 1}, indent=3))


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
    wrong_page=lambda home: browsed(home).put("Downloads/guests-2024.csv", f"<html><body><pre>{CSV}</pre></body></html>"),
    wrong_half=lambda home: browsed(home).put("Downloads/guests-2024.csv.crdownload", CSV[:9]),
    wrong_empty=lambda home: browsed(home).put("Downloads/guests-2024.csv", ""),
    wrong_link=lambda home: browsed(home).link("Downloads/guests-2024.csv", "/nowhere/guests-2024.csv"),
    spoiled_two=lambda home: browsed(home).put("Downloads/guests-2024.csv", CSV).put("Downloads/guests-2015.csv", "year,guests\n2015,533\n"),
    spoiled_twice=lambda home: browsed(home).put("Downloads/guests-2024.csv", CSV).put("Downloads/guests-2024 (1).csv", CSV),
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
    return home.post("/send", **{"reply": 8, "to": "olsen@example.org", "subject": "Re: A question", "text": "398", **other})


states(
    "web-mail-answer",
    right_reply=sent,
    right_other_subject=lambda home: browsed(sent(home, subject="Pens")),
    wrong_other_number=lambda home: sent(home, text="362"),
    wrong_word=lambda home: sent(home, text="398 pens"),
    wrong_quoted=lambda home: sent(home, text="398\n\n> How many pens do we need for the delivery?"),
    wrong_to=lambda home: sent(home, to="ingram@example.org"),
    wrong_replied_to_the_other=lambda home: sent(home, reply=2, to="ingram@example.org", subject="Re: About the delivery"),
    wrong_two_receivers=lambda home: sent(home, to="olsen@example.org, ingram@example.org"),
    spoiled_twice=lambda home: sent(sent(home)),
    spoiled_moved=lambda home: sent(home).post("/move", id=8, folder="Archive"),
    spoiled_thanks=lambda home: sent(sent(home), reply=2, to="ingram@example.org", subject="Re: About the delivery", text="Thanks"),
    ambiguous_new_message=lambda home: sent(home, reply=""),
    ambiguous_moved_and_back=lambda home: sent(home).post("/move", id=8, folder="Work").post("/move", id=8, folder="Inbox"),
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
    spoiled_mail=lambda home: filed(home).post("/send", reply=4, to="irwin@example.org", subject="Re: About the survey", text="113"),
    spoiled_text_file=lambda home: filed(home).put("moved.txt", "4 6 7\n"),
)


def reported(home: Home, **other: object) -> Home:
    fields = {"building": "Cork", "kind": "water", "day": "2027-12-19", "urgency": "at once", "text": "Delivery: no yarn left", **other}
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


def booked(home: Home, **other: object) -> Home:
    fields = {"id": "", "title": "survey 35", "room": "Oslo", "day": "2027-02-16", "begin": "13:00", "end": "14:00", "people": "6"}
    return home.post("/book", **{**fields, **other})


states(
    "web-rooms-book",
    right=booked,
    right_moved_there=lambda home: browsed(booked(booked(home, room="Ghent"), id=21)),
    right_cancelled_and_booked=lambda home: booked(booked(home, room="Ghent").post("/cancel", id=21)),
    right_after_refusal=lambda home: booked(booked(home, room="Riga")),
    wrong_larger_room=lambda home: booked(home, room="Ghent"),
    wrong_day=lambda home: booked(home, day="2027-02-17"),
    wrong_hour=lambda home: booked(home, begin="12:00", end="13:00"),
    wrong_longer=lambda home: booked(home, end="15:00"),
    wrong_people=lambda home: booked(home, people="5"),
    wrong_title=lambda home: booked(home, title="Survey 35"),
    wrong_cancelled=lambda home: booked(home).post("/cancel", id=21),
    spoiled_room_made_free=lambda home: booked(home.post("/cancel", id=6), room="Riga"),
    spoiled_second=lambda home: booked(booked(home), room="Ghent"),
    spoiled_other_cancelled=lambda home: booked(home).post("/cancel", id=8),
    spoiled_other_title=lambda home: booked(booked(home), id=7, title="interview", begin="15:00", end="17:00"),
)


def shifted(home: Home, **other: object) -> Home:
    fields = {"id": 13, "title": "budget Leiden", "room": "Leiden", "day": "2027-11-07", "begin": "15:00", "end": "17:00", "people": "2"}
    return home.post("/book", **{**fields, **other})


states(
    "web-rooms-move",
    right_changed=shifted,
    right_cancelled_and_booked=lambda home: shifted(home.post("/cancel", id=13), id=""),
    right_booked_and_cancelled=lambda home: browsed(shifted(home, id="").post("/cancel", id=13)),
    right_other_day_first=lambda home: shifted(shifted(home, day="2027-11-06", begin="10:00", end="12:00")),
    wrong_day=lambda home: shifted(home, day="2027-11-06", begin="16:00", end="18:00"),
    wrong_room=lambda home: shifted(home, room="Cork"),
    wrong_hour=lambda home: shifted(home, begin="14:00", end="16:00"),
    wrong_shorter=lambda home: shifted(home, end="16:00"),
    wrong_people=lambda home: shifted(home, people="3"),
    wrong_booked_twice=lambda home: shifted(home, id=""),
    wrong_only_cancelled=lambda home: home.post("/cancel", id=13),
    wrong_booking_of_the_day_after=lambda home: shifted(home, id=17, title="party Leiden"),
    spoiled_title=lambda home: shifted(home, title="Budget Leiden"),
    spoiled_title_of_a_new_one=lambda home: shifted(home.post("/cancel", id=13), id="", title="budget"),
    spoiled_other_cancelled=lambda home: shifted(home).post("/cancel", id=9),
    spoiled_other_moved=lambda home: shifted(shifted(home), id=14, title="party Cork", room="Cork"),
)


def settled(home: Home, city: str = "Rouen", language: str = "Spanish", on: tuple[str, ...] = ("news", "replies", "weekly"), **other: str) -> Home:
    home.post("/", name=other.get("name", "Lawson"), city=city).post("/display", language=language, size=other.get("size", "25"))
    return home.post("/messages", on=list(on))


states(
    "web-settings",
    right=settled,
    right_other_order=lambda home: browsed(home.post("/messages", on=["weekly", "news", "replies"])).post("/display", language="Spanish", size=25).post(
        "/", name="Lawson", city="Rouen"
    ),
    right_after_mistakes=lambda home: settled(settled(home, language="French", on=("news",), size="50")),
    wrong_city_as_it_was=lambda home: settled(home, city="Verona"),
    wrong_language=lambda home: settled(home, language="Italian"),
    wrong_no_news=lambda home: settled(home, on=("replies", "weekly")),
    wrong_small=lambda home: settled(home, city="rouen"),
    wrong_messages_not_saved=lambda home: home.post("/", name="Lawson", city="Rouen").post("/display", language="Spanish", size=25),
    spoiled_others_off=lambda home: settled(home, on=("news",)),
    spoiled_weekly_off=lambda home: settled(home, on=("news", "replies")),
    spoiled_rows=lambda home: settled(home, size="50"),
    spoiled_name=lambda home: settled(home, name="Lawso"),
)


def cart(home: Home, remove: tuple[int, ...] = (2,), **amounts: int) -> Home:
    """`d=3` is three doors; yarn, shovels, pens and doors are in the cart."""
    numbers = {"y": 13, "s": 2, "p": 10, "d": 9}
    held = {"y": 1, "s": 2, "p": 3, "d": 5, **amounts}
    return home.post("/cart", remove=list(remove), **{f"amount-{numbers[key]}": value for key, value in held.items()})


def ordered(home: Home, **other: object) -> Home:
    return home.post("/order", **{"name": "Reed", "city": "Kiel", "delivery": "standard", "payment": "invoice", **other})


states(
    "web-shop-cart",
    right_at_once=lambda home: cart(home, d=3),
    right_in_two_steps=lambda home: browsed(cart(cart(home, (), d=3), d=3)),
    right_more_and_less=lambda home: cart(cart(home, (), d=1), d=3),
    wrong_amount=lambda home: cart(home, d=2),
    wrong_shovels_stay=lambda home: cart(home, (), d=3),
    wrong_doors_as_they_were=cart,
    wrong_pens_for_shovels=lambda home: cart(home, (10,), d=3),
    wrong_three_less=lambda home: cart(home, d=4),
    wrong_doors_out=lambda home: cart(home, (2, 9)),
    spoiled_pens=lambda home: cart(home, d=3, p=2),
    spoiled_yarn_out=lambda home: cart(home, (2, 13), d=3),
    spoiled_article_more=lambda home: cart(home, d=3).post("/cart/add", id=1, amount=1),
    spoiled_ordered=lambda home: ordered(cart(home, d=3)),
)
states(
    "web-shop-compare",
    right=lambda home: home.post("/cart/add", id=7, amount=1),
    right_two_made_one=lambda home: browsed(home.post("/cart/add", id=7, amount=2)).post("/cart", **{"amount-7": 1}),
    right_another_taken_out=lambda home: home.post("/cart/add", id=2, amount=1)
    .post("/cart/add", id=7, amount=1)
    .post("/cart", **{"amount-2": 1, "amount-7": 1, "remove": 2}),
    wrong_next_price=lambda home: home.post("/cart/add", id=13, amount=1),
    wrong_rating=lambda home: home.post("/cart/add", id=2, amount=1),
    wrong_category=lambda home: home.post("/cart/add", id=8, amount=1),
    wrong_two=lambda home: home.post("/cart/add", id=7, amount=2),
    wrong_best_rating=lambda home: home.post("/cart/add", id=10, amount=1),
    spoiled_another=lambda home: home.post("/cart/add", id=7, amount=1).post("/cart/add", id=13, amount=1),
    spoiled_ordered=lambda home: ordered(home.post("/cart/add", id=7, amount=1)),
    spoiled_ordered_and_again=lambda home: ordered(home.post("/cart/add", id=7, amount=1)).post("/cart/add", id=7, amount=1),
)


def cheese(home: Home, amount: int = 2) -> Home:
    return home.post("/cart/add", id=3, amount=amount)


states(
    "web-shop-order",
    right=lambda home: ordered(cheese(home)),
    right_one_and_one=lambda home: browsed(ordered(cheese(cheese(home, 1), 1))),
    right_another_taken_out=lambda home: ordered(
        cheese(home.post("/cart/add", id=4, amount=1)).post("/cart", **{"amount-3": 2, "amount-4": 1, "remove": 4})
    ),
    right_after_refusal=lambda home: ordered(ordered(cheese(home), payment="choose")),
    wrong_amount=lambda home: ordered(cheese(home, 1)),
    wrong_article=lambda home: ordered(home.post("/cart/add", id=4, amount=2)),
    wrong_delivery=lambda home: ordered(cheese(home), delivery="express"),
    wrong_payment=lambda home: ordered(cheese(home), payment="card"),
    wrong_city=lambda home: ordered(cheese(home), city="Riga"),
    wrong_name_and_city_exchanged=lambda home: ordered(cheese(home), name="Kiel", city="Reed"),
    wrong_two_orders_of_one=lambda home: ordered(cheese(ordered(cheese(home, 1)), 1)),
    wrong_not_ordered=cheese,
    spoiled_another_too=lambda home: ordered(cheese(home).post("/cart/add", id=4, amount=1)),
    spoiled_twice=lambda home: ordered(cheese(ordered(cheese(home)))),
    spoiled_cart_after_it=lambda home: ordered(cheese(home)).post("/cart/add", id=5, amount=1),
)


def archived(home: Home, *numbers: int) -> Home:
    return home.post("/archive", id=list(numbers or (13, 8, 6, 12)))


states(
    "web-table-archive",
    right_at_once=archived,
    right_one_by_one=lambda home: archived(archived(archived(archived(browsed(home), 12), 6), 8), 13),
    wrong_three=lambda home: archived(home, 13, 8, 6),
    wrong_five=lambda home: archived(home, 13, 8, 6, 12, 4),
    wrong_of_all_cities=lambda home: archived(home, 17, 1, 13, 3),
    wrong_smallest=lambda home: archived(home, 4, 5, 15, 12),
    wrong_fifth_for_fourth=lambda home: archived(home, 13, 8, 6, 4),
    spoiled_other_city=lambda home: archived(home, 13, 8, 6, 12, 20),
    spoiled_new_file=lambda home: archived(home).put("orders.txt", "Lawson 2\n"),
)


def registered(home: Home, **other: object) -> Home:
    chosen = {"name": "Shaw", "city": "Lisbon", "course": "journey", "day": "2027-05-20", "meal": "no meal", "extras": ["certificate"], **other}
    home.post("/", name=chosen["name"], city=chosen["city"]).post("/course", course=chosen["course"], day=chosen["day"])
    return home.post("/extras", meal=chosen["meal"], extras=chosen["extras"])


def sure(home: Home) -> Home:
    return home.post("/confirm", sure="on")


states(
    "web-wizard",
    right=lambda home: sure(registered(home)),
    right_back_and_changed=lambda home: sure(registered(registered(home, meal="vegetarian", extras=["book"], day="2027-05-26"))),
    right_with_what_the_browser_writes=lambda home: browsed(sure(registered(home))),
    wrong_day=lambda home: sure(registered(home, day="2027-05-23")),
    wrong_course=lambda home: sure(registered(home, course="survey")),
    wrong_meal=lambda home: sure(registered(home, meal="vegetarian")),
    wrong_no_certificate=lambda home: sure(registered(home, extras=[])),
    wrong_city=lambda home: sure(registered(home, city="Leiden")),
    wrong_not_confirmed=registered,
    wrong_two_extras=lambda home: sure(registered(home, extras=["certificate", "book"])),
    spoiled_twice=lambda home: sure(registered(sure(registered(home)))),
    spoiled_mended_by_a_second=lambda home: sure(registered(sure(registered(home, meal="with fish")))),
    spoiled_new_file=lambda home: sure(registered(home)).put("registered.txt", "journey\n"),
)
