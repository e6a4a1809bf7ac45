"""Folders that many tests read, a trained model above all: the first process that needs one makes it, the others wait.

A folder is made anew when something that decides its content changes: the sources of `training` and `eval`, the module
of the function that makes it and the modules of `tests` that this one imports or names ("tests.a.b:Name"), its
arguments, the installed packages, Python, the processor. Of each name the two newest folders are kept, and those that a
process uses. Tests read them; one that writes makes a copy.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

ROOT = Path(__file__).parents[2]
PACKAGES: Final = ("training", "eval")
KEPT: Final = 2
_used: dict[Path, int] = {}  # folder -> a file descriptor with a shared lock on it, until this process ends


def made_once(name: str, make: Callable[..., object], *given: Any) -> Path:
    """The folder that `make(folder, *given)` filled. `name` says what is in it, and is used for one function."""
    place = _root() / name
    folder = place / _key(make, given)
    if folder in _used:
        return folder
    place.mkdir(exist_ok=True)
    with (place / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if not _whole(folder).exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder, *given)
                _whole(folder).touch()
                _forget(place)
            _used[folder] = os.open(folder, os.O_RDONLY)
            fcntl.flock(_used[folder], fcntl.LOCK_SH)
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a process that was forked meanwhile has this descriptor, too
    return folder


def _root() -> Path:
    root = Path(os.environ.get("SLIPWAY_TEST_CACHE") or tempfile.gettempdir()) / f"slipway-made-{os.getuid()}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    assert root.stat().st_uid == os.getuid(), f"{root} is another user's"
    return root


def _whole(folder: Path) -> Path:
    """A file that is there when the folder is whole; beside it, so that no copy of the folder has it."""
    return folder.with_suffix(".whole")


def _forget(place: Path) -> None:
    """Removes the older folders that no process uses."""

    def made(folder: Path) -> float:
        return _whole(folder).stat().st_mtime if _whole(folder).exists() else 0.0

    for old in sorted((path for path in place.iterdir() if path.is_dir()), key=made)[:-KEPT]:
        descriptor = os.open(old, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _whole(old).unlink(missing_ok=True)
            shutil.rmtree(old, ignore_errors=True)
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _key(make: Callable[..., object], given: tuple[Any, ...]) -> str:
    found = hashlib.sha256(repr((_machine(), given)).encode())
    changed = 0.0
    for digest, at in (_packages(), _module(Path(make.__code__.co_filename))):  # type: ignore[attr-defined]
        found.update(digest)
        changed = max(changed, at)
    # What this process imported before the change would be kept as if it were of the source as it is now
    alone = f"-{os.getpid()}" if changed > psutil.Process().create_time() else ""
    return found.hexdigest()[:16] + alone


@cache
def _machine() -> tuple[object, ...]:
    """What decides the last bit of a sum, besides the sources."""
    installed = sorted(path.name for path in Path(sysconfig.get_path("purelib")).glob("*.dist-info"))
    about = Path("/proc/cpuinfo")
    told = about.read_text().splitlines() if about.exists() else []
    processor = sorted({line for line in told if line.startswith(("flags", "Features"))})
    return sys.version, installed, processor, os.cpu_count(), os.environ.get("OMP_NUM_THREADS")


@cache
def _packages() -> tuple[bytes, float]:
    return _digest(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@cache
def _module(file: Path) -> tuple[bytes, float]:
    return _digest(_imported(file, set()))


def _digest(files: Iterable[Path]) -> tuple[bytes, float]:
    """(of the names and contents, when the last of them was changed)"""
    found, changed = hashlib.sha256(), 0.0
    for path in sorted(files):
        content = path.read_bytes()
        found.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
        changed = max(changed, path.stat().st_mtime)
    return found.digest(), changed


def _imported(file: Path, found: set[Path]) -> set[Path]:
    """`file` and the modules of tests that it imports or names, with theirs."""
    if file not in found and file.exists():
        found.add(file)
        for name in _named(file):
            _imported(ROOT / f"{name.replace('.', '/')}.py", found)
    return found


@cache
def _named(file: Path) -> set[str]:
    """What may be names of modules of tests."""
    named = set[str]()
    for node in ast.walk(ast.parse(file.read_bytes())):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                named |= {module, *(f"{module}.{each.name}" for each in names)}
            case ast.Import(names=names):
                named |= {each.name for each in names}
            case ast.Constant(value=str(text)):
                named.add(text.partition(":")[0])
    return {name for name in named if name.startswith("tests.")}
