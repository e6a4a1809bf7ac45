"""Texts of LibreOffice Writer: small ones are written, and what was saved is read (OpenDocument 1.3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from eval.benchmarks.linux_desktop.documents import package, parsed, qualified, style_property

TEXT: Final = "application/vnd.oasis.opendocument.text"
NESTED: Final = 50  # elements in each other that are read


def text_file(lines: Sequence[str]) -> bytes:
    """A text with these paragraphs."""
    paragraphs = "".join(f"<text:p>{escape(line)}</text:p>" for line in lines)
    return package(TEXT, f"<office:text>{paragraphs}</office:text>")


@dataclass(frozen=True)
class Paragraph:
    """A paragraph that was saved. `level`: of a heading, from 1; 0 for others; `bold`: its words that are bold, as one
    text each; `listed`: whether it stands in a list that is not numbered; `cell`: whether it stands in a table."""

    text: str
    level: int = 0
    bold: tuple[str, ...] = ()
    listed: bool = False
    cell: bool = False


@dataclass(frozen=True)
class Written:
    """A text that was saved."""

    paragraphs: tuple[Paragraph, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The paragraphs outside of tables that hold something."""
        return [each.text for each in self.paragraphs if each.text and not each.cell]


def written(parts: Mapping[str, bytes]) -> Written:
    """Reads the parts of a saved text. Raises BrokenByAgent."""
    root = parsed(parts)
    body = root.find(f"{qualified('office', 'body')}/{qualified('office', 'text')}")
    if body is None:
        return Written()
    numbered = {*_numbered(root), *(_numbered(parsed(parts, "styles.xml")) if "styles.xml" in parts else ())}
    found: list[Paragraph] = []
    _read(root, body, found, numbered, None, False, 0)
    return Written(tuple(found))


def _numbered(root: ElementTree.Element) -> set[str]:
    """The styles of lists whose first level has numbers in the place of bullets."""
    found = set()
    for style in root.iter(qualified("text", "list-style")):
        for level in style.iter(qualified("text", "list-level-style-number")):
            if level.get(qualified("text", "level")) == "1" and level.get(qualified("style", "num-format")):
                found.add(style.get(qualified("style", "name"), ""))
    return found


def _read(
    root: ElementTree.Element,
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
            found.append(Paragraph(_plain(each), number, _bold(root, each), bool(listed), cell))
        else:
            inside = listed
            if each.tag == qualified("text", "list"):  # one within another has its style, where it names none
                style = each.get(qualified("text", "style-name"))
                inside = style not in numbered if style is not None else listed is not False
            table = each.tag == qualified("table", "table")
            _read(root, each, found, numbered, inside, cell or table, deep + 1)


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


def _bold(root: ElementTree.Element, paragraph: ElementTree.Element) -> tuple[str, ...]:
    """What is bold: the whole paragraph by its style, or its spans, joined where they follow each other."""

    def heavy(element: ElementTree.Element) -> bool:
        style = element.get(qualified("text", "style-name"), "")
        return style_property(root, style, "text", "fo", "font-weight") == "bold"

    if heavy(paragraph):
        return (_plain(paragraph),)
    runs = [""] if not paragraph.text else ["", ""]
    for each in paragraph:
        if each.tag == qualified("text", "span") and heavy(each):
            runs[-1] += _plain(each)
        elif _plain(each):
            runs.append("")
        if each.tail:
            runs.append("")
    return tuple(run.strip() for run in runs if run.strip())
