"""Atomic, durable writes of files."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Gives an OSError the file that it is about: a write to a full disk names none."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _written(path: Path, body: bytes) -> Iterator[Path]:
    """A complete, fsynced temporary file beside `path`, readable by the user only; it is deleted afterwards."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def create(path: Path, body: bytes) -> bool:
    """Creates a file durably; False when the name is taken."""
    return not create_all({path: body})


def create_all(bodies: Mapping[Path, bytes]) -> set[Path]:
    """Creates files, all durable on return. Returns those whose names are taken."""
    taken = set()
    for path, body in bodies.items():
        try:
            if not body:  # nothing in it can be torn: its name alone counts
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
                continue
            with _written(path, body) as temporary:
                os.link(temporary, path)  # fails where a rename would replace
        except FileExistsError:
            taken.add(path)
    _sync_folders(bodies)
    return taken


def replace(path: Path, body: bytes, *, durable: bool = True) -> None:
    """Replaces a file atomically; `durable`: also fsyncs it."""
    if durable:
        replace_all({path: body})
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with naming(path):
        temporary.write_bytes(body)
    temporary.replace(path)


def replace_all(bodies: Mapping[Path, bytes]) -> None:
    """Replaces files, each atomically; all are durable on return."""
    for path, body in bodies.items():
        with _written(path, body) as temporary:
            temporary.replace(path)
    _sync_folders(bodies)


def _sync_folders(paths: Iterable[Path]) -> None:
    for folder in {path.parent for path in paths}:
        sync_folder(folder)


def keep(path: Path, body: bytes) -> None:
    """Replaces a file of this user's cache or state, and makes its folder. One that cannot be written is no error: what
    is kept there saves time, or makes a message better. One that is the same already is only read."""
    with contextlib.suppress(OSError):
        if path.read_bytes() == body:
            return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace(path, body, durable=False)
