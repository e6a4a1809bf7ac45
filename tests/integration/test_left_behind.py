"""A run of the tests that was ended by SIGKILL leaves its mounts; the run after it is as green as any."""

from __future__ import annotations

import getpass
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.mounts import small_file_system

ROOT = Path(__file__).parents[2]
GONE = 2**22 + 1  # more than the largest process id of Linux


def run_of_tests(runs: Path) -> subprocess.CompletedProcess[str]:
    """One quick test of this project, with its settings, whose temporary folders are in `runs`."""
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_names.py"]
    environment = {**os.environ, "PYTEST_DEBUG_TEMPROOT": str(runs), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Callable[[str, int | None], Path]]:
    """Mounts a small file system below a folder of pytest's, which names the process `owner` as the one at work."""
    user = tmp_path / f"pytest-of-{getpass.getuser()}"

    def make(run: str, owner: int | None) -> Path:
        folder = user / run / "test_one0" / "small disk"
        mounted.enter_context(small_file_system(folder, "size=64k"))
        if owner is not None:
            (user / run / ".lock").write_text(str(owner))
        return folder

    with ExitStack() as mounted:
        yield make


def test_what_a_killed_run_left_mounted_is_unmounted(tmp_path: Path, left: Callable[[str, int | None], Path]) -> None:
    gone = [left("pytest-7", GONE), left("pytest-8", None), left("garbage-b9631674", None)]
    at_work = left("pytest-9", os.getpid())
    done = run_of_tests(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not any(map(os.path.ismount, gone))
    assert os.path.ismount(at_work)


def test_a_folder_that_cannot_be_removed_fails_no_run(tmp_path: Path, left: Callable[[str, int | None], Path]) -> None:
    """pytest takes a lock of three days for a dead one, and removes the folder when it ends: here one with a mount."""
    busy = left("pytest-1", os.getpid())
    lock = busy.parents[1] / ".lock"
    os.utime(lock, (0, 0))
    left("pytest-9", os.getpid())  # the last three are kept
    done = run_of_tests(tmp_path)
    [moved] = tmp_path.glob("pytest-of-*/garbage-*/test_one0/small disk")
    assert os.path.ismount(moved)
    subprocess.run(["umount", "--lazy", moved], check=True)
    assert done.returncode == 0, done.stdout + done.stderr
