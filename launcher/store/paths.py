"""The names under which a store holds users' files.

A file system allows almost any bytes in a name; a store does not. A name with control characters or invalid UTF-8, or
one that is too long, is stored as `%odd/<readable>~<hash>`. Its entry in the manifest holds the true name, escaped, and
a file that is fetched gets its true name again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

ODD: Final = "%odd"  # no other file is stored below it
LONGEST: Final = 700  # bytes of a stored name; a key holds 1024, with everything before the name
LISTED: Final = 100  # left-out files of a folder that are listed, at most; the others are only counted
SAID: Final = 10  # left-out files that a log names, at most
_SAFE: Final = "".join(map(chr, range(32, 127))).replace("%", "")
_READABLE: Final = 150
_KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class LeftOut(msgspec.Struct, frozen=True):
    """A file in a folder that no store can hold. `name` is escaped; `why` is a message for the user."""

    name: str
    why: str


class LeftOutFiles:
    """Counts the files that are left out of a folder, and lists the first ones."""

    def __init__(self) -> None:
        self.listed: tuple[LeftOut, ...] = ()
        self.count = 0

    def __call__(self, name: str, why: str) -> None:
        self.add((LeftOut(escaped(name), why),), 1)

    def add(self, listed: Iterable[LeftOut], count: int) -> None:
        self.listed = (*self.listed, *listed)[:LISTED]
        self.count += count

    def below(self, folder: str) -> Iterator[LeftOut]:
        """The listed files with paths relative to the parent folder; `folder` is the folder's name in it."""
        return (LeftOut(f"{escaped(folder)}/{file.name}", file.why) for file in self.listed)

    def lines(self, what: str) -> Iterator[str]:
        """The lines about the left-out files for a log; `what` begins each line."""
        for file in self.listed[:SAID]:
            yield f"{what}: left out {file.name}: {file.why}"
        if self.count > SAID:
            yield f"{what}: left out {self.count - SAID} more"


def stored_name(name: str) -> str:
    """The name under which a store holds a file: its own, unless no store can hold that."""
    if _plain(name):
        return name
    raw = os.fsencode(name)
    readable = escaped(name).replace("/", "%2F")[:_READABLE]
    return f"{ODD}/{readable}~{hashlib.sha256(raw).hexdigest()[:16]}"


def escaped(name: str) -> str:
    """A name in printable ASCII. `%` and all other bytes are written as %XX."""
    return quote(os.fsencode(name), safe=_SAFE)


def unescaped(text: str) -> str:
    """The reverse of `escaped`. Raises ValueError for a name that leads out of its folder."""
    name = os.fsdecode(unquote_to_bytes(text))
    parts = name.split("/")
    if not all(parts) or "." in parts or ".." in parts or "\0" in name:
        raise ValueError(f"{text!r} is not a name of a file in a folder")
    return name


def _plain(name: str) -> bool:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # the bytes of the name are no UTF-8
        return False
    odd = not name.isprintable() and any(ord(char) < 32 or ord(char) == 127 or char in "\ufffe\uffff" for char in name)
    return size <= LONGEST and not odd and name.partition("/")[0] != ODD


def walk(
    root: Path,
    *,
    within: Path | None = None,
    follow: bool = False,
    leave: Callable[[str, str], None] = lambda name, why: None,
    empty: Callable[[str], None] = lambda name: None,
) -> Iterator[tuple[str, Path, os.stat_result]]:
    """(relative name, path, status) of every regular file below a folder, sorted within each.

    A link counts as the file it points to, if that lies below `within` (default: `root`), or anywhere with `follow`.
    `leave(name, why)` is called for everything else: links that lead out of it or to nothing, FIFOs, sockets, devices.
    `empty(name)` is called for a folder below `root` in which nothing is.
    """
    home = (within or root).resolve()

    def below(
        folder: Path, relative: str, above: frozenset[tuple[int, int]]
    ) -> Iterator[tuple[str, Path, os.stat_result]]:
        status = folder.stat()
        inside = above | {(status.st_dev, status.st_ino)}
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        if relative and not found:
            empty(relative[:-1])
        for entry in found:
            name = f"{relative}{entry.name}"
            with suppress(FileNotFoundError):  # deleted meanwhile
                path = Path(entry.path)
                real = _target(path, home, follow, name, leave) if entry.is_symlink() else path
                if real is None:
                    continue
                target = real.stat() if real is not path else entry.stat()
                if stat.S_ISREG(target.st_mode):
                    yield name, real, target
                elif not stat.S_ISDIR(target.st_mode):
                    leave(name, _KINDS.get(stat.S_IFMT(target.st_mode), "not a regular file"))
                elif (target.st_dev, target.st_ino) in inside:
                    leave(name, "a link to a folder that holds it")
                else:
                    yield from below(real, f"{name}/", inside)

    yield from below(root, "", frozenset())


def inside(path: Path, folder: Path) -> bool:
    """Whether the target of a path exists and lies below a folder."""
    try:
        return path.resolve(strict=True).is_relative_to(folder.resolve())
    except (OSError, RuntimeError):
        return False


def _target(path: Path, home: Path, follow: bool, name: str, leave: Callable[[str, str], None]) -> Path | None:
    """The final target of a link; None for a link that is left out."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        if path.is_symlink():
            leave(name, "a link to nothing")
        return None
    if follow or real.is_relative_to(home):
        return real
    leave(name, "a link that leaves the folder")
    return None
