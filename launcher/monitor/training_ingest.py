"""Brings the records of a training into the database: rollouts in batches, then what they belong to, at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Table, delete, insert, select

from launcher.monitor import tables
from launcher.monitor.database import written
from launcher.monitor.episodes import Rows, merged
from launcher.monitor.row_writer import parts_of, put, put_rollouts
from launcher.monitor.tables import METADATA
from launcher.monitor.training_reader import ReportedTraining, TrainingReader, piece_names
from launcher.monitor.training_rows import TrainingRows, digest_of
from launcher.results.read import StoredOutput
from launcher.results.training_records import RlGroup

BATCH: Final = 32  # rollouts of one transaction
REPLACED: Final = ("trainings", "steps", "evals", "baselines", "groups")  # whose rows may change, parents first


class Ingested(NamedTuple):
    """The ids of all rollouts that are told, and how much was new."""

    rollouts: frozenset[int]
    new: int


class TrainingIngest:
    """Of one run. It may be thrown away at any time: the next one reads everything again, and writes what differs."""

    def __init__(self, engine: Engine, run_id: int) -> None:
        self.engine, self.run_id = engine, run_id
        self.reader = TrainingReader(run_id)
        self.before = ReportedTraining()

    def bring_in(
        self, output: StoredOutput, held: Mapping[int, str], stopping: Callable[[], None] = lambda: None
    ) -> Ingested:
        """`held`: the digests of the run's rollouts in the database; `stopping` may raise between two batches. Raises
        DamagedResults, NotFound."""
        if not piece_names(output):
            return Ingested(frozenset(), self._drop())
        new, batch, ids = 0, list[Rows](), list[int]()

        def flush() -> None:
            nonlocal batch, ids
            if ids:
                shared, own = merged(batch)
                written(self.engine, lambda connection: self._put(connection, ids, shared, own))
            batch, ids = [], []
            stopping()

        for rollout in self.reader.read(output):
            told = self.reader.present
            group = told.groups.get(rollout.group, RlGroup())
            if held.get(rollout.id) == digest_of(output, rollout, group):
                continue
            rows = Rows()
            TrainingRows(self.run_id, told).rollout(output, rollout, rows)
            batch.append(rows)
            ids.append(rollout.id)
            new += 1
            if len(ids) == BATCH:
                flush()
        flush()
        written(self.engine, self._finish)
        self.before = self.reader.told
        return Ingested(frozenset(self.reader.told.rollouts.values()), new + 1)

    def _put(
        self, connection: Connection, ids: list[int], shared: Mapping[str, Mapping[int, Any]], own: Mapping[str, Any]
    ) -> None:
        for name in ("trainings", "steps"):
            put(connection, METADATA.tables[name], list(shared.get(name, {}).values()))
        put_rollouts(connection, ids, shared, own)

    def _finish(self, connection: Connection) -> None:
        """Writes what the rollouts belong to, as it is now, and deletes what a resume threw away."""
        told, before = self.reader.told, self.before
        rows = TrainingRows(self.run_id, told)
        groups = {place: line for place, line in told.groups.items() if before.groups.get(place) is not line}
        steps = {place: line for place, line in told.steps.items() if before.steps.get(place) is not line}
        shared = rows.shared(groups, steps).shared
        for name in ("environments", "tasks"):
            put(connection, METADATA.tables[name], list(shared.get(name, {}).values()))
        for name in REPLACED:
            listed = sorted(shared.get(name, {}).values(), key=lambda row: int(row["id"]))
            put(connection, METADATA.tables[name], listed, replace=True)
        table = tables.training_statuses
        connection.execute(delete(table).where(table.c.training_id == rows.id))
        if statuses := rows.statuses():
            connection.execute(insert(table), statuses)
        self._forget(connection, rows.shared(told.groups, told.steps).shared)

    def _forget(self, connection: Connection, shared: Mapping[str, Mapping[int, Any]]) -> None:
        training = select(tables.trainings.c.id).where(tables.trainings.c.run_id == self.run_id)
        owners: list[tuple[Table, Any]] = [(tables.steps, tables.steps.c.training_id.in_(training))]
        for table in (tables.evals, tables.baselines):
            owners.append((table, (table.c.run_id == self.run_id) & table.c.step.is_not(None)))
        for table, mine in owners:
            column = tables.groups.c[f"{table.name.removesuffix('s')}_id"]
            there = select(table.c.id).where(mine)
            held = connection.execute(
                select(tables.groups.c.id).where(column.in_(there), tables.groups.c.number.is_not(None))
            )
            _delete(connection, tables.groups, {row.id for row in held} - shared.get("groups", {}).keys())
            gone = {row.id for row in connection.execute(there)} - shared.get(table.name, {}).keys()
            _delete(connection, table, gone)

    def _drop(self) -> int:
        """The results have no records (any more)."""
        self.before = ReportedTraining()
        table = tables.trainings
        with self.engine.connect() as connection:
            if connection.execute(select(table.c.id).where(table.c.run_id == self.run_id)).first() is None:
                return 0
        written(self.engine, lambda connection: drop_training(connection, self.run_id))
        return 1


def drop_training(connection: Connection, run_id: int) -> None:
    """Deletes a training with all that belongs to it."""
    connection.execute(delete(tables.trainings).where(tables.trainings.c.run_id == run_id))
    for table in (tables.evals, tables.baselines):
        connection.execute(delete(table).where(table.c.run_id == run_id, table.c.step.is_not(None)))


def _delete(connection: Connection, table: Table, ids: set[int]) -> None:
    for part in parts_of(sorted(ids)):
        connection.execute(delete(table).where(table.c.id.in_(part)))
