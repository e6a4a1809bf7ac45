"""Writes the database's tables and views as Parquet, for notebooks: a file for each, all of one moment.

The rows pass through in batches, so memory does not grow with the database. A file has its name only once all are
complete: whoever reads the folder finds whole files, those of before or those of now.
"""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Connection, Engine, Float, Select, column, select, table

from launcher.errors import BadInput
from launcher.install import install
from launcher.monitor.database import head
from launcher.monitor.tables import METADATA

TIMES: Final = frozenset({"at", "began", "created", "ended", "seen", "started"})  # in whichever table
WHOLE: Final = frozenset({"attempts", "blind", "checked", "checker", "counts", "gpus", "rollout", "success", "turns"})
NUMBERS: Final = frozenset({"cost", "running", "score", "seconds", "step", "total"})
# the columns of the views, which no table of the code describes; what is in none of the three above is a text
VIEWS: Final[Mapping[str, Sequence[str]]] = {
    "v_runs": (
        "store", "run", "name", "group_name", "state", "reason", "backend", "attempts", "step", "total", "created",
        "started", "ended", "running", "gpus",
    ),
    "v_rollouts": (
        "rollout", "store", "run", "name", "part", "agent", "benchmark", "version", "task", "seed", "outcome",
        "success", "score", "failure", "error", "turns", "seconds", "cost",
    ),
    "v_verdicts": (
        "store", "run", "place", "rollout", "person", "at", "success", "reason", "blind", "checker", "checked",
        "counts",
    ),
}  # fmt: skip
FETCHED: Final = 256  # rows that the database hands over at once
GROUP: Final = 20_000  # rows of one row group
GROUP_TEXT: Final = 32 << 20  # characters of one row group: a turn may have a million of them
FIRST: Final = datetime.datetime(1, 1, 1, tzinfo=datetime.UTC).timestamp()
LAST: Final = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC).timestamp()


class Exported(NamedTuple):
    path: Path
    rows: int


def export(engine: Engine, folder: Path) -> list[Exported]:
    """Writes `folder`/NAME.parquet for every table and view, in place of what has that name. Raises BadInput where
    pyarrow is not installed or a file cannot be written."""
    try:
        import pyarrow.parquet as parquet
    except ModuleNotFoundError:
        raise BadInput(f"--export needs pyarrow: {install('pyarrow')}") from None
    made: list[tuple[Path, Exported]] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _snapshot(engine) as connection:
            for name, (query, kinds) in _queries().items():
                path = folder / f"{name}.parquet"
                part = folder / f".{path.name}.{os.getpid()}"
                made.append((part, Exported(path, 0)))
                schema = _schema(kinds)
                rows = 0
                with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
                    for group in _groups(connection, query):
                        writer.write_table(_table(group, kinds, schema))
                        rows += len(group)
                made[-1] = (part, Exported(path, rows))
        for part, whole in made:
            part.replace(whole.path)
    except OSError as error:
        raise BadInput(f"--export {folder}: cannot be written: {error.strerror or error}") from None
    finally:
        for part, _ in made:
            with suppress(OSError):
                part.unlink(missing_ok=True)
    return [whole for _, whole in made]


def _snapshot(engine: Engine) -> Connection:
    """A connection whose reads are all of one moment, while others write. SQLite's transactions are so anyway."""
    connection = engine.connect()
    if connection.dialect.name == "postgresql":
        return connection.execution_options(isolation_level="REPEATABLE READ")
    return connection


def _queries() -> dict[str, tuple[Select[Any], dict[str, str]]]:
    """Name of a file -> its rows, and the kind of each column: text, whole, number or time."""
    found: dict[str, tuple[Select[Any], dict[str, str]]] = {}
    for one in METADATA.sorted_tables:
        kinds = {each.name: _kind(each.name, each.type) for each in one.columns}
        found[one.name] = (select(one).order_by(*one.primary_key), kinds)
    for name, columns in VIEWS.items():
        view = table(name, *(column(each) for each in columns))
        found[name] = (select(view).order_by(*view.c[:4]), {each: _kind(each) for each in columns})
    return found


def _kind(name: str, of: object = None) -> str:
    if name in TIMES:
        return "time"
    if of is None:
        return "whole" if name in WHOLE else "number" if name in NUMBERS else "text"
    return "whole" if isinstance(of, BigInteger) else "number" if isinstance(of, Float) else "text"


def _schema(kinds: Mapping[str, str]) -> Any:
    import pyarrow as arrow

    types = {
        "text": arrow.string(),
        "whole": arrow.int64(),
        "number": arrow.float64(),
        "time": arrow.timestamp("us", tz="UTC"),
    }
    return arrow.schema([(name, types[kind]) for name, kind in kinds.items()], {"slipway.database": head() or ""})


def _groups(connection: Connection, query: Select[Any]) -> Iterator[list[Sequence[Any]]]:
    """The rows of a query, so many at once that they fit into memory."""
    group: list[Sequence[Any]] = []
    size = 0
    with connection.execution_options(yield_per=FETCHED).execute(query) as rows:
        for row in rows:
            group.append(row)
            size += sum(len(value) for value in row if isinstance(value, str))
            if len(group) >= GROUP or size >= GROUP_TEXT:
                yield group
                group, size = [], 0
    if group:
        yield group


def _table(group: Sequence[Sequence[Any]], kinds: Mapping[str, str], schema: Any) -> Any:
    import pyarrow as arrow

    arrays = []
    for at, (field, kind) in enumerate(zip(schema, kinds.values(), strict=True)):
        values = [row[at] for row in group]
        if kind == "time":
            values = [_microseconds(value) for value in values]
        arrays.append(arrow.array(values, field.type))
    return arrow.Table.from_arrays(arrays, schema=schema)


def _microseconds(seconds: float | None) -> int | None:
    """None for what is no time of a calendar: a record may claim any number."""
    if seconds is None or not math.isfinite(seconds) or not FIRST <= seconds <= LAST:
        return None
    return round(seconds * 1_000_000)
