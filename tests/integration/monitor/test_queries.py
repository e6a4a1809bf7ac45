"""What the pages show, from a database of each kind; and a store on a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.support.fakerun import login_pipeline
from tests.unit.monitor.contents import contents


@pytest.mark.s3
def test_a_store_on_s3_gives_the_same_rows(s3_store: Store, tmp_path: Path) -> None:
    folder = FileStore(tmp_path / "store", sync=False)
    login_pipeline(folder, n=4)
    for meta in folder.scan(""):
        s3_store.put(meta.key, folder.get(meta.key))
    found = []
    for name, store in (("folder", folder), ("s3", s3_store)):
        engine = open_database(f"sqlite:///{tmp_path / name}.sqlite")
        follower = StoreFollower(engine, store)
        follower.once()
        assert follower.once(everything=True).written == 0
        found.append({table: len(rows) for table, rows in contents(engine).items()})
        engine.dispose()
    assert found[0] == found[1]
    assert found[0]["turns"] == 4 * 7
