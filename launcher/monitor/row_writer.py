"""Writes units into the database: a run's rows, some rollouts' rows. Each is one transaction, and replaces what the
unit had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, delete, exists, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite

from launcher.monitor import search_index, tables
from launcher.monitor.episodes import OWN, SHARED
from launcher.monitor.rows import Row, RunRows
from launcher.monitor.tables import METADATA

PARTS: Final = ("attempts", "members", "status_history", "events", "checkpoints", "costs")
NAMED: Final = 500  # rows that one statement names


def put(connection: Connection, table: Table, rows: Sequence[Row], *, replace: bool = False) -> None:
    """Adds rows whose keys may be there: those stay as they are, or with `replace` become these."""
    if not rows:
        return
    keys = [column.name for column in table.primary_key]
    # in the order of their keys, so that two writers never wait for each other
    ordered = rows if replace else sorted(rows, key=lambda row: [row[key] for key in keys])
    changed = tuple(name for name in rows[0] if name not in keys) if replace else ()
    connection.execute(_put_statement(connection.dialect.name, table, changed), ordered)


@cache
def _put_statement(dialect: str, table: Table, changed: tuple[str, ...]) -> Any:
    """An INSERT that changes these columns of rows whose keys are there. It is made once: to make it takes longer than
    to execute it."""
    statement = (insert_postgresql if dialect == "postgresql" else insert_sqlite)(table)
    if not changed:
        return statement.on_conflict_do_nothing()
    keys = [column.name for column in table.primary_key]
    return statement.on_conflict_do_update(
        index_elements=keys, set_={name: statement.excluded[name] for name in changed}
    )


def put_runs(connection: Connection, runs: Sequence[RunRows]) -> None:
    """Replaces the rows of runs, without those of their results; they are not complete any more."""
    # in the order of their keys, so that two writers never wait for each other
    ordered = sorted(runs, key=lambda rows: int(rows.run["id"]))
    put(connection, tables.runs, [{**rows.run, "complete": 0, "digest": rows.digest} for rows in ordered], replace=True)
    for name in PARTS:
        table = METADATA.tables[name]
        connection.execute(delete(table).where(table.c.run_id.in_([rows.run["id"] for rows in ordered])))
        if parts := [row for rows in ordered for row in rows.parts.get(name, ())]:
            connection.execute(insert(table), parts)


def put_rollouts(
    connection: Connection,
    ids: Sequence[int],
    shared: Mapping[str, Mapping[int, Row]],
    own: Mapping[str, Sequence[Row]],
) -> None:
    """Replaces rollouts, with their turns and all."""
    for name in SHARED:
        put(connection, METADATA.tables[name], list(shared.get(name, {}).values()))
    drop_rollouts(connection, ids)
    for name in OWN:
        if own.get(name):
            connection.execute(insert(METADATA.tables[name]), list(own[name]))
    if connection.dialect.name == "sqlite" and search_index.there(connection):
        search_index.add(connection, ids)


def drop_rollouts(connection: Connection, ids: Sequence[int]) -> None:
    for part in parts_of(sorted(ids)):
        connection.execute(delete(tables.rollouts).where(tables.rollouts.c.id.in_(part)))


def drop_runs(connection: Connection, ids: Iterable[int]) -> None:
    for part in parts_of(sorted(ids)):
        connection.execute(delete(tables.runs).where(tables.runs.c.id.in_(part)))
    tidy(connection)


def tidy(connection: Connection) -> None:
    """Deletes what no rollout needs any more: groups, then who was asked, then tasks and environments. What a training
    told of stays without rollouts too."""
    told = {"groups": tables.groups.c.number, "evals": tables.evals.c.step, "baselines": tables.baselines.c.step}
    for table, users in (
        (tables.groups, [(tables.rollouts, "group_id")]),
        (tables.evals, [(tables.groups, "eval_id")]),
        (tables.baselines, [(tables.groups, "baseline_id")]),
        (tables.tasks, [(tables.groups, "task_id")]),
        (tables.validators, [(tables.validations, "validator_id")]),
        (
            tables.environments,
            [(tables.tasks, "environment_id"), (tables.evals, "environment_id"), (tables.baselines, "environment_id"),
             (tables.validators, "environment_id")],
        ),
    ):  # fmt: skip
        used: list[ColumnElement[bool]] = [
            exists(select(user.c[column]).where(user.c[column] == table.c.id)) for user, column in users
        ]
        kept = [told[table.name].is_(None)] if table.name in told else []
        connection.execute(delete(table).where(~or_(*used), *kept))


def parts_of(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[at : at + NAMED] for at in range(0, len(items), NAMED))


def mark(connection: Connection, runs: Sequence[int], **values: Any) -> None:
    connection.execute(update(tables.runs).where(tables.runs.c.id.in_(runs)).values(**values))
