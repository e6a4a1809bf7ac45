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
from pathlib import Path
from typing import Final

MARK: Final = '<meta name="generator" content="Slipway">'
OUTPUT: Final = ".slipway-output"
_RUN: Final = r"[a-z0-9-]+-[0-9a-f]{12}"
_RENDERED: Final = re.compile(rf"(?:.*/)?({_RUN})(?:\.[a-z0-9-]+)?\.(?:yaml|json)")
_MARKED: Final = re.compile(rf"((?:.*/)?{_RUN})/gathered\.json|(.*)/{re.escape(OUTPUT)}")
_HEAD: Final = 4096  # bytes
_RENDERED_SIZE: Final = 1 << 20


def own_files(folder: Path, names: Collection[str]) -> Iterator[str]:
    """Those of `names` that the launcher wrote. Raises OSError for an unreadable file."""
    folders = {found[1] or found[2] for name in names if (found := _MARKED.fullmatch(name))}
    outputs = _outputs()
    for name in names:
        if (folders and _within(name, folders)) or _is_own(folder / name, name, outputs):
            yield name


def _within(name: str, folders: Collection[str]) -> bool:
    while name:
        name = name.rpartition("/")[0]
        if name in folders:
            return True
    return False


def _is_own(path: Path, name: str, outputs: Collection[tuple[int, int]]) -> bool:
    if path.is_symlink():
        return False
    if name.endswith(".html"):
        with path.open("rb") as stream:
            return MARK.encode() in stream.read(_HEAD)
    if (found := _RENDERED.fullmatch(name)) is not None:
        with path.open("rb") as stream:
            return found[1].encode() in stream.read(_RENDERED_SIZE)
    if not outputs:
        return False
    status = path.stat()
    return (status.st_dev, status.st_ino) in outputs


def _outputs() -> set[tuple[int, int]]:
    """The files into which this process's output goes: by a redirection, or by a program that reads our pipe (tee)."""
    found = set()
    for number in (1, 2):
        try:
            status = os.fstat(number)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
        elif stat.S_ISFIFO(status.st_mode):
            found |= set(_written_by_readers(f"pipe:[{status.st_ino}]"))
    return found


def _written_by_readers(pipe: str) -> Iterator[tuple[int, int]]:
    """The files that programs write whose input is this pipe. Of other users', and without /proc, nothing is known."""
    for process in _entries("/proc"):
        if process.isdecimal() and _link(f"/proc/{process}/fd/0") == pipe:
            for number in _entries(f"/proc/{process}/fd"):
                try:
                    status = os.stat(f"/proc/{process}/fd/{number}")  # noqa: PTH116 - of the open file
                    flags = re.search(r"flags:\s*(\d+)", Path(f"/proc/{process}/fdinfo/{number}").read_text())
                except OSError:
                    continue
                if stat.S_ISREG(status.st_mode) and flags and int(flags[1], 8) & os.O_ACCMODE:
                    yield status.st_dev, status.st_ino


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
