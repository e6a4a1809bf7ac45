"""The database as Parquet: the same rows and types as SQL gives, whole files, of one moment."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from sqlalchemy import Connection, Engine, inspect, text

from launcher.cli import main
from launcher.errors import BadInput
from launcher.monitor import export as exporting
from launcher.monitor import tables
from launcher.monitor.database import open_database
from launcher.monitor.export import VIEWS, export
from launcher.monitor.ingest import StoreFollower
from launcher.results.verdicts import give_verdict
from launcher.store.base import Store
from tests.support.fakerun import login_pipeline
from tests.unit.monitor.test_trainings import training

NAMES = [*tables.METADATA.tables, *VIEWS]
TIME = arrow.timestamp("us", tz="UTC")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def filled(engine: Engine, store: Store) -> None:
    login_pipeline(store, n=8)
    run = training(store)
    give_verdict(store, run, "train/1/0/0", False, "it saw nothing", "ann", blind=True, checker=True)
    StoreFollower(engine, store).once()


def sql(engine: Engine, name: str) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [dict(row) for row in connection.execute(text(f"SELECT * FROM {name}")).mappings()]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]], times: set[str]) -> None:
    """In any order; times to the microsecond, all else to the last digit."""

    def order(row: dict[str, Any]) -> list[Any]:
        return [(value is None, str(value)) for name, value in row.items() if name not in times]

    for one, other in zip(sorted(found, key=order), sorted(wanted, key=order), strict=True):
        assert list(one) == list(other)  # the columns, in the order of SQL
        for name, value in one.items():
            if name in times and value is not None:
                assert (value - EPOCH) / datetime.timedelta(seconds=1) == pytest.approx(other[name], rel=0, abs=1e-6)
            else:
                assert value == other[name], name


def test_the_files_hold_the_rows_and_types_of_sql(
    engine: Engine, file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(engine, file_store)
    monkeypatch.setattr(exporting, "GROUP", 7)
    folder = tmp_path / "tables"
    made = export(engine, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{name}.parquet" for name in NAMES)
    for path, rows in made:
        read = parquet.read_table(path)
        times = {field.name for field in read.schema if field.type == TIME}
        assert read.num_rows == rows
        same(read.to_pylist(), sql(engine, path.stem), times)
    turns = parquet.ParquetFile(folder / "turns.parquet")
    assert turns.num_row_groups == -(-len(sql(engine, "turns")) // 7) > 1
    assert turns.schema_arrow.metadata == {b"slipway.database": b"0009"}
    with engine.connect() as connection:
        for name in NAMES:
            schema = parquet.read_schema(folder / f"{name}.parquet")
            columns = inspect(connection).get_columns(name)
            assert schema.names == [each["name"] for each in columns]
            if engine.dialect.name != "postgresql":  # SQLite's views have no types
                continue
            for field, each in zip(schema, columns, strict=True):
                python = each["type"].python_type
                allowed = {str: (arrow.string(),), int: (arrow.int64(),), float: (arrow.float64(), TIME)}[python]
                assert field.type in allowed, f"{name}.{field.name}"
    kinds = {field.name: field.type for field in parquet.read_schema(folder / "v_runs.parquet")}
    assert [name for name, kind in kinds.items() if kind == TIME] == ["created", "started", "ended"]
    assert parquet.read_schema(folder / "rollouts.parquet").field("cost").type == arrow.float64()


def test_all_files_are_of_one_moment(
    engine: Engine, file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(engine, file_store)
    before = {name: len(sql(engine, name)) for name in NAMES}
    real, emptied = exporting._groups, False

    def groups(connection: Connection, query: Any) -> Iterator[Any]:
        nonlocal emptied
        yield from real(connection, query)
        if not emptied:  # after the first table another process empties the database
            emptied = True
            with engine.connect().execution_options(writes=True) as other, other.begin():
                other.execute(text("DELETE FROM stores"))

    monkeypatch.setattr(exporting, "_groups", groups)
    assert {path.stem: rows for path, rows in export(engine, tmp_path)} == before
    assert sql(engine, "runs") == []
    assert before["runs"] == 5


def test_a_failure_leaves_the_files_of_before(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'monitor.sqlite'}")
    folder = tmp_path / "tables"
    export(engine, folder)
    filled(engine, file_store)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    real = exporting._table

    def full(group: Any, kinds: Any, schema: Any) -> Any:
        if "answer" in schema.names:
            raise OSError(28, "No space left on device")
        return real(group, kinds, schema)

    monkeypatch.setattr(exporting, "_table", full)
    with pytest.raises(BadInput, match=r"--export .*: cannot be written: No space left on device"):
        export(engine, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert len(before) == len(NAMES)
    engine.dispose()


@pytest.mark.parametrize("claimed", [float("inf"), 1e300, -1e300])
def test_a_number_that_is_no_time_is_none(claimed: float) -> None:
    assert exporting._microseconds(claimed) is None
    assert exporting._microseconds(1_700_000_000.5) == 1_700_000_000_500_000


def test_the_verb_reads_the_stores_and_ends(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    login_pipeline(file_store, n=4)
    monkeypatch.chdir(tmp_path)
    words = ["monitor", "--store", file_store.url, "--database", f"sqlite:///{tmp_path / 'monitor.sqlite'}"]
    assert main([*words, "--export", "tables"]) == 0
    out = capsys.readouterr().out
    assert f"{Path('tables') / 'runs.parquet'}: 4 rows\n" in out
    assert parquet.read_table(tmp_path / "tables" / "v_runs.parquet").num_rows == 4
    assert main([*words, "--export", "tables", "--allow-changes"]) == 2
    assert "--export opens no page: leave out --allow-changes" in capsys.readouterr().err
    (tmp_path / "taken").write_text("")
    assert main([*words, "--export", "taken"]) == 2
    assert "--export taken: cannot be written: " in capsys.readouterr().err
