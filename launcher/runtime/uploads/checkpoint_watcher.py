"""Finds the complete checkpoints in a folder. Trainers write in place, delete old checkpoints, and rarely say when one
is complete. So a checkpoint is watched until nothing in it changes (docs/reference/runtime.md, Checkpoints)."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Set
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from launcher.store.paths import LeftOutFiles, walk

# relative path, size, time of change (ns), inode of each file
Signature: TypeAlias = "tuple[tuple[str, int, int, int], ...]"

_UNFINISHED: Final = re.compile(
    r"^[._]*(tmp|temp|partial|incomplete)[._-]|[._-](tmp|temp|partial|incomplete|inprogress)\d*$|\.(part|lock)$",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d+")


class LocalCheckpoint(msgspec.Struct, frozen=True):
    """A complete checkpoint in the command's output folder."""

    step: int
    path: Path
    signature: Signature
    single: bool = False  # it is one file, not a folder
    within: Path | None = None  # the output's folder, which no link may leave
    left: LeftOutFiles = msgspec.field(default_factory=LeftOutFiles)  # files of it that no store can hold


def step_of(name: str) -> int | None:
    """The last number in a name: checkpoint-500, epoch=3-step=700.ckpt."""
    numbers = _NUMBER.findall(name.split(".")[0]) or _NUMBER.findall(name)
    return int(numbers[-1]) if numbers else None


def signature_of(path: Path, within: Path | None = None, left: LeftOutFiles | None = None) -> Signature | None:
    """The signature of a file or folder; None if it changes while it is read, or does not exist. A link counts as the
    file it points to, if that is below `within`. `left` collects what is left out."""
    try:
        if path.is_file():
            entry = path.stat()
            return ((path.name, entry.st_size, entry.st_mtime_ns, entry.st_ino),)
        rows = []
        for relative, _, entry in walk(path, within=within, leave=left or LeftOutFiles()):
            rows.append((relative, entry.st_size, entry.st_mtime_ns, entry.st_ino))
        return tuple(sorted(rows))
    except OSError:
        return None


def unfinished(path: Path, signature: Signature) -> bool:
    """Whether a name says that the writer is not done: a temporary file, or a folder that will be renamed."""
    return any(_UNFINISHED.search(part) for part in (path.name, *(row[0].split("/")[-1] for row in signature)))


class Watcher:
    """Finds complete checkpoints. `done`: the file that marks a complete one. Without it a checkpoint is complete when
    nothing in it has changed for `quiet` seconds or the command has ended by itself, and no name in it says that the
    writer is not done."""

    def __init__(self, root: Path, match: str, done: str | None, quiet: float, clock: Callable[[], float]) -> None:
        self.ignored: set[str] = set()  # names that match the pattern but have no step number
        self.outside: set[str] = set()  # links that lead out of the folder, or to nothing
        self._root = root
        self._match = match
        self._done = done
        self._quiet = quiet
        self._clock = clock
        self._since: dict[Path, tuple[Signature, float]] = {}

    def complete(self, taken: Set[int], *, ended: bool = False) -> list[LocalCheckpoint]:
        """The complete checkpoints that are not in `taken`, by step. `ended`: the command ended and was not killed."""
        checkpoints = []
        for step, path in self._paths():
            left = LeftOutFiles()
            if (
                step not in taken
                and (signature := signature_of(path, self._root, left))
                and self._whole(path, signature, ended)
            ):
                checkpoints.append(LocalCheckpoint(step, path, signature, path.is_file(), self._root, left))
        return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)

    def present(self) -> set[int]:
        """The steps of all checkpoints in the folder, complete or not."""
        return {step for step, _ in self._paths()}

    def _paths(self) -> list[tuple[int, Path]]:
        try:
            paths = [path for path in self._root.iterdir() if fnmatchcase(path.name, self._match)]
        except OSError:
            return []
        self.ignored |= {path.name for path in paths if step_of(path.name) is None}
        return [(step, path) for path in paths if (step := step_of(path.name)) is not None]

    def _whole(self, path: Path, signature: Signature, ended: bool) -> bool:
        if self._done and path.is_dir():
            return (path / self._done).exists()
        now = self._clock()
        before, since = self._since.get(path, (None, now))
        if before != signature:
            since = now
        self._since[path] = (signature, since)
        return (ended or now - since >= self._quiet) and not unfinished(path, signature)


def snapshot(checkpoint: LocalCheckpoint, into: Path) -> bool:
    """Makes hard links of a checkpoint's files (copies on another file system), so that the trainer cannot delete or
    overwrite them during the upload. False if the checkpoint has changed since it was seen."""
    try:
        for relative, *_ in checkpoint.signature:
            target = into / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            source = (checkpoint.path if checkpoint.single else checkpoint.path / relative).resolve()
            try:
                os.link(source, target)
            except FileNotFoundError:
                return False
            except OSError:
                shutil.copy2(source, target)
        if not checkpoint.single:
            for _ in walk(
                checkpoint.path, within=checkpoint.within, empty=lambda name: (into / name).mkdir(parents=True)
            ):
                pass
    except FileNotFoundError:
        return False
    return signature_of(checkpoint.path, checkpoint.within) == checkpoint.signature


def best_step(folder: Path) -> int | None:
    """The best step so far, as the trainer of transformers wrote it; None if it did not."""
    try:
        state = json.loads((folder / "trainer_state.json").read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(state, dict):
        return None
    best = state.get("best_global_step")
    if isinstance(best, int):
        return best
    path = state.get("best_model_checkpoint")
    return step_of(Path(path).name) if isinstance(path, str) else None
