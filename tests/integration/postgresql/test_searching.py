"""tests/unit/monitor/test_searching.py on a real PostgreSQL."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from launcher.monitor import database, search_index
from launcher.monitor.ingest import StoreFollower
from launcher.store.base import Store
from tests.support.again import asking_for
from tests.support.postgres import a_postgres
from tests.unit.monitor import test_searching
from tests.unit.monitor.test_searching import SAID, found, said
from tests.unit.monitor.test_searching import searched as searched
from tests.unit.monitor.test_searching import told as told

globals().update(asking_for({"engine", "told", "searched", "url"}, test_searching))


def test_without_the_right_to_an_extension_every_text_is_read(
    file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL, as somebody who may not create what the index needs."""
    monkeypatch.setattr(search_index, "NEWEST", 1)
    said(file_store, SAID)
    with a_postgres().database() as url:
        engine = database.connect(url)
        with engine.begin() as connection:
            connection.execute(text("DROP ROLE IF EXISTS poor"))
            connection.execute(text("CREATE ROLE poor LOGIN"))
            connection.execute(text("GRANT CREATE ON SCHEMA public TO poor"))
        engine.dispose()
        poor = database.open_database(url.replace("//test@", "//poor@"))
        with poor.connect() as connection:
            assert not search_index.there(connection)
        StoreFollower(poor, file_store).once()
        assert found(poor, "press save") == ["form-0"]
        poor.dispose()
