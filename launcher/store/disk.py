"""Files and folders of a folder store: complete reads and writes, durable names, and OSErrors as our own errors."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from launcher.errors import BadInput, BadRecord, Conflict, SlipwayError, Unreachable
from launcher.store.base import Meta
from launcher.store.transfer import PIECE, Piece

GONE = (FileNotFoundError, NotADirectoryError)


# of one object or folder: another user's, a loop of links, a socket or a device without its driver
_OF_ONE = (errno.EACCES, errno.ELOOP, errno.ENXIO, errno.ENODEV)


@contextmanager
def errors(where: str, one: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Converts an OSError into the error that callers of a store expect. `where`: the beginning of its message. `one`:
    whether it is of a single run's object, so that it says nothing of the others; asked after an error."""
    try:
        yield
    except SlipwayError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY):
            raise Conflict(f"{where}an object or a folder of that name is in the way") from error
        if error.errno == errno.ENAMETOOLONG:
            raise BadInput(f"{where}a name is too long for this file system") from error
        if error.errno in _OF_ONE and one():
            raise BadRecord(f"{where}{error.strerror}") from error
        if error.errno in (errno.EILSEQ, errno.EINVAL):
            raise BadInput(f"{where}this file system takes no such name") from error
        if error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise Unreachable(f"{where}{error.strerror}: a file store needs hard links") from error
        raise Unreachable(f"{where}{error.strerror or error}") from error


class RootMode(NamedTuple):
    """What every object and folder of a store takes from its root, whoever writes it under whatever umask: the group,
    and who may read and write. In a root like /tmp (sticky) others may never write."""

    mode: int
    group: int

    @classmethod
    def of(cls, root: Path) -> RootMode:
        """Raises OSError."""
        found = root.stat()
        mode = stat.S_IMODE(found.st_mode) & 0o2777
        return cls(mode & ~0o002 if found.st_mode & stat.S_ISVTX else mode, found.st_gid)

    def give(self, place: int | Path) -> None:
        """Gives an object (its descriptor) or a folder that this process has made its group and mode."""
        wanted = self.mode if isinstance(place, Path) else self.mode & 0o666
        found = os.stat(place)  # noqa: PTH116 - of a descriptor, too
        if found.st_gid != self.group:
            with suppress(PermissionError):  # the owner is not in that group
                os.chown(place, -1, self.group)
        elif stat.S_IMODE(found.st_mode) == wanted:
            return
        os.chmod(place, wanted)  # noqa: PTH101


def sync_folder(folder: Path | str) -> None:
    """Makes the names in a folder durable. Does nothing if the folder was deleted meanwhile."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def meta(key: str, of: os.stat_result) -> Meta:
    return Meta(key, of.st_size, of.st_mtime, f"{of.st_ino:x}-{of.st_mtime_ns:x}-{of.st_size:x}")


def is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False


def status(entry: os.DirEntry[str]) -> os.stat_result:
    """Of what an entry is or links to; of the link itself where that cannot be known."""
    try:
        return entry.stat()
    except FileNotFoundError:
        raise
    except OSError:
        return entry.stat(follow_symlinks=False)


def open_file(path: str) -> int:
    """Opens a regular file for reading. Raises OSError, also for a pipe, which would keep its reader waiting for ever,
    and for a device."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    kind = os.fstat(fd).st_mode
    if stat.S_ISREG(kind):
        return fd
    os.close(fd)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.ENXIO, "it is no file, but a pipe or a device", path)


def any_file(folder: str) -> bool:
    """Whether there is a file at any depth below a folder; True for a folder that this user may not list."""
    below = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_folder(entry):
                    return True
                below.append(entry.path)
    except GONE:
        return False
    except PermissionError:
        return True
    return any(map(any_file, below))


def read(fd: int, count: int, size: int = PIECE) -> bytes:
    """Reads `count` bytes from the file's current position, or all that are left: perhaps `size`, for which memory is
    taken."""
    pieces = []
    room = min(PIECE, size + 1)
    while count != 0:
        piece = os.read(fd, room if count < 0 else min(PIECE, count))
        if not piece:
            break
        pieces.append(piece)
        count -= len(piece) if count > 0 else 0
    return b"".join(pieces)


def write(fd: int, body: Piece) -> None:
    view = memoryview(body)
    while view:
        view = view[os.write(fd, view) :]
