"""Verdicts of people from a store into the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, delete, select

from launcher.errors import SlipwayError, Unreachable
from launcher.monitor import tables
from launcher.monitor.database import written
from launcher.monitor.row_writer import put
from launcher.monitor.rows import Row, number, text
from launcher.protocol.records import PersonVerdict
from launcher.results.verdicts import list_verdicts, read_verdict
from launcher.store.base import Store


def verdict_row(store_id: int, run: str, name: str, verdict: PersonVerdict) -> Row:
    return {
        "store_id": store_id,
        "run": text(run),
        "name": text(name),
        "place": text(verdict.place),
        "success": None if verdict.success is None else int(verdict.success),
        "reason": text(verdict.reason),
        "person": text(verdict.by),
        "at": number(verdict.time),
        "blind": int(verdict.blind),
        "checker": None if verdict.checker is None else int(verdict.checker),
    }


def put_verdict(connection: Connection, row: Row) -> None:
    put(connection, tables.verdicts, [row])


def follow_verdicts(
    engine: Engine, store: Store, store_id: int, changed: Callable[[str], None], problems: list[str]
) -> None:
    """Brings the verdicts of a store in that are new, and forgets those that it does not have any more."""
    table = tables.verdicts
    there = set(list_verdicts(store))
    with engine.connect() as connection:
        query = select(table.c.run, table.c.name).where(table.c.store_id == store_id)
        held = {(row.run, row.name) for row in connection.execute(query)}
    rows: list[dict[str, Any]] = []
    for run, name in sorted(there - held):
        try:
            verdict = read_verdict(store, run, name)
        except Unreachable:
            raise
        except SlipwayError as error:
            problems.append(f"{run}: {error}")
            continue
        if verdict is not None:
            rows.append(verdict_row(store_id, run, name, verdict))
    gone = held - there
    if not rows and not gone:
        return

    def unit(connection: Connection) -> None:
        put(connection, table, rows)
        for run, name in sorted(gone):
            mine = (table.c.store_id == store_id, table.c.run == run, table.c.name == name)
            connection.execute(delete(table).where(*mine))

    written(engine, unit)
    for run in sorted({row["run"] for row in rows} | {run for run, _ in gone}):
        changed(run)
