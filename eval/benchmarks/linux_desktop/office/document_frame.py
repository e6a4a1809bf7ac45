"""A saved document as a whole: its pages, sheets, protection and properties, beside its text and cells. What is other
than LibreOffice makes it of a document that says nothing of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from xml.etree import ElementTree

from eval.benchmarks.linux_desktop.office.document_styles import PLAIN_STYLES, DocumentStyles
from eval.benchmarks.linux_desktop.office.documents import parsed, qualified

MARGIN: Final = 0.7874  # inches: 2 cm
NEAR: Final = 0.02
_INCHES: Final = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72}
# elements by their names alone -> what they are
_ADDED: Final = {
    "conditional-format": "a condition for the look of cells",
    "tracked-changes": "a list of recorded changes",
    "bookmark": "a bookmark",
    "bookmark-start": "a bookmark",
    "a": "a link",
    "table-of-content": "a table of contents",
    "custom-shape": "a shape",
    "line": "a shape",
    "rect": "a shape",
}
_PROPERTIES: Final = ("title", "subject", "description", "keyword", "user-defined")


def frame_changes(parts: Mapping[str, bytes]) -> list[str]:
    """A line for each thing that is other. `parts`: as read from the document. Raises BrokenByAgent."""
    if "content.xml" not in parts:
        return []
    content = parsed(parts)
    found = [*_of_content(content), *_of_sheets(content)]
    looks = DocumentStyles(parts)
    found += [
        "empty cells are coloured or framed" for style in _of_empty_cells(content) if looks.seen_when_empty(style)
    ]
    if "styles.xml" in parts:
        found += _of_pages(parsed(parts, "styles.xml"))
    if "meta.xml" in parts:
        told = {_name(each.tag) for each in parsed(parts, "meta.xml").iter()}
        found += [f"the document has a {name} of its own" for name in _PROPERTIES if name in told]
    return list(dict.fromkeys(found))


def frozen(parts: Mapping[str, bytes]) -> tuple[int, int]:
    """How many rows and columns of the first sheet are frozen."""
    told: dict[str, str] = {}
    if "settings.xml" in parts:
        for item in parsed(parts, "settings.xml").iter(qualified("config", "config-item")):
            told.setdefault(item.get(qualified("config", "name"), ""), item.text or "")

    def many(way: str) -> int:
        position = told.get(f"{way}SplitPosition", "")
        return int(position) if told.get(f"{way}SplitMode") == "2" and re.fullmatch(r"\d{1,7}", position) else 0

    return many("Vertical"), many("Horizontal")


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _told(style: ElementTree.Element) -> dict[str, str]:
    """All that a style says, by its name alone."""
    return {_name(name): value for each in style for name, value in each.attrib.items()}


def _of_content(content: ElementTree.Element) -> Iterator[str]:
    for each in content.iter():
        if (name := _name(each.tag)) in _ADDED:
            yield f"{_ADDED[name]} was added"
        for attribute, value in each.attrib.items():
            name = _name(attribute)
            if name in ("protected", "structure-protected") and value == "true":
                yield "something is protected"
            elif name == "display-filter-buttons" and value == "true":
                yield "a filter has buttons"
            elif name == "print-ranges" and value:
                yield "what is printed was chosen"
            elif name in ("number-columns-spanned", "number-rows-spanned") and value != "1":
                yield "cells are merged"
            elif name == "master-page-name" and value not in ("", "Standard", "Default"):
                yield "a page has another style"


def _of_sheets(content: ElementTree.Element) -> Iterator[str]:
    """Of sheets, rows and columns, by the styles that they have in the document."""
    used = {
        each.get(qualified("table", "style-name"))
        for kind in ("table", "table-row", "table-column")
        for each in content.iter(qualified("table", kind))
    }
    widths = set()
    for style in content.iter(qualified("style", "style")):
        if style.get(qualified("style", "name")) not in used:
            continue
        family = style.get(qualified("style", "family"))
        told = _told(style)
        if family == "table" and "tab-color" in told:
            yield "a sheet's tab has a colour"
        if family == "table" and told.get("display") == "false":
            yield "a sheet is hidden"
        if family == "table-row" and told.get("use-optimal-row-height") == "false":
            yield "a row has another height"
        if family == "table-column" and "column-width" in told:
            widths.add(told["column-width"])
        if family in ("table-row", "table-column") and told.get("break-before", "auto") != "auto":
            yield "a page break was added"
    if len(widths) > 1:
        yield "a column has another width"


def _of_empty_cells(content: ElementTree.Element) -> set[str]:
    """The styles of cells that hold nothing, and of whole rows and columns."""
    styles = {
        cell.get(qualified("table", "style-name"), "")
        for cell in content.iter(qualified("table", "table-cell"))
        if cell.get(qualified("office", "value-type")) is None
    }
    for kind in ("table-row", "table-column"):
        for each in content.iter(qualified("table", kind)):
            styles.add(each.get(qualified("table", "default-cell-style-name"), ""))
    return styles - {""}


def _of_pages(styles: ElementTree.Element) -> Iterator[str]:
    """Of the page that all text and all sheets have, and of the plain style on which all others build."""
    family = qualified("style", "family")
    given = {each.get(family, ""): _told(each) for each in styles.iter(qualified("style", "default-style"))}
    for style in styles.iter(qualified("style", "style")):
        of_kind = given.get(style.get(family, ""))
        if of_kind is None or style.get(qualified("style", "name")) != PLAIN_STYLES.get(style.get(family, "")):
            continue
        if any(of_kind.get(name) != value for name, value in _told(style).items()):
            yield "the plain style was changed"
    for page in styles.iter(qualified("style", "master-page")):
        if page.get(qualified("style", "name")) == "Standard":
            parts = (qualified("style", "header"), qualified("style", "footer"))
            if any(each.tag in parts and each.get(qualified("style", "display")) != "false" for each in page):
                yield "the page has a header or a footer"
        if page.get(qualified("style", "name")) in ("Standard", "Default"):
            name = page.get(qualified("style", "page-layout-name"))
            for layout in styles.iter(qualified("style", "page-layout")):
                if layout.get(qualified("style", "name")) == name and _other_page(layout):
                    yield "the page has another shape"


def _other_page(layout: ElementTree.Element) -> bool:
    properties = layout.find(qualified("style", "page-layout-properties"))
    told = {} if properties is None else {_name(name): value for name, value in properties.attrib.items()}
    margins = [
        _inches(value) for name, value in told.items() if re.fullmatch("margin(-(top|bottom|left|right))?", name)
    ]
    lying = _inches(told.get("page-width", "0in")) > _inches(told.get("page-height", "99in"))
    filled = told.get("background-color", "transparent") != "transparent"
    lined = any(name.startswith("border") and not value.startswith("none") for name, value in told.items())
    columns = properties is not None and any(
        each.get(qualified("fo", "column-count"), "1") not in ("0", "1")
        for each in properties.iter(qualified("style", "columns"))
    )
    return lying or filled or lined or columns or any(abs(margin - MARGIN) > NEAR for margin in margins)


def _inches(length: str) -> float:
    """A length in inches; one that cannot be read is far too long."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,9})?)(in|cm|mm|pt)", length)
    return float(found[1]) * _INCHES[found[2]] if found else 1e6
