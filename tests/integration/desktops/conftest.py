"""What all tests of real desktops need."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.desktops import KNOWN, need_desktops, segments


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the test's sessions have their folders. Its path is short, as Unix sockets need it."""
    need_desktops()
    folder = Path(tempfile.mkdtemp(prefix="st-", dir="/tmp"))
    folder.chmod(0o711)
    monkeypatch.setattr("eval.desktops.session.FOLDERS", str(folder))
    KNOWN[folder] = segments()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
