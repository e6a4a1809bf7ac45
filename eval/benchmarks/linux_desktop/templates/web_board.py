"""The issue tracker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from eval.benchmarks.linux_desktop.drawing import WordPool
from eval.benchmarks.linux_desktop.oracle_actions import OracleActions, Work
from eval.benchmarks.linux_desktop.template import About, TemplateJudgement, judged
from eval.benchmarks.linux_desktop.templates.web import BROWSER, WebTask, fill, follow, pick, visit
from eval.benchmarks.linux_desktop.webapps.board import PRIORITIES

ISSUES: Final = 18
PEOPLE: Final = 4


@dataclass(frozen=True)
class BoardTask(WebTask):
    """Issues: title, state, assignee, priority; their numbers begin at `start`."""

    app: ClassVar = "board"
    first: ClassVar = "Issues"
    start: int
    people: tuple[str, ...]
    issues: tuple[tuple[str, str, str, str], ...]

    def data(self) -> dict[str, Any]:
        return {"people": self.people, "issues": list(self.at_start().values())}

    def at_start(self) -> dict[str, dict[str, Any]]:
        return {
            str(self.start + place): {
                "number": self.start + place,
                "title": title,
                "text": f"Seen again on floor {place % 5 + 1}.",
                "state": state,
                "assignee": assignee,
                "priority": priority,
            }
            for place, (title, state, assignee, priority) in enumerate(self.issues)
        }

    def others_kept(self, state: dict[str, Any], *changed: int) -> bool:
        start = self.at_start()
        return all(
            {**start[number], "comments": []} == each for number, each in state.items() if int(number) not in changed
        )

    def find(self, hand: OracleActions, number: int, title: str) -> Work:
        """To an issue, by the search."""
        yield from fill(hand, "Search", title)
        yield from hand.press("enter")
        yield from hand.wait_gone("link", f"={self.unlike(title)}")
        yield from follow(hand, title, f"#{number} {title}")

    def unlike(self, title: str) -> str:
        """A title of the first page that a search for this one does not find."""
        return next(each[0] for each in self.issues if title not in each[0])


def drawn_board(
    pool: WordPool, titles: list[str]
) -> tuple[int, tuple[str, ...], tuple[tuple[str, str, str, str], ...]]:
    people = tuple(pool.words("name", PEOPLE))
    issues = tuple((title, "open", pool.choose(("nobody", *people)), pool.choose(PRIORITIES)) for title in titles)
    return pool.number(100, 900), people, issues


def drawn_titles(pool: WordPool, count: int) -> list[str]:
    return [f"No {thing} in the room" for thing in pool.words("thing", count)]


@dataclass(frozen=True)
class Triage(BoardTask):
    """Who does an issue, and how soon."""

    about: ClassVar = About("web-board-triage", (BROWSER,), "medium", 9)
    place: int
    person: int
    priority: str

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        board = drawn_board(pool, drawn_titles(pool, ISSUES))
        place = pool.whole(0, ISSUES - 1)
        _, _, assignee, priority = board[2][place]
        person = pool.choose([number for number in range(PEOPLE) if board[1][number] != assignee])
        return cls(*board, place, person, pool.choose([each for each in PRIORITIES if each != priority]))

    @property
    def title(self) -> str:
        return self.issues[self.place][0]

    @property
    def request(self) -> str:
        return (
            f'In the issue tracker, give the issue "{self.title}" to {self.people[self.person]}, and set its priority '
            f"to {self.priority}. Change nothing else."
        )

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        each = state[str(self.start + self.place)]
        return judged(
            ("the assignee is right", 0.5, each["assignee"] == self.people[self.person]),
            ("the priority is right", 0.5, each["priority"] == self.priority),
            spoiled={
                "another issue was changed": not self.others_kept(state, self.start + self.place),
                "it was closed or commented": each["state"] != "open" or bool(each["comments"]),
            },
        )

    def change(self, hand: OracleActions) -> Work:
        yield from pick(hand, "Assignee", self.people[self.person])
        yield from pick(hand, "Priority", self.priority)
        yield from hand.click("push button", "=Save changes")
        yield from hand.wait("static", "=Saved.")

    def oracle(self, hand: OracleActions) -> Work:
        number = self.start + self.place
        yield from self.find(hand, number, self.title)
        yield from self.change(hand)

    def second(self, hand: OracleActions) -> Work:
        """Through the pages of the list, then by the keyboard."""
        for _ in range(self.place // 8):
            last = hand.tree
            first = next(node.name for node in last.nodes() if node.role == "link" and node.name.startswith("No "))
            yield from hand.click("link", "=Next page")
            yield from hand.wait_gone("link", f"={first}")
        yield from follow(hand, self.title, f"#{self.start + self.place} {self.title}")
        yield from hand.click("combo box", "=State")
        yield from hand.wait("menu item", "=closed")
        yield from hand.press("escape")
        yield from hand.wait_gone("menu item", "=closed")
        yield from hand.press("tab")
        yield from hand.type(self.people[self.person])
        yield from hand.press("tab")
        yield from hand.type(self.priority)
        yield from hand.click("push button", "=Save changes")
        yield from hand.wait("static", "=Saved.")

    def wrong(self, hand: OracleActions) -> Work:
        """Another issue."""
        place = (self.place + 1) % ISSUES
        yield from self.find(hand, self.start + place, self.issues[place][0])
        yield from self.change(hand)


@dataclass(frozen=True)
class Duplicate(BoardTask):
    """Two issues tell the same: the newer one is closed, and says which one it repeats."""

    about: ClassVar = About("web-board-duplicate", (BROWSER,), "hard", 12, max_steps=45)
    asks: ClassVar = (
        "Two of the issues from #{self.start} on have the same title. Close the newer one, which has the higher "
        "number, and add to it a comment that is only the number of the older one, with its #. "
        "Change nothing else."
    )
    older: int
    newer: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        titles = drawn_titles(pool, ISSUES - 1)
        older = pool.whole(0, 6)
        newer = pool.whole(10, ISSUES - 1)
        titles.insert(newer, titles[older])
        return cls(*drawn_board(pool, titles), older, newer)

    @property
    def title(self) -> str:
        return self.issues[self.older][0]

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        number = self.start + self.newer
        start, each = self.at_start()[str(number)], state[str(number)]
        same = (each["assignee"], each["priority"]) == (start["assignee"], start["priority"])
        return judged(
            ("it is closed", 0.5, each["state"] == "closed"),
            ("the comment is right", 0.5, each["comments"] == [f"#{self.start + self.older}"]),
            spoiled={"something else was changed": not self.others_kept(state, number) or not same},
        )

    def close(self, hand: OracleActions, number: int, comment: str) -> Work:
        title = f"#{number} {self.title}"
        yield from visit(hand, f"/issue?number={number}", title)
        yield from pick(hand, "State", "closed")
        yield from hand.click("push button", "=Save changes")
        yield from hand.wait("static", "=Saved.")
        yield from fill(hand, "New comment", comment)
        yield from hand.click("push button", "=Add comment")
        yield from hand.wait("static", f"=Comment: {comment}")

    def oracle(self, hand: OracleActions) -> Work:
        yield from self.close(hand, self.start + self.newer, f"#{self.start + self.older}")

    def second(self, hand: OracleActions) -> Work:
        """The comment first; the issue is found by the list of the open ones."""
        title = f"#{self.start + self.newer} {self.title}"
        yield from hand.click("link", "=Next page")
        yield from hand.wait("link", "=Previous page")
        if self.newer >= 16:
            shown = self.issues[9 if self.newer != 9 else 10][0]
            yield from hand.click("link", "=Next page")
            yield from hand.wait_gone("link", f"={shown}")
        yield from follow(hand, self.title, title)
        yield from hand.click("entry", "=New comment")
        yield from hand.type(f"#{self.start + self.older}")
        yield from hand.press("tab")
        yield from hand.press("enter")
        yield from hand.wait("static", f"=Comment: #{self.start + self.older}")
        yield from pick(hand, "State", "closed")
        yield from hand.click("push button", "=Save changes")
        yield from hand.wait("static", "=Saved.")

    def wrong(self, hand: OracleActions) -> Work:
        """Closes the older one."""
        yield from self.close(hand, self.start + self.older, f"#{self.start + self.newer}")


TEMPLATES: Final = (Triage, Duplicate)
