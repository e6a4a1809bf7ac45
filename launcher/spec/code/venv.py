"""A Python environment in place of an image: the lock of its packages and Slipway's own source as one deterministic
tar, named by its sha256. A machine fetches it from the store, and makes the environment with uv and the lock's hashes.

The digest stands for the software of the role, as an image's digest does: another lock, another Python or another
Slipway is another run.
"""

from __future__ import annotations

import io
import re
import tarfile
from functools import cache, cached_property
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast

import msgspec

from launcher.errors import BadInput
from launcher.spec.code.environment import package_folder, source_files
from launcher.spec.code.overlay import DigestSink

LOCK: Final = "requirements.lock"  # names within the tar
PYTHON: Final = "python"
SOURCE: Final = "source"
PACKAGES: Final = ("eval", "launcher", "training")
NEEDED: Final = ("boto3", "msgspec", "obstore", "pyyaml")  # what the runtime imports: the distribution's dependencies
LARGEST: Final = 8 << 20  # bytes of a lock
COMPILE: Final = "uv pip compile --generate-hashes"

_HASH: Final = re.compile(r"(?:^|\s)--hash[= ]sha256:[0-9a-f]{64}(?=\s|$)")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_PASSWORD: Final = re.compile(r"://[^/\s@]*@")
_OTHER_FILE: Final = re.compile(r"(?:-r|-c|-e|--requirement|--constraint|--editable)(?:[\s=]|$)")


def archive(lock: Path, python: str) -> VenvArchive:
    """The archive; the same for all runs that name the same file, as long as nobody writes it."""
    try:
        status = lock.stat()
    except (OSError, ValueError):
        return VenvArchive(lock, python)
    return _archive(lock, python, status.st_mtime_ns, status.st_size)


@cache
def _archive(lock: Path, python: str, changed: int, size: int) -> VenvArchive:
    return VenvArchive(lock, python)


class LockFault(NamedTuple):
    """`line`: from 1; 0 for the whole file."""

    line: int
    message: str
    allowed: str


class VenvArchive(msgspec.Struct, frozen=True, dict=True):  # dict: for cached properties
    """`lock`: the file; `python`: a version."""

    lock: Path
    python: str

    @property
    def folder(self) -> Path:
        return self.lock.parent

    @cached_property
    def text(self) -> bytes:
        """The lock. Raises BadInput."""
        try:
            text = self.lock.read_bytes()
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.lock}: {getattr(error, 'strerror', '') or error}") from None
        if len(text) > LARGEST:
            raise BadInput(f"{self.lock}: {len(text):,} bytes are no lock; allowed: at most {LARGEST:,}")
        return text

    def digest(self) -> str:
        """The sha256 (hex) of the tar that `pack` writes. Raises BadInput."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return self._pack(DigestSink())

    def pack(self, out: Path) -> str:
        """Writes the tar; returns its sha256 (hex)."""
        with out.open("wb") as stream:
            return self._pack(DigestSink(stream))

    def _pack(self, sink: DigestSink) -> str:
        with tarfile.open(fileobj=cast(Any, sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for name, text in ((PYTHON, f"{self.python}\n".encode()), (LOCK, self.text)):
                _add(tar, name, len(text), io.BytesIO(text))
            for package in PACKAGES:
                folder = package_folder(package)
                for path in source_files(folder) if folder is not None else ():
                    name = f"{SOURCE}/{package}/{path.relative_to(cast(Path, folder)).as_posix()}"
                    with path.open("rb") as stream:
                        _add(tar, name, path.stat().st_size, stream)
        return sink.sha256.hexdigest()


def _add(tar: tarfile.TarFile, name: str, size: int, stream: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    tar.addfile(entry, stream)


def lock_faults(text: bytes) -> list[LockFault]:
    """What is wrong with a lock: lines whose packages no hash pins, lines that name files of the user's machine,
    passwords, and packages that are missing."""
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        return [LockFault(0, "is not UTF-8", f"a file of `{COMPILE}`")]
    faults, found = [], set()
    for number, line in _statements(lines):
        if _PASSWORD.search(line):
            faults.append(LockFault(number, "a URL with credentials, which everybody could read in the store", "none"))
        if _OTHER_FILE.match(line):
            faults.append(LockFault(number, f"`{line.split()[0]}` names a file that the machine has not", COMPILE))
        elif not line.startswith("-"):
            name = _NAME.match(line)
            if name is None:
                faults.append(LockFault(number, f"`{line[:40]}` is no requirement", f"a file of `{COMPILE}`"))
                continue
            found.add(re.sub(r"[-_.]+", "-", name[0]).lower())
            if not _HASH.search(line):
                faults.append(LockFault(number, f"`{name[0]}` has no hash", f"`--hash=sha256:...`: `{COMPILE}`"))
    if missing := [name for name in NEEDED if name not in found]:
        faults.append(
            LockFault(
                0, f"lacks {', '.join(missing)}, which Slipway's runtime needs", f"a lock with {', '.join(NEEDED)}"
            )
        )
    return faults


def _statements(lines: list[str]) -> list[tuple[int, str]]:
    """(number of the first line, text) of what belongs together, without comments."""
    out: list[tuple[int, str]] = []
    joined, began = "", 0
    for number, line in enumerate(lines, 1):
        bare = re.sub(r"(?:^|\s)#.*$", "", line).strip()
        began = began or number
        more = bare.endswith("\\")
        joined = f"{joined} {bare.removesuffix(chr(92)).strip()}".strip()
        if more:
            continue
        if joined:
            out.append((began, joined))
        joined, began = "", 0
    return [*out, *([(began, joined)] if joined else [])]
