"""One object of a manifest under lint, and its findings: every check here takes and extends it."""

from __future__ import annotations

from typing import Any, NamedTuple

from launcher.backends.kubernetes.check.rules.forms import mapping, string
from launcher.spec.secrets.tokens import mask
from launcher.spec.values.source import Route, YamlDocument, dotted


class LintLine(NamedTuple):
    """One finding: `file:line: what; what to do`. `level`: error | warning | note."""

    file: str
    line: int
    level: str
    what: str
    todo: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        level = "" if self.level == "error" else f"{self.level}: "
        return f"{where}: {level}{self.what}{'; ' if self.todo else ''}{self.todo}"


class LintedObject:
    """A document and its object; findings about it are added here."""

    def __init__(self, document: YamlDocument, value: dict[str, Any], route: Route, lines: set[LintLine]) -> None:
        self.document = document
        self.value = value
        self.route = route
        self.lines = lines

    @property
    def kind(self) -> str:
        return string(self.value, "kind")

    @property
    def name(self) -> str:
        return string(mapping(self.value, "metadata"), "name")

    @property
    def annotations(self) -> dict[str, Any]:
        return mapping(self.value, "metadata", "annotations")

    def say(self, level: str, route: Route, message: str, todo: str = "", *, key: bool = False) -> None:
        file, line, _ = self.document.place((*self.route, *route), key=key)
        about = f"{dotted(route)}: {message}" if route else message
        self.lines.add(LintLine(file, line, level, mask(about), mask(todo)))

    def error(self, route: Route, message: str, todo: str = "") -> None:
        self.say("error", route, message, todo, key=True)

    def warning(self, route: Route, message: str, todo: str = "") -> None:
        self.say("warning", route, message, todo, key=True)
