"""What of this machine a task is made of: versions of programs and fonts, of Python packages, and the image."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

DPKG: Final = Path("/var/lib/dpkg")
FONTS: Final = ("fonts-", "xfonts-", "ttf-", "fontconfig")  # how the names of packages begin that letters depend on
IMAGES: Final = "SLIPWAY_IMAGES"  # JSON, role -> the digest of its image, where the launcher knows it
UNKNOWN: Final = "unknown"


def packages(names: Iterable[str]) -> dict[str, str]:
    """The versions of Debian's packages; a package that is not installed is UNKNOWN."""
    found = _installed()
    return {name: found.get(name, UNKNOWN) for name in names}


def fonts() -> dict[str, str]:
    """The packages of fonts that are installed, with their versions."""
    return {name: version for name, version in _installed().items() if name.startswith(FONTS)}


def package_of(program: str) -> str | None:
    """Debian's package that has a program, a command or a path; None where it is of none, or not here."""
    return _owner(shutil.which(program) or "")


def file_digest(path: Path) -> str:
    """The sha256 of a file; UNKNOWN where none can be read. One that did not change is read once."""
    try:
        told = path.stat()
        return _file_digest(path, told.st_mtime_ns, told.st_size)
    except OSError:
        return UNKNOWN


@cache
def _file_digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def _owner(path: str) -> str | None:
    wanted = {each.encode() for each in (path, os.path.realpath(path)) if path}
    # /bin is a link to /usr/bin, and a package's list may have either
    wanted |= {each.removeprefix(b"/usr") for each in wanted}
    lists = sorted((DPKG / "info").glob("*.list")) if wanted else []
    found = (each for each in lists if not wanted.isdisjoint(each.read_bytes().splitlines()))
    owner = next(found, None)
    return None if owner is None else owner.stem.partition(":")[0]


@cache
def _installed() -> dict[str, str]:
    """Every package that is installed, with its version: the paragraphs of dpkg's `status`."""
    try:
        text = (DPKG / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    found = {}
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = fields.get("Version", UNKNOWN)
    return found


@cache
def python_package(module: str) -> str | None:
    """`NAME VERSION` of the distribution that has a top-level module; None for one of none."""
    try:
        return f"{module} {importlib.metadata.version(module)}"
    except importlib.metadata.PackageNotFoundError:
        found = _named_otherwise().get(module)
        return None if found is None else f"{found} {importlib.metadata.version(found)}"


@cache
def _named_otherwise() -> dict[str, str]:
    """Top-level module -> its distribution, of those that say it; to look through all their files takes a second."""
    return {
        module: each.name
        for each in importlib.metadata.distributions()
        for module in (each.read_text("top_level.txt") or "").split()
    }


def image(role: str | None) -> str | None:
    """The digest of the image of a role, or of this process's own (None); None outside of images."""
    try:
        known: dict[str, str] = json.loads(os.environ.get(IMAGES) or "{}")
    except ValueError:
        return None
    return known.get(role or os.environ.get("SLIPWAY_ROLE", ""))
