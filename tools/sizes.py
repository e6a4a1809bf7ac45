"""Prints the size of the product and of the tests, and the modules that could stand in another one.

    python -m tools.sizes [FOLDER]            the table: modules, lines, functions, comments, modules with one importer
    python -m tools.sizes --joinable [FOLDER] one line per module that could join its only importer

FOLDER is the top of a checkout: the table of another commit is made in a `git worktree` of it.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PACKAGES: Final = ("launcher", "training", "eval")
JOINED: Final = 350
"""Lines of a module and its only importer together, up to which the two could be one file."""


@dataclass
class Module:
    """A Python file with code. `imports`: the modules of the three packages that it names in an import."""

    name: str
    lines: int
    functions: int
    comments: int
    has_code: bool
    imports: set[str] = field(default_factory=set)


def _named(tree: ast.Module, name: str, is_package: bool) -> Iterator[str]:
    """What the imports of a file name: `a.b` of `import a.b`; `a` and `a.b` of `from a import b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".") if is_package else name.split(".")[:-1]
            start = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _comments(text: str) -> int:
    """The lines that are a comment alone; `# type:` and `# noqa` stand behind code and are not counted."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type == tokenize.COMMENT and token.line.lstrip().startswith("#") for token in tokens)


def read(root: Path, file: Path) -> Module:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    is_package = file.name == "__init__.py"
    parts = file.relative_to(root).with_suffix("").parts
    name = ".".join(parts[:-1] if is_package else parts)
    code = [node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))
    return Module(name, text.count("\n"), functions, _comments(text), bool(code), set(_named(tree, name, is_package)))


def importers(modules: dict[str, Module]) -> dict[str, set[str]]:
    """For each module the other modules of the product that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for imported in module.imports & modules.keys() - {module.name}:
            # `from a import b` names the package a as well: it counts only when nothing below it is meant.
            below = any(other.startswith(f"{imported}.") for other in module.imports & modules.keys())
            if not below:
                found[imported].add(module.name)
    return found


def product(root: Path) -> dict[str, Module]:
    files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
    modules = (read(root, file) for file in files)
    return {module.name: module for module in modules if module.has_code}


def table(root: Path) -> str:
    modules = product(root)
    imported_by = importers(modules)
    tests = [read(root, file) for file in sorted((root / "tests").rglob("*.py"))]
    rows = [f"{'':10} {'modules':>8} {'lines':>8} {'functions':>10} {'comments':>9} {'one importer':>13}"]
    for package in (*PACKAGES, "product", "tests"):
        chosen = (
            tests
            if package == "tests"
            else [m for m in modules.values() if package == "product" or m.name.split(".")[0] == package]
        )
        single = "" if package == "tests" else sum(len(imported_by[module.name]) == 1 for module in chosen)
        sums = [sum(getattr(module, what) for module in chosen) for what in ("lines", "functions", "comments")]
        rows.append(f"{package:10} {len(chosen):8} {sums[0]:8} {sums[1]:10} {sums[2]:9} {single:>13}")
    return "\n".join(rows)


def joinable(root: Path) -> str:
    modules = product(root)
    imported_by = importers(modules)
    rows = []
    for module in modules.values():
        if len(imported_by[module.name]) == 1:
            other = modules[next(iter(imported_by[module.name]))]
            if module.lines + other.lines <= JOINED:
                rows.append(f"{module.name} ({module.lines}) -> {other.name} ({other.lines})")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Prints the size of the product and of the tests.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="the top of a checkout")
    parser.add_argument("--joinable", action="store_true", help="list the modules that could join their only importer")
    args = parser.parse_args()
    print(joinable(args.folder) if args.joinable else table(args.folder))


if __name__ == "__main__":
    main()
