"""Nothing that a model or a program wrote can become markup."""

from __future__ import annotations

import json
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from launcher.report.collect import Report
from launcher.report.html import VOID, data, esc, tag
from launcher.report.page import render

EVIL = [
    "<script>alert(1)</script>",
    '" onload="alert(1)',
    "'><img src=x>",
    "</script><b>",
    "&lt;",
    "\x00\x1b[2J",
    "\ud800",
]


class Collect(HTMLParser):
    """The elements, their attributes and the text of a fragment; balanced or it fails."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, text: str) -> None:
        self.text += text


def parsed(markup: str) -> Collect:
    collect = Collect()
    collect.feed(markup)
    collect.close()
    assert collect.open == []
    return collect


def rendered(report: Report) -> str:
    return b"".join(render(report)).decode()


@given(st.one_of(st.text(), st.sampled_from(EVIL)), st.one_of(st.text(), st.sampled_from(EVIL)))
def test_children_and_attributes_stay_text(child: str, value: str) -> None:
    found = parsed(tag("p", child, title=value))
    assert [name for name, _ in found.found] == ["p"]
    attributes = found.found[0][1]
    assert list(attributes) == ["title"]
    # what is left is the text itself, but for characters that no browser shows
    assert found.text == str(child).translate({13: None}) or any(not c.isprintable() for c in child)


@given(st.recursive(st.one_of(st.text(), st.sampled_from(EVIL), st.none()), lambda inner: st.lists(inner, max_size=3)))
def test_data_survives_and_can_not_end_its_element(value: object) -> None:
    markup = data(value)
    body = markup.removeprefix('<script type="application/json">').removesuffix("</script>")
    assert "<" not in body
    assert "&" not in body
    assert json.loads(body) == value


def test_markup_is_not_escaped_twice() -> None:
    inner = tag("b", "a & b")
    assert tag("p", inner) == "<p><b>a &amp; b</b></p>"
    assert esc(inner) is inner


def test_attributes_that_are_none_or_false_are_left_out() -> None:
    assert tag("input", type="range", class_="x", data_replay=True, disabled=False, title=None) == (
        '<input type="range" class="x" data-replay>'
    )
