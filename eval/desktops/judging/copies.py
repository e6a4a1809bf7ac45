"""Copies what an agent left to another desktop, where nothing of the agent runs."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from eval.desktop import BrokenByAgent, DesktopGone
from eval.desktops.display.running_desktop import RunningDesktop
from eval.desktops.reading import list_files, read_file

LIMIT: Final = 384 << 20  # bytes of all files
LEFT_OUT: Final = ".cache"
# a file in the place of something that a desktop needs; one too many
SPOILED: Final = (errno.EACCES, errno.EBUSY, errno.EROFS, errno.ENOSPC)


def copy_files(source: RunningDesktop, target: RunningDesktop, folders: Sequence[str]) -> None:
    """Copies the plain files and folders below absolute `folders`, with their permissions and times. Links are left
    out, so no file is read that lies elsewhere. Raises BrokenByAgent for what cannot be copied, as more than LIMIT
    bytes, DesktopGone, OSError."""
    size = 0
    for folder in folders:
        for path, entry in list_files(source.root, folder.lstrip("/")).items():
            inside = PurePosixPath(folder, path)
            if LEFT_OUT in PurePosixPath(path).parts[:1]:
                continue
            there = Path(f"{target.root}/{inside}")
            try:
                if entry.kind == "folder":
                    _clear(there, folder=True)
                    there.mkdir(exist_ok=True)
                    _give(there, target, entry.mode | 0o700)
                elif entry.kind == "file":
                    data = read_file(source.root, str(inside).lstrip("/"))
                    changed = os.lstat(f"{source.root}/{inside}").st_mtime_ns
                    if (size := size + len(data)) > LIMIT:
                        raise BrokenByAgent(f"{folder} has more than {LIMIT} bytes")
                    _clear(there, folder=False)
                    put_file(there, data, target, entry.mode)
                    os.utime(there, ns=(changed, changed))
            except FileNotFoundError:  # gone meanwhile, or bytes of a name that are no UTF-8
                continue
            except OSError as error:
                if error.errno not in SPOILED:
                    raise
                raise BrokenByAgent(f"{inside} cannot be copied: {error.strerror}") from error
    if not source.root.is_dir():
        raise DesktopGone("the agent's desktop ended while its files were copied")


def _clear(there: Path, *, folder: bool) -> None:
    """Takes away what is of another kind in the place of a copy."""
    if there.is_dir() and not there.is_symlink():
        if not folder:
            shutil.rmtree(there)
    elif folder or there.is_symlink():
        there.unlink(missing_ok=True)


def put_file(there: Path, data: bytes, target: RunningDesktop, mode: int = 0o644) -> None:
    """Writes a file that belongs to the user of `target`, where nothing of an agent ever ran."""
    missing = [folder for folder in there.parents if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir()
        _give(folder, target, 0o755)
    there.write_bytes(data)
    _give(there, target, mode)


def _give(path: Path, target: RunningDesktop, mode: int) -> None:
    owner = target.home.stat()
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
    path.chmod(mode)
