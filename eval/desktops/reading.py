"""Reads files that an agent may have left as a trap for whoever judges them: a FIFO, a link out of the home, a bomb.

Such a file is the agent's own doing: BrokenByAgent, a score of 0. A file that is not there is a FileNotFoundError,
which the judge of the task understands as it likes.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from eval.desktop import BrokenByAgent

FILE_LIMIT: Final = 64 << 20
ARCHIVE_LIMIT: Final = 256 << 20
MEMBERS_LIMIT: Final = 10_000
LISTED_LIMIT: Final = 10_000  # entries of one listing
DEPTH_LIMIT: Final = 50
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_file(home: Path, name: str, limit: int = FILE_LIMIT) -> bytes:
    """The content of the file `name`, a path below `home` without links.

    Each folder is opened from the one above it and no link is followed, so the answer never comes from outside `home`.
    Raises FileNotFoundError, BrokenByAgent (not a plain file, a link on the way, more than `limit` bytes), and
    ValueError for a name that is not below `home`.
    """
    parts = PurePosixPath(name).parts
    if not parts or ".." in parts or PurePosixPath(name).is_absolute():
        raise ValueError(f"{name!r} is not a path below the home")
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = _open(part, _FOLDER, folder, name)
            os.close(folder)
            folder = below
        descriptor = _open(parts[-1], _FILE, folder, name)
    finally:
        os.close(folder)
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            raise BrokenByAgent(f"{name} is no plain file: {stat.filemode(kind)}")
        pieces = []
        size = 0
        while piece := os.read(descriptor, min(1 << 20, limit + 1 - size)):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise BrokenByAgent(f"{name} has more than {limit} bytes")
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _open(part: str, flags: int, folder: int, name: str) -> int:
    try:
        return os.open(part, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(errno.ENOENT, "no such file", name) from None
        raise BrokenByAgent(f"{name} cannot be read: {part}: {error.strerror}") from error


@dataclass(frozen=True)
class FileEntry:
    """One entry of a folder. `mode`: the permissions alone, as 0o644; `size` in bytes."""

    kind: Literal["file", "folder", "link", "other"]
    mode: int
    size: int


def list_files(home: Path, name: str) -> dict[str, FileEntry]:
    """What lies below the folder `name` of `home`, at any depth: path from that folder -> what it is. No link is
    followed. A folder that is not there has nothing in it. Bytes of a name that are no UTF-8 are escaped.

    Raises BrokenByAgent for what is no folder, and for more than LISTED_LIMIT entries or folders DEPTH_LIMIT deep.
    """
    parts = PurePosixPath(name).parts
    if ".." in parts or PurePosixPath(name).is_absolute():
        raise ValueError(f"{name!r} is not a path below the home")
    found: dict[str, FileEntry] = {}
    folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            below = _open(part, _FOLDER, folder, name)
            os.close(folder)
            folder = below
        _list(folder, PurePosixPath(), found)
    except FileNotFoundError:
        return {}
    finally:
        os.close(folder)
    return found


def _list(folder: int, above: PurePosixPath, found: dict[str, FileEntry]) -> None:
    if len(above.parts) >= DEPTH_LIMIT:
        raise BrokenByAgent(f"folders lie more than {DEPTH_LIMIT} deep")
    for entry in sorted(os.listdir(folder)):
        if len(found) >= LISTED_LIMIT:
            raise BrokenByAgent(f"more than {LISTED_LIMIT} files")
        path = above / entry
        try:
            told = os.stat(entry, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:  # gone meanwhile
            continue
        kind = _kind(told.st_mode)
        found[_shown(path)] = FileEntry(kind, stat.S_IMODE(told.st_mode), told.st_size)
        if kind == "folder":
            try:
                below = _open(entry, _FOLDER, folder, _shown(path))
            except FileNotFoundError:
                continue
            try:
                _list(below, path, found)
            finally:
                os.close(below)


def _shown(path: PurePosixPath) -> str:
    """The path as text; bytes of a name that are no UTF-8 become escapes such as `\\xff`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _kind(mode: int) -> Literal["file", "folder", "link", "other"]:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def read_archive(data: bytes, limit: int = ARCHIVE_LIMIT) -> dict[str, bytes]:
    """The members of a zip archive (also a document of LibreOffice or Word): name to content.

    Their sizes are counted while they are unpacked, whatever the archive says of them. Raises BrokenByAgent for what is
    not an archive, and for more than `limit` bytes or MEMBERS_LIMIT members.
    """
    members: dict[str, bytes] = {}
    left = limit
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if len(archive.infolist()) > MEMBERS_LIMIT:
                raise BrokenByAgent(f"the archive has more than {MEMBERS_LIMIT} members")
            for member in archive.infolist():
                with archive.open(member) as stream:
                    members[member.filename] = stream.read(left + 1)
                left -= len(members[member.filename])
                if left < 0:
                    raise BrokenByAgent(f"the archive unpacks to more than {limit} bytes")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise BrokenByAgent(f"not an archive that can be read: {error}") from error
    return members
