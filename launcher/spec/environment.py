"""Identifies the software of a local run, which has no image digest: the lock and the installed source
(docs/explanation/architecture.md, Two hashes)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

LOCK: Final = "requirements.lock"
SOURCES: Final = ("training", "eval", "launcher/runtime")


@cache
def local_environment() -> str:
    """sha256 (hex) over the source of the packages that jobs run, and over requirements.lock if it is beside them."""
    roots = {name: package.parent for name in ("launcher", "training", "eval") if (package := package_folder(name))}
    total = hashlib.sha256()
    for lock in sorted({root / LOCK for root in roots.values()}):
        if lock.is_file():
            _add(total, LOCK, lock)
    for source in SOURCES:
        root = roots.get(source.partition("/")[0])
        if root is not None:
            for path in source_files(root / source):
                _add(total, path.relative_to(root).as_posix(), path)
    return total.hexdigest()


def package_folder(name: str) -> Path | None:
    """The folder of a package, without importing the package."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def source_files(folder: Path) -> Iterator[Path]:
    """The files of a source folder in a fixed order, without hidden files, bytecode and editors' backups."""
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(files):
            if not name.startswith(".") and not name.endswith((".pyc", "~")):
                yield Path(here, name)


def _add(total: hashlib._Hash, name: str, path: Path) -> None:
    total.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
