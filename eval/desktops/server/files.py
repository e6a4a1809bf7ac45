"""Files of the desktop's home for the server: read, written and listed without following a link that the agent left.

The server may have more rights than the desktop's user, so no path is ever opened as a whole: each folder is opened
from the one above it, and a link on the way is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, Final

from eval.desktop import BrokenByAgent
from eval.desktops import reading
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.reading import DEPTH_LIMIT, LISTED_LIMIT
from eval.desktops.server.errors import Failed, NoPlainFile, NoSuchThing, NotAllowed, TooLarge
from eval.desktops.wire import FILE_LIMIT

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def expanded(path: str, place: RunningDesktop) -> PurePosixPath:
    """A path as the desktop's programs mean it: `~` and $HOME are the home, and a relative path starts there."""
    home = str(place.home_inside)
    for name in ("${HOME}", "$HOME", "~"):
        if path == name or path.startswith(f"{name}/"):
            path = home + path[len(name) :]
    return place.home_inside / path


def below_home(path: str, place: RunningDesktop) -> str:
    """A path as one below the home, "" for the home itself. Raises NotAllowed for a path that leaves it."""
    if not path or "\0" in path:
        raise NotAllowed("a path must not be empty or hold a null character")
    full = expanded(path, place)
    if ".." in full.parts:
        raise NotAllowed(f"{path}: a path with .. is not allowed")
    try:
        return "" if full == place.home_inside else str(full.relative_to(place.home_inside))
    except ValueError:
        raise NotAllowed(f"{path}: only files below the home {place.home_inside} are allowed") from None


def read(path: str, place: RunningDesktop, limit: int = FILE_LIMIT) -> bytes:
    """The content of a file below the home. Raises NotAllowed, NoSuchThing, TooLarge."""
    name = below_home(path, place)
    if not name:
        raise NoSuchThing(f"{path} is a folder")
    try:
        return reading.read_file(place.home, name, limit)
    except FileNotFoundError:
        raise NoSuchThing(f"no such file: {path}") from None
    except BrokenByAgent as error:
        if "bytes" in str(error):
            raise TooLarge(str(error)) from None
        raise NoPlainFile(str(error)) from None


def listed(path: str, place: RunningDesktop) -> dict[str, reading.FileEntry]:
    """What lies below a folder of the home (eval.desktops.reading.list_files). Raises NotAllowed, TooLarge."""
    try:
        return reading.list_files(place.home, below_home(path, place))
    except BrokenByAgent as error:
        raise (TooLarge if "more than" in str(error) else NoPlainFile)(str(error)) from None


def write(path: str, data: bytes, place: RunningDesktop, modified: float | None = None) -> None:
    """Writes a file below the home, and the folders above it; all belong to the desktop's user. A file or link that
    is there under this name is replaced, not written through.

    modified  seconds since 1970: when a file that was not there, and the folders above it, say that they were changed.
              Without it: now
    Raises NotAllowed, Failed, TooLarge.
    """
    name = below_home(path, place)
    if not name:
        raise NoPlainFile(f"{path} is a folder")
    if len(data) > FILE_LIMIT:
        raise TooLarge(f"{path}: more than {FILE_LIMIT} bytes")
    write_below(place.home, PurePosixPath(name), data, modified=modified)


def write_below(
    top: Path, name: PurePosixPath, data: bytes, mode: int = 0o600, *, modified: float | None = None
) -> None:
    """The same below any folder whose owner the file is to have. Raises NotAllowed, Failed."""
    folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    owner = os.fstat(folder)
    try:
        for part in name.parts[:-1]:
            below = _enter(folder, part, owner)
            _date(folder, modified)
            os.close(folder)
            folder = below
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name.parts[-1], dir_fd=folder)
            modified = None  # programs tell by its time that a file has another content
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(name.parts[-1], flags, mode, dir_fd=folder)
        with os.fdopen(file, "wb") as stream:
            os.fchmod(file, mode)  # whatever this process's umask is
            _give(file, owner)
            stream.write(data)
            stream.flush()
            _date(file, modified)
        _date(folder, modified)
    except OSError as error:
        raise Failed(f"{name} cannot be written: {error.strerror}") from None
    finally:
        os.close(folder)


def _enter(folder: int, part: str, owner: os.stat_result) -> int:
    """Opens a folder in a folder, making it where it is missing. Raises NotAllowed for a link, OSError."""
    made = False
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=folder)
        made = True
    try:
        below = os.open(part, _FOLDER, dir_fd=folder)
    except OSError as error:
        raise NoPlainFile(f"{part} is no folder, or is a link: {error.strerror}") from None
    if made:
        _give(below, owner)
    return below


def _date(descriptor: int, modified: float | None) -> None:
    if modified is not None:
        os.utime(descriptor, (modified, modified))


def _give(descriptor: int, owner: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def tree(path: str, place: RunningDesktop) -> dict[str, Any]:
    """A folder below the home, as {type, name, children}; a link is listed as a file and not followed.

    Raises NotAllowed, NoSuchThing, TooLarge (more than LISTED_LIMIT entries, or deeper than DEPTH_LIMIT).
    """
    name = below_home(path, place)
    folder = os.open(place.home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in PurePosixPath(name).parts:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        return _tree(folder, PurePosixPath(path).name or path, [LISTED_LIMIT], DEPTH_LIMIT)
    except OSError as error:
        raise NoSuchThing(f"{path} is no folder that can be listed: {error.strerror}") from None
    finally:
        os.close(folder)


def _tree(folder: int, name: str, left: list[int], depth: int) -> dict[str, Any]:
    if depth == 0:
        raise TooLarge(f"folders lie more than {DEPTH_LIMIT} deep")
    children: list[dict[str, Any]] = []
    for entry in sorted(os.listdir(folder)):
        left[0] -= 1
        if left[0] < 0:
            raise TooLarge(f"more than {LISTED_LIMIT} entries")
        try:
            is_folder = stat.S_ISDIR(os.stat(entry, dir_fd=folder, follow_symlinks=False).st_mode)
            below = os.open(entry, _FOLDER, dir_fd=folder) if is_folder else -1
        except OSError:  # gone meanwhile, or not to be opened
            is_folder, below = False, -1
        if not is_folder:
            children.append({"type": "file", "name": entry})
            continue
        try:
            children.append(_tree(below, entry, left, depth - 1))
        finally:
            os.close(below)
    return {"type": "directory", "name": name, "children": children}
