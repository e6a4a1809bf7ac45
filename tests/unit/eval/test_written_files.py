"""The times of files that a task's set-up writes: fixed, so that a list of them looks the same in each episode."""

from __future__ import annotations

import time
from pathlib import Path, PurePosixPath

from eval.desktops.server.files import write_below

THEN = 1_000_000_000.0


def test_a_new_file_and_its_folders_have_the_time_that_is_given(tmp_path: Path) -> None:
    write_below(tmp_path, PurePosixPath("a/b/note.txt"), b"1", modified=THEN)
    write_below(tmp_path, PurePosixPath("a/b/more/other.txt"), b"2", modified=THEN)
    written = list(tmp_path.rglob("*"))
    assert len(written) == 5
    assert {path.stat().st_mtime for path in written} == {THEN}
    assert (tmp_path / "a/b/note.txt").read_bytes() == b"1"


def test_a_file_that_was_there_has_the_time_of_the_change(tmp_path: Path) -> None:
    """An editor that has it open tells by its time that it is another one."""
    before = time.time() - 60
    write_below(tmp_path, PurePosixPath("note.txt"), b"1", modified=THEN)
    write_below(tmp_path, PurePosixPath("note.txt"), b"2", modified=THEN)
    assert (tmp_path / "note.txt").stat().st_mtime > before
