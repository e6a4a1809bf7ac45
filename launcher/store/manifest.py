"""Folders in the store. A manifest lists every file with its size and sha256, and is written last.

A folder without a manifest does not exist for readers. Every file that is read back is checked against the manifest.
`upload` writes folders.
"""

from __future__ import annotations

import errno
import hashlib
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import BadInput
from launcher.store.base import Store, check_key
from launcher.store.layout import MANIFEST, live_manifest, live_manifests, live_version
from launcher.store.paths import LeftOut, unescaped
from launcher.store.transfer import (
    Damaged,
    Meter,
    Piece,
    Progress,
    checked,
    in_parallel,
    receive,
)

TRIES: Final = 3  # how often wrong bytes are fetched again
_REFUSED: Final = (errno.EILSEQ, errno.ENAMETOOLONG, errno.EINVAL)  # this file system does not allow the name
_BESIDE: Final = (".live/", ".again/")  # follow the folder's name in the key of a file that is not at its own key


class StoredFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of a manifest.

    mtime  ns, of the writer's own file; it saves the writer from reading an unchanged file again
    at     where the file lies if not at its own key: the part of its key after the folder's name (`layout.live_file`)
    name   the file's true name, escaped, if a store cannot hold that name (`paths.stored_name`)
    executable  its owner may execute it
    """

    size: int
    sha256: str
    mtime: int = 0
    at: str = ""
    name: str = ""
    executable: bool = False


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The files of a folder by their relative path in the store.

    time            the writer's clock when it began to read the files
    left_out        the first files that could not be stored
    left_out_count  how many files could not be stored in all
    empty_folders   the folders without an entry, by their true relative paths, escaped
    """

    files: dict[str, StoredFile]
    time: float
    nonce: str
    left_out: tuple[LeftOut, ...] = ()
    left_out_count: int = 0
    empty_folders: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files.values())

    @property
    def digest(self) -> str:
        """sha256 (hex) over paths, sizes and contents. Equal files have equal digests. Modes and empty folders are not
        in it: a folder keeps the digest that it had before they were kept."""
        lines = (f"{file.sha256} {file.size} {path}\n" for path, file in sorted(self.files.items()))
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def key_of(prefix: str, name: str, at: str = "") -> str:
    """The key of a file below `prefix`, which ends with `/`; `at` as in StoredFile."""
    return f"{prefix[:-1]}{at}" if at else prefix + name


def true_name(name: str, file: StoredFile) -> str:
    """A file's relative path as its writer knows it."""
    return unescaped(file.name) if file.name else name


def read_manifest(store: Store, key: str) -> Manifest | None:
    """The manifest at a key; None if there is none. Raises Damaged if the object is no manifest."""
    record = store.read(key)
    if record is None:
        return None
    try:
        manifest = decode(record[0], Manifest)
        for name, file in manifest.files.items():
            _check_name(name)
            if file.at and not file.at.startswith(_BESIDE):
                raise BadInput(f"{file.at!r} does not lie beside the folder")
            check_key(f"-{file.at}")
            true_name(name, file)
        for folder in manifest.empty_folders:
            unescaped(folder)
    except (msgspec.MsgspecError, BadInput, ValueError) as error:
        raise Damaged(f"store {store.url}: {key}: not a manifest: {error}") from None
    return manifest


def fetch_tree(store: Store, prefix: str, manifest: Manifest, dest: Path, *, progress: Progress | None = None) -> None:
    """Fetches the manifest's files into `dest`, under their true names if this file system allows them. A file that
    exists with the right bytes is not fetched again; any other appears only when it is complete and checked. Raises
    NotFound for an object that is missing, Damaged for one whose bytes stay wrong."""
    meter = Meter(manifest.size, progress)
    dest.mkdir(parents=True, exist_ok=True)

    def fetch(name: str, file: StoredFile) -> None:
        try:
            place(name, file, dest / true_name(name, file))
        except OSError as error:
            if not file.name or error.errno not in _REFUSED:
                raise
            place(name, file, dest / name)

    def place(name: str, file: StoredFile, path: Path) -> None:
        if holds(path, file):
            meter.add(file.size)
        else:
            key = key_of(prefix, name, file.at)
            source = f"store {store.url}: {key}"
            undamaged(lambda: receive(_checked(store, key, file, source, meter), path, sync=False))
        if file.executable:
            make_executable(path)

    in_parallel((file.size, lambda name=name, file=file: fetch(name, file)) for name, file in manifest.files.items())  # type: ignore[misc]
    make_empty(dest, manifest)


def make_empty(dest: Path, manifest: Manifest) -> None:
    """Makes the manifest's empty folders below `dest`, where the file system allows their names."""
    for folder in manifest.empty_folders:
        try:
            (dest / unescaped(folder)).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            if error.errno not in _REFUSED:
                raise


def make_executable(path: Path) -> None:
    """Lets those who may read a file execute it."""
    mode = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode | (mode & 0o444) >> 2)


def undamaged(act: Callable[[], object]) -> None:
    """Calls `act`, and repeats it if the bytes were wrong: a network error passes, damage in the store stays."""
    for attempt in range(TRIES):
        try:
            act()
            return
        except Damaged:
            if attempt == TRIES - 1:
                raise


def holds(path: Path, file: StoredFile) -> bool:
    """Whether a local file has the right bytes. Reads the file."""
    try:
        if path.stat().st_size != file.size:
            return False
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == file.sha256
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False


def _check_name(name: str) -> str:
    """The name itself; raises BadInput for a path that leads out of its folder."""
    check_key(f"-/{name}")
    return name


def _checked(store: Store, key: str, file: StoredFile, source: str, meter: Meter) -> Iterator[Piece]:
    return meter.through(checked(store.stream(key), hashlib.sha256(), file.size, file.sha256, source))


# Live outputs of a command that is still running or has failed. Each version has a manifest with the files of one
# moment.
#
# The final manifest is at the output's own key and is read first. If it does not exist, the highest version that has a
# manifest counts. A version is deleted only after a later one is complete.


def find_output(
    store: Store, folder: str, told: int | None = None, *, newer: bool = False
) -> tuple[str, Manifest] | None:
    """(key, manifest) of the output under the prefix `folder` (which ends with `/`): the final manifest, or else the
    newest version's, as `live_outputs` finds it. None if there is neither."""
    final = read_manifest(store, final_key(folder))
    if final is not None:
        return final_key(folder), final
    return next(live_outputs(store, folder, told, newer=newer), None)


def live_outputs(
    store: Store, folder: str, told: int | None = None, *, newer: bool = False
) -> Iterator[tuple[str, Manifest]]:
    """The versions of a live output, newest first. Each is read when the iterator reaches it.

    told   the version that a heartbeat or an exit names, 0 if it names none. The versions are listed only if that
           version does not exist or the caller reads on. None: the caller read neither heartbeat nor exit
    newer  a later version than `told` may be complete, because the leader died before its next heartbeat
    """
    if told == 0 and not newer:
        return
    if told and not newer:
        manifest = read_manifest(store, live_manifest(folder, told))
        if manifest is not None:
            yield live_manifest(folder, told), manifest
    versions = {live_version(meta.key) for meta in store.scan(live_manifests(folder))} | {told if newer else None}
    for version in sorted((number for number in versions if number and (newer or number != told)), reverse=True):
        manifest = read_manifest(store, live_manifest(folder, version))
        if manifest is not None:
            yield live_manifest(folder, version), manifest


def final_key(folder: str) -> str:
    return folder[:-1] + MANIFEST
