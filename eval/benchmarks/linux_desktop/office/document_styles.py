"""How text and cells of a saved document look: by their own styles, named ones, and those that these build on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from xml.etree import ElementTree

from eval.benchmarks.linux_desktop.office.documents import parsed, qualified

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
# what shapes letters and paragraphs otherwise, and the values that change nothing; a value of the plain style is none
_SHAPES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("fo", "font-size"): (),
    ("style", "font-name"): (),
    ("fo", "font-family"): (),
    ("fo", "font-variant"): ("normal",),
    ("fo", "letter-spacing"): ("normal",),
    ("fo", "text-shadow"): ("none",),
    ("fo", "text-transform"): ("none",),
    ("style", "font-relief"): ("none",),
    ("style", "text-emphasize"): ("none",),
    ("style", "text-outline"): ("false",),
    ("style", "text-overline-style"): ("none",),
    ("style", "text-scale"): ("100%",),
    ("fo", "text-align"): ("start", "left"),
    ("fo", "line-height"): ("100%", "normal"),
    ("fo", "break-before"): ("auto",),
    ("fo", "break-after"): ("auto",),
    ("fo", "wrap-option"): ("no-wrap",),
    ("style", "rotation-angle"): ("0",),
    ("style", "vertical-align"): ("automatic", "auto"),
    **{("fo", name): ("none",) for name in ("border", "border-top", "border-bottom", "border-left", "border-right")},
    **{("fo", name): ("0",) for name in ("margin-top", "margin-bottom")},
}
INDENTS: Final = ("margin-left", "margin-right", "text-indent")
_KINDS: Final = ("text-properties", "table-cell-properties", "paragraph-properties")
PLAIN_STYLES: Final = {"paragraph": "Standard", "table-cell": "Default"}
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
        """What a style of a family (text, paragraph, table-cell) makes of its text: bold, the names of _MARKS, `shaped`
        for what else changes its look, and `indented`."""
        found = self._properties(family, style)
        plain = self._properties(family, PLAIN_STYLES.get(family, ""))
        marks = {mark for mark, (space, name, none) in _MARKS.items() if _says(found, space, name, none)}
        if found.get(qualified("fo", "font-weight")) in WEIGHTS:
            marks.add("bold")
        if found.get(qualified("style", "use-window-font-color")) == "true":
            marks.discard("coloured")
        own = {name: value for name, value in found.items() if value != plain.get(name)}
        if any(_says(own, space, name, none) for (space, name), none in _SHAPES.items()):
            marks.add("shaped")
        if any(_says(own, "fo", name, ("0",)) for name in INDENTS):
            marks.add("indented")
        return frozenset(marks)

    def departs(self, family: str, style: str, base: str) -> bool:
        """Whether a style of a paragraph, or of a part of its text, says otherwise than the paragraph style `base`."""
        told = self._properties("paragraph", base)
        own = {name: value for name, value in self._properties(family, style).items() if value != told.get(name)}
        weight = () if qualified("fo", "font-weight") in told else ("normal",)
        says = (*_MARKS.values(), *((*name, none) for name, none in _SHAPES.items()), ("fo", "font-weight", weight))
        return any(_says(own, *each) for each in says)

    def seen_when_empty(self, style: str) -> bool:
        """Whether a cell of this style that holds nothing is seen: by its background or its border."""
        found = self._properties("table-cell", style)
        lined = (f"border{side}" for side in ("", "-top", "-bottom", "-left", "-right"))
        return _says(found, *_MARKS["background"]) or any(_says(found, "fo", name, ("none",)) for name in lined)

    def numbered(self, style: str) -> bool:
        """Whether a style says how a number is written."""
        for name in self.chain("table-cell", style):
            each = self.styles.get(("table-cell", name))
            if each is not None and each.get(qualified("style", "data-style-name"), "N0") != "N0":
                return True
        return False

    def chain(self, family: str, style: str) -> list[str]:
        """The name of a style, and those of the styles that it builds on."""
        names: list[str] = []
        while style and len(names) < DEEPEST:
            names.append(style)
            each = self.styles.get((family, style))
            style = "" if each is None else each.get(qualified("style", "parent-style-name"), "")
        return names

    def _properties(self, family: str, style: str) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self.chain(family, style):
            each = self.styles.get((family, name))
            for kind in _KINDS:
                for properties in () if each is None else each.findall(qualified("style", kind)):
                    for attribute, value in properties.attrib.items():
                        found.setdefault(attribute, value)
        return found


def _says(found: Mapping[str, str], space: str, name: str, none: tuple[str, ...]) -> bool:
    value = found.get(qualified(space, name))
    return value is not None and not value.startswith(none)
