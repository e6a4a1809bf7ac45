"""A calendar of meeting rooms: what is booked on a day, and a form that refuses what cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    choice,
    entry,
    esc,
    form,
    go,
    hidden,
    link,
    notice,
    table,
)

HOURS: Final = [f"{hour:02}:00" for hour in range(8, 19)]
DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")


class Rooms(WebApp):
    """data: days, rooms (name, seats), and bookings (id, room, day, begin, end, title). Days as 2027-03-15, times as
    09:00."""

    name = "Rooms"
    menu: Sequence[tuple[str, str]] = (("/", "Days"), ("/rooms", "Rooms"), ("/book", "New booking"))

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.rooms = {str(each["name"]): int(each["seats"]) for each in data["rooms"]}
        self.bookings = {str(each["id"]): dict(each) for each in data["bookings"]}

    def state(self) -> dict[str, Any]:
        return self.bookings

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path == "/":
            days = "".join(f"<p>{link(f'/day?day={day}', day)}</p>" for day in self.data["days"])
            return self.page("Days", days)
        if path == "/rooms":
            rows = [(esc(name), str(seats)) for name, seats in self.rooms.items()]
            return self.page("Rooms", table(("Room", "Seats"), rows))
        if path == "/day":
            return self._day(query.one("day"))
        if path == "/book":
            return self._form({})
        if path == "/booking":
            return self._form(self.bookings[query.one("id")])
        return None

    def _day(self, day: str) -> WebReply:
        some = sorted((each for each in self.bookings.values() if each["day"] == day), key=lambda each: each["begin"])
        rows = [
            (esc(each["room"]), f"{each['begin']} to {each['end']}", link(f"/booking?id={each['id']}", each["title"]))
            for each in some
        ]
        return self.page(f"Bookings of {day}", table(("Room", "Time", "Title"), rows))

    def _form(self, given: Mapping[str, str], error: str = "") -> WebReply:
        key = given.get("id", "")
        parts = [
            notice(error),
            form(
                "/book",
                hidden("id", key),
                entry("Title", "title", given.get("title", "")),
                choice("Room", "room", list(self.rooms), given.get("room", "")),
                entry("Day (year-month-day)", "day", given.get("day", "")),
                choice("Begin", "begin", HOURS, given.get("begin", "")),
                choice("End", "end", HOURS, given.get("end", "")),
                entry("People", "people", given.get("people", "")),
                button="Save booking",
            ),
        ]
        if key:
            parts.append(form("/cancel", hidden("id", key), button="Cancel this booking"))
        return self.page("Change booking" if key else "New booking", *parts)

    def post(self, path: str, form: SentForm) -> WebReply | None:
        key = form.one("id")
        if path == "/cancel":
            return go("/day", day=self.bookings.pop(key)["day"])
        if path != "/book" or (key and key not in self.bookings):
            return None
        given = {name: form.one(name) for name in ("id", "title", "room", "day", "begin", "end", "people")}
        if error := self._wrong(given):
            return self._form(given, error)
        given["id"] = key or str(max((int(each) for each in self.bookings), default=0) + 1)
        self.bookings[given["id"]] = given
        return go("/day", day=given["day"])

    def _wrong(self, given: Mapping[str, str]) -> str:
        people = given["people"]
        if not given["title"]:
            return "A booking needs a title."
        if not DAY.fullmatch(given["day"]) or given["day"] not in self.data["days"]:
            return "This day is not in the calendar."
        if not (people.isascii() and people.isdigit() and 1 <= int(people[:6]) <= self.rooms[given["room"]]):
            return "The room has too few seats, or the number of people is missing."
        if given["begin"] not in HOURS or given["end"] not in HOURS or given["begin"] >= given["end"]:
            return "The end must be after the begin."
        for key, each in self.bookings.items():
            same = (each["room"], each["day"]) == (given["room"], given["day"]) and key != given["id"]
            if same and given["begin"] < each["end"] and each["begin"] < given["end"]:
                return f"The room is taken by {each['title']}."
        return ""
