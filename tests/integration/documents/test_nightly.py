"""`make nightly`: every nightly test is in one part, and the table names what was red."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import nightly


def test_outcomes_belong_to_a_commit(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / "file").write_text("1")
    git("init", "-q")
    git("add", "file")
    git("commit", "-qm", "one")
    first = nightly.kept(tmp_path)
    assert nightly.kept(tmp_path) == first
    (tmp_path / "file").write_text("2")
    changed = nightly.kept(tmp_path)
    assert changed != first
    (changed / "left").mkdir(parents=True)
    assert not (nightly.kept(tmp_path) / "left").exists()  # the changes may be others now
    git("commit", "-qam", "two")
    assert nightly.kept(tmp_path) not in (first, changed)
