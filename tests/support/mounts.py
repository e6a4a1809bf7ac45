"""Small file systems for tests, and what is left of them when a run of tests is ended by SIGKILL."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.support.needs import lacking, need_root

MOUNTS: Final = Path("/proc/self/mounts")


@contextmanager
def small_file_system(folder: Path, options: str) -> Iterator[None]:
    """A tmpfs on `folder`, which is made, with these mount options (`size=1m`). Skips the test where none can be
    mounted."""
    need_root()
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        lacking("root", f"with CAP_SYS_ADMIN: {made.stderr.strip()}")
    try:
        yield
    finally:
        while os.path.ismount(folder):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def unmount_left_behind() -> None:
    """Unmounts what is mounted in the temporary folders of runs that are gone: pytest, whichever run it is in, removes
    such a folder later, and fails at a mount."""
    if not MOUNTS.exists():
        return  # no Linux
    runs = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir()).resolve()
    for line in reversed(MOUNTS.read_text().splitlines()):
        where = Path(line.split()[1].encode("latin-1", "backslashreplace").decode("unicode_escape"))
        with suppress(ValueError):
            of_user, run, *inside = where.relative_to(runs).parts
            if of_user.startswith("pytest-of-") and inside and not _alive(runs / of_user / run):
                subprocess.run(["umount", "--lazy", str(where)], capture_output=True, check=False)


def _alive(run: Path) -> bool:
    """Whether the process whose id pytest wrote into the run's lock is there."""
    try:
        os.kill(int((run / ".lock").read_text()), 0)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True
