"""A table of orders with filters, sorting and pages; selected rows are archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from eval.benchmarks.linux_desktop.webapps.app import (
    SentForm,
    WebApp,
    WebReply,
    address,
    choice,
    entry,
    esc,
    form,
    go,
    hidden,
    link,
    table,
)

PAGE: Final = 8  # rows
COLUMNS: Final = ("customer", "city", "amount")


class Records(WebApp):
    """data: rows (id, customer, city, amount)."""

    name = "Orders"
    menu: Sequence[tuple[str, str]] = (("/", "All orders"), ("/archive", "Archive"))

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self.rows = [dict(each) for each in data["rows"]]
        self.archived: list[str] = []

    def state(self) -> dict[str, Any]:
        return {"archived": sorted(self.archived)}

    def get(self, path: str, query: SentForm) -> WebReply | None:
        if path == "/archive":
            rows = [self._cells(each) for each in self.rows if str(each["id"]) in self.archived]
            return self.page("Archive", table(COLUMNS, rows))
        if path != "/":
            return None
        city, sort, down, number = query.one("city"), query.one("sort"), query.one("down"), query.number("page") or 1
        least = query.number("least") or 0
        some = [
            each
            for each in self.rows
            if str(each["id"]) not in self.archived and city in ("", "all", each["city"]) and each["amount"] >= least
        ]
        if sort in COLUMNS:
            some.sort(key=lambda each: each[sort], reverse=bool(down))
        heads = [
            link(address("/", city=city, least=least or "", sort=name, down="" if down or name != sort else "1"), name)
            for name in COLUMNS
        ]
        rows = [
            (
                f'<input type="checkbox" name="id" value="{each["id"]}" aria-label="Select {esc(each["customer"])}">',
                *self._cells(each),
            )
            for each in some[(number - 1) * PAGE : number * PAGE]
        ]
        cities = ["all", *sorted({str(each["city"]) for each in self.rows})]
        narrow = form(
            "/",
            hidden("sort", sort),
            hidden("down", down),
            choice("City", "city", cities, city),
            entry("Least amount", "least", least or ""),
            button="Filter",
            method="get",
            lines=False,
        )
        parts = [narrow, form("/archive", table(("", *heads), rows), button="Archive selected")]
        again = {"city": city, "least": least or "", "sort": sort, "down": down}
        if number > 1:
            parts.append(link(address("/", **again, page=number - 1), "Previous page") + " ")
        if number * PAGE < len(some):
            parts.append(link(address("/", **again, page=number + 1), "Next page"))
        return self.page("Orders", *parts)

    def _cells(self, each: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(esc(str(each[name])) for name in COLUMNS)

    def post(self, path: str, form: SentForm) -> WebReply | None:
        if path != "/archive":
            return None
        known = {str(each["id"]) for each in self.rows}
        self.archived = sorted({*self.archived, *(key for key in form.all("id") if key in known)})
        return go("/")
