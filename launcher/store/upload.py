"""Uploads a folder into the store, with any number of retries.

A server may execute a put whose connection broke long after its retry. So no key is put with two different bodies. The
sha256 of every put that may still take effect is remembered; if the file has changed since, it goes to another key,
which its entry in the manifest names. A manifest is encoded once, before its first put.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from launcher.errors import Conflict, NotFound, SlipwayError, Unreachable
from launcher.store.base import Store
from launcher.store.layout import again_file, live_file
from launcher.store.manifest import Manifest, StoredFile, holds, key_of
from launcher.store.paths import LeftOutFiles, escaped, stored_name, walk
from launcher.store.transfer import Meter, Progress, file_pieces, in_parallel

RACY: Final = 2.0  # seconds; a file that changed so shortly before it was sent may change again with the same mtime
COPIED: Final = 4 << 30  # bytes; a store cannot copy a larger object in one request
AGAIN: Final = 3  # keys that one round tries for a file that keeps changing


class Changed(SlipwayError):
    """A file changed between two tries of a put, and the first try may still take effect."""


class Sent(NamedTuple):
    file: StoredFile
    began: float  # the writer's clock at the start of the round that sent the file or saw it unchanged


class LocalFile(NamedTuple):
    path: Path
    status: os.stat_result
    name: str  # as in StoredFile

    @property
    def executable(self) -> bool:
        return bool(self.status.st_mode & stat.S_IXUSR)


class Upload:
    """Uploads the files below `root` to keys under `prefix` (which ends with `/`). Not thread-safe.

    `paths.walk` selects the files, `paths.stored_name` names them. A file that disappears meanwhile is skipped. All
    methods raise OSError for a file that cannot be read, and Unreachable; the next call continues.

    left   files that the last call left out; a caller that copied `root` from another folder passes those it left out
    empty_folders  those that the last call found, as in Manifest
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        root: Path,
        *,
        progress: Progress | None = None,
        left: LeftOutFiles | None = None,
    ) -> None:
        self.left = left or LeftOutFiles()
        self.empty_folders: tuple[str, ...] = ()
        self._given = left
        self.keys: set[str] = set()  # keys of live files whose put has begun and that are not deleted
        self._store, self._prefix, self._root, self._progress = store, prefix, root, progress
        self._live: dict[str, Sent] = {}
        self._final: dict[str, Sent] = {}
        self._tried: dict[str, tuple[int, str]] = {}  # key -> size and sha256 of the put that has begun
        self._numbers = 0
        self._manifest: Manifest | None = None
        self._lock = threading.Lock()

    def version(self, number: int) -> dict[str, StoredFile]:
        """Sends the files that changed since the last call as version `number`, which must be new. Returns all files by
        name, each with the version that holds it. A file that changes during its upload stays at its last version."""

        def send(name: str, found: LocalFile, began: float, meter: Meter) -> StoredFile:
            old = self._live.get(name)
            if old is not None and (same := _unchanged(found, old)):
                meter.add(same.size)
                return same
            at = live_file(number, name)
            key = key_of(self._prefix, name, at)
            with self._lock:
                self.keys.add(key)
            try:
                return self._sent(name, found, at, meter)
            finally:
                self._tried.pop(key, None)  # no later call uses it

        self._live = self._each(self._live, send)
        return {name: sent.file for name, sent in sorted(self._live.items())}

    def final(self, manifest_key: str) -> Manifest:
        """Sends the files that `prefix` does not hold yet, then the manifest. A file with the same bytes in a live
        version is copied within the store. After the put of the manifest has begun, a later call only repeats it."""
        if self._manifest is None:
            began = time.time()
            self._final = self._each(self._final, self._finally)
            files = {name: sent.file for name, sent in sorted(self._final.items())}
            self._manifest = Manifest(files, began, uuid4().hex, self.left.listed, self.left.count, self.empty_folders)
        if not self._store.create(manifest_key, msgspec.json.encode(self._manifest)):
            raise Conflict(f"store {self._store.url}: {manifest_key}: another writer's manifest is there")
        return self._manifest

    def _each(
        self, before: dict[str, Sent], send: Callable[[str, LocalFile, float, Meter], StoredFile]
    ) -> dict[str, Sent]:
        """Every file of the folder by name, as `send` returns it. After an error the next call keeps the files that
        were sent."""
        began = time.time()
        left = self._given or LeftOutFiles()
        empty: list[str] = []
        files = dict(self._found(left, empty))
        self.left, self.empty_folders = left, tuple(sorted(empty))
        meter = Meter(sum(local_file.status.st_size for local_file in files.values()), self._progress)
        done: dict[str, Sent] = {}

        def task(name: str, local_file: LocalFile) -> None:
            try:
                file = send(name, local_file, began, meter)
            except FileNotFoundError:
                if local_file.path.exists():
                    raise
                return
            except Changed:
                if name in before:
                    with self._lock:
                        done[name] = before[name]
                return
            with self._lock:
                done[name] = Sent(file, began)

        try:
            in_parallel(
                (local_file.status.st_size, lambda name=name, local_file=local_file: task(name, local_file))  # type: ignore[misc]
                for name, local_file in files.items()
            )
        except BaseException:
            before.update(done)
            raise
        return done

    def _found(self, left: LeftOutFiles, empty: list[str]) -> Iterator[tuple[str, LocalFile]]:
        for name, path, status in walk(self._root, leave=left, empty=lambda name: empty.append(escaped(name))):
            stored = stored_name(name)
            yield stored, LocalFile(path, status, "" if stored == name else escaped(name))

    def _finally(self, name: str, local_file: LocalFile, began: float, meter: Meter) -> StoredFile:
        old = self._final.get(name)
        if old is not None and (same := _unchanged(local_file, old)):
            meter.add(same.size)
            return same
        live = self._live.get(name)
        if live is not None and (same := _unchanged(local_file, live)) and self._copied(name, same):
            meter.add(same.size)
            return msgspec.structs.replace(same, at="")
        at = ""
        for _ in range(AGAIN):
            try:
                return self._sent(name, local_file, at, meter)
            except Changed:
                with self._lock:
                    self._numbers += 1
                    at = again_file(self._numbers, name)
        raise Unreachable(f"{local_file.path} changes while it is sent")

    def _copied(self, name: str, live: StoredFile) -> bool:
        key = self._prefix + name
        if live.size > COPIED or not self._first(key, live.size, live.sha256):
            return False
        try:
            self._store.copy(key_of(self._prefix, name, live.at), key)
        except NotFound:
            return False
        return True

    def _first(self, key: str, size: int, sha256: str) -> bool:
        """Whether a key may get these bytes: no put with other bytes has begun for it."""
        with self._lock:
            return self._tried.setdefault(key, (size, sha256)) == (size, sha256)

    def _sent(self, name: str, local_file: LocalFile, at: str, meter: Meter) -> StoredFile:
        key = key_of(self._prefix, name, at)
        sent = 0

        def known(size: int, digest: str) -> None:
            nonlocal sent
            sent = size
            if not self._first(key, size, digest):
                raise Changed(f"{local_file.path} changed while it was sent")

        # the file may grow meanwhile, so the manifest records the bytes that were sent
        digest = self._store.send(
            key, lambda: meter.through(file_pieces(local_file.path)), local_file.status.st_size, known=known
        )
        return StoredFile(sent, digest, local_file.status.st_mtime_ns, at, local_file.name, local_file.executable)


def _unchanged(local_file: LocalFile, sent: Sent) -> StoredFile | None:
    """The file's entry from its last upload if the file still has the same bytes; None otherwise."""
    file, status = sent.file, local_file.status
    if file.size != status.st_size:
        return None
    settled = status.st_mtime < sent.began - RACY
    if (settled and file.mtime == status.st_mtime_ns) or holds(local_file.path, file):
        return msgspec.structs.replace(file, mtime=status.st_mtime_ns, executable=local_file.executable)
    return None
