"""End states of the tasks with web applications of several steps: rooms, settings, a shop, a table, a course."""

from tests.data.apart.kit import Home, states
from tests.data.apart.pages import browsed


def booked(home: Home, **other: object) -> Home:
    fields = {
        "id": "",
        "title": "survey 35",
        "room": "Oslo",
        "day": "2027-02-16",
        "begin": "13:00",
        "end": "14:00",
        "people": "6",
    }
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
    fields = {
        "id": 13,
        "title": "budget Leiden",
        "room": "Leiden",
        "day": "2027-11-07",
        "begin": "15:00",
        "end": "17:00",
        "people": "2",
    }
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


def settled(
    home: Home,
    city: str = "Rouen",
    language: str = "Spanish",
    on: tuple[str, ...] = ("news", "replies", "weekly"),
    **other: str,
) -> Home:
    home.post("/", name=other.get("name", "Lawson"), city=city).post(
        "/display", language=language, size=other.get("size", "25")
    )
    return home.post("/messages", on=list(on))


states(
    "web-settings",
    right=settled,
    right_other_order=lambda home: (
        browsed(home.post("/messages", on=["weekly", "news", "replies"]))
        .post("/display", language="Spanish", size=25)
        .post("/", name="Lawson", city="Rouen")
    ),
    right_after_mistakes=lambda home: settled(settled(home, language="French", on=("news",), size="50")),
    wrong_city_as_it_was=lambda home: settled(home, city="Verona"),
    wrong_language=lambda home: settled(home, language="Italian"),
    wrong_no_news=lambda home: settled(home, on=("replies", "weekly")),
    wrong_small=lambda home: settled(home, city="rouen"),
    wrong_messages_not_saved=lambda home: home.post("/", name="Lawson", city="Rouen").post(
        "/display", language="Spanish", size=25
    ),
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
    return home.post(
        "/order", **{"name": "Reed", "city": "Kiel", "delivery": "standard", "payment": "invoice", **other}
    )


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
    right_another_taken_out=lambda home: (
        home.post("/cart/add", id=2, amount=1)
        .post("/cart/add", id=7, amount=1)
        .post("/cart", **{"amount-2": 1, "amount-7": 1, "remove": 2})
    ),
    wrong_next_price=lambda home: home.post("/cart/add", id=13, amount=1),
    wrong_rating=lambda home: home.post("/cart/add", id=2, amount=1),
    wrong_category=lambda home: home.post("/cart/add", id=8, amount=1),
    wrong_two=lambda home: home.post("/cart/add", id=7, amount=2),
    wrong_best_rating=lambda home: home.post("/cart/add", id=10, amount=1),
    spoiled_another=lambda home: home.post("/cart/add", id=7, amount=1).post("/cart/add", id=13, amount=1),
    spoiled_ordered=lambda home: ordered(home.post("/cart/add", id=7, amount=1)),
    spoiled_ordered_and_again=lambda home: ordered(home.post("/cart/add", id=7, amount=1)).post(
        "/cart/add", id=7, amount=1
    ),
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
    chosen = {
        "name": "Shaw",
        "city": "Lisbon",
        "course": "journey",
        "day": "2027-05-20",
        "meal": "no meal",
        "extras": ["certificate"],
        **other,
    }
    home.post("/", name=chosen["name"], city=chosen["city"]).post("/course", course=chosen["course"], day=chosen["day"])
    return home.post("/extras", meal=chosen["meal"], extras=chosen["extras"])


def sure(home: Home) -> Home:
    return home.post("/confirm", sure="on")


states(
    "web-wizard",
    right=lambda home: sure(registered(home)),
    right_back_and_changed=lambda home: sure(
        registered(registered(home, meal="vegetarian", extras=["book"], day="2027-05-26"))
    ),
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
