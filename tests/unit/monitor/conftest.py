"""Databases and stores for the monitor's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from launcher.monitor.database import open_database
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.support.postgres import a_postgres


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'monitor.sqlite'}"
        return
    with a_postgres().database() as made:
        yield made


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()
