"""The database: every migration up and down with data, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from launcher.errors import BadInput, SlipwayError
from launcher.monitor import database, tables
from launcher.monitor.ingest import StoreFollower
from launcher.store.base import Store
from tests.support.fakerun import login_pipeline
from tests.unit.monitor.contents import contents


def test_the_migrations_make_the_tables_of_the_code(engine: Engine) -> None:
    with engine.connect() as connection:
        # the search's index is no table of the code: tests/unit/monitor/test_searching.py
        named = {"compare_type": True, "include_name": lambda name, kind, parents: "search" not in str(name)}
        context = MigrationContext.configure(connection, opts=named)
        assert compare_metadata(context, tables.METADATA) == []
        assert set(inspect(connection).get_view_names()) == {"v_runs", "v_rollouts", "v_verdicts"}


def test_every_migration_goes_down_and_up_with_data(engine: Engine, file_store: Store) -> None:
    login_pipeline(file_store, n=8)
    StoreFollower(engine, file_store).once()
    before = contents(engine)
    assert len(before["rollouts"]) == 2 * 8 + 7  # the tasks, and episodes that no task names
    database.downgrade(engine, "0001")
    with engine.connect() as connection:
        assert inspect(connection).get_view_names() == []
    database.upgrade(engine)
    StoreFollower(engine, file_store).once()  # a step down forgets what the older tables had no place for
    assert contents(engine) == before
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM v_rollouts")).scalar() == 23
        assert connection.execute(text("SELECT count(*) FROM v_runs WHERE state = 'succeeded'")).scalar() == 4
    database.downgrade(engine, "base")
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
    database.upgrade(engine)
    StoreFollower(engine, file_store).once()
    assert contents(engine) == before


def test_a_group_belongs_to_exactly_one(engine: Engine, file_store: Store) -> None:
    login_pipeline(file_store, n=4)
    StoreFollower(engine, file_store).once()
    with engine.connect() as connection:
        group = connection.execute(select(tables.groups)).mappings().first()
    assert group is not None
    other: dict[str, Any] = {**group, "id": 1}
    for wrong in (
        {**other, "eval_id": None},
        {**other, "baseline_id": group["eval_id"]},
    ):
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(insert(tables.groups), wrong)


def test_a_rollout_ends_with_its_run(engine: Engine, file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=4)
    StoreFollower(engine, file_store).once()
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        connection.execute(text("DELETE FROM runs WHERE run = :run"), {"run": pipeline.after})
    left = contents(engine)
    assert {row["run"] for row in left["runs"]} == {pipeline.data, pipeline.before, pipeline.sft}
    assert len(left["rollouts"]) == 4 + 1
    assert len({row["rollout_id"] for row in left["turns"]}) == 1


def test_a_database_of_a_newer_version_is_left_alone(engine: Engine, url: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(BadInput, match="newer launcher"):
        database.open_database(url)


@pytest.mark.parametrize("url", ["mysql://host/name", "nonsense", "sqlite+what:///x"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(BadInput, match="allowed: sqlite:///FILE, postgresql://"):
        database.open_database(url)


def test_a_password_is_not_shown() -> None:
    with pytest.raises(SlipwayError) as raised:
        database.open_database("postgresql://someone:hunter2@127.0.0.1:1/name")
    assert "hunter2" not in str(raised.value)
    assert "127.0.0.1" in str(raised.value)


def test_a_file_that_is_no_database(tmp_path: Any) -> None:
    path = tmp_path / "monitor.sqlite"
    path.write_bytes(b"this is no database" * 100)
    with pytest.raises(SlipwayError, match="cannot be used"):
        database.open_database(f"sqlite:///{path}")
    assert path.read_bytes() == b"this is no database" * 100


def test_an_error_that_is_none_of_another_writer_is_not_hidden(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(DBAPIError):
        database.written(engine, lambda connection: connection.execute(text("SELECT * FROM nothing")))


def test_the_page_names_every_table_and_view(engine: Engine) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "monitor-database.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    views = {name: rows.pop(name) for name in ("v_runs", "v_rollouts", "v_verdicts")}
    assert set(rows) == set(tables.METADATA.tables)
    with engine.connect() as connection:
        for name, line in views.items():
            told = line.partition("|")[2].partition("|")[2].split("`")[1::2]
            there = [column["name"] for column in inspect(connection).get_columns(name)]
            assert [word for word in told if word not in ("eval", "baseline", "training")] == there
        query = page.partition("```sql\n")[2].partition("```")[0]
        assert connection.execute(text(query.strip().rstrip(";"))).all() == []
