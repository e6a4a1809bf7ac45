"""The content of code that a local run can import and that no version names: editable and local distributions, folders
of PYTHONPATH and of .pth files. A file is read again only when its time, size or inode has changed.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.errors import BadInput
from launcher.files import keep
from launcher.spec.code.own_files import MARKER, OUTPUT

_SKIPPED: Final = frozenset(("node_modules", "site-packages", "dist-packages", "__pycache__", "venv"))
# a store, a gathered run, results of an evaluation; the folders of a local queue, which hold copies of code
_OWN_FILES: Final = frozenset((MARKER, "gathered.json", OUTPUT))
_STATE: Final = frozenset(("queue", "sites", "cancels", "notes", "runs"))
_CODE: Final = (".py", ".so", ".pyd")
_TEXT: Final = re.compile(r"""['"]([^'"]+)['"]""")
_MAPPING: Final = re.compile(r"^MAPPING\b[^=]*=\s*(\{.*\})\s*$", re.MULTILINE)
_SETTLED: Final = 2 * 10**9  # ns; a file that changed so shortly ago may change again with the same time
_ROWS: Final = 10_000  # with more of them reading the hashes takes longer than all the rest
MAX_FILES: Final = 50_000

Row = tuple[int, int, int, int, str]  # mtime, ctime (ns), size, inode, sha256


class FileHashes:
    """The hashes of files that were read before, kept in `path`. One that cannot be read or written is empty."""

    def __init__(self, path: Path) -> None:
        self._path, self._changed = path, False
        self._asked: set[str] = set()
        try:
            self._rows: dict[str, Row] = decode(path.read_bytes(), dict[str, Row])
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            self._rows = {}

    def sha256(self, path: str) -> str:
        """Of a file's content. Raises OSError."""
        self._asked.add(path)
        status = os.stat(path)  # noqa: PTH116 - thousands of them
        now = status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
        row = self._rows.get(path)
        if row is not None and row[:4] == now:
            return row[4]
        with open(path, "rb", buffering=0) as stream:  # noqa: PTH123 - thousands of them
            digest = hashlib.sha256(stream.read()).hexdigest()
        self._rows[path] = (*now, digest)
        self._changed = True
        return digest

    def save(self) -> None:
        """Writes what is known, but for files that were written a moment ago and may be again with the same time. Where
        that is much, only of the files that were asked for: the others are of folders that nobody uses any more."""
        if not self._changed:
            return
        latest = time.time_ns() - _SETTLED
        paths = self._rows if len(self._rows) <= _ROWS else self._asked & self._rows.keys()
        rows = {path: self._rows[path] for path in paths if max(self._rows[path][:2]) < latest}
        keep(self._path, msgspec.json.encode(rows))


def roots(site: str) -> Iterator[tuple[str, str]]:
    """(how it is called, path) of the folders and modules that .pth files and finders of editable distributions add to
    a folder of distributions."""
    try:
        names = sorted(os.listdir(site))  # noqa: PTH208 - names
    except OSError:
        return
    for name in names:
        try:
            if name.endswith(".pth"):
                lines = Path(site, name).read_text(encoding="utf-8", errors="replace").splitlines()
                for number, line in enumerate(lines):
                    # a line of code may add a folder, which stands in it as a text
                    code = line.startswith(("import ", "import\t"))
                    texts = _TEXT.findall(line) if code else [line] if not line.startswith("#") else []
                    for text in filter(None, map(str.strip, texts)):
                        path = os.path.join(site, text)  # noqa: PTH118 - an absolute one stays itself
                        if (os.path.isabs(text) or not code) and os.path.isdir(path):  # noqa: PTH112, PTH117
                            yield f"{_unversioned(name)}[{number}]", path
            elif name.startswith("__editable__") and name.endswith("_finder.py"):
                found = _MAPPING.search(Path(site, name).read_text(encoding="utf-8", errors="replace"))
                for module, path in sorted(ast.literal_eval(found[1]).items()) if found else ():
                    yield f"{_unversioned(name)}[{module}]", str(path)
        except (OSError, ValueError, SyntaxError):
            continue


def _unversioned(name: str) -> str:
    """A .pth file's name without a version, which editable installs put into it."""
    return re.sub(r"[-_]\d[\w.]*?(?=(_finder)?\.\w+$)", "", name)


def content(path: str, hashes: FileHashes) -> str:
    """sha256 (hex) over the code below a path: modules, and what lies in packages. Raises BadInput where that is more
    than any project has."""
    total = hashlib.sha256()
    for count, (name, file) in enumerate(_files(path)):
        if count >= MAX_FILES:
            raise BadInput(
                f"{path} is searched for modules by Python, and holds more than {MAX_FILES:,} files of code: "
                "take it out of PYTHONPATH, or of the .pth file that names it"
            )
        try:
            total.update(f"{hashes.sha256(file)}  {name}\n".encode("utf-8", "surrogateescape"))
        except OSError:
            continue  # gone, or nobody's to import
    return total.hexdigest()


def listed(files: Iterable[Path], folder: Path, hashes: FileHashes) -> str:
    """sha256 (hex) over these files."""
    total = hashlib.sha256()
    for file in sorted(files):
        if file.suffix != ".pyc" and file.parent.suffix != ".dist-info":
            try:
                total.update(f"{hashes.sha256(str(file))}  {os.path.relpath(file, folder)}\n".encode())
            except OSError:
                continue
    return total.hexdigest()


def _files(path: str) -> Iterator[tuple[str, str]]:
    if os.path.isfile(path):  # noqa: PTH113 - a module, or an archive
        yield os.path.basename(path), path  # noqa: PTH119
        return
    packages: set[str] = set()
    linked = {os.path.realpath(path)}  # folders that links led to: each once, so that two links may lead to each other

    def walked(folder: str) -> bool:
        """Of linked folders packages alone: what else a project links to may be all its data."""
        if not os.path.islink(folder):  # noqa: PTH114
            return True
        target = os.path.realpath(folder)
        if target in linked or not os.path.exists(f"{folder}/__init__.py"):  # noqa: PTH110
            return False
        linked.add(target)
        return True

    for here, folders, names in os.walk(path, followlinks=True):
        if here != path and (not _OWN_FILES.isdisjoint(names) or _STATE.issubset(folders)):
            folders.clear()
            continue
        inside = "__init__.py" in names or os.path.dirname(here) in packages  # noqa: PTH120
        if inside:
            packages.add(here)
        folders[:] = sorted(
            name
            for name in folders
            if name not in _SKIPPED
            and not name.startswith(".")
            and not name.endswith((".egg-info", ".dist-info"))
            and walked(f"{here}/{name}")
        )
        place = here[len(path.rstrip("/")) + 1 :]
        place = f"{place}/" if place else ""
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith((".pyc", "~")) and (inside or name.endswith(_CODE)):
                yield f"{place}{name}", f"{here}/{name}"
