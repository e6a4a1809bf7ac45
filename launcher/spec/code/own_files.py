"""Finds what the launcher itself wrote into a project's folder: reports, gathered runs, rendered jobs, results of
evaluations, and the file into which its output goes. None of it may change what a job is.

A report holds MARK in its head; a folder of results holds a file OUTPUT (eval writes it); a gathered run holds
gathered.json; a rendered job is named after its run and holds the run's name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from launcher.files import keep

MARK: Final = '<meta name="generator" content="Slipway">'
OUTPUT: Final = ".slipway-output"
MARKER: Final = ".slipway-store"  # as launcher.store.layout names it
_RUN: Final = r"[a-z0-9-]+-[0-9a-f]{12}"
_RENDERED: Final = re.compile(rf"(?:.*/)?({_RUN})(?:\.[a-z0-9-]+)?\.(?:yaml|json)")
_MARKED: Final = re.compile(rf"((?:.*/)?{_RUN})/gathered\.json|(.*)/{re.escape(OUTPUT)}")
_HEAD: Final = 4096  # bytes
_RENDERED_SIZE: Final = 1 << 20
_KEPT: Final = 1000  # files of former outputs


def own_files(folder: Path, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Those of `names` that the launcher wrote, each with how a person names it: itself, or the folder (with / at its
    end) that is the launcher's. Raises OSError for an unreadable file."""
    folders = {found[1] or found[2] for name in names if (found := _MARKED.fullmatch(name))}
    outputs, home = {*_outputs(), *_remembered()}, os.path.realpath(folder)
    for name in names:
        if folders and (inside := _within(name, folders)):
            yield name, f"{inside}/"
        elif f"{home}/{name}" in outputs or _is_own(folder / name, name):
            yield name, name


def remember_outputs() -> None:
    """Keeps where this process's output goes, so that a later submit knows these files as well. A folder that cannot be
    written is no error."""
    known = _remembered()
    if new := [path for path in _outputs() if path not in known]:
        text = "\n".join([*known, *new][-_KEPT:]) + "\n"
        keep(_record(), text.encode("utf-8", "surrogateescape"))


def _record() -> Path:
    home = Path(os.environ.get("HOME") or Path.home())
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "slipway" / "outputs"


def _remembered() -> list[str]:
    try:
        return _record().read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def _within(name: str, folders: Collection[str]) -> str:
    while name:
        name = name.rpartition("/")[0]
        if name in folders:
            return name
    return ""


def _is_own(path: Path, name: str) -> bool:
    if path.is_symlink():
        return False
    if name.endswith(".html"):
        with path.open("rb") as stream:
            return MARK.encode() in stream.read(_HEAD)
    if (found := _RENDERED.fullmatch(name)) is not None:
        with path.open("rb") as stream:
            return found[1].encode() in stream.read(_RENDERED_SIZE)
    return False


def _outputs() -> list[str]:
    """The files into which this process's output goes: by a redirection, or by a program that reads our pipe (tee)."""
    found = []
    for number in (1, 2):
        with suppress(OSError):
            status = os.fstat(number)
            if stat.S_ISREG(status.st_mode):
                found.append(_link(f"/proc/self/fd/{number}"))
            elif stat.S_ISFIFO(status.st_mode):
                found += _written_by_readers(f"pipe:[{status.st_ino}]")
    return found


def _written_by_readers(pipe: str) -> Iterator[str]:
    """The files that programs write whose input is this pipe. Of other users', and without /proc, nothing is known."""
    for process in _entries("/proc"):
        if process.isdecimal() and _link(f"/proc/{process}/fd/0") == pipe:
            for number in _entries(f"/proc/{process}/fd"):
                with suppress(OSError):
                    status = os.stat(f"/proc/{process}/fd/{number}")  # noqa: PTH116 - of the open file
                    flags = re.search(r"flags:\s*(\d+)", Path(f"/proc/{process}/fdinfo/{number}").read_text())
                    if stat.S_ISREG(status.st_mode) and flags and int(flags[1], 8) & os.O_ACCMODE:
                        yield _link(f"/proc/{process}/fd/{number}")


def _entries(folder: str) -> Iterable[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names
    except OSError:
        return ()


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - the text of the link
    except OSError:
        return ""
