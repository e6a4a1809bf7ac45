"""Pages to read, a file to download, a bookmark: the judge reads the answer, the file, and the browser's own store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.steps import content_of
from eval.benchmarks.linux_desktop.template import About, Instance, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.web import BROWSER, WebTask, fill, follow, open_site, push, visit
from eval.desktops.stage import DesktopStage

BOOKMARKS: Final = ".config/chromium/Default/Bookmarks"
DOWNLOADS: Final = "Downloads"
SAVING: Final = 50  # looks at what the browser writes some seconds later
SAVING_S: Final = 0.2
OFFICES: Final = 5
FACTS: Final = ("phone number", "fax number", "post box", "key number")


@dataclass(frozen=True)
class ThreePages(WebTask):
    """A fact that is found over three pages."""

    about: ClassVar = About("web-facts", (BROWSER,), "hard", 8, max_steps=35)
    app: ClassVar = "pages"
    first: ClassVar = "Start"
    offices: tuple[str, ...]
    heads: tuple[str, ...]
    houses: tuple[str, ...]
    numbers: tuple[tuple[int, ...], ...]  # of each of FACTS, one of each house
    asked_for: int
    what: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(
            tuple(pool.words("topic", OFFICES)),
            tuple(pool.words("name", OFFICES)),
            tuple(pool.words("city", OFFICES)),
            tuple(tuple(pool.numbers(1000, 9999, OFFICES)) for _ in FACTS),
            pool.whole(0, OFFICES - 1),
            pool.whole(0, len(FACTS) - 1),
        )

    @property
    def request(self) -> str:
        return (
            f"Find the {FACTS[self.what]} of the house in which the head of the office for "
            f"{self.offices[self.asked_for]} works, and send it as the answer (page Answer): the number alone, once."
        )

    def data(self) -> dict[str, Any]:
        links = [("/offices", "Offices"), ("/people", "People"), ("/houses", "Houses")]
        start = {"title": "Start", "lines": ["What do you look for?"], "links": links}
        offices = [("Office", "Head"), *zip(self.offices, self.heads, strict=True)]
        people = [("Name", "House"), *sorted(zip(self.heads, self.houses, strict=True))]
        numbered = zip(self.houses, *([str(number) for number in each] for each in self.numbers), strict=True)
        houses = [("House", *(fact.capitalize() for fact in FACTS)), *sorted(numbered)]
        pages = {"/": start}
        for where, title, rows in (
            ("/offices", "Offices", offices),
            ("/people", "People", people),
            ("/houses", "Houses", houses),
        ):
            pages[where] = {"title": title, "table": rows}
        return {"name": "Town Hall", "pages": pages, "asks": True}

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        return judged(("the answer is right", 1.0, state["answers"] == [str(self.right)]))

    @property
    def right(self) -> int:
        return self.numbers[self.what][self.asked_for]

    def send(self, hand: OracleActions, phone: int) -> Work:
        yield from follow(hand, "Answer", "Answer")
        yield from fill(hand, "Your answer", str(phone))
        yield from push(hand, "Send answer", "Answer sent")

    def oracle(self, hand: OracleActions) -> Work:
        for name in ("Offices", "People", "Houses"):
            yield from follow(hand, name, name)
            if name != "Houses":
                yield from follow(hand, "Start", "Start")
        yield from self.send(hand, self.right)

    def second(self, hand: OracleActions) -> Work:
        """By the address, and back by the keyboard."""
        yield from visit(hand, "/houses", "Houses")
        yield from hand.press("alt", "left")
        yield from hand.wait("document web", "Start - ")
        yield from follow(hand, "Answer", "Answer")
        yield from hand.click("entry", "=Your answer")
        yield from hand.type(f"{self.right}\n")
        yield from hand.wait("document web", "Answer sent - ")

    def wrong(self, hand: OracleActions) -> Work:
        """Another number of the house."""
        yield from self.send(hand, self.numbers[self.what - 1][self.asked_for])


@dataclass(frozen=True)
class Download(Instance):
    """One file of several."""

    about: ClassVar = About("web-download", (BROWSER,), "easy", 2)
    asks: ClassVar = (
        "Download the {self.topic} of {self.year} from this page, into the folder Downloads, and no other file."
    )
    topic: str
    years: tuple[int, ...]
    year: int
    amounts: tuple[int, ...]

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        years = tuple(sorted(pool.numbers(1990, 2026, 5)))
        return cls(pool.word("topic"), years, pool.choose(years), tuple(pool.numbers(100, 999, 5)))

    def name(self, year: int) -> str:
        return f"{self.topic}-{year}.csv"

    def content(self, year: int) -> str:
        return f"year,{self.topic}\n{year},{self.amounts[self.years.index(year)]}\n"

    async def prepare(self, stage: DesktopStage) -> None:
        links = [(f"/files/{self.name(year)}", f"{self.topic} of {year}") for year in self.years]
        data = {
            "name": "Archive",
            "pages": {"/": {"title": "Files", "links": links}},
            "files": {f"/files/{self.name(year)}": self.content(year) for year in self.years},
        }
        await open_site(stage, "pages", data, "Files")

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        path = f"{DOWNLOADS}/{self.name(self.year)}"
        for _ in range(SAVING):
            found = await content_of(stage, path)
            if found is not None:
                break
            await asyncio.sleep(SAVING_S)
        return judged(("the file is there", 1.0, found == self.content(self.year).encode()))

    def targets(self) -> dict[str, bytes]:
        return {f"{DOWNLOADS}/{self.name(self.year)}": self.content(self.year).encode()}

    def oracle(self, hand: OracleActions) -> Work:
        yield from hand.click("link", f"={self.topic} of {self.year}")
        yield from downloaded(hand)

    def second(self, hand: OracleActions) -> Work:
        """By its address."""
        yield from hand.press("ctrl", "l")
        yield from hand.press("end")
        yield from hand.type(f"/files/{self.name(self.year)}\n")
        yield from downloaded(hand)

    def wrong(self, hand: OracleActions) -> Work:
        """Another year."""
        other = next(year for year in self.years if year != self.year)
        yield from hand.click("link", f"={self.topic} of {other}")
        yield from downloaded(hand)


def downloaded(hand: OracleActions) -> Work:
    """Waits until the browser tells of a download: a note that goes by itself, and a button that stays."""
    yield from hand.wait_for(
        lambda: hand.seen("push button", "Done") or hand.seen("toggle button", "ownload"), "the end of the download"
    )


def bookmarks(data: bytes | None) -> Iterator[tuple[str, str]]:
    """Name and address of each bookmark of the browser's store; nothing where it cannot be read."""
    try:
        waiting = list(json.loads(data or b"{}")["roots"].values())
        while waiting:
            node = waiting.pop()
            if node.get("type") == "url":
                yield str(node["name"]), str(node["url"])
            waiting += node.get("children", [])
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return


@dataclass(frozen=True)
class Bookmark(Instance):
    """A bookmark of one of several pages, with a name of its own."""

    about: ClassVar = About("web-bookmark", (BROWSER,), "medium", 5)
    topics: tuple[str, ...]
    topic: int
    name: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        return cls(tuple(pool.words("topic", 4)), pool.whole(0, 3), f"{pool.word('thing')} {pool.number(10, 99)}")

    @property
    def request(self) -> str:
        return (
            f'Go to the page {self.topics[self.topic]}, and bookmark it with the name "{self.name}". One bookmark only.'
        )

    async def prepare(self, stage: DesktopStage) -> None:
        pages: dict[str, Any] = {
            "/": {"title": "Start", "links": [(f"/{topic}", topic) for topic in self.topics]},
            **{f"/{topic}": {"title": topic, "lines": [f"All about the {topic}."]} for topic in self.topics},
        }
        await open_site(stage, "pages", {"name": "Library", "pages": pages}, "Start")

    async def judge(self, stage: DesktopStage) -> TemplateJudgement:
        for _ in range(SAVING):
            found = list(bookmarks(await content_of(stage, BOOKMARKS)))
            right = [name == self.name and self._leads_there(url) for name, url in found]
            if any(right):
                break
            await asyncio.sleep(SAVING_S)
        page = len(found) == 1 and self._leads_there(found[0][1])
        return judged(("the page is bookmarked", 0.5, page), ("its name is right", 0.5, right == [True]))

    def _leads_there(self, url: str) -> bool:
        """Whether an address is the page's, on the site of this desktop."""
        try:
            told = urlsplit(url)
            port = told.port
        except ValueError:
            return False
        # the site has a port of its own, never that of http
        here = told.scheme == "http" and told.hostname in ("127.0.0.1", "localhost") and port not in (None, 80)
        return here and (told.path, told.query) == (f"/{self.topics[self.topic]}", "")

    def mark(self, hand: OracleActions, name: str) -> Work:
        yield from hand.press("ctrl", "d")
        yield from hand.wait("entry", "=Bookmark name")
        yield from hand.press("ctrl", "a")
        yield from hand.type(f"{name}\n")
        yield from hand.wait_gone("entry", "=Bookmark name")

    def oracle(self, hand: OracleActions) -> Work:
        topic = self.topics[self.topic]
        yield from follow(hand, topic, topic)
        yield from self.mark(hand, self.name)

    def second(self, hand: OracleActions) -> Work:
        """By the address, and the star beside it."""
        topic = self.topics[self.topic]
        yield from visit(hand, f"/{topic}", topic)
        yield from hand.click("push button", "Bookmark this tab")
        yield from fill(hand, "Bookmark name", self.name)
        yield from hand.click("push button", "=Done")
        yield from hand.wait_gone("entry", "=Bookmark name")

    def wrong(self, hand: OracleActions) -> Work:
        """The page that is open."""
        yield from self.mark(hand, self.name)


TEMPLATES: Final = (ThreePages, Download, Bookmark)
