"""The code overlay: a folder as one deterministic tar, named by its sha256.

The same files give the same bytes on any machine: sorted names, no times, no owners, two modes (0644, 0755).
`listing` says which files belong to the project. A store, the launcher's own folders and what it wrote (`own_files`)
are never packed, wherever they are in the folder; files with keys or passwords only if `code.include` names them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol, cast

import msgspec

from launcher.errors import BadInput, Problem
from launcher.files import naming
from launcher.spec.code.listing import identities, identity, listing
from launcher.spec.code.own_files import MARKER, own_files
from launcher.spec.secrets.tokens import Token, find

# files by which a store or a state folder is recognised under any name
_RUN: Final = r"[a-z0-9-]+-[0-9a-f]{12}"
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
    def _names(self) -> _Names:
        chosen: list[str] = []
        private_ones: list[str] = []
        try:
            found = listing(self.folder, self.apart)
            names = sorted(_without(self.apart, self.folder, found.names))
            # what git tracks, somebody chose
            own = dict(own_files(self.folder, [name for name in names if name not in found.tracked]))
            for name in names:
                if name not in own:
                    hidden = is_private(self.folder, name) and not self._included(name)
                    (private_ones if hidden else chosen).append(name)
        except OSError as error:
            raise BadInput(f"code: {error.filename or self.folder}: {error.strerror or error}") from None
        if not chosen:
            raise BadInput(f"code: {self.folder} holds no file to pack: it is empty, or git ignores what is in it")
        return _Names(chosen, private_ones, sorted(set(own.values())), found.left_out)

    def _included(self, name: str) -> bool:
        return any(matches(name, pattern) for pattern in self.include)

    @property
    def files(self) -> list[str]:
        """The names (with /) that are packed."""
        return self._names.chosen

    @property
    def left_out(self) -> list[str]:
        """The names (with /) of private files that are not packed."""
        return self._names.private

    def digest(self) -> str:
        """The sha256 (hex) of the tar that `pack` writes. Raises BadInput for a file that cannot be packed, and for
        secrets in a text file that `include` does not name."""
        return self._packed[0]

    def contents(self) -> dict[str, tuple[int, str]]:
        """Size and sha256 (hex) of every packed file; a link has the size 0 and its target. Empty before the digest was
        asked for."""
        packed: tuple[str, memoryview, dict[str, tuple[int, str]]] | None = vars(self).get("_packed")
        return packed[2] if packed is not None else {}

    @cached_property
    def _packed(self) -> tuple[str, memoryview, dict[str, tuple[int, str]]]:
        """The digest, the tar, and what is in it. The files are read once, so what is uploaded is what the digest
        names, whatever writes into the folder meanwhile."""
        problems = []
        for name in self.files:
            path = self.folder / name
            if not path.is_symlink() and not self._included(name):
                try:
                    problems += secrets_in(path, str(path))
                except OSError as error:
                    raise BadInput(f"code: {path}: {error.strerror or error}") from None
        if problems:
            raise BadInput(problems)
        tar = BytesIO()  # at most MAX_BYTES
        contents: dict[str, tuple[int, str]] = {}
        return _pack(self.folder, self.files, DigestSink(tar), contents), tar.getbuffer(), contents

    def pack(self, out: Path) -> str:
        """Writes the tar; returns its sha256 (hex). Raises BadInput for a file that cannot be packed."""
        digest, tar, _ = self._packed
        with naming(out):
            out.write_bytes(tar)
        return digest

    def note(self) -> str:
        """One line about what was left out; empty if that is nothing."""
        parts = []
        if self._names.private:
            parts.append(f"private: {_listed(self._names.private)} (`code.include` packs them)")
        if self._names.own:
            parts.append(f"the launcher's own: {_listed(self._names.own)}")
        parts += self._names.left_out
        return f"left out of the overlay of {self.folder}: {'; '.join(parts)}" if parts else ""

    def unmatched(self) -> list[str]:
        """The patterns of `include` that match no file."""
        return [pattern for pattern in self.include if not any(matches(name, pattern) for name in self.files)]


class _Names(NamedTuple):
    """The names of packed files, of private ones, and of the launcher's own files and folders, all sorted; what else is
    left out, as told."""

    chosen: list[str]
    private: list[str]
    own: list[str]
    left_out: tuple[str, ...]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"


class _Hashed:
    """A file that is hashed as it is read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.sha256 = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.sha256.update(data)
        return data


def _pack(folder: Path, names: list[str], sink: DigestSink, contents: dict[str, tuple[int, str]]) -> str:
    import tarfile  # only a job with `code:` needs it

    with tarfile.open(fileobj=cast(Any, sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name in names:
            path = folder / name
            entry = tarfile.TarInfo(name)
            if path.is_symlink():
                target = os.readlink(path)  # noqa: PTH115 - the exact text of the link
                inside = os.path.normpath(os.path.join(os.path.dirname(name), target))  # noqa: PTH118, PTH120
                if os.path.isabs(target) or inside == ".." or inside.startswith("../"):  # noqa: PTH117
                    raise BadInput(f"code: {name} links to {target}, outside of {folder}")
                entry.type, entry.linkname = tarfile.SYMTYPE, target
                tar.addfile(entry)
                contents[name] = 0, target
                continue
            try:
                with path.open("rb") as stream:
                    status = os.fstat(stream.fileno())
                    entry.size = status.st_size
                    entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
                    hashed = _Hashed(stream)
                    tar.addfile(entry, cast(IO[bytes], hashed))
                    contents[name] = entry.size, hashed.sha256.hexdigest()
            except OSError as error:
                raise BadInput(f"code: {path}: {error.strerror or error}") from None
            if sink.size > MAX_BYTES:
                raise BadInput(f"code: {folder} is larger than {MAX_BYTES >> 20} MiB; data belongs in `inputs`")
    return sink.sha256.hexdigest()


def _without(apart: Iterable[Path], folder: Path, names: Iterable[str]) -> Iterator[str]:
    """Leaves out names below a folder of `apart` and links to such a folder, and also other stores and state folders,
    which are recognised by their files. Raises BadInput if `folder` itself is inside a folder of `apart`."""
    known = identities(apart)
    for above in Path(os.path.realpath(folder)).parents:
        if known and identity(above) in known:
            raise BadInput(f"code: {folder} lies in {above}, the store or the state of the local backend")
    names = list(names)
    is_apart = {".slipway": True, "": identity(folder) in known}  # folder -> whether it stays apart
    is_apart |= {match[1].rstrip("/"): True for name in names if (match := _RECORD.fullmatch(name)) and match[1]}
    own = is_apart[""] or any((match := _RECORD.fullmatch(name)) and not match[1] for name in names)

    def stays_apart(inner: str) -> bool:
        if inner not in is_apart:
            above, _, last = inner.rpartition("/")
            below = above != "" and stays_apart(above)
            is_apart[inner] = below or last == ".slipway" or (bool(known) and identity(folder / inner) in known)
        return is_apart[inner]

    for name in names:
        inside = name.rpartition("/")[0]
        if (inside and stays_apart(inside)) or (own and name.partition("/")[0] in _OWN):
            continue
        path = folder / name
        if path.is_symlink() and known & identities((path, *Path(os.path.realpath(path)).parents)):
            continue
        yield name


# Finds private files of an overlay by their names, and secrets in its other files.

_NAMES: Final = re.compile(
    r"secrets\.json|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|\.env(?:rc|\..+)?|[._]netrc|\.pgpass|\.git-credentials|\.pypirc"
    r"|\.htpasswd|\.vault-token|\.s3cfg|\.boto|\.dockercfg|\.dockerconfigjson|kubeconfig(?:\.ya?ml)?|.+\.kubeconfig"
    r"|application_default_credentials\.json|.+\.(?:p12|pfx|jks|keystore|ppk|kdbx)"
)
_SAMPLES: Final = (".env.example", ".env.sample", ".env.template", ".env.dist")  # public by intent
_FOLDERS: Final = frozenset((".aws", ".azure", ".gcloud", ".gnupg", ".kube", ".ssh"))
_PLACES: Final = ((".docker", "config.json"), (".huggingface", "token"))
_KEYS: Final = (".pem", ".key")  # also used for certificates, so the content decides
_READ: Final = 1 << 16  # first bytes of a key file, searched for the mark of a key
_BINARY: Final = 8192  # first bytes of a file; a NUL among them means that it is binary
_LOCAL: Final = re.compile(r"@(?:localhost|127\.|0\.0\.0\.0|\[|[\w.-]*example\b)")
_KEY_BODY: Final = re.compile(r"(?:\\r|\\n|[\s\"'+,|-])*(?:[\w-]+:[^\n]*\n)*\s*[A-Za-z0-9+/=]{16,}")
_WAY_OUT: Final = "no secret in a file (`launcher secrets set NAME`), or the file under `code.include`"


def is_private(folder: Path, name: str) -> bool:
    """Whether a file holds keys or passwords. `name` is relative to the folder, with /. Reads a file whose name fits
    both a key and a certificate."""
    parts = name.lower().split("/")
    last = parts[-1]
    if _NAMES.fullmatch(last):
        return last not in _SAMPLES
    if _FOLDERS.intersection(parts[:-1]) or tuple(parts[-2:]) in _PLACES:
        return True
    if last.endswith(_KEYS):
        try:
            with (folder / name).open("rb") as stream:
                return b"PRIVATE KEY" in stream.read(_READ)
        except OSError:
            return False  # packing the file reports the error
    return False


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern of `code.include` matches a file's path, or the last part of its path."""
    return fnmatchcase(name, pattern) or ("/" not in pattern and fnmatchcase(name.rpartition("/")[2], pattern))


def secrets_in(path: Path, shown: str) -> list[Problem]:
    """The secrets in a file: line and kind, never the value. Of a binary file no line is told."""
    data = path.read_bytes()
    if b"\0" in data[:_BINARY]:
        # without its NULs, UTF-16 is the text that it holds
        texts = [data.decode("latin-1"), data.replace(b"\0", b"").decode("latin-1")]
        kinds = {token.kind for text in texts for token in find(text) if not _harmless(token, text)}
        return [Problem(shown, 0, 0, "code", f"holds what looks like {kind}", _WAY_OUT) for kind in sorted(kinds)]
    text = data.decode("utf-8", "replace")
    secrets, line, at = [], 1, 0
    for token in find(text):
        if not _harmless(token, text):
            line += text.count("\n", at, token.start)
            at = token.start
            column = token.start - (text.rfind("\n", 0, token.start) + 1) + 1
            secrets.append(Problem(shown, line, column, "code", f"looks like {token.kind}", _WAY_OUT))
    return secrets


def _harmless(token: Token, text: str) -> bool:
    """Whether a token is one of the harmless ones that source code often holds."""
    if token.kind == "a password in a URL":
        return _LOCAL.match(text, token.end) is not None
    if token.kind == "a private key":  # a program that reads such files holds only the first line
        return _KEY_BODY.match(text, token.end) is None
    return text.endswith("EXAMPLE", token.start, token.end)  # as in Amazon's documentation
