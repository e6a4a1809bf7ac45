"""Makes safe HTML: every text is escaped unless it is Markup. The output of models is untrusted."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

# control characters other than tab and newline, which break browsers and editors, and characters that change the
# direction of the following text, with which an untrusted text could reorder ours
_TURNING = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = {code: "\ufffd" for code in [*range(32), *range(127, 160), *_TURNING] if code not in (9, 10)} | {13: None}
VOID = frozenset({"img", "input", "meta", "br", "hr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def clean(text: str) -> str:
    """Text without control characters and lone surrogates."""
    return text.translate(_CONTROL).encode("utf-8", "replace").decode("utf-8")


def esc(value: Any) -> Markup:
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(clean(str(value)), quote=True))


def join(parts: Any) -> Markup:
    return Markup("".join(esc(part) for part in parts))


def tag(name: str, /, *children: Any, **attributes: Any) -> Markup:
    """An element. `class_` becomes `class`, `data_x` becomes `data-x`. An attribute that is True has no value;
    attributes that are None or False, and children that are None, are left out."""
    rendered = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        rendered += f" {key}" if value is True else f' {key}="{esc(value)}"'
    if name in VOID:
        return Markup(f"<{name}{rendered}>")
    inner = "".join(esc(child) for child in children if child is not None)
    return Markup(f"<{name}{rendered}>{inner}</{name}>")


def data(value: Any) -> Markup:
    """A block of JSON for the page's script. Its text cannot end the element and is never parsed as markup."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(f'<script type="application/json">{text}</script>')


# The parts that sections of the page share: tables, badges, times.


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
