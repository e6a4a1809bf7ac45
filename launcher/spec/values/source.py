"""YAML text -> plain values, each with its place in the file.

libyaml scans the text. Scalars have the meaning of YAML 1.2's core schema: `on` and `no` are texts, `1e-5` is a number,
`0777` is 777, `0o17` is 15, dates stay texts. Refused, although YAML allows them: duplicate keys, keys that are not
texts, unknown tags, numbers that JSON cannot hold. Aliases and merge keys are resolved; their expansion is bounded.
Events are read one by one, because libyaml's own composer recurses in C and crashes on deep nesting.
"""

from __future__ import annotations

import re
import sys
from collections.abc import MutableMapping
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from launcher.spec.hashing import MAX_INTEGER
from launcher.spec.secrets.tokens import find
from launcher.spec.values.problems import Problems, show

MAX_BYTES: Final = 1 << 20
STDIN: Final = "<stdin>"  # the name of standard input in messages
MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000  # after the expansion of aliases
MAX_TEXT: Final = 16 * MAX_BYTES  # characters, after the expansion of aliases

Key = str | int
Route = tuple[Key, ...]  # the path to a value: ("roles", "main", "command", 0)

_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# patterns are texts, which `re` compiles at their first use, because most files need few of them
_INTEGER: Final = r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
_FLOAT: Final = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
_NOT_FINITE: Final = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
_NUMBER_STARTS: Final = frozenset("0123456789+-.")
_NOT_PRINTABLE: Final = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_PRINTABLE_ASCII: Final = bytes((9, 10, 13, *range(32, 127)))
_TAG: Final = "tag:yaml.org,2002:"


class Node:
    """A value with its line and column (from 1). `value` holds Nodes for a list, pairs of Nodes for a mapping."""

    __slots__ = ("column", "kind", "line", "text", "value")

    def __init__(self, kind: str, value: Any, line: int, column: int, text: str = "") -> None:
        self.kind = kind  # scalar | list | map
        self.value = value
        self.line = line
        self.column = column
        self.text = text  # a number or constant as written


Places = dict[Route, tuple[Node | None, Node]]  # route -> key and value


class YamlDocument(msgspec.Struct):
    """One YAML document: its value, and the places of every key and value in it."""

    file: str
    value: Any
    places: MutableMapping[Route, tuple[Node | None, Node]] = {}

    def place(self, route: Route, *, key: bool = False) -> tuple[str, int, int]:
        """(file, line, column) of a value or its key; of the nearest parent if the value is not in the file."""
        while route and route not in self.places:
            route = route[:-1]
        if route not in self.places:
            return self.file, 0, 0
        at_key, at_value = self.places[route]
        node = at_key if key and at_key is not None else at_value
        return self.file, node.line, node.column

    def text(self, route: Route, value: Any) -> str:
        """A scalar as written: `0777` and `1e-5` keep their form."""
        place = self.places.get(route)
        return place[1].text if place is not None and place[1].text else str(value)


class _Stop(Exception):
    """Ends the reading of a file, after its problem was added."""


def read_file(path: Path | None, shown: str, problems: Problems) -> list[YamlDocument]:
    """The documents of a file, or of standard input (None). Empty, after adding a problem, if it cannot be read."""
    if path is None and sys.stdin is None:
        problems.add(shown, 0, 0, "", "cannot be read: it is closed")
        return []
    try:
        with path.open("rb") if path is not None else nullcontext(sys.stdin.buffer) as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        problems.add(shown, 0, 0, "", f"cannot be read: {error.strerror}")
        return []
    if len(data) > MAX_BYTES:
        problems.add(shown, 0, 0, "", "too large for a job", f"at most {MAX_BYTES >> 20} MiB")
        return []
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = _line_column(data[: error.start].decode("utf-8", "replace"))
        problems.add(shown, line, column, "", f"byte 0x{data[error.start]:02x} is not UTF-8", "UTF-8 text")
        return []
    return read_text(text, shown, problems)


def read_text(
    text: str, shown: str, problems: Problems, *, composer: type[Composer] | None = None
) -> list[YamlDocument]:
    """The documents of a text, without empty ones. `composer` may read scalars by other rules."""
    plain = text.isascii() and not text.encode().translate(None, _PRINTABLE_ASCII)
    if not plain and (bad := re.search(_NOT_PRINTABLE, text)) is not None:
        line, column = _line_column(text[: bad.start()])
        problems.add(shown, line, column, "", f"control character U+{ord(bad[0]):04X}", "printable text")
        return []
    documents = []
    try:
        for root in (composer or Composer)(text, shown, problems).documents():
            document = YamlDocument(shown, None)
            document.value = _Builder(document, problems).build(root, (), None)
            if root.kind != "scalar" or root.value is not None:
                documents.append(document)
    except _Stop:
        return []
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problems.add(shown, line, column, "", _explain(error, text, line))
        return []
    _refuse_tokens_in_comments(text, shown, problems)
    return documents


def _explain(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    lines = text.splitlines()
    at = lines[line - 1] if 0 < line <= len(lines) else ""
    if at[: len(at) - len(at.lstrip())].count("\t"):
        return "a tab cannot indent YAML; use spaces"
    if error.problem == "mapping values are not allowed in this context":
        return "not YAML: a `key:` cannot stand here; wrong indentation, or a text with a colon that needs quotes"
    message = f"not YAML: {error.problem}"
    return f"{message}, {error.context}" if error.context else message


def _refuse_tokens_in_comments(text: str, shown: str, problems: Problems) -> None:
    tokens = find(text)
    line, start, end, comment = 1, 0, -1, -1  # the line of a token: its number, its bounds, where a comment begins
    for token in tokens:
        if token.start > end:
            begins = text.rfind("\n", start, token.start) + 1 or start
            line += text.count("\n", start, begins)
            start = begins
            end = text.find("\n", token.start)
            end = len(text) if end < 0 else end
            sign = re.search(r"(^|\s)#", text[start:end])
            comment = start + sign.start() if sign else end
        if comment < token.start:
            message = "a comment holds what looks like a secret; remove it and revoke it"
            problems.add(shown, line, token.start - start + 1, "", message)


def _line_column(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


class Composer:
    """Events -> Nodes, without recursion."""

    def __init__(self, text: str, file: str, problems: Problems) -> None:
        self.parser = yaml.CSafeLoader(text)
        self.file = file
        self.problems = problems

    def stop(self, event: Any, what: str, allowed: str = "") -> _Stop:
        self.problem(event, what, allowed)
        return _Stop()

    def problem(self, event: Any, what: str, allowed: str = "") -> None:
        mark = event.start_mark
        self.problems.add(self.file, mark.line + 1, mark.column + 1, "", what, allowed)

    def documents(self) -> list[Node]:
        roots: list[Node] = []
        anchors: dict[str, Node] = {}
        unfinished: list[Node] = []
        get = self.parser.get_event
        while True:
            event: Any = get()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                node = self.scalar(event)
            elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                name = "map" if kind is yaml.MappingStartEvent else "list"
                if event.tag is not None and event.tag not in (f"{_TAG}map", f"{_TAG}seq"):
                    raise self.stop(event, f"the tag {event.tag} is not known", "plain YAML")
                node = Node(name, [], event.start_mark.line + 1, event.start_mark.column + 1)
                if len(unfinished) >= MAX_DEPTH:
                    raise self.stop(event, "nested too deeply", f"at most {MAX_DEPTH} levels")
            elif kind is yaml.AliasEvent:
                if event.anchor not in anchors:
                    raise self.stop(event, f"the alias *{event.anchor} has no anchor before it")
                node = anchors[event.anchor]
                if any(node is parent for parent in unfinished):
                    raise self.stop(event, f"the alias *{event.anchor} lies within what it stands for")
            elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = unfinished.pop()
                if done.kind == "map":
                    done.value = list(zip(done.value[::2], done.value[1::2], strict=True))
                continue
            elif kind is yaml.DocumentStartEvent:
                anchors.clear()
                continue
            elif kind is yaml.StreamEndEvent:
                return roots
            else:
                continue
            if kind is not yaml.AliasEvent and event.anchor is not None:
                anchors[event.anchor] = node
            if unfinished:
                unfinished[-1].value.append(node)
            else:
                roots.append(node)
            if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                unfinished.append(node)

    def scalar(self, event: Any) -> Node:
        text, tag = event.value, event.tag
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if tag is None or tag == "!":
            if not event.implicit[0]:
                return Node("scalar", text, line, column)
            value = _CONSTANTS.get(text, text) if text[:1] not in _NUMBER_STARTS else self.number(event, text)
            return Node("scalar", value, line, column, "" if type(value) is str else text)
        wanted = {"str": str, "int": int, "float": float, "bool": bool, "null": type(None)}.get(tag.removeprefix(_TAG))
        if wanted is None:
            self.problem(event, f"the tag {tag} is not known", "!!str, !!int, !!float, !!bool, !!null")
            return Node("scalar", text, line, column)
        value = text
        if wanted is not str:
            value = _CONSTANTS.get(text, text) if text[:1] not in _NUMBER_STARTS else self.number(event, text)
            if wanted is float and type(value) is int:
                value = float(value)
            if type(value) is not wanted:
                self.problem(event, f"{show(text)} is no {tag.removeprefix(_TAG)}")
        return Node("scalar", value, line, column, "" if wanted is str else text)

    def number(self, event: Any, text: str) -> Any:
        if re.fullmatch(_INTEGER, text):
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            # the length is checked first: int() is slow for very long texts
            value = int(text[2:] if base != 10 else text, base) if len(text) <= 64 else MAX_INTEGER + 1
            if -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
                return value
            self.problem(event, "the number does not fit into 64 bits; quote it")
        elif re.fullmatch(_FLOAT, text):
            number = float(text)
            if isfinite(number):
                return number
            self.problem(event, "the number is too large; quote it")
        elif re.fullmatch(_NOT_FINITE, text):
            self.problem(event, f"{text} has no JSON form; quote it if the program reads it as text")
        return text


class _Builder:
    """Nodes -> plain values and their places."""

    def __init__(self, document: YamlDocument, problems: Problems) -> None:
        self.document = document
        self.problems = problems
        self.nodes = 0
        self.text = 0

    def problem(self, node: Node, route: Route, what: str, allowed: str = "") -> None:
        self.problems.add(self.document.file, node.line, node.column, dotted(route), what, allowed)

    def build(self, node: Node, route: Route, key: Node | None) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.problem(node, route, "too many values once aliases are expanded", f"at most {MAX_NODES:,}")
            raise _Stop
        if len(route) > MAX_DEPTH:
            self.problem(node, (), "nested too deeply once aliases are expanded", f"at most {MAX_DEPTH} levels")
            raise _Stop
        self.document.places[route] = (key, node)
        if node.kind == "scalar":
            if type(node.value) is str:
                self.text += len(node.value)
                if self.text > MAX_TEXT:
                    message, allowed = "too much text once aliases are expanded", f"at most {MAX_TEXT >> 20} MiB"
                    self.problem(node, route, message, allowed)
                    raise _Stop
            return node.value
        if node.kind == "list":
            return [self.build(item, (*route, index), None) for index, item in enumerate(node.value)]
        return {
            name: self.build(item, (*route, name), at)
            for name, (at, item) in self.pairs(node, route, merged=False).items()
        }

    def pairs(self, node: Node, route: Route, *, merged: bool) -> dict[str, tuple[Node, Node]]:
        """The pairs of a mapping, merge keys resolved. Its own keys win over merged ones, an earlier merge over a later
        one."""
        own: dict[str, tuple[Node, Node]] = {}
        merges: list[Node] = []
        for at, item in node.value:
            if at.kind != "scalar":
                self.problem(at, route, "a key cannot be a list or a mapping", "texts")
            elif at.value == "<<" and item.kind != "scalar":
                merges.extend(item.value if item.kind == "list" else [item])
            elif type(at.value) is not str:
                if not merged:
                    self.problem(at, route, f"the key `{at.text or 'null'}` is not a text", f'"{at.text or "null"}"')
            elif at.value in own:
                if not merged:
                    first = own[at.value][0]
                    message = f"duplicate key, first on line {first.line} and again on line {at.line}"
                    self.problem(at, (*route, at.value), message)
            else:
                own[at.value] = (at, item)
        for source in merges:
            self.nodes += 1
            if source.kind != "map":
                self.problem(source, route, "`<<` merges mappings only", "a mapping or a list of mappings")
            elif self.nodes > MAX_NODES:
                break
            else:
                for name, pair in self.pairs(source, route, merged=True).items():
                    own.setdefault(name, pair)
        return own


def dotted(route: Route) -> str:
    """`roles.main.command[0]`; keys that hold a dot are quoted."""
    parts: list[str] = []
    for key in route:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        else:
            shown = f'"{key}"' if "." in key or not key else key
            parts.append(f".{shown}" if parts else shown)
    return "".join(parts)
