"""The code overlay: a folder as one deterministic tar, named by its sha256.

The same files give the same bytes on any machine: sorted names, no times, no owners, two modes (0644, 0755).
Files that git ignores are left out; outside a git work tree, only caches and similar files. A store and the local
backend's state are never packed, wherever they are in the folder. Files with keys or passwords are packed only if
`code.include` names them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast

import msgspec

from launcher.errors import BadInput
from launcher.spec import private

_CLUTTER: Final = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", ".slipway", ".tools", "node_modules", "__pycache__")
)
_CACHES: Final = frozenset((".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".DS_Store"))
# files by which a store or a state folder is recognised under any name
_RUN: Final = r"[a-z0-9-]+-[0-9a-f]{12}"
MARKER: Final = ".slipway-store"  # as launcher.store.layout names it
_RECORD: Final = re.compile(
    rf"(|.*/)(?:{re.escape(MARKER)}|runs/{_RUN}/job\.json|(?:sites/{_RUN}\.json|queue/{_RUN}\.yaml))"
)
_OWN: Final = frozenset(
    (
        MARKER,
        "objects",
        "groups",
        "works",
        "runs",
        "queue",
        "sites",
        "cancels",
        "notes",
        "supervisor.json",
        "supervisor.log",
    )
)
_LISTED: Final = 10  # names in a message, at most
MAX_BYTES: Final = 256 << 20  # a larger overlay holds data, which belongs in `inputs`
MAX_FILES: Final = 100_000  # more files than any project has: data, or a whole file system


class DigestSink:
    """A file object that hashes what is written, and passes it on to `under`."""

    def __init__(self, under: IO[bytes] | None = None) -> None:
        self.sha256 = hashlib.sha256()
        self.size = 0
        self.under = under

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        self.size += len(data)
        if self.under is not None:
            self.under.write(data)
        return len(data)


class Packed(Protocol):
    """What becomes one object of the store, under its digest."""

    @property
    def folder(self) -> Path: ...

    def digest(self) -> str: ...

    def pack(self, out: Path) -> str: ...


class Overlay(msgspec.Struct, frozen=True, dict=True):  # dict: for cached properties
    """The files of a folder that are packed.

    include  patterns of private files that are packed too
    apart    folders that are never packed: the store, the local backend's state
    """

    folder: Path
    include: tuple[str, ...] = ()
    apart: tuple[Path, ...] = ()

    @cached_property
    def _names(self) -> tuple[list[str], list[str]]:
        """(names of packed files, names of private files that are left out), both sorted."""
        chosen: list[str] = []
        private_ones: list[str] = []
        try:
            for name in sorted(_without(self.apart, self.folder, files(self.folder, self.apart))):
                hidden = private.is_private(self.folder, name) and not self._included(name)
                (private_ones if hidden else chosen).append(name)
        except OSError as error:
            raise BadInput(f"code: {error.filename or self.folder}: {error.strerror or error}") from None
        return chosen, private_ones

    def _included(self, name: str) -> bool:
        return any(private.named(name, pattern) for pattern in self.include)

    @property
    def files(self) -> list[str]:
        """The names (with /) that are packed."""
        return self._names[0]

    @property
    def left_out(self) -> list[str]:
        """The names (with /) of private files that are not packed."""
        return self._names[1]

    def digest(self) -> str:
        """The sha256 (hex) of the tar that `pack` writes. Raises BadInput for a file that cannot be packed, and for
        secrets in a text file that `include` does not name."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        problems = []
        for name in self.files:
            path = self.folder / name
            if not path.is_symlink() and not self._included(name):
                try:
                    problems += private.problems(path, str(path))
                except OSError as error:
                    raise BadInput(f"code: {path}: {error.strerror or error}") from None
        if problems:
            raise BadInput(problems)
        return _pack(self.folder, self.files, DigestSink())

    def pack(self, out: Path) -> str:
        """Writes the tar; returns its sha256 (hex). Raises BadInput for a file that cannot be packed."""
        with out.open("wb") as stream:
            return _pack(self.folder, self.files, DigestSink(stream))

    def note(self) -> str:
        """One line about the files that were left out; empty if there are none."""
        names = self.left_out
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        listed = f"{', '.join(names[:_LISTED])}{more}"
        return (
            f"left out of the overlay of {self.folder}, as private: {listed}; `code.include` packs them"
            if names
            else ""
        )

    def unmatched(self) -> list[str]:
        """The patterns of `include` that match no file."""
        return [pattern for pattern in self.include if not any(private.named(name, pattern) for name in self.files)]


def _pack(folder: Path, names: list[str], sink: DigestSink) -> str:
    with tarfile.open(fileobj=cast(Any, sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            path = folder / name
            entry = tarfile.TarInfo(name)
            if path.is_symlink():
                target = os.readlink(path)  # noqa: PTH115 - the exact text of the link
                inside = os.path.normpath(os.path.join(os.path.dirname(name), target))  # noqa: PTH118, PTH120
                if os.path.isabs(target) or inside.startswith(".."):  # noqa: PTH117
                    raise BadInput(f"code: {name} links to {target}, outside of {folder}")
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
                continue
            try:
                with path.open("rb") as stream:
                    status = os.fstat(stream.fileno())
                    entry.size = status.st_size
                    entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
                    tar.addfile(entry, stream)
            except OSError as error:
                raise BadInput(f"code: {path}: {error.strerror or error}") from None
            if sink.size > MAX_BYTES:
                raise BadInput(f"code: {folder} is larger than {MAX_BYTES >> 20} MiB; data belongs in `inputs`")
    return sink.sha256.hexdigest()


def files(folder: Path, apart: Iterable[Path] = ()) -> list[str]:
    """The names (with /) that git tracks or would track; outside a work tree, all files except caches and similar ones,
    without entering the folders of `apart`. Raises BadInput for more than MAX_FILES, OSError for an unreadable
    folder."""
    tracked = _tracked(folder)
    names = list(islice(_walk(folder, _identities(apart)), MAX_FILES + 1)) if tracked is None else tracked
    if len(names) > MAX_FILES:
        raise BadInput(f"code: {folder} holds more than {MAX_FILES:,} files; data belongs in `inputs`")
    return names


def _identities(folders: Iterable[Path]) -> set[tuple[int, int]]:
    """Device and inode of each existing folder: the same through links and mounts."""
    return {identity for folder in folders if (identity := _identity(folder)) is not None}


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _without(apart: Iterable[Path], folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Leaves out names below a folder of `apart` and links to such a folder, and also other stores and state folders,
    which are recognised by their files. Raises BadInput if `folder` itself is inside a folder of `apart`."""
    known = _identities(apart)
    for above in Path(os.path.realpath(folder)).parents:
        if known and _identity(above) in known:
            raise BadInput(f"code: {folder} lies in {above}, the store or the state of the local backend")
    names = list(names)
    is_apart = {".slipway": True, "": _identity(folder) in known}  # folder -> whether it stays apart
    is_apart |= {match[1].rstrip("/"): True for name in names if (match := _RECORD.fullmatch(name)) and match[1]}
    own = is_apart[""] or any((match := _RECORD.fullmatch(name)) and not match[1] for name in names)

    def stays_apart(inner: str) -> bool:
        if inner not in is_apart:
            above, _, last = inner.rpartition("/")
            below = above != "" and stays_apart(above)
            is_apart[inner] = below or last == ".slipway" or (bool(known) and _identity(folder / inner) in known)
        return is_apart[inner]

    for name in names:
        inside = name.rpartition("/")[0]
        if (inside and stays_apart(inside)) or (own and name.partition("/")[0] in _OWN):
            continue
        path = folder / name
        if path.is_symlink() and known & _identities((path, *Path(os.path.realpath(path)).parents)):
            continue
        yield name


def _tracked(folder: Path) -> list[str] | None:
    """The names that git tracks or would track; None outside a work tree."""
    if shutil.which("git") is None:
        return None
    # with the caller's GIT_DIR (set within hooks) git would list another tree
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        return None
    names = {os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}
    # skips deleted files that are still in the index, and submodules, which are folders
    return [name for name in names if (folder / name).is_symlink() or (folder / name).is_file()]


def _walk(folder: Path, apart: set[tuple[int, int]]) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    for here, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if name not in _CLUTTER | _CACHES and not name.endswith(".egg-info")]
        if apart:
            folders[:] = [name for name in folders if _identity(Path(here, name)) not in apart]
        for name in names:
            path = Path(here, name)
            clutter = name in _CACHES or name.endswith((".pyc", "~"))
            if not clutter and (path.is_symlink() or path.is_file()):
                yield path.relative_to(folder).as_posix()
