"""How text and cells of a saved document look: by their own styles, named ones, and those that these build on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree

from eval.benchmarks.linux_desktop.documents import parsed, qualified

DEEPEST: Final = 20  # styles that build on each other
WEIGHTS: Final = ("bold", "600", "700", "800", "900")
# mark -> its attribute, and the values that make no mark
_MARKS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "italic": ("fo", "font-style", ("normal",)),
    "underlined": ("style", "text-underline-style", ("none",)),
    "struck": ("style", "text-line-through-style", ("none",)),
    "coloured": ("fo", "color", ("#000000",)),
    "background": ("fo", "background-color", ("transparent", "#ffffff")),
    "hidden": ("text", "display", ("true",)),
    "raised": ("style", "text-position", ("0% 100%",)),
}
Marks = frozenset[str]
PLAIN: Final[Marks] = frozenset()


class DocumentStyles:
    """The styles of a document. `parts`: as read from it."""

    def __init__(self, parts: Mapping[str, bytes]) -> None:
        self.styles: dict[tuple[str, str], ElementTree.Element] = {}
        for name in ("styles.xml", "content.xml"):  # a style of the content stands in front of a named one
            if name in parts:
                for each in parsed(parts, name).iter(qualified("style", "style")):
                    key = each.get(qualified("style", "family"), ""), each.get(qualified("style", "name"), "")
                    self.styles[key] = each

    def of(self, family: str, style: str) -> Marks:
        """What a style of a family (text, paragraph, table-cell) makes of its text: bold, and the names of _MARKS."""
        found: dict[str, str] = {}
        for _ in range(DEEPEST):
            each = self.styles.get((family, style))
            if each is None:
                break
            for kind in ("text-properties", "table-cell-properties"):
                for properties in each.findall(qualified("style", kind)):
                    for name, value in properties.attrib.items():
                        found.setdefault(name, value)
            style = each.get(qualified("style", "parent-style-name"), "")
        marks = {mark for mark, (space, name, none) in _MARKS.items() if _says(found, space, name, none)}
        if found.get(qualified("fo", "font-weight")) in WEIGHTS:
            marks.add("bold")
        if found.get(qualified("style", "use-window-font-color")) == "true":
            marks.discard("coloured")
        return frozenset(marks)


def _says(found: Mapping[str, str], space: str, name: str, none: tuple[str, ...]) -> bool:
    value = found.get(qualified(space, name))
    return value is not None and not value.startswith(none)
