"""An empty database of a real PostgreSQL, where tests/unit/monitor has one of SQLite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.postgres import a_postgres
from tests.unit.monitor.conftest import engine, file_store

__all__ = ["engine", "file_store"]


@pytest.fixture(params=["postgresql"])
def url() -> Iterator[str]:
    with a_postgres().database() as made:
        yield made
