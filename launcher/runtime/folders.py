"""The folders of one rank on the local disk."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from launcher.runtime.process import procs

_RUNTIME = "runtime-"
_FULL = 1 << 20  # bytes free on a disk that counts as full


class FolderIdentity(NamedTuple):
    """Identifies a folder that the runtime made, and shows whether it was replaced or written into since."""

    inode: int
    time: int  # of its last change, ns


class Folders(msgspec.Struct, frozen=True):
    """The paths are the same for every attempt in one working folder."""

    root: Path
    temporary: bool

    @classmethod
    def at(cls, workdir: Path | None) -> Folders:
        if workdir is None:
            import tempfile

            return cls(Path(tempfile.mkdtemp(prefix="slipway-")), True)
        workdir.mkdir(parents=True, exist_ok=True)
        return cls(workdir, False)

    @property
    def inputs(self) -> Path:
        return self.root / "inputs"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def full(self) -> bool:
        """Whether the disk of the outputs has no room left."""
        if not self.outputs.exists():
            return False
        disk = os.statvfs(self.outputs)
        return disk.f_bavail * disk.f_frsize < _FULL

    @property
    def done(self) -> Path:
        """The file by which a command says, after a SIGTERM, that its work is complete."""
        return self.outputs / ".done"

    @property
    def resume(self) -> Path:
        return self.root / "resume"

    @property
    def code(self) -> Path:
        return self.root / "source"

    @property
    def work(self) -> Path:
        """The command's working folder if the job has no `code`."""
        return self.root / "work"

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def progress(self) -> Path:
        return self.root / "progress.jsonl"

    @property
    def runtime(self) -> Path:
        """The runtime's own files: spools and snapshots. Each process has its own folder, because an earlier one may
        still be ending."""
        return self.root / f"{_RUNTIME}{os.getpid()}-{procs.start_time(os.getpid())}"

    @property
    def snapshots(self) -> Path:
        return self.runtime / "snapshots"

    def clear(self) -> None:
        """Deletes the files of an earlier attempt except its inputs, which are verified again when they are fetched."""
        runtimes = [path for path in self.root.glob(f"{_RUNTIME}*") if path != self.runtime]
        own = [self.outputs, self.resume, self.code, self.work, self.config, self.metrics, self.progress]
        for path in (*runtimes, *own):
            remove(path)
        for path in (self.inputs, self.outputs, self.work):
            path.mkdir(parents=True, exist_ok=True)

    def make_outputs(self, names: Iterable[str]) -> dict[str, FolderIdentity]:
        """Makes the missing folders of declared outputs. Returns the identity of each folder that it made."""
        identities = {}
        for name in names:
            path = self.outputs / name
            if not path.is_dir():
                path.mkdir(parents=True)
                back = time.time_ns() - 2 * 10**9  # whatever is put into it, at once even, gives it a later time
                os.utime(path, ns=(back, back))
                identities[name] = _look(path)
        return identities

    def untouched(self, name: str, identity: FolderIdentity | None) -> bool:
        """Whether nothing was ever put into an output's folder since `make_outputs` made it."""
        path = self.outputs / name
        return identity is not None and path.is_dir() and _look(path) == identity and not any(path.iterdir())

    def leave(self) -> None:
        """Deletes the temporary folder: everything needed is in the store."""
        if self.temporary:
            remove(self.root)
        else:
            for path in (self.runtime, self.outputs, self.resume, self.code, self.work, self.config):
                remove(path)


def _look(path: Path) -> FolderIdentity:
    stat = path.stat()
    return FolderIdentity(stat.st_ino, stat.st_mtime_ns)


def remove(path: Path) -> None:
    """Removes a file, link or tree; what cannot be removed stays."""
    if path.is_dir() and not path.is_symlink():
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
