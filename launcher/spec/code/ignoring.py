"""Ignore files in gitignore's grammar (gitignore(5)), read without git.

pathspec is no part of it: it lets `!b.log` bring back what is ignored below a folder of that name, which git does not.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple


class Ignored:
    """Ignore files by the folder that they lie in (with /; empty for the top). The deepest one that says something
    decides, and within it the last line that fits; below an ignored folder everything is ignored."""

    def __init__(self) -> None:
        self._lines: dict[str, list[_Line]] = {}
        self._known: dict[str, bool] = {"": False}

    def add(self, folder: str, path: Path) -> None:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        self._lines[folder] = [line for row in text.split("\n") if (line := _line(row.removesuffix("\r"))) is not None]

    def one(self, name: str, folder: bool = False) -> bool:
        """Whether a file, or a folder, is ignored where the folder that it lies in is not."""
        place = name
        while place:
            place = place.rpartition("/")[0]
            inner = name[len(place) + 1 if place else 0 :]
            for line in reversed(self._lines.get(place, ())):
                if (folder or not line.folders) and line.pattern.fullmatch(inner):
                    return line.ignores
        return False

    def above(self, name: str) -> bool:
        """Whether a file is ignored, or a folder that it lies in."""
        return self._folder(name.rpartition("/")[0]) or self.one(name)

    def _folder(self, folder: str) -> bool:
        if folder not in self._known:
            self._known[folder] = self._folder(folder.rpartition("/")[0]) or self.one(folder, folder=True)
        return self._known[folder]


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    ignores: bool
    folders: bool  # whether it fits folders only


def _line(row: str) -> _Line | None:
    """None for an empty line, a comment, and a pattern that fits nothing."""
    while row.endswith(" ") and not row.endswith("\\ "):
        row = row[:-1]
    if not row or row.startswith("#"):
        return None
    ignores = not row.startswith("!")
    row = row if ignores else row[1:]
    folders = row.endswith("/")
    row = row[:-1] if folders else row
    anchored = "/" in row
    pattern = _regex(row.removeprefix("/"))
    if not row or pattern is None:
        return None
    return _Line(re.compile(pattern if anchored else f"(?:.*/)?{pattern}", re.DOTALL), ignores, folders)


_PARTS = re.compile(
    r"(?P<above>(?:^|(?<=/))\*\*/)|(?P<below>(?<=/)\*\*$)|(?P<stars>\*+)|(?P<one>\?)"
    r"|(?P<group>\[[!^]?(?:\]|\[:\w+:\]|\\.|[^]\\])(?:\[:\w+:\]|\\.|[^]\\])*\])|\\(?P<escaped>.)|(?P<plain>[^\\[])",
    re.DOTALL,
)
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s"}


def _regex(pattern: str) -> str | None:
    made, at = [], 0
    while at < len(pattern):
        found = _PARTS.match(pattern, at)
        if found is None:  # a bracket that nothing closes, a backslash at the end: it fits nothing
            return None
        at = found.end()
        kind, text = found.lastgroup, found[0]
        if kind == "above":
            made.append("(?:.*/)?")
        elif kind == "below":
            made.append(".+")
        elif kind == "stars":
            made.append("[^/]*")
        elif kind == "one":
            made.append("[^/]")
        elif kind == "group":
            made.append(_group(text[1:-1]))
        else:
            made.append(re.escape(found["escaped"] or text))
    return "".join(made)


def _group(text: str) -> str:
    inverted = text[0] in "!^"
    inner = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], ""), text[1:] if inverted else text)
    inner = re.sub(r"(?<!\\)([\[\]^])", r"\\\1", inner)
    return f"(?!/)[{'^' if inverted else ''}{inner}]"
