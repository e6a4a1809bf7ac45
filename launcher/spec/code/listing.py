"""The files of a project's folder: those that git tracks or would track; without git, those that no ignore file names.

`.gitignore` counts without git as well, in every folder, and `.slipwayignore` (the same grammar) counts in both cases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from launcher.errors import BadInput

_CLUTTER: Final = frozenset(
    (".git", ".hg", ".svn", ".venv", "venv", ".slipway", ".tools", "node_modules", "__pycache__")
)
_CACHES: Final = frozenset((".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", ".DS_Store"))
_GIT: Final = ".gitignore"
_OURS: Final = ".slipwayignore"
MAX_FILES: Final = 100_000  # more files than any project has: data, or a whole file system


class Listing(NamedTuple):
    """Names have / and are relative to the folder.

    tracked   those of `names` that are in git's index
    left_out  what a person would miss, as told: a submodule that is not checked out
    """

    names: list[str]
    tracked: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()


def listing(folder: Path, apart: Iterable[Path] = ()) -> Listing:
    """Lists a folder without entering the folders of `apart`. Raises BadInput for more than MAX_FILES and where git
    refuses to list its own work tree, OSError for an unreadable folder."""
    found = _of_git(folder)
    if found is None:
        found = Listing(list(islice(_walk(folder, identities(apart)), MAX_FILES + 1)))
    if len(found.names) > MAX_FILES:
        raise BadInput(f"code: {folder} holds more than {MAX_FILES:,} files; data belongs in `inputs`")
    ours = [name for name in found.names if name.rpartition("/")[2] == _OURS]
    if not ours:
        return found
    ignored = Ignored()
    for name in ours:
        ignored.add(name.rpartition("/")[0], folder / name)
    return found._replace(names=[name for name in found.names if not ignored.above(name)])


def identities(folders: Iterable[Path]) -> set[tuple[int, int]]:
    """Device and inode of each existing folder: the same through links and mounts."""
    return {found for folder in folders if (found := identity(folder)) is not None}


def identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def _of_git(folder: Path) -> Listing | None:
    """What git tracks or would track, submodules and clones within included; None outside a work tree and without
    git."""
    import shutil  # only a job with `code:` needs it

    if shutil.which("git") is None:
        return None
    cached = _git(folder, "--cached")
    if cached is None:
        return None
    others = _git(folder, "--others", "--exclude-standard") or ()
    names: set[str] = set()
    tracked: set[str] = set()
    left_out: list[str] = []
    for name in {*cached, *others}:
        path = folder / name
        if path.is_symlink() or path.is_file():  # a file that was deleted may still be in the index
            names.add(name)
        elif path.is_dir():  # a repository of its own: a submodule, or a clone within
            inner = _of_git(path) if (path / ".git").exists() else None
            place = name.rstrip("/")
            if inner is None:
                left_out.append(f"{place} (a submodule that is not checked out: `git submodule update --init`)")
                continue
            names |= {f"{place}/{below}" for below in inner.names}
            tracked |= {f"{place}/{below}" for below in inner.tracked}
            left_out += [f"{place}/{below}" for below in inner.left_out]
    return Listing(sorted(names), frozenset(tracked | set(cached) & names), tuple(sorted(left_out)))


def _git(folder: Path, *which: str) -> list[str] | None:
    """The names that `git ls-files` gives; None outside a work tree. Raises BadInput with git's words where it refuses:
    then nobody knows what is ignored, and everything would be packed."""
    import subprocess

    # with the caller's GIT_DIR (set within hooks) git would list another tree
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    listed = subprocess.run(
        ["git", "ls-files", "-z", *which],
        cwd=folder,
        env=environment | {"LC_ALL": "C"},
        capture_output=True,
        check=False,
    )
    if not listed.returncode:
        return [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    said = " ".join(os.fsdecode(listed.stderr).split()) or f"exit code {listed.returncode}"
    if said.startswith("fatal: not a git repository (or any"):
        return None
    raise BadInput(f"code: git refuses to list {folder}, so it is not known what it ignores: {said}")


def _walk(folder: Path, apart: Collection[tuple[int, int]]) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise error

    ignored = Ignored()
    for here, folders, names in os.walk(folder, onerror=refuse):
        place = Path(here).relative_to(folder).as_posix()
        prefix = "" if place == "." else f"{place}/"
        if _GIT in names:
            ignored.add(prefix.rstrip("/"), Path(here, _GIT))
        folders[:] = [name for name in folders if name not in _CLUTTER | _CACHES and not name.endswith(".egg-info")]
        folders[:] = [name for name in folders if not ignored.one(prefix + name, folder=True)]
        if apart:
            folders[:] = [name for name in folders if identity(Path(here, name)) not in apart]
        for name in (*names, *(name for name in folders if Path(here, name).is_symlink())):
            path = Path(here, name)
            clutter = name in _CACHES or name.endswith((".pyc", "~"))
            if not clutter and not ignored.one(prefix + name) and (path.is_symlink() or path.is_file()):
                yield prefix + name


# Ignore files in gitignore's grammar (gitignore(5)), read without git.
#
# We do not use pathspec: with `!b.log` it lists the ignored files below a folder b.log, and git does not.


class Ignored:
    """Ignore files by the folder that they lie in (with /; empty for the top). The deepest one that says something
    decides, and within it the last line that fits; below an ignored folder everything is ignored."""

    def __init__(self) -> None:
        self._lines: dict[str, list[_Line]] = {}
        self._known: dict[str, bool] = {"": False}

    def add(self, folder: str, path: Path) -> None:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        self._lines[folder] = [line for row in text.split("\n") if (line := _line(row.removesuffix("\r"))) is not None]

    def one(self, name: str, folder: bool = False) -> bool:
        """Whether a file, or a folder, is ignored where the folder that it lies in is not."""
        place = name
        while place:
            place = place.rpartition("/")[0]
            inner = name[len(place) + 1 if place else 0 :]
            for line in reversed(self._lines.get(place, ())):
                if (folder or not line.folders) and line.pattern.fullmatch(inner):
                    return line.ignores
        return False

    def above(self, name: str) -> bool:
        """Whether a file is ignored, or a folder that it lies in."""
        return self._folder(name.rpartition("/")[0]) or self.one(name)

    def _folder(self, folder: str) -> bool:
        if folder not in self._known:
            self._known[folder] = self._folder(folder.rpartition("/")[0]) or self.one(folder, folder=True)
        return self._known[folder]


class _Line(NamedTuple):
    pattern: re.Pattern[str]
    ignores: bool
    folders: bool  # whether it fits folders only


def _line(row: str) -> _Line | None:
    """None for an empty line, a comment, and a pattern that fits nothing."""
    while row.endswith(" ") and not row.endswith("\\ "):
        row = row[:-1]
    if not row or row.startswith("#"):
        return None
    ignores = not row.startswith("!")
    row = row if ignores else row[1:]
    folders = row.endswith("/")
    row = row[:-1] if folders else row
    anchored = "/" in row
    pattern = _regex(row.removeprefix("/"))
    if not row or pattern is None:
        return None
    return _Line(re.compile(pattern if anchored else f"(?:.*/)?{pattern}", re.DOTALL), ignores, folders)


_PARTS = re.compile(
    r"(?P<above>(?:^|(?<=/))\*\*/)|(?P<below>(?<=/)\*\*$)|(?P<stars>\*+)|(?P<one>\?)"
    r"|(?P<group>\[[!^]?(?:\]|\[:\w+:\]|\\.|[^]\\])(?:\[:\w+:\]|\\.|[^]\\])*\])|\\(?P<escaped>.)|(?P<plain>[^\\[])",
    re.DOTALL,
)
_CLASSES = {"alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s"}


def _regex(pattern: str) -> str | None:
    made, at = [], 0
    while at < len(pattern):
        found = _PARTS.match(pattern, at)
        if found is None:  # a bracket that nothing closes, a backslash at the end: it fits nothing
            return None
        at = found.end()
        kind, text = found.lastgroup, found[0]
        if kind == "above":
            made.append("(?:.*/)?")
        elif kind == "below":
            made.append(".+")
        elif kind == "stars":
            made.append("[^/]*")
        elif kind == "one":
            made.append("[^/]")
        elif kind == "group":
            made.append(_group(text[1:-1]))
        else:
            made.append(re.escape(found["escaped"] or text))
    return "".join(made)


def _group(text: str) -> str:
    inverted = text[0] in "!^"
    inner = re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1], ""), text[1:] if inverted else text)
    inner = re.sub(r"(?<!\\)([\[\]^])", r"\\\1", inner)
    return f"(?!/)[{'^' if inverted else ''}{inner}]"
