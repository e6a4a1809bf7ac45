"""Texts of LibreOffice Writer: small ones are written, and what was saved is read (OpenDocument 1.3)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from eval.benchmarks.linux_desktop.office.document_frame import frame_changes
from eval.benchmarks.linux_desktop.office.document_styles import DocumentStyles, Marks
from eval.benchmarks.linux_desktop.office.documents import package, parsed, qualified

TEXT: Final = "application/vnd.oasis.opendocument.text"
HEADING: Final = re.compile(r"Heading_20_([0-9]{1,2})")  # the name of the style Heading 1 in every language, and so on
NESTED: Final = 50  # elements in each other that are read
ADDED: Final = (("table", "table"), ("draw", "frame"), ("office", "annotation"), ("text", "note"), ("text", "section"))


def text_file(lines: Sequence[str]) -> bytes:
    """A text with these paragraphs."""
    paragraphs = "".join(f"<text:p>{escape(line)}</text:p>" for line in lines)
    return package(TEXT, f"<office:text>{paragraphs}</office:text>")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph that was saved. `level`: of a heading, from 1; 0 for others; `runs`: its text in parts, each with how
    it looks; `listed`: whether it stands in a list that is not numbered; `cell`: whether it stands in a table;
    `heading`: N where its style is Heading N or builds on it; 0 for others; `departs`: it, or a part of it, looks
    otherwise than this style Heading N."""

    text: str
    level: int = 0
    runs: tuple[tuple[str, Marks], ...] = ()
    listed: bool = False
    cell: bool = False
    heading: int = 0
    departs: bool = False


@dataclass(frozen=True)
class Written:
    """A text that was saved. `added`: what it has besides paragraphs and lists, such as a table or another page."""

    paragraphs: tuple[Paragraph, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The paragraphs outside of tables, without empty ones before the first and after the last that hold
        something."""
        lines = [each.text for each in self.paragraphs if not each.cell]
        while lines and not lines[-1]:
            lines.pop()
        while lines and not lines[0]:
            lines.pop(0)
        return lines


def written(parts: Mapping[str, bytes]) -> Written:
    """Reads the parts of a saved text. Raises BrokenByAgent."""
    root = parsed(parts)
    body = root.find(f"{qualified('office', 'body')}/{qualified('office', 'text')}")
    if body is None:
        return Written()
    numbered = {*_numbered(root), *(_numbered(parsed(parts, "styles.xml")) if "styles.xml" in parts else ())}
    found: list[Paragraph] = []
    _read(DocumentStyles(parts), body, found, numbered, None, False, 0)
    tags = {qualified(*each): each[1] for each in ADDED}
    added = [f"a {tags[each.tag]} was added" for each in body.iter() if each.tag in tags]
    return Written(tuple(found), (*added, *frame_changes(parts)))


def _numbered(root: ElementTree.Element) -> set[str]:
    """The styles of lists whose first level has numbers in the place of bullets."""
    found = set()
    for style in root.iter(qualified("text", "list-style")):
        for level in style.iter(qualified("text", "list-level-style-number")):
            if level.get(qualified("text", "level")) == "1" and level.get(qualified("style", "num-format")):
                found.add(style.get(qualified("style", "name"), ""))
    return found


def _read(
    looks: DocumentStyles,
    element: ElementTree.Element,
    found: list[Paragraph],
    numbered: Collection[str],
    listed: bool | None,
    cell: bool,
    deep: int,
) -> None:
    """`listed`: of the list around; None outside of lists."""
    for each in element if deep < NESTED else ():
        if each.tag in (qualified("text", "p"), qualified("text", "h")):
            level = each.get(qualified("text", "outline-level"), "0") if each.tag == qualified("text", "h") else "0"
            number = int(level) if level.isascii() and level.isdigit() and len(level) < 3 else 0
            styles = looks.chain("paragraph", each.get(qualified("text", "style-name"), ""))
            base = next((named for style in styles if (named := HEADING.fullmatch(style))), None)
            heading, departs = (int(base[1]), _departs(looks, each, base[0])) if base else (0, False)
            found.append(Paragraph(_plain(each), number, _runs(looks, each), bool(listed), cell, heading, departs))
        else:
            inside = listed
            if each.tag == qualified("text", "list"):  # one within another has its style, where it names none
                style = each.get(qualified("text", "style-name"))
                inside = style not in numbered if style is not None else listed is not False
            table = each.tag == qualified("table", "table")
            _read(looks, each, found, numbered, inside, cell or table, deep + 1)


def _departs(looks: DocumentStyles, heading: ElementTree.Element, base: str) -> bool:
    name = qualified("text", "style-name")
    spans = (each.get(name, "") for each in heading.iter(qualified("text", "span")))
    own = looks.departs("paragraph", heading.get(name, ""), base)
    return own or any(looks.departs("text", style, base) for style in spans)


def _plain(element: ElementTree.Element, deep: int = 0) -> str:
    """The text of a paragraph, without its comments."""
    if deep >= NESTED:
        return ""
    parts = [element.text or ""]
    for each in element:
        if each.tag == qualified("text", "s"):
            count = each.get(qualified("text", "c"), "1")
            parts.append(" " * (int(count) if count.isascii() and count.isdigit() and len(count) < 4 else 1))
        elif each.tag != qualified("office", "annotation"):
            parts.append(_plain(each, deep + 1))
        parts.append(each.tail or "")
    return "".join(parts)


def _runs(looks: DocumentStyles, paragraph: ElementTree.Element) -> tuple[tuple[str, Marks], ...]:
    """The text of a paragraph in parts, each with how it looks: by the paragraph's style, and the spans around it."""
    style = qualified("text", "style-name")
    runs: list[tuple[str, Marks]] = []

    def read(element: ElementTree.Element, marks: Marks, deep: int) -> None:
        if element.text:
            runs.append((element.text, marks))
        for each in element:
            if each.tag == qualified("text", "span") and deep < NESTED:
                read(each, marks | looks.of("text", each.get(style, "")), deep + 1)
            elif text := _plain(each):
                runs.append((text, marks))
            if each.tail:
                runs.append((each.tail, marks))

    read(paragraph, looks.of("paragraph", paragraph.get(style, "")), 0)
    return tuple(runs)
