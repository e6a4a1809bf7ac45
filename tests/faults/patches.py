"""The files of faults, tests/faults/PACKAGE/NAME.patch: a header, then a diff of the product as git writes it.

    What: one sentence that says what the changed code does wrong
    Area: protocol
    Tests: tests/unit/protocol/test_decide.py::test_x
           tests/integration/runtime/test_y.py
    diff --git a/... b/...

`Tests` are those that are expected to notice it, one on a line; none where no test is known that does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

PRODUCT: Final = ("launcher/", "training/", "eval/", "k8s/", "images/")
HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")


class Wrong(Exception):
    """What is wrong with a fault's file."""


@dataclass
class Hunk:
    line: int  # of the old text, from 1
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fault:
    name: str  # PACKAGE/NAME
    file: Path
    what: str
    area: str
    tests: tuple[str, ...]  # as the file lists them
    hunks: dict[str, list[Hunk]]  # by file of the product
    digest: str  # of the file


def read_all(folder: Path, chosen: list[str] | None = None) -> list[Fault]:
    """The faults below a folder. `chosen` names packages, faults, or both as PACKAGE/NAME."""
    found = {f"{file.parent.name}/{file.stem}": file for file in sorted(folder.glob("*/*.patch"))}
    if chosen:
        matching = {name: {name, *name.split("/")} for name in found}
        if unknown := [word for word in chosen if not any(word in words for words in matching.values())]:
            raise Wrong(f"no fault is called {', '.join(unknown)}")
        found = {name: file for name, file in found.items() if matching[name] & set(chosen)}
    return [read(name, file) for name, file in found.items()]


def read(name: str, file: Path) -> Fault:
    text = file.read_text(encoding="utf-8")
    head, found, diff = text.partition("diff --git ")
    fields: dict[str, list[str]] = {"What": [], "Area": [], "Tests": []}
    key = ""
    for line in head.splitlines():
        word, colon, rest = line.partition(":")
        if colon and word in fields:
            key, line = word, rest
        elif line.strip() and not (key and line.startswith(" ")):
            raise Wrong(f"{file}: {line!r} is no line of a header")
        if line.strip():
            fields[key].append(line.strip())
    if not (found and fields["What"] and fields["Area"]):
        raise Wrong(f"{file}: it has to have `What:`, `Area:` and a diff")
    digest = sha256(text.encode()).hexdigest()[:12]
    what, area, tests = " ".join(fields["What"]), " ".join(fields["Area"]), tuple(fields["Tests"])
    return Fault(name, file, what, area, tests, _hunks(file, found + diff), digest)


def _hunks(file: Path, diff: str) -> dict[str, list[Hunk]]:
    files: dict[str, list[Hunk]] = {}
    path, old, new = "", 0, 0  # how many lines of this hunk are to come
    for line in diff.splitlines():
        if old > 0 or new > 0:
            hunk = files[path][-1]
            sign, rest = line[:1] or " ", line[1:]
            if sign in " -":
                hunk.old.append(rest)
                old -= 1
            if sign in " +":
                hunk.new.append(rest)
                new -= 1
        elif line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")
            if not path.startswith(PRODUCT):
                raise Wrong(f"{file}: {path} is no file of the product")
            files[path] = []
        elif match := HUNK.match(line):
            old, new = (int(count or 1) for count in match.groups()[1:])
            files[path].append(Hunk(int(match[1])))
    if not files or not all(files.values()):
        raise Wrong(f"{file}: a diff without a change")
    return files


def patched(fault: Fault, root: Path) -> dict[str, str]:
    """The changed texts of the fault's files, by path. An error: an old text that is not there, or is there several
    times and not at its line; a new text that is no Python."""
    texts = {}
    for path, hunks in fault.hunks.items():
        source = root / path
        lines = source.read_text(encoding="utf-8").splitlines() if source.exists() else []
        for hunk in reversed(hunks):
            size = len(hunk.old)
            places = [at for at in range(len(lines) - size + 1) if lines[at : at + size] == hunk.old]
            if len(places) > 1:
                places = [at for at in places if at == hunk.line - 1]
            if not places:
                raise Wrong(f"{fault.file}: it does not apply to {path}, line {hunk.line}")
            lines[places[0] : places[0] + size] = hunk.new
        texts[path] = "\n".join(lines) + "\n"
        if path.endswith(".py"):
            try:
                ast.parse(texts[path])
            except SyntaxError as error:
                raise Wrong(f"{fault.file}: {path} is no Python then: {error}") from error
    return texts


def resolved(fault: Fault, root: Path) -> list[str]:
    """The ids of the fault's tests. A file that was moved to another folder is found by its name, of
    several by that of its folder, too."""
    return [_resolved(fault, test, root) for test in fault.tests]


def _resolved(fault: Fault, test: str, root: Path) -> str:
    path, colons, function = test.partition("::")
    if not (root / path).is_file():
        named = [file for file in _test_files(root) if file.name == Path(path).name]
        alike = [file for file in named if file.parent.name == Path(path).parent.name]
        if len(moved := [str(file.relative_to(root)) for file in alike or named]) != 1:
            raise Wrong(f"{fault.file}: no test file {path}; of its name: {', '.join(moved) or 'none'}")
        path = moved[0]
    name = function.split("[")[0].split("::")[-1]
    if colons and name not in _functions(root / path):
        raise Wrong(f"{fault.file}: {path} has no test {name}")
    return path + colons + function


@cache
def _test_files(root: Path) -> tuple[Path, ...]:
    return tuple((root / "tests").rglob("test_*.py"))


@cache
def _functions(file: Path) -> frozenset[str]:
    def names(node: ast.AST) -> Iterator[str]:
        for child in ast.walk(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield child.name
            elif isinstance(child, ast.ImportFrom):  # the cases of a suite that several files share
                yield from (alias.asname or alias.name for alias in child.names)

    return frozenset(names(ast.parse(file.read_text(encoding="utf-8"))))
