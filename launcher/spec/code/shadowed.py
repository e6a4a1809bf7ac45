"""Finds commands whose Slipway package is hidden by a folder of the same name in the job's overlay.

Python searches the overlay before the packages of the image. A user's own package `training` there hides the whole
package of ours, and `python -m training.sft` fails with "No module named training.sft".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from launcher.spec.code.overlay import Overlay
from launcher.spec.values.source import Route
from launcher.spec.values.types import Context

EXTEND: Final = '__path__ = __import__("pkgutil").extend_path(__path__, __name__)'
_NEEDS: Final = {"training": ("eval",), "eval": (), "launcher": ()}  # package -> our other packages that it imports
_STARTED: Final = re.compile(rf"(?:^|\s)-m\s*(({'|'.join(_NEEDS)})(?:\.\w+)*)(?![\w.])")
_CHANGES_FOLDER: Final = re.compile(r"\bcd\s")
_INSTALLED: Final = Path(__file__).parents[3]


def check(overlay: Overlay, variants: Iterable[tuple[Mapping[str, Any], Context]]) -> None:
    """Adds a problem for each command of a job that starts a module of ours that `overlay` hides. `variants`: the
    checked values of each variant, and the context that collects its problems."""
    packages = _Packages(overlay)
    if not packages.any:
        return
    for values, at in variants:
        for route, command in _commands(values):
            for index, module, package in _started(command):
                problem = _problem(packages, module, package)
                if problem is not None:
                    at.problem((*route, index), *problem)


def _commands(values: Mapping[str, Any]) -> Iterator[tuple[Route, Sequence[str]]]:
    if values.get("command"):
        yield ("command",), values["command"]
    for name, role in (values.get("roles") or {}).items():
        if role.get("command"):
            yield ("roles", name, "command"), role["command"]


def _started(command: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """(index of the argument, module, package) of every module of ours that a command starts with `-m`, also within a
    shell script. A script that changes the folder is skipped, because Python then searches that folder first."""
    for index, argument in enumerate(command):
        text = f"-m {argument}" if index and command[index - 1] == "-m" else argument
        if not _CHANGES_FOLDER.search(text):
            yield from ((index, match[1], match[2]) for match in _STARTED.finditer(text))


def _problem(packages: _Packages, module: str, package: str) -> tuple[str, str] | None:
    """(what is wrong, what is allowed); None if the command finds its module."""
    within = module.partition(".")[2] or "__main__"
    hides = packages.hides(package)
    if packages.has(package, within):
        if hides or packages.extends(package):
            return None  # the user's own module
        message = f"has no __init__.py, so Python takes `{module}` from Slipway's package `{package}`"
        return f"the overlay's `{package}/` {message}", _remedy(f"{package}/")
    if hides:
        message = f"hides Slipway's package `{package}` and has no module `{module}`"
        return f"the overlay's `{hides}` {message}", _remedy(hides)
    for needed in _NEEDS[package]:
        hides = packages.hides(needed)
        if hides and not packages.is_copy(needed):
            message = f"hides Slipway's package `{needed}`, which `{module}` imports"
            return f"the overlay's `{hides}` {message}", _remedy(hides)
    return None


def _remedy(name: str) -> str:
    other = "another name for it"
    return f"{other}, or this line in its __init__.py: {EXTEND}" if name.endswith("/") else other


class _Packages:
    """The Python packages at the top of an overlay."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.overlay.files)

    @property
    def any(self) -> bool:
        """Whether the overlay has a package with the name of one of ours."""
        return any(name.partition("/")[0].removesuffix(".py") in _NEEDS for name in self.names)

    def extends(self, package: str) -> bool:
        """Whether the package's __init__.py extends its path, so that Python also finds our modules of that package."""
        name = f"{package}/__init__.py"
        return name in self.names and b"extend_path" in (self.overlay.folder / name).read_bytes()

    def hides(self, package: str) -> str:
        """The file or folder that hides a package of ours; empty if none does."""
        if f"{package}/__init__.py" in self.names:
            return "" if self.extends(package) else f"{package}/"
        return f"{package}.py" if f"{package}.py" in self.names else ""

    def has(self, package: str, within: str) -> bool:
        """Whether the overlay has the module or package `within` (dotted) of a package."""
        base = f"{package}/{within.replace('.', '/')}"
        folder = f"{base}/"
        return f"{base}.py" in self.names or any(name.startswith(folder) for name in self.names)

    def is_copy(self, package: str) -> bool:
        """Whether the overlay's package has every module of the installed package of ours."""
        ours = _INSTALLED / package
        return all(self.has(package, path.relative_to(ours).with_suffix("").as_posix()) for path in ours.rglob("*.py"))
