"""All rows of a database, to compare two, and a process that dies while it writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.tables import METADATA
from launcher.store.base import Store


def contents(engine: Engine) -> dict[str, list[dict[str, Any]]]:
    with engine.connect() as connection:
        return {
            table.name: [dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()]
            for table in METADATA.sorted_tables
        }


def ingested(engine: Engine, store: Store) -> dict[str, list[dict[str, Any]]]:
    StoreFollower(engine, store).once(everything=True)
    return contents(engine)


def dies_and_goes_on(engine: Engine, store: Store, last: int, folder: Path) -> None:
    """The process dies at its commit number `last`; the next one goes on, and the rows are those of a process that did
    not die."""

    class Killed(BaseException):
        pass

    left = last

    def commit(connection: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    event.listen(engine, "commit", commit)
    with pytest.raises(Killed):
        StoreFollower(engine, store).once()
    event.remove(engine, "commit", commit)
    other = open_database(f"sqlite:///{folder / 'other.sqlite'}")
    assert ingested(engine, store) == ingested(other, store)
    other.dispose()
