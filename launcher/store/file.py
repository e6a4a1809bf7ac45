"""A store in a folder. An object is prepared in `.tmp`, fsynced, and then appears whole: by link for a create-only put,
by rename otherwise. Readers take no lock and never see a part of an object."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from launcher.clock import boottime
from launcher.errors import BadInput, BadRecord, Conflict, NotFound, Unreachable
from launcher.store import disk
from launcher.store.base import TEMPORARY, Meta, check_key, check_path
from launcher.store.layout import MARKER, ROOMS
from launcher.store.transfer import PIECE, Known, Piece, checked, download, file_pieces

CLOCK_KEPT: Final = 0.1  # seconds for which a reading of the clock is counted on: users may set it
ABANDONED: Final = 24 * 3600.0  # seconds without a write after which a temporary file may be deleted
_ROOMS: Final = ("runs", "works", "groups", "objects")


class FileStore:
    """Objects are files under `root`.

    An object takes its group and mode from the root: whoever may use the store may read what another user wrote.

    sync=False  leaves out every fsync; for caches and fixtures that may be lost in a power failure
    any_name    allows every name that the file system allows; for a folder that people read
    there       the store must exist already: its root has a marker, or objects from before there were markers. If the
                root is missing or empty, calls raise Unreachable: the folder may have been moved or unmounted, and an
                empty store in its place would start every run again. Without `there` the first write makes the root
    """

    def __init__(self, root: Path, *, sync: bool = True, any_name: bool = False, there: bool = False) -> None:
        self.root = root
        self._base = str(root)
        self._there = there
        self._id = b""  # the id in the marker; empty until it is read
        self.url = root.as_uri()
        self._sync = sync
        self._check = check_path if any_name else check_key
        self._temporary = root / TEMPORARY
        self._nonce = uuid4().hex[:12]
        self._numbers = itertools.count()
        self._swept = False
        self._root_mode: disk.RootMode | None = None
        self._lock = threading.Lock()
        self._clock = (-1.0, 0.0)  # the boot time at the last reading of the file system's clock, and what it said

    def __reduce__(self) -> tuple[Callable[[], FileStore], tuple[()]]:
        """For a process that is started by spawn."""
        options = {"sync": self._sync, "any_name": self._check is check_path, "there": self._there}
        return partial(type(self), self.root, **options), ()

    @classmethod
    def at(cls, url: str, *, there: bool = False) -> FileStore:
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
            raise BadInput(f"store `{url}`: a folder is written file:///absolute/path")
        return cls(Path(os.path.normpath(unquote(parts.path))), there=there)

    def make(self) -> None:
        """Makes the store, or adds a marker to an older one. From then on the store must exist."""
        self._there = False
        self.create(MARKER, f"{uuid4().hex}\n".encode())
        self._there = True
        self._be_there()

    # reading

    def get(self, key: str) -> bytes:
        stored = self.read(key)
        if stored is None:
            raise self._missing(key)
        return stored[0]

    def get_range(self, key: str, start: int, end: int | None = None) -> bytes:
        with self._errors(key):
            try:
                with open(disk.open_file(self._at(key)), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                    file.seek(start)
                    return disk.read(file.fileno(), -1 if end is None else max(0, end - start))
            except (*disk.GONE, IsADirectoryError):
                raise self._missing(key) from None

    def read(self, key: str) -> tuple[bytes, Meta] | None:
        with self._errors(key):
            try:
                with open(disk.open_file(self._at(key)), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
                    found = os.fstat(file.fileno())
                    return disk.read(file.fileno(), -1, found.st_size), disk.meta(key, found)
            except (*disk.GONE, IsADirectoryError):
                self._be_there()
                return None

    def head(self, key: str) -> Meta | None:
        with self._errors(key):
            try:
                found = os.stat(self._at(key))  # noqa: PTH116 - asked several times per run
                return None if stat.S_ISDIR(found.st_mode) else disk.meta(key, found)
            except disk.GONE:
                self._be_there()
                return None

    def scan(self, prefix: str, after: str = "") -> Iterator[Meta]:
        folder, _, _ = prefix.rpartition("/")
        yield from self._walk(f"{folder}/" if folder else "", prefix, after)

    def folders(self, prefix: str) -> list[str]:
        prefix = prefix and prefix.rstrip("/") + "/"
        subfolders = (item for item in self._entries(prefix) if item[0].endswith("/"))
        with self._errors(prefix):
            return sorted(name[:-1] for name, entry in subfolders if disk.any_file(entry.path))

    def level(self, prefix: str) -> tuple[list[Meta], list[str]]:
        prefix = prefix and prefix.rstrip("/") + "/"
        metas, names = [], []
        with self._errors(prefix):
            for name, entry in self._entries(prefix):
                if name.endswith("/"):
                    names += [name[:-1]] if disk.any_file(entry.path) else []
                else:
                    with suppress(FileNotFoundError):  # deleted meanwhile
                        metas.append(disk.meta(prefix + name, disk.status(entry)))
        return metas, sorted(names)

    def stream(self, key: str) -> Iterator[Piece]:
        with self._errors(key):
            try:
                file = open(disk.open_file(self._at(key)), "rb", buffering=0)  # noqa: PTH123,SIM115 - a descriptor
            except (*disk.GONE, IsADirectoryError):
                raise self._missing(key) from None
        with file:
            while True:
                with self._errors(key):
                    piece = file.read(PIECE)
                if not piece:
                    return
                yield piece

    def download(self, key: str, path: Path) -> str:
        return download(self.stream(key), path)

    def now(self) -> float:
        # a verb asks once per run
        at, said = self._clock
        if 0 <= (passed := boottime() - at) < CLOCK_KEPT and at >= 0:
            return said + passed
        before = boottime()
        self._clock = before, self._moment()
        return self._clock[1]

    def _moment(self) -> float:
        """The file system's clock, which on a network file system is not this machine's."""
        path = self._temporary / self._name()
        try:
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except OSError:
            return time.time()  # the store is empty, or this user may not write
        try:
            os.utime(fd)
            return os.fstat(fd).st_mtime
        finally:
            os.close(fd)
            path.unlink()

    # writing

    def create(self, key: str, body: bytes) -> bool:
        target = self._path(key)
        with self._errors(key):
            if target.exists():
                return self._is_ours(key, body)
            with self._prepared([body]) as part:
                try:
                    self._place(target, lambda: os.link(part, target))
                except FileExistsError:
                    return self._is_ours(key, body)
        return True

    def name_again(self, key: str, like: str) -> bool:
        """Gives the object `like` another key: a third of the work of `create`, for its bytes and its time are durable.
        False if that is not possible: the key is taken, `like` is gone, or a file has no room for more names."""
        target = self._at(key)
        try:
            os.link(self._at(like), target)
        except OSError:
            return False
        with self._errors(key):
            if self._sync:
                disk.sync_folder(target.rpartition("/")[0])
        return True

    def put(self, key: str, body: bytes) -> None:
        target = self._path(key)
        with self._errors(key), self._prepared([body]) as part:
            self._place(target, lambda: part.replace(target))

    def copy(self, source: str, target: str) -> None:
        # a hard link is enough, because objects are replaced, never changed in place
        place = self._path(target)
        part = self._part()
        try:
            with self._errors(target):
                try:
                    os.link(self._path(source), part)
                except disk.GONE:
                    raise self._missing(source) from None
                self._place(place, lambda: part.replace(place))
        finally:
            with suppress(OSError):  # moved, or the target is the same file, so rename left both names
                part.unlink()

    def upload(self, key: str, path: Path) -> str:
        return self.send(key, lambda: file_pieces(path), path.stat().st_size)

    def send(
        self,
        key: str,
        source: Callable[[], Iterable[Piece]],
        size: int,
        sha256: str | None = None,
        known: Known | None = None,
    ) -> str:
        target = self._path(key)
        sha = hashlib.sha256()
        pieces = checked(source(), sha, size, sha256, f"store {self.url}: {key}", known)
        with self._prepared(pieces) as part, self._errors(key):
            self._place(target, lambda: part.replace(target))
        return sha.hexdigest()

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            path = self._path(key)
            with self._errors(key):
                with suppress(*disk.GONE, IsADirectoryError):
                    path.unlink()
                with suppress(OSError):  # not empty, or deleted already
                    for folder in path.parents:
                        if folder == self.root:
                            break
                        folder.rmdir()

    # helpers

    @property
    def _mode(self) -> disk.RootMode | None:
        """The root's mode, once it is there; None for a folder that people read, which their umask governs."""
        if self._root_mode is None and self._check is check_key:
            with suppress(*disk.GONE):
                self._root_mode = disk.RootMode.of(self.root)
        return self._root_mode

    def _mend(self) -> None:
        """Gives the store's own folders, which a supervisor of an older launcher made for its user alone, the root's
        mode."""
        for path in (self._temporary, *(self.root / room for room in ROOMS)):
            with suppress(OSError):
                found = path.stat()
                if (mode := self._mode) is not None and found.st_uid == os.geteuid() and found.st_mode & 0o777 == 0o700:
                    mode.give(path)

    def _path(self, key: str) -> Path:
        return Path(self._at(key))

    def _at(self, key: str) -> str:
        return f"{self._base}/{self._check(key)}"

    def _name(self) -> str:
        """Of no other process, a forked one neither."""
        return f"{os.getpid()}-{self._nonce}-{next(self._numbers)}"

    def _part(self) -> Path:
        """A new path in the temporary folder. The first call makes the folder and deletes files of dead writers."""
        if not self._swept:
            with self._lock, self._errors(TEMPORARY):
                self._make(self._temporary)
                self._mend()
                limit = time.time() - ABANDONED
                for entry in os.scandir(self._temporary):
                    with suppress(FileNotFoundError, PermissionError):
                        if entry.stat().st_mtime < limit:
                            Path(entry).unlink()
                self._swept = True
        return self._temporary / self._name()

    @contextmanager
    def _prepared(self, pieces: Iterable[Piece]) -> Iterator[Path]:
        """A temporary file with these bytes, fsynced; removed at the end unless it was moved."""
        part = self._part()
        try:
            with self._errors(TEMPORARY):
                try:
                    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
                except FileNotFoundError:  # the temporary folder was deleted, alone or with the store
                    self._make(self._temporary)
                    fd = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            try:
                if (mode := self._mode) is not None:
                    with self._errors(TEMPORARY):
                        mode.give(fd)
                for piece in pieces:
                    with self._errors(TEMPORARY):
                        disk.write(fd, piece)
                if self._sync:
                    with self._errors(TEMPORARY):
                        os.fsync(fd)
            finally:
                os.close(fd)
            yield part
        finally:
            with suppress(OSError):  # moved, or the store is missing, which raises its own error
                part.unlink()

    def _place(self, target: Path, move: Callable[[], object]) -> None:
        """Moves a prepared file to its place, durably. A concurrent delete may remove the folder in between."""
        for _ in range(100):
            try:
                move()
            except FileNotFoundError:
                self._make(target.parent)
            else:
                if self._sync:
                    disk.sync_folder(target.parent)
                return
        raise FileNotFoundError(errno.ENOENT, "another program keeps removing the folder")

    def _make(self, folder: Path) -> None:
        """Makes a folder and those above it, each durable in the one above; a concurrent delete may win."""
        self._be_there()
        missing = list(itertools.takewhile(lambda path: not path.is_dir(), [folder, *folder.parents]))
        if self._there:
            missing = [path for path in missing if self.root in path.parents]
        for path in reversed(missing):
            try:
                path.mkdir()
                if self.root in path.parents and (mode := self._mode) is not None:
                    mode.give(path)
            except FileNotFoundError:
                return
            except FileExistsError:
                if path.is_file():  # checked once, because the folder may appear and disappear meanwhile
                    raise NotADirectoryError(errno.ENOTDIR, "an object is in the way", str(path)) from None
            if self._sync:
                disk.sync_folder(path.parent)

    def _is_ours(self, key: str, body: bytes) -> bool:
        stored = self.read(key)
        if stored is None and self._path(key).is_dir():
            raise Conflict(f"store {self.url}: {key}: a folder of that name is in the way")
        return stored is not None and stored[0] == body

    def _entries(self, folder: str) -> list[tuple[str, os.DirEntry[str]]]:
        """The entries of a folder in the order of their keys; the name of a sub-folder ends with a slash."""
        with self._errors(folder):
            try:
                with os.scandir(self.root / folder if folder else self.root) as entries:
                    pairs = [(entry.name + "/" if disk.is_folder(entry) else entry.name, entry) for entry in entries]
            except disk.GONE:
                pairs = []
            if not pairs:
                self._be_there()
        if not folder:
            pairs = [item for item in pairs if item[0] not in (TEMPORARY + "/", MARKER)]
        return sorted(pairs, key=lambda item: item[0])

    def _walk(
        self, folder: str, prefix: str, after: str, entries: list[tuple[str, os.DirEntry[str]]] | None = None
    ) -> Iterator[Meta]:
        """The objects below `folder` (empty or with a slash at its end) whose keys start with `prefix`."""
        for name, entry in self._entries(folder) if entries is None else entries:
            key = folder + name
            if name.endswith("/"):
                inside = key.startswith(prefix) or prefix.startswith(key)
                if inside and (key > after or after.startswith(key)):
                    try:
                        entries = self._entries(key)
                    except BadRecord:  # a folder that this user may not list is one object, which cannot be read
                        yield disk.meta(key[:-1], disk.status(entry))
                        continue
                    yield from self._walk(key, prefix, after, entries)
            elif key > after and key.startswith(prefix):
                with suppress(FileNotFoundError):  # deleted meanwhile
                    yield disk.meta(key, disk.status(entry))

    def _be_there(self) -> None:
        """Raises Unreachable if the store does not exist, or another store is in its place."""
        if not self._there:
            return
        try:
            marker_id = (self.root / MARKER).read_bytes()
        except FileNotFoundError:
            if not any(disk.any_file(str(self.root / room)) for room in _ROOMS):
                reason = "the folder is empty" if self.root.is_dir() else "the folder is not there"
                raise Unreachable(
                    f"store {self.url}: {reason}: unmounted, moved away, deleted, or no submit has made it yet"
                ) from None
            return  # older than markers
        if self._id and marker_id != self._id:
            raise Unreachable(f"store {self.url}: another store is there now")
        self._id = marker_id

    def _missing(self, key: str) -> NotFound:
        self._be_there()
        return NotFound(f"store {self.url}: {key}: not there")

    def _errors(self, key: str) -> AbstractContextManager[None]:
        return disk.errors(f"store {self.url}: {key}: ", lambda: self._open_above(key))

    def _open_above(self, key: str) -> bool:
        """Whether the root and the room of a key can be listed: if not, the store is not reached, whatever the key."""
        room, slash, _ = key.rstrip("/").partition("/")
        try:
            for folder in (self.root, self.root / room):
                os.scandir(folder).close()
        except OSError:
            return False
        return bool(slash)
