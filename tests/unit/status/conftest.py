"""These tests only read: their stores may be lost with the machine's power, so nothing waits for the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.store.base import Store
from launcher.store.file import FileStore


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)
