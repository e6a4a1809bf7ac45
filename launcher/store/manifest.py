"""Folders in the store: every file with its size and sha256, listed in a manifest that is written last.

A folder without its manifest is not there. What is read back is checked against it, and wrong bytes are never kept.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec

from launcher.errors import BadInput
from launcher.store.base import Store, check_key
from launcher.store.transfer import (
    Damaged,
    Meter,
    Piece,
    Progress,
    checked,
    file_pieces,
    in_parallel,
    receive,
)

TRIES: Final = 3  # for bytes that came wrong
RACY: Final = 2.0  # seconds; a file changed so shortly before it was sent may change again under the same mtime


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """`mtime` (ns) is that of the writer's own file: it only saves the writer from reading the file again."""

    size: int
    sha256: str
    mtime: int = 0


class Manifest(msgspec.Struct, frozen=True):
    """The files of a folder by their relative path; `time` is the writer's clock when it began to read them."""

    files: dict[str, File]
    time: float
    nonce: str

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def digest(self) -> str:
        """sha256 (hex) over paths, sizes and contents: equal for equal folders."""
        lines = (f"{file.sha256} {file.size} {path}\n" for path, file in sorted(self.files.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_tree(
    store: Store,
    prefix: str,
    manifest_key: str | None,
    root: Path,
    *,
    previous: Manifest | None = None,
    snapshot: Path | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Puts every regular file below `root` under `prefix` (which ends with `/`), then the manifest.

    previous   what this prefix holds already: files that did not change since are not sent again
    snapshot   a new folder on the same file system: files are hard-linked there first, so that whoever deletes or
               replaces them meanwhile tears nothing; it is removed afterwards
    manifest_key   None sends the files only

    Links are followed. A file that vanishes while this runs is left out. Raises OSError for a file that can not be
    read, BadInput for a name that no store can hold.
    """
    if snapshot is not None:
        try:
            link_tree(root, snapshot)
            return write_tree(store, prefix, manifest_key, snapshot, previous=previous, progress=progress)
        finally:
            shutil.rmtree(snapshot, ignore_errors=True)
    began = time.time()
    known = previous.files if previous is not None else {}
    found = {name: (path, path.stat()) for name, path in walk(root) if path.exists()}
    meter = Meter(sum(status.st_size for _, status in found.values()), progress)
    files: dict[str, File] = {}
    lock = threading.Lock()

    def send(name: str, path: Path, status: os.stat_result) -> None:
        try:
            file = _sent(store, prefix + name, path, status, known.get(name), previous, meter)
        except FileNotFoundError:
            if path.exists():
                raise
            return
        with lock:
            files[name] = file

    in_parallel((item[1].st_size, lambda name=name, item=item: send(name, *item)) for name, item in found.items())  # type: ignore[misc]
    manifest = Manifest(dict(sorted(files.items())), began, uuid4().hex)
    if manifest_key is not None:
        store.put(manifest_key, msgspec.json.encode(manifest))
    return manifest


def read_manifest(store: Store, key: str) -> Manifest | None:
    """None when there is none; raises Damaged for one that is not a manifest."""
    found = store.read(key)
    if found is None:
        return None
    try:
        manifest = msgspec.json.decode(found[0], type=Manifest)
        for name in manifest.files:
            _check_name(name)
    except (msgspec.MsgspecError, BadInput, UnicodeDecodeError) as error:
        raise Damaged(f"store {store.url}: {key}: not a manifest: {error}") from None
    return manifest


def fetch_tree(store: Store, prefix: str, manifest: Manifest, dest: Path, *, progress: Progress | None = None) -> None:
    """Makes the manifest's files below `dest`. A file that is there with the right bytes is not fetched again; each
    other appears whole and checked. Raises NotFound for an object that is gone, Damaged for one that stays wrong."""
    meter = Meter(manifest.size, progress)
    dest.mkdir(parents=True, exist_ok=True)

    def fetch(name: str, file: File) -> None:
        path = dest / _check_name(name)
        if holds(path, file):
            meter.add(file.size)
            return
        what = f"store {store.url}: {prefix}{name}"
        undamaged(lambda: receive(_checked(store, prefix + name, file, what, meter), path, sync=False))

    in_parallel((file.size, lambda name=name, file=file: fetch(name, file)) for name, file in manifest.files.items())  # type: ignore[misc]


def undamaged(act: Callable[[], object]) -> None:
    """`act()`, again when the bytes came wrong: a fault on the way passes, one in the store does not."""
    for attempt in range(TRIES):
        try:
            act()
            return
        except Damaged:
            if attempt == TRIES - 1:
                raise


def holds(path: Path, file: File) -> bool:
    """Whether a local file has the right bytes; reads it."""
    try:
        if path.stat().st_size != file.size:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def walk(root: Path) -> Iterator[tuple[str, Path]]:
    """(relative path, path) of every regular file, links followed, loops left; sorted within each folder."""

    def below(folder: Path, relative: str, above: frozenset[tuple[int, int]]) -> Iterator[tuple[str, Path]]:
        status = folder.stat()
        here = (status.st_dev, status.st_ino)
        if here in above:
            return
        for path in sorted(folder.iterdir()):
            name = f"{relative}{path.name}"
            with suppress(FileNotFoundError):  # gone meanwhile, or a link to nothing
                mode = path.stat().st_mode
                if stat.S_ISDIR(mode):
                    yield from below(path, f"{name}/", above | {here})
                elif stat.S_ISREG(mode):
                    yield _check_name(name), path

    yield from below(root, "", frozenset())


def link_tree(root: Path, snapshot: Path) -> None:
    """The same files in a new folder, by hard links; copies where the file system has none."""
    snapshot.mkdir(parents=True)
    for name, path in walk(root):
        target = snapshot / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            try:
                os.link(path.resolve(), target)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                    raise
                shutil.copy2(path, target)


def _check_name(name: str) -> str:
    """A relative path that stays below its folder."""
    check_key(f"-/{name}")
    return name


def _sent(
    store: Store,
    key: str,
    path: Path,
    status: os.stat_result,
    known: File | None,
    previous: Manifest | None,
    meter: Meter,
) -> File:
    if known is not None and previous is not None and known.size == status.st_size:
        settled = status.st_mtime < previous.time - RACY
        if settled and known.mtime == status.st_mtime_ns:
            meter.add(known.size)
            return known
        if holds(path, known):
            meter.add(known.size)
            return File(known.size, known.sha256, status.st_mtime_ns)
    sent = 0

    def source() -> Iterator[Piece]:
        nonlocal sent
        sent = 0
        for piece in meter.through(file_pieces(path)):
            sent += len(piece)
            yield piece

    # the file may grow meanwhile: what counts is what was sent
    digest = store.send(key, source, status.st_size)
    return File(sent, digest, status.st_mtime_ns)


def _checked(store: Store, key: str, file: File, what: str, meter: Meter) -> Iterator[Piece]:
    return meter.through(checked(store.stream(key), hashlib.sha256(), file.size, file.sha256, what))
