"""End states of web applications."""

from __future__ import annotations

from collections.abc import Iterator

from eval.benchmarks.linux_desktop import solutions
from eval.benchmarks.linux_desktop.template import Instance
from eval.benchmarks.linux_desktop.templates import (
    web_board,
    web_forms,
    web_mail,
    web_pages,
    web_rooms,
    web_shop,
    web_table,
)
from eval.benchmarks.linux_desktop.templates.web import WebTask
from tests.unit.linux_desktop.solutions import post, post_all
from tests.unit.linux_desktop.state import (
    Change,
    Kind,
    State,
    after_solving,
    posted,
    send,
    written,
)


def of_web(task: Instance) -> Iterator[State]:
    """Requests to a web application."""
    if isinstance(task, WebTask):
        yield State("nothing is sent", "wrong", posted(task, solved=False))
        yield State("all is sent twice", *twice(task))
    if isinstance(task, web_rooms.MoveBooking):
        one = vars(task.one) | {"id": "", "day": task.days[task.day], "people": task.people}
        cancel = lambda stage: post(stage, "/cancel", id=task.booking)  # noqa: E731 used twice
        yield State(
            "cancelled and booked anew",
            "right",
            posted(task, cancel, lambda stage: post(stage, "/book", **one), solved=False),
        )
        yield State(
            "booked anew, then cancelled",
            "right",
            posted(task, lambda stage: post(stage, "/book", **one), cancel, solved=False),
        )
        yield State(
            "booked anew, not cancelled", "wrong", posted(task, lambda stage: post(stage, "/book", **one), solved=False)
        )
        other = {**one, "title": "meeting"}
        yield State(
            "with another title", "wrong", posted(task, cancel, lambda s: post(s, "/book", **other), solved=False)
        )
        gone = next(each.id for each in task.bookings if each.id != task.booking)
        yield State("another is cancelled, too", "spoiled", posted(task, lambda stage: post(stage, "/cancel", id=gone)))
    if isinstance(task, web_rooms.BookRoom):
        gone = task.bookings[0].id
        yield State("another is cancelled", "spoiled", posted(task, lambda stage: post(stage, "/cancel", id=gone)))
        wrong = {
            "title": "x",
            "room": task.rooms[-1],
            "day": task.days[task.day],
            "begin": "17:00",
            "end": "18:00",
            "people": 2,
        }
        undo = max(each.id for each in task.bookings) + 1
        first = [
            lambda s: post(s, "/book", **wrong),
            lambda s: post(s, "/cancel", id=undo),
            lambda s: post_all(s, task),
        ]
        yield State("a wrong one first, cancelled", "right", posted(task, *first, solved=False))
    if isinstance(task, web_shop.ShopTask):
        extra = next(each for each in task.articles if each.id not in [one.id for one in wanted(task)])
        yield State(
            "another article, too", "spoiled", posted(task, lambda s: post(s, "/cart/add", id=extra.id, amount=1))
        )
    if isinstance(task, web_shop.BestBuy):
        key = task.best.id
        yield State("two of it", "wrong", posted(task, lambda stage: post(stage, "/cart/add", id=key, amount=1)))
        yield State(
            "another was in the cart meanwhile",
            "right",
            posted(
                task,
                lambda s: post(s, "/cart/add", id=extra.id, amount=1),
                lambda s: post(s, "/cart", remove=extra.id, **{f"amount-{key}": 1, f"amount-{extra.id}": 1}),
            ),
        )
        order = {"name": "A", "city": "B", "delivery": "standard", "payment": "card"}
        yield State("it is ordered", "spoiled", posted(task, lambda stage: post(stage, "/order", **order)))
    if isinstance(task, web_mail.AnswerQuestion | web_mail.SortMail | web_mail.MailFromFile):
        kept = next(each for each in task.messages if not (isinstance(task, web_mail.SortMail) and each in task.some))
        yield State(
            "another message is moved", "spoiled", posted(task, lambda s: post(s, "/move", id=kept.id, folder="Trash"))
        )
        yield State("another message is sent", "spoiled", posted(task, lambda s: send(s, "Bob", "Hello", "There")))
    if isinstance(task, web_board.Triage):
        number, other = task.start + task.place, task.start + (task.place + 1) % web_board.ISSUES
        yield State(
            "a comment, too", "spoiled", posted(task, lambda s: post(s, "/comment", number=number, text="done"))
        )
        yield State(
            "a comment elsewhere", "spoiled", posted(task, lambda s: post(s, "/comment", number=other, text="done"))
        )
    if isinstance(task, web_table.ArchiveRows):
        some = [each.id for each in task.largest]
        more = next(each.id for each in task.rows if each.id not in some)
        yield State("one more", "spoiled", posted(task, lambda stage: post(stage, "/archive", id=more)))
        one_by_one = [lambda s, key=key: post(s, "/archive", id=key) for key in reversed(some)]
        yield State("one after the other", "right", posted(task, *one_by_one, solved=False))
        yield State("all but one", "wrong", posted(task, lambda s: post(s, "/archive", id=some[1:]), solved=False))
    if isinstance(task, web_pages.Bookmark):
        page = task.topics[task.topic]
        other = task.topics[task.topic - 1]
        for name, kind, url in (
            ("of another host", "wrong", f"http://example.org/{page}"),
            ("of an address that ends so", "wrong", f"http://127.0.0.1:8080/{other}/{page}"),
            ("of another port", "wrong", f"http://127.0.0.1/{page}"),
            ("of no port", "wrong", f"http://127.0.0.1:x/{page}"),
            ("of another page", "wrong", f"http://127.0.0.1:8080/{other}?/{page}"),
            ("by the name of this machine", "right", f"http://localhost:8080/{page}"),
        ):
            content = solutions.bookmarks((task.name, url))
            yield State(
                f"a bookmark {name}", kind, after_solving(task, lambda s, c=content: written(s, web_pages.BOOKMARKS, c))
            )
        two = solutions.bookmarks((task.name, f"http://127.0.0.1:8080/{page}"), ("x", f"http://127.0.0.1:8080/{other}"))
        yield State("a second bookmark", "spoiled", after_solving(task, lambda s: written(s, web_pages.BOOKMARKS, two)))


def wanted(task: web_shop.ShopTask) -> list[web_shop.Article]:
    if isinstance(task, web_shop.PlaceOrder):
        return [task.article]
    return task.chosen if isinstance(task, web_shop.MendCart) else [task.best]  # type: ignore[attr-defined]


def twice(task: WebTask) -> tuple[Kind, Change]:
    """What is done again changes nothing where it sets something, and is too much where it adds something."""
    sets = (web_shop.MendCart, web_mail.SortMail, web_board.Triage, web_table.ArchiveRows, web_rooms.MoveBooking)
    kind: Kind = "right" if isinstance(task, (*sets, web_forms.AccountSettings)) else "wrong"
    if isinstance(task, web_shop.MendCart):  # what is out of the cart has no field any more
        return "right", posted(task)
    if isinstance(task, web_rooms.BookRoom):  # the second time the room is taken
        return "right", posted(task, lambda stage: post_all(stage, task))
    return kind, posted(task, lambda stage: post_all(stage, task))
