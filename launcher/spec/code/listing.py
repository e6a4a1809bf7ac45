"""The files of a project's folder: those that git tracks or would track; without git, those that no ignore file names.

`.gitignore` counts without git as well, in every folder, and `.slipwayignore` (the same grammar) counts in both cases.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from launcher.errors import BadInput
from launcher.spec.code.ignoring import Ignored

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
