"""Jobs that nobody should write: each is refused in words, with its place, and none ends in a traceback."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.spec.test_odd_jobs import JOB, refusal


def test_code_that_is_a_whole_file_system_is_refused(tmp_path: Path) -> None:
    """It holds folders that nobody may read and more files than a job has: neither is a traceback, nor minutes."""
    said = refusal(JOB + "code: //\n", tmp_path)
    assert re.fullmatch(r"job\.yaml:3:\d+: code: .*(more than 100,000 files.*|denied|No such .*)", said)


def test_a_folder_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out in silence, its files would be missing where the command runs. Root may read all, so the listing is
    made to fail."""
    (tmp_path / "code" / "closed").mkdir(parents=True)
    listing = os.scandir

    def scandir(path: Any = ".") -> Any:
        if str(path).endswith("/closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listing(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scandir)
        said = refusal(JOB + "code: code\n", tmp_path)
    assert re.fullmatch(r"job\.yaml:3:\d+: code: .*/closed: Permission denied", said)
