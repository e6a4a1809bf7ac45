"""A table that is filtered and sorted."""

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
    follow,
    pick,
    tick,
    visit,
)
from eval.benchmarks.linux_desktop.webapps.records import PAGE

ROWS: Final = 20


@dataclass(frozen=True)
class Row:
    id: int
    customer: str
    city: str
    amount: int


def drawn_rows(pool: WordPool) -> tuple[Row, ...]:
    """Orders of three cities; no two have the same amount, and names are numbered where they come again."""
    cities, amounts, names = pool.words("city", 3), pool.numbers(100, 999, ROWS), pool.words("name", 10)
    return tuple(
        Row(number + 1, f"{names[number % 10]} {number // 10 + 1}", pool.choose(cities), amounts[number])
        for number in range(ROWS)
    )


@dataclass(frozen=True)
class ArchiveRows(WebTask):
    """The largest orders of a city."""

    about: ClassVar = About("web-table-archive", (BROWSER,), "medium", 10, max_steps=35)
    asks: ClassVar = (
        "Archive the {self.count} orders with the largest amounts of all orders from {self.city}, and no others."
    )
    app: ClassVar = "records"
    first: ClassVar = "Orders"
    rows: tuple[Row, ...]
    city: str
    count: int

    @classmethod
    def draw(cls, pool: WordPool) -> Self:
        while True:
            rows = drawn_rows(pool)
            city = pool.choose(rows).city
            if sum(each.city == city for each in rows) >= 6:
                return cls(rows, city, pool.whole(2, 4))

    @property
    def largest(self) -> list[Row]:
        return sorted(self.of_city, key=lambda each: each.amount)[-self.count :]

    def data(self) -> dict[str, Any]:
        return {"rows": [vars(each) for each in self.rows]}

    def reached(self, state: dict[str, Any]) -> TemplateJudgement:
        wanted, found = {str(each.id) for each in self.largest}, set(state["archived"])
        return judged(
            ("one is archived", 0.4, bool(found & wanted)),
            ("all of them are", 0.6, wanted <= found),
            spoiled={"another was archived": bool(found - wanted)},
        )

    def other(self) -> Row:
        """A row of the first page that goes when the city is chosen."""
        return next(each for each in self.rows[:PAGE] if each.city != self.city)

    def archive(self, hand: OracleActions, some: list[Row]) -> Work:
        for each in some:
            yield from tick(hand, f"Select {each.customer}")
        yield from hand.click("push button", "=Archive selected")
        yield from follow(hand, "Archive", "Archive")

    def oracle(self, hand: OracleActions) -> Work:
        yield from pick(hand, "City", self.city)
        yield from hand.click("push button", "=Filter")
        yield from hand.wait_gone("check box", f"=Select {self.other().customer}")
        yield from hand.click("link", "=amount")
        yield from self.on_top(hand, min(self.of_city, key=lambda each: each.amount))
        yield from hand.click("link", "=amount")
        yield from self.on_top(hand, self.largest[-1])
        yield from self.archive(hand, self.largest)

    @property
    def of_city(self) -> list[Row]:
        return [each for each in self.rows if each.city == self.city]

    def on_top(self, hand: OracleActions, row: Row) -> Work:
        """Waits until a row is the first of the table."""

        def look() -> bool | None:
            boxes = [node for node in hand.tree.nodes() if node.role == "check box" and node.name.startswith("Select")]
            return True if boxes and boxes[0].name == f"Select {row.customer}" else None

        yield from hand.wait_for(look, f"{row.customer} on top")

    def second(self, hand: OracleActions) -> Work:
        """By the least amount."""
        least = self.largest[0].amount
        yield from pick(hand, "City", self.city)
        yield from fill(hand, "Least amount", str(least))
        yield from hand.press("enter")
        yield from hand.wait_gone("check box", f"=Select {self.other().customer}")
        yield from self.archive(hand, self.largest)

    def wrong(self, hand: OracleActions) -> Work:
        """The largest of all cities but this one."""
        some = sorted((each for each in self.rows if each.city != self.city), key=lambda each: each.amount)[-2:]
        yield from visit(hand, f"/?least={some[0].amount}", "Orders")
        gone = next(each for each in self.rows[:PAGE] if each.amount < some[0].amount)
        yield from hand.wait_gone("check box", f"=Select {gone.customer}")
        yield from self.archive(hand, some)


@dataclass(frozen=True)
class NoSuchCity(NoWebTask, ArchiveRows):
    """There is no order from the city."""

    about: ClassVar = About("web-table-no-rows", (BROWSER,), "easy", 1, infeasible=True, twin="web-table-archive")

    def data(self) -> dict[str, Any]:
        other = next(each.city for each in self.rows if each.city != self.city)
        rows = [replace(each, city=other) if each.city == self.city else each for each in self.rows]
        return {"rows": [vars(each) for each in rows]}


TEMPLATES: Final = (ArchiveRows, NoSuchCity)
