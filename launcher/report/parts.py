"""The parts that sections of the page share: tables, badges, times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from launcher.report.html import Markup, tag


def when(seconds: float | None) -> str:
    if not seconds:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 05 min`. A clock that was set back takes no time away."""
    seconds = max(0.0, seconds)
    rounded = round(seconds)
    if rounded < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


def badge(text: str, kind: str = "") -> Markup:
    return tag("span", text, class_=f"badge {kind}".strip())


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], right: Sequence[int] = (), *, grouped: bool = False
) -> Markup:
    """A table; columns in `right` hold numbers. A cell that is Markup of a `td` is used unchanged. `grouped`: a row
    with an empty first cell belongs to the row above."""

    def cell(index: int, value: Any) -> Markup:
        if isinstance(value, Markup) and value.startswith("<td"):
            return value
        return tag("td", value, class_="n" if index in right else None)

    top = tag("tr", *(tag("th", name, class_="n" if k in right else None) for k, name in enumerate(head)))
    lines = [
        tag("tr", *(cell(k, value) for k, value in enumerate(row)), class_="first" if grouped and row[0] else None)
        for row in rows
    ]
    element = tag("table", tag("thead", top), tag("tbody", *lines), class_="grouped" if grouped else None)
    return tag("div", element, class_="scroll", tabindex=0)
