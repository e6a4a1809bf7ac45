"""Fixtures that every test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.store.base import Store, open_store

pytest_plugins = ["tests.support.s3", "tests.support.cluster.fixtures"]


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    """An empty store in a folder."""
    return open_store((tmp_path / "store").as_uri())
