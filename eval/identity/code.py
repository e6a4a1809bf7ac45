"""Which code a task can reach, read from the sources: nothing is imported or run.

A module is a set of top-level definitions, and a definition reaches what it names: by a name of its module, through an
import, by `package.module` in a text (what is imported by name), or by a text that names a file beside its module. So
the edit of a helper touches the tasks that can reach it and no others. Comments, docstrings and the places of lines
count for nothing. What a definition reaches is an upper bound: an attribute of an object is not followed to one class,
but each class that is named counts as a whole, those in annotations too.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

OURS: Final = "eval"
INSTALLED: Final = ("site-packages", "dist-packages")
PLAIN: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(:[A-Za-z_]\w*)?")
FAMILY: Final = re.compile(r"(?:^|[ '\"])([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)\.$")  # of f"package.folder.{name}"
SHORT: Final = 120  # characters of a text that may name a module or a file
WHOLE: Final = "*"  # in the place of a name: the whole module
LATE: Final = "__name__"  # `if __name__ == ...` is no part of an imported module
UNIMPORTANT: Final = frozenset(("ctx", "type_comment", "kind", "type_ignores"))


class CodePlace(NamedTuple):
    """A definition of a module; `name` WHOLE: all of them."""

    module: str
    name: str


def _statements(source: bytes) -> list[ast.stmt]:
    """Those of a source file; [] for what is no Python: who imports it says what is wrong."""
    try:
        try:
            return ast.parse(source).body
        except SystemError:  # Python before 3.11.5, where the garbage collector parses meanwhile, to tell an error
            return ast.parse(source).body
    except (SyntaxError, ValueError):
        return []


@dataclass
class Named:
    """What a definition names. `families`: packages whose modules it imports by a name that it is given."""

    dotted: set[tuple[str, ...]] = field(default_factory=set)
    imports: dict[str, CodePlace] = field(default_factory=dict)
    texts: set[str] = field(default_factory=set)
    families: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class CodeDefinition:
    """What one definition is, and what it reaches at once.

    digest    of its code
    places    definitions and modules
    files     the digest of each file that it names, by package and name
    texts     short texts, which may be names of modules
    families  packages of which it imports modules by a name that it is given
    """

    digest: str
    places: tuple[CodePlace, ...]
    files: tuple[tuple[str, str], ...]
    texts: frozenset[str]
    families: frozenset[str]


@dataclass
class ParsedModule:
    """One source file. `always`: what runs when it is imported, beside definitions; `beside`: the modules that are
    imported with it; `known`: definitions that were looked at."""

    name: str
    path: Path
    package: str
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, CodePlace] = field(default_factory=dict)
    always: list[ast.stmt] = field(default_factory=list)
    spelt: set[str] = field(default_factory=set)  # each a.b of `import a.b`, which binds `a` alone
    beside: tuple[str, ...] = ()
    known: dict[str, CodeDefinition] = field(default_factory=dict)


class Reached(NamedTuple):
    """What roots reach. `code`: digest by `module:name` or file; `outside`: packages of others that they name."""

    code: dict[str, str]
    outside: frozenset[str]

    @property
    def digest(self) -> str:
        lines = "\n".join(f"{name} {digest}" for name, digest in sorted(self.code.items()))
        return hashlib.sha256(lines.encode()).hexdigest()[:12]


class Sources:
    """Parses each module once, and looks at each definition once.

    changed  texts in the place of files, by path; for tests
    own      packages that count wherever they are installed, beside what is installed nowhere
    """

    def __init__(self, changed: Mapping[Path, str] | None = None, own: Collection[str] = (OURS,)) -> None:
        self._changed = dict(changed or {})
        self._own = frozenset(own)
        self._modules: dict[str, ParsedModule | None] = {}
        self._folders: dict[str, Path | None] = {}

    def reached(self, roots: Collection[str], apart: Collection[str] = ()) -> Reached:
        """What `roots` reach without what is `apart`; both are modules, or definitions as `package.module:name`.

        Raises LookupError for one of ours that is not there: it was renamed, and would count for nothing.
        """
        for place in (*roots, *apart):
            self._check(place)
        search = _Search(self, frozenset(apart))
        for root in roots:
            module, _, name = root.partition(":")
            search.add(CodePlace(module, name.partition(".")[0] or WHOLE))
        return search.run()

    def _check(self, place: str) -> None:
        module, _, name = place.partition(":")
        if module.partition(".")[0] != OURS:
            return
        found, name = self.module(module), name.partition(".")[0]
        if found is None or (name and name not in found.definitions and name not in found.imports):
            raise LookupError(f"{place} is no code of ours")

    def module(self, name: str) -> ParsedModule | None:
        """A module whose source is ours or the user's; None for one of the standard library or of others."""
        if name not in self._modules:
            self._modules[name] = self._parsed(name)
        return self._modules[name]

    def _parsed(self, name: str) -> ParsedModule | None:
        top, *rest = name.split(".")
        if (folder := self._top(top)) is None:
            return None
        base = folder.joinpath(top, *rest)
        files = (base / "__init__.py", base.with_name(f"{base.name}.py"))
        if (path := next((each for each in files if each.is_file()), None)) is None:
            return None
        module = ParsedModule(name, path, name if path.name == "__init__.py" else name.rpartition(".")[0])
        _sort(_statements(self._bytes(path)), module)
        imported = {each for place in module.imports.values() for each in (place.module, _inner(place))}
        module.beside = tuple(sorted((imported | module.spelt | {name.rpartition(".")[0]}) - {""}))
        return module

    def _top(self, top: str) -> Path | None:
        """The folder in which a top-level module or package lies; None for what is of others."""
        if top not in self._folders:
            known = top in sys.stdlib_module_names or not top.isidentifier()
            places = [] if known else [Path(entry or ".").absolute() for entry in sys.path]
            found = (place for place in places if (place / top).is_dir() or (place / f"{top}.py").is_file())
            folder = next(found, None)
            if folder is not None and top not in self._own and any(part in INSTALLED for part in folder.parts):
                folder = None
            self._folders[top] = folder
        return self._folders[top]

    def _bytes(self, path: Path) -> bytes:
        changed = self._changed.get(path)
        return path.read_bytes() if changed is None else changed.encode()

    def definition(self, module: ParsedModule, name: str) -> CodeDefinition:
        """One by its name, or with the name "" what always runs."""
        if name not in module.known:
            named, out = Named(), list[str]()
            for statement in module.always if name == "" else module.definitions[name]:
                _read(statement, module, named, out)
            digest = hashlib.sha256("\0".join(out).encode()).hexdigest()
            places = {place for dotted in named.dotted for place in self._followed(module, named, dotted)}
            # of an import within it that binds a module, only what is used of it counts
            places |= {each for each in named.imports.values() if self.module(_inner(each)) is None}
            places |= {place for text in named.texts if (place := self._spelt(text)) is not None}
            found = {text: module.path.parent / text for text in named.texts if "." in text and "\0" not in text}
            files = tuple(
                (f"{module.package}/{text}", hashlib.sha256(self._bytes(file)).hexdigest())
                for text, file in sorted(found.items())
                if file.is_file()
            )
            texts = frozenset(text for text in named.texts if text.isidentifier())
            module.known[name] = CodeDefinition(digest, tuple(places), files, texts, frozenset(named.families))
        return module.known[name]

    def _spelt(self, text: str) -> CodePlace | None:
        """The module, or the name in it, that a text spells out."""
        if not PLAIN.fullmatch(text):
            return None
        spelt, _, attribute = text.partition(":")
        return None if self.module(spelt) is None else CodePlace(spelt, attribute or WHOLE)

    def _followed(self, module: ParsedModule, named: Named, dotted: tuple[str, ...]) -> Iterator[CodePlace]:
        """What a name, with its attributes, stands for."""
        first, *rest = dotted
        place = named.imports.get(first) or module.imports.get(first)
        if place is None:
            if first in module.definitions:
                yield CodePlace(module.name, first)
            return
        while self.module(inner := _inner(place)) is not None:  # while it is a module, its attribute is what is named
            if not rest:
                yield CodePlace(inner, WHOLE)
                return
            place = CodePlace(inner, rest.pop(0))
        yield place


def _inner(place: CodePlace) -> str:
    return place.module if place.name == WHOLE else f"{place.module}.{place.name}"


class _Search:
    """One search from some roots."""

    def __init__(self, sources: Sources, apart: frozenset[str]) -> None:
        self.sources, self.apart = sources, apart
        self.todo: list[CodePlace] = []
        self.seen: set[CodePlace] = set()
        self.code: dict[str, str] = {}
        self.outside: set[str] = set()
        self.entered: set[str] = set(apart)
        self.texts: dict[str, set[str]] = {}  # short text -> the modules that have it
        self.families: dict[str, set[str]] = {}  # package -> the modules that import of it by name

    def add(self, place: CodePlace) -> None:
        if place not in self.seen and self.apart.isdisjoint((place.module, f"{place.module}:{place.name}")):
            self.seen.add(place)
            self.todo.append(place)

    def run(self) -> Reached:
        self._follow()
        outside = frozenset(self.outside)  # what only an import's own doing needs, as of a reader of YAML, is left out
        while modules := {place.module for place in self.seen} - self.entered:
            for name in modules:
                self._enter(name)
            self._follow()
        return Reached(self.code, outside)

    def _follow(self) -> None:
        while self.todo:
            while self.todo:
                self._visit(self.todo.pop())
            for family, loaders in self.families.items():
                for text, modules in self.texts.items():
                    # a table in the loader itself lists what there is; who chooses of it says the name elsewhere
                    if modules - loaders and self.sources.module(f"{family}.{text}") is not None:
                        self.add(CodePlace(f"{family}.{text}", WHOLE))

    def _visit(self, place: CodePlace) -> None:
        module = self.sources.module(place.module)
        if module is None:
            if (top := place.module.partition(".")[0]) not in sys.stdlib_module_names:
                self.outside.add(top)
            return
        if place.name == WHOLE:
            for name in module.definitions:
                self.add(CodePlace(module.name, name))
        elif place.name in module.definitions:
            self._take(module, place.name)
        elif place.name in module.imports:
            self.add(module.imports[place.name])
        elif self.sources.module(inner := _inner(place)) is not None:
            self.add(CodePlace(inner, WHOLE))
        elif not place.name.startswith("__"):
            self.add(CodePlace(module.name, WHOLE))  # made while it runs: whatever is there may make it

    def _enter(self, name: str) -> None:
        """What runs when a module is imported, and when those are imported that it imports."""
        todo = [name]
        while todo:
            here = todo.pop()
            if here in self.entered:
                continue
            self.entered.add(here)
            if (module := self.sources.module(here)) is not None:
                if module.always:
                    self._take(module, "")
                todo += [each for each in module.beside if each not in self.entered]

    def _take(self, module: ParsedModule, name: str) -> None:
        definition = self.sources.definition(module, name)
        self.code[f"{module.name}:{name}"] = definition.digest
        self.code |= dict(definition.files)
        for place in definition.places:
            self.add(place)
        for family in definition.families:
            self.families.setdefault(family, set()).add(module.name)
        for text in definition.texts:
            self.texts.setdefault(text, set()).add(module.name)


def _sort(body: list[ast.stmt], module: ParsedModule) -> None:
    """Into definitions, imports, and what runs at once."""
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module.imports |= dict(_imported(statement, module))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            module.definitions.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.If) and LATE in ast.dump(statement.test):
            continue
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test):
            _sort(statement.body + statement.orelse, module)
        elif not _is_text(statement):
            names = set(_bound(statement, module))
            for name in names:
                module.definitions.setdefault(name, []).append(statement)
            if not names or not _only_defines(statement):
                module.always.append(statement)


def _only_defines(statement: ast.stmt) -> bool:
    """Whether it gives values to names, and changes nothing else, as `other.name = value` does."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return not any(isinstance(node, ast.Attribute | ast.Subscript) for each in targets for node in ast.walk(each))


def _bound(statement: ast.stmt, module: ParsedModule) -> Iterator[str]:
    """The names that a statement binds at the top of the module; imports in it count as those of the module."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets: list[ast.expr] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for each in targets for node in ast.walk(each) if isinstance(node, ast.Name))
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module.imports |= dict(_imported(node, module))


def _imported(statement: ast.Import | ast.ImportFrom, module: ParsedModule) -> Iterator[tuple[str, CodePlace]]:
    if isinstance(statement, ast.Import):
        module.spelt |= {alias.name for alias in statement.names}
        for alias in statement.names:
            yield (
                alias.asname or alias.name.partition(".")[0],
                CodePlace(alias.name if alias.asname else alias.name.partition(".")[0], WHOLE),
            )
        return
    base = statement.module or ""
    if statement.level:
        parts = module.package.split(".")
        base = ".".join([*parts[: len(parts) - statement.level + 1], *([base] if base else [])])
    for alias in statement.names:
        yield alias.asname or alias.name, CodePlace(base, alias.name)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _read(node: ast.AST, module: ParsedModule, named: Named, out: list[str]) -> None:
    """Writes the code of a node into `out`, the same on every version of Python, and into `named` what it names."""
    if isinstance(node, ast.Name):
        named.dotted.add((node.id,))
    elif isinstance(node, ast.Attribute) and (dotted := _dotted(node)) is not None:
        named.dotted.add(dotted)
        out.append(".".join(dotted))
        return
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str) and 0 < len(node.value) <= SHORT:
            named.texts.add(node.value)
        out.append(repr(node.value))
        return
    elif isinstance(node, ast.Import | ast.ImportFrom):
        named.imports |= dict(_imported(node, module))
    elif isinstance(node, ast.JoinedStr):
        texts = [str(part.value) for part in node.values[:-1] if isinstance(part, ast.Constant)]
        named.families |= {match[1] for text in texts if (match := FAMILY.search(text)) is not None}
    out.append(type(node).__name__)
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or name in UNIMPORTANT:
            continue
        out.append(name)
        if isinstance(value, ast.AST):
            _read(value, module, named, out)
        elif isinstance(value, list):
            skips = name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            for each in value[1:] if skips and _is_text(value[0]) else value:
                if isinstance(each, ast.AST):
                    _read(each, module, named, out)
                else:
                    out.append(repr(each))
            out.append("]")
        else:
            out.append(repr(value))


def _dotted(node: ast.Attribute) -> tuple[str, ...] | None:
    """a.b.c as its parts; None where it is an attribute of something else than a name."""
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return (inner.id, *reversed(parts)) if isinstance(inner, ast.Name) else None
