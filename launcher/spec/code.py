"""The code overlay: a folder as one deterministic tar, named by its sha256.

The same files give the same bytes on any machine: sorted names, no times, no owners, two modes (0644, 0755).
What git ignores stays out; outside a git work tree the usual clutter does.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, cast

from launcher.errors import BadInput

_CLUTTER: Final = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", ".slipway", ".tools", "node_modules", "__pycache__")
)
_CACHES: Final = frozenset((".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".DS_Store"))
MAX_BYTES: Final = 256 << 20  # a larger overlay holds data, which belongs into `inputs`


class _Digest:
    """A file object that only hashes."""

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


def digest(folder: Path) -> str:
    """The sha256 (hex) of what `pack` writes."""
    return _pack(folder, _Digest())


def pack(folder: Path, out: Path) -> str:
    """Writes the tar of a folder; returns its sha256 (hex). Raises BadInput for what can not be packed."""
    with out.open("wb") as stream:
        return _pack(folder, _Digest(stream))


def _pack(folder: Path, sink: _Digest) -> str:
    with tarfile.open(fileobj=cast(Any, sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files(folder)):
            path = folder / name
            entry = tarfile.TarInfo(name)
            if path.is_symlink():
                target = os.readlink(path)  # noqa: PTH115 - the text as it is
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
                raise BadInput(f"code: {folder} is larger than {MAX_BYTES >> 20} MiB; data belongs into `inputs`")
    return sink.sha256.hexdigest()


def files(folder: Path) -> list[str]:
    """The names (with /) that belong into the overlay."""
    names = _tracked(folder)
    return list(_walk(folder)) if names is None else names


def _tracked(folder: Path) -> list[str] | None:
    """What git tracks or would track; None outside a work tree."""
    if shutil.which("git") is None:
        return None
    # the caller's GIT_DIR (set within hooks) would make git answer for another tree
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
    # deleted but still in the index; submodules appear as folders
    return [name for name in names if (folder / name).is_symlink() or (folder / name).is_file()]


def _walk(folder: Path) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _CLUTTER | _CACHES and not name.endswith(".egg-info")]
        for name in names:
            path = Path(here, name)
            clutter = name in _CACHES or name.endswith((".pyc", "~"))
            if not clutter and (path.is_symlink() or path.is_file()):
                yield path.relative_to(folder).as_posix()
