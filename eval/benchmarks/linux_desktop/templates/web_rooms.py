"""The calendar of meeting rooms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.web import (
    BROWSER,
    NoWebTask,
    WebTask,
    fill,
    fill_next,
    follow,
    pick,
    push,
    visit,
)

SEATS: Final = (4, 8, 12, 20)
DAYS: Final = 5
WORDS: Final = ("budget", "review", "planning", "interview", "training", "party")


@dataclass(frozen=True)
class Booking:
    id: int
    room: str
    day: str
    begin: str
    end: str
    title: str


def hour(number: int) -> str:
    return f"{number:02}:00"


@dataclass(frozen=True)
class RoomsTask(WebTask):
    """Rooms with seats, days that follow each other, and bookings."""

    app: ClassVar = "rooms"
    first: ClassVar = "Days"
    rooms: tuple[str, ...]
    days: tuple[str, ...]
    bookings: tuple[Booking, ...]

    def data(self) -> dict[str, Any]:
        return rooms_data(self.rooms, self.days, self.bookings)

    def added(self, state: dict[str, Any]) -> list[dict[str, Any]]:
        """The bookings that are new."""
        known = {str(each.id) for each in self.bookings}
        return [each for key, each in state.items() if key not in known]

    def old_kept(self, state: dict[str, Any], but: int = 0) -> bool:
        return all(state.get(str(each.id)) == vars(each) for each in self.bookings if each.id != but)


def rooms_data(rooms: tuple[str, ...], days: tuple[str, ...], bookings: tuple[Booking, ...]) -> dict[str, Any]:
    return {
        "rooms": [{"name": name, "seats": seats} for name, seats in zip(rooms, SEATS, strict=True)],
        "days": days,
        "bookings": [vars(each) for each in bookings],
    }


def drawn_calendar(pool: WordPool) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Booking, ...]]:
    """Each room is taken on each day from some hour on, for two hours."""
    rooms = tuple(pool.words("city", len(SEATS)))
    month, first = pool.number(1, 12), pool.whole(1, 20)
    days = tuple(f"2027-{month:02}-{first + number:02}" for number in range(DAYS))
    bookings: list[Booking] = []
    for day in days:
        for room in rooms:
            begin = pool.whole(9, 15)
            bookings.append(
                Booking(len(bookings) + 1, room, day, hour(begin), hour(begin + 2), f"{pool.choose(WORDS)} {room}")
            )
    return rooms, days, tuple(bookings)


def write(hand: OracleActions, title: str, room: str, day: str, begin: str, end: str, people: int) -> Work:
    """Fills the form of a booking."""
    yield from fill(hand, "Title", title)
    yield from pick(hand, "Room", room)
    yield from fill(hand, "Day (year-month-day)", day)
    yield from pick(hand, "Begin", begin)
    yield from pick(hand, "End", end)
    yield from fill(hand, "People", str(people))


@dataclass(frozen=True)
class BookRoom(RoomsTask):
    """The smallest room that is large enough and free."""

    about: ClassVar = About("web-rooms-book", (BROWSER,), "hard", 20, max_steps=50)
    day: int
    begin: int
    people: int
    title: str

    has_room: ClassVar = True

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        """Of the rooms that are large enough, each is as often the right one."""
        rooms, days, bookings = drawn_calendar(pool)
        day, begin, people = pool.whole(0, DAYS - 1), pool.whole(9, 15), pool.whole(2, 8)
        title = f"{pool.word('topic')} {pool.number(10, 99)}"
        fits = [room for room, seats in zip(rooms, SEATS, strict=True) if seats >= people]
        right = pool.whole(0, len(fits) - 1)
        for place, room in enumerate(fits):
            # when the booking of two hours may begin
            busy = [hours for hours in range(9, 16) if begin - 1 <= hours <= begin]
            free = [hours for hours in range(9, 16) if hours not in busy]
            taken = place < right or not cls.has_room
            if taken or place == right:
                at = pool.choose(busy if taken else free)
                bookings = tuple(
                    replace(each, begin=hour(at), end=hour(at + 2))
                    if (each.room, each.day) == (room, days[day])
                    else each
                    for each in bookings
                )
        return cls(rooms, days, bookings, day, begin, people, title)

    @property
    def free(self) -> str:
        """The smallest room that is free; "" for none."""
        for room, seats in zip(self.rooms, SEATS, strict=True):
            taken = [each for each in self.bookings if (each.room, each.day) == (room, self.days[self.day])]
            if seats >= self.people and all(
                each.end <= hour(self.begin) or hour(self.begin + 1) <= each.begin for each in taken
            ):
                return room
        return ""

    @property
    def request(self) -> str:
        return (
            f"Book a room on {self.days[self.day]} from {hour(self.begin)} to {hour(self.begin + 1)} for {self.people} "
            f'people, with the title "{self.title}". Take the smallest room that has enough seats and is free at that '
            "time. Leave all other bookings as they are."
        )

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        made = self.added(state)
        one = made[0] if len(made) == 1 else {}
        when = (one.get("day"), one.get("begin"), one.get("end"))
        right = when == (self.days[self.day], hour(self.begin), hour(self.begin + 1))
        room = right and one.get("room") == self.free
        rest = (one.get("title"), one.get("people")) == (self.title, str(self.people))
        return judged(
            ("the room and the time are right", 0.6, room),
            ("the title and the people are right", 0.4, room and rest),
            spoiled={"another booking was changed": not self.old_kept(state)},
        )

    def form(self, hand: OracleActions, room: str) -> Work:
        day = self.days[self.day]
        yield from write(hand, self.title, room, day, hour(self.begin), hour(self.begin + 1), self.people)
        yield from push(hand, "Save booking", f"Bookings of {day}")

    def oracle(self, hand: OracleActions) -> Work:
        day = self.days[self.day]
        yield from follow(hand, day, f"Bookings of {day}")
        yield from follow(hand, "Rooms", "Rooms")
        yield from follow(hand, "New booking", "New booking")
        yield from self.form(hand, self.free)

    def second(self, hand: OracleActions) -> Work:
        """By the keyboard, from the first field to the last."""
        day = self.days[self.day]
        yield from visit(hand, "/book", "New booking")
        yield from hand.click("entry", "=Title")
        yield from hand.type(self.title)
        for text in (self.free, day, hour(self.begin), hour(self.begin + 1), str(self.people)):
            yield from fill_next(hand, text)
        yield from hand.press("enter")
        yield from hand.wait("document web", f"Bookings of {day} - ")

    def wrong(self, hand: OracleActions) -> Work:
        """The largest room, and where it is the right one, an hour that nobody asked for."""
        yield from follow(hand, "New booking", "New booking")
        day, begin = self.days[self.day], 17
        yield from write(hand, self.title, self.rooms[-1], day, hour(begin), hour(begin + 1), self.people)
        yield from push(hand, "Save booking", f"Bookings of {day}")


@dataclass(frozen=True)
class MoveBooking(RoomsTask):
    """A booking moves to another day, at the same time and in the same room, where it is free."""

    about: ClassVar = About("web-rooms-move", (BROWSER,), "medium", 9)
    booking: int
    day: int
    people: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        while True:
            calendar = drawn_calendar(pool)
            one, day = pool.choose(calendar[2]), pool.whole(0, DAYS - 1)
            there = next(each for each in calendar[2] if (each.room, each.day) == (one.room, calendar[1][day]))
            if one.day != there.day and (there.end <= one.begin or one.end <= there.begin):
                return cls(*calendar, one.id, day, pool.number(1, 4))

    @property
    def one(self) -> Booking:
        return self.bookings[self.booking - 1]

    @property
    def request(self) -> str:
        one = self.one
        return (
            f"Move the booking of the room {one.room} on {one.day} to {self.days[self.day]}, at the same time and in "
            f"the same room, for {self.people} people. Change nothing else."
        )

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        wanted = {**vars(self.one), "day": self.days[self.day]}
        # the booking itself, or one in its place: who cancels it and books anew has moved it, too
        found = [*self.added(state), *(each for key, each in state.items() if key == str(self.booking))]
        one = dict(found[0]) if len(found) == 1 else {}
        people = one.pop("people", None)
        right = {**one, "id": self.booking} == wanted
        return judged(
            ("the day is right", 0.7, right),
            ("the people are right", 0.3, right and people == str(self.people)),
            spoiled={"something else was changed": not self.old_kept(state, self.booking) or len(found) > 1},
        )

    def move(self, hand: OracleActions, one: Booking) -> Work:
        yield from follow(hand, one.day, f"Bookings of {one.day}")
        yield from follow(hand, one.title, "Change booking")
        yield from fill(hand, "Day (year-month-day)", self.days[self.day])
        yield from fill(hand, "People", str(self.people))
        yield from push(hand, "Save booking", f"Bookings of {self.days[self.day]}")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.move(hand, self.one)

    def second(self, hand: OracleActions) -> Work:
        """To the booking by its address; the people first."""
        yield from visit(hand, f"/booking?id={self.booking}", "Change booking")
        yield from hand.click("entry", "=People")
        yield from hand.type(str(self.people))
        yield from fill(hand, "Day (year-month-day)", self.days[self.day])
        yield from hand.press("enter")
        yield from hand.wait("document web", f"Bookings of {self.days[self.day]} - ")

    def wrong(self, hand: OracleActions) -> Work:
        """Cancels it, and books nothing new."""
        yield from visit(hand, f"/booking?id={self.booking}", "Change booking")
        yield from push(hand, "Cancel this booking", f"Bookings of {self.one.day}")


@dataclass(frozen=True)
class AllTaken(NoWebTask, BookRoom):
    """No room that is large enough is free."""

    about: ClassVar = About("web-rooms-taken", (BROWSER,), "hard", 1, infeasible=True, twin="web-rooms-book")
    has_room: ClassVar = False

    def second(self, hand: OracleActions) -> Work:
        """Tries it first."""
        day = self.days[self.day]
        yield from follow(hand, "New booking", "New booking")
        yield from write(hand, self.title, self.rooms[-1], day, hour(self.begin), hour(self.begin + 1), self.people)
        yield from hand.click("push button", "=Save booking")
        yield from hand.wait("static", "The room is taken by")
        yield from hand.give_up()


TEMPLATES: Final = (BookRoom, MoveBooking, AllTaken)
