"""A database and a store for the monitor's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from launcher.monitor import database
from launcher.monitor.database import open_database
from launcher.store.base import Store
from launcher.store.file import FileStore


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    return FileStore(tmp_path / "store", sync=False)


@pytest.fixture(params=["sqlite"])
def url(tmp_path: Path) -> str:
    """An empty database; tests/integration/postgresql runs the same tests on PostgreSQL."""
    return f"sqlite:///{tmp_path / 'monitor.sqlite'}"


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the databases that a test has opened: from Python 3.13 on one that nobody closed is a warning."""
    made: list[Engine] = []
    create = database.create_engine

    def noted(*arguments: Any, **named: Any) -> Engine:
        made.append(create(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(database, "create_engine", noted)
    yield
    for engine in made:
        engine.dispose()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_database(url)
    yield engine
    engine.dispose()
