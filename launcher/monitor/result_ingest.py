"""Brings the results of many runs into the database together: a transaction for each 32 rollouts, whoever they belong
to, and one for what refers to them. A transaction for each step of each run takes longer than its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, delete, insert, select

from launcher.errors import NotFound, SlipwayError
from launcher.monitor import tables
from launcher.monitor.database import written
from launcher.monitor.episodes import Rows, Source, merged, metric_rows, rollout_rows, sources
from launcher.monitor.row_writer import drop_rollouts, put, put_rollouts, tidy
from launcher.monitor.rows import Row, text
from launcher.monitor.training_ingest import Ingested, TrainingIngest, drop_training
from launcher.monitor.training_reader import piece_names
from launcher.results.read import RESULTS, DamagedResults, StoredOutput
from launcher.store.base import Store

BATCH: Final = 32  # runs, or rollouts, of one transaction
PARALLEL: Final = 8
A = TypeVar("A")
B = TypeVar("B")
Told = tuple[Source, Rows]


class FreshOutput(NamedTuple):
    """An output that the database lacks or has otherwise, with its row. `output`: None where no file of it is read."""

    run: str
    row: Row
    output: StoredOutput | None

    @property
    def key(self) -> int:
        return int(self.row["run_id"])


class ResultIngest:
    """Of the runs of one batch. `stopping` may raise between two transactions."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        training: Callable[[int], TrainingIngest],
        stopping: Callable[[], None],
    ) -> None:
        self.engine, self.store, self.training, self.stopping = engine, store, training, stopping
        self._waiting: list[Told] = []
        self._metrics: dict[int, Sequence[Row]] = {}
        self._gone: list[int] = []
        self._tidy = False

    def bring_in(self, fresh: Sequence[FreshOutput], problems: list[str]) -> Counter[int]:
        """Returns how many rollouts of each run are new or gone. An output that cannot be read is a line of
        `problems`."""
        results = [(each, each.output) for each in fresh if each.row["name"] == RESULTS and each.output is not None]
        keys = [each.key for each, _ in results]
        held, trained = self._held(keys), self._trained(keys)
        contents = in_order(_content, results, self.store, len(results))
        counts = Counter[int]()
        rows = []
        for each in fresh:
            problem = ""
            if each.row["name"] == RESULTS and each.output is not None:
                try:
                    found = next(contents)
                    if isinstance(found, SlipwayError):
                        raise found
                    counts[each.key] += self._rollouts(
                        each.key, each.output, *found, held.get(each.key, {}), each.key in trained
                    )
                except (DamagedResults, NotFound) as error:
                    problem = text(str(error))
                    problems.append(f"{each.run}: {problem}")
            rows.append(each.row | {"ingested": "" if problem else each.row["digest"], "problem": problem})
        self._put(self._waiting)
        if rows:
            written(self.engine, lambda connection: self._finish(connection, rows))
        return counts

    def _held(self, keys: Sequence[int]) -> dict[int, dict[int, str]]:
        """Run -> its rollouts in the database -> their digests."""
        table, found = tables.rollouts, dict[int, dict[int, str]]()
        query = select(table.c.run_id, table.c.id, table.c.digest).where(table.c.run_id.in_(keys))
        with self.engine.connect() as connection:
            for row in connection.execute(query) if keys else ():
                found.setdefault(row.run_id, {})[row.id] = row.digest
        return found

    def _trained(self, keys: Sequence[int]) -> set[int]:
        """Of these runs, those of which the database has a training."""
        table = tables.trainings
        with self.engine.connect() as connection:
            found = connection.execute(select(table.c.run_id).where(table.c.run_id.in_(keys))) if keys else ()
            return {row.run_id for row in found}

    def _rollouts(
        self,
        key: int,
        output: StoredOutput,
        wanted: Mapping[int, Source],
        metrics: Sequence[Row],
        held: Mapping[int, str],
        trained: bool,
    ) -> int:
        """Reads the rollouts that are new or differ, and notes those that the output does not have any more."""
        new = [source for source in wanted.values() if held.get(source.id) != source.digest]

        def read(source: Source) -> Rows:
            rows = Rows()
            rollout_rows(key, output, source, rows)
            return rows

        waiting: list[Told] = []
        for source, rows in zip(new, in_order(read, new, self.store), strict=False):
            waiting.append((source, rows))
            if len(waiting) == BATCH:
                self._put(waiting)
                waiting = []
            self.stopping()
        self._wait(waiting)  # the output could be read to its end
        told = Ingested(frozenset(), 0)
        if trained or piece_names(output):
            told = self.training(key).bring_in(output, held, self.stopping)
        gone = sorted(set(held) - set(wanted) - told.rollouts)
        self._gone += gone
        self._metrics[key] = metrics
        self._tidy = self._tidy or bool(gone) or len(new) < len(wanted)
        return len(new) + len(gone) + told.new

    def _wait(self, waiting: Sequence[Told]) -> None:
        self._waiting += waiting
        if len(self._waiting) >= BATCH:
            self._put(self._waiting)
            self._waiting = []

    def _put(self, waiting: Sequence[Told]) -> None:
        if waiting:
            shared, own = merged([rows for _, rows in waiting])
            ids = [source.id for source, _ in waiting]
            written(self.engine, lambda connection: put_rollouts(connection, ids, shared, own))

    def _finish(self, connection: Connection, rows: Sequence[Row]) -> None:
        table = tables.eval_metrics
        drop_rollouts(connection, self._gone)
        if self._metrics:
            connection.execute(delete(table).where(table.c.run_id.in_(list(self._metrics))))
        if metrics := [row for each in self._metrics.values() for row in each]:
            connection.execute(insert(table), metrics)
        if self._tidy:
            tidy(connection)
        # in the order of their keys, so that two writers never wait for each other
        ordered = sorted(rows, key=lambda row: (int(row["run_id"]), str(row["name"])))
        put(connection, tables.outputs, ordered, replace=True)


def _content(found: tuple[FreshOutput, StoredOutput]) -> tuple[Mapping[int, Source], Sequence[Row]] | SlipwayError:
    """(the rollouts by their ids, the rows of its summary) of results; or why they cannot be read."""
    each, output = found
    try:
        return {source.id: source for source in sources(each.key, output)}, metric_rows(each.key, output)
    except (DamagedResults, NotFound) as error:
        return error


def drop_output(connection: Connection, key: int, name: str) -> None:
    table = tables.outputs
    connection.execute(delete(table).where(table.c.run_id == key, table.c.name == name))
    if name == RESULTS:
        drop_training(connection, key)
        connection.execute(delete(tables.rollouts).where(tables.rollouts.c.run_id == key))
        connection.execute(delete(tables.eval_metrics).where(tables.eval_metrics.c.run_id == key))
        tidy(connection)


def in_order(ask: Callable[[A], B], items: Sequence[A], store: Store, most: int = PARALLEL) -> Iterator[B]:
    """The answers, in the order of the items; a network is asked for `most` at once, never for many ahead."""
    if store.url.startswith("file:"):  # threads would share one interpreter and gain nothing
        yield from map(ask, items)
        return
    with ThreadPoolExecutor(most) as pool:
        for at in range(0, len(items), 4 * most):
            yield from pool.map(ask, items[at : at + 4 * most])
