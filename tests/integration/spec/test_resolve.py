"""Resolved runs: complete, named by their hash, joined into a pipeline."""

from __future__ import annotations

from pathlib import Path

from launcher.spec.hashing import work_hash
from tests.unit.spec.support import group
from tests.unit.spec.test_resolve import JOB


def test_code_is_named_by_its_digest(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1")
    made = group(JOB + "code: src\n", tmp_path)
    code = made.runs[0].code
    assert code is not None
    assert {digest: overlay.folder for digest, overlay in made.code.items()} == {code.digest: tmp_path / "src"}
    (tmp_path / "src" / "a.py").write_text("2")
    assert work_hash(group(JOB + "code: src\n", tmp_path).runs[0]) != work_hash(made.runs[0])
