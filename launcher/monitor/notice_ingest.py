"""What people were told of runs (`runs/<run>/notices/` of a store), and their verdicts, into the database.

Such records come while a run lives and up to hours after its end, when nothing else of it is read any more. So each run
is looked at on its own: at once while it lives, then the seldomer the longer ago it ended, and a day later no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, insert, or_, select, true

from launcher.clock import boottime
from launcher.errors import NotFound, SlipwayError, Unreachable
from launcher.monitor import tables
from launcher.monitor.database import written
from launcher.monitor.row_writer import NAMED, parts_of, put
from launcher.monitor.rows import ENDED, GOING_ON, Row, number, run_id, text
from launcher.notices.events import notice_key
from launcher.notices.ledger import NoticeRecord, read_notice, recorded_tries
from launcher.protocol.records import PersonVerdict
from launcher.results.verdicts import list_verdicts, read_verdict
from launcher.store.base import Store

UNTIL: Final = 90_000.0  # seconds after its end in which a run is told of: a day, and the last of five tries
FRESH: Final = 60.0  # seconds after its end in which a run is looked at at every pass
SHARE: Final = 0.2  # of the time since then, between two looks
FAR: Final = 10.0  # seconds between two looks where listing costs money


class NoticeFollower:
    """Of one store."""

    def __init__(self, engine: Engine, store: Store, store_id: int, changed: Callable[[str], None]) -> None:
        self.engine, self.store, self.store_id, self.changed = engine, store, store_id, changed
        self._looked: dict[str, float] = {}
        self._again: set[str] = set()

    def again(self, run: str, *, untold: bool) -> None:
        """The next pass looks at this run, whenever it ended: its rows are new. `untold`: there was nothing to see just
        now."""
        if untold:
            self._looked[run] = boottime()
        else:
            self._again.add(run)

    def follow(self, problems: list[str], *, everything: bool = False) -> None:
        """Raises Unreachable."""
        now, clock = self.store.now(), boottime()
        least = 0.0 if self.store.url.startswith("file:") else FAR
        table = tables.runs
        asked: ColumnElement[bool] = true()
        if not everything and len(self._again) <= NAMED:
            lately = and_(table.c.state.in_(ENDED), table.c.ended > now - UNTIL)
            asked = or_(table.c.state.in_(GOING_ON), lately, table.c.run.in_(self._again))
        query = select(table.c.run, table.c.ended).where(table.c.store_id == self.store_id, asked)
        with self.engine.connect() as connection:
            ends = {row.run: row.ended for row in connection.execute(query)}
        self._looked = {run: looked for run, looked in self._looked.items() if run in ends}
        looked = []
        for run, ended in ends.items():
            age = max(0.0, now - ended) if ended is not None else 0.0
            pause = max(least, SHARE * (age - FRESH))
            due = age <= UNTIL and clock - self._looked.get(run, -pause) >= pause
            if everything or due or run in self._again:
                looked.append(run)
        for part in parts_of(looked):
            held = self._held(part)
            for run in part:
                self._look(run, held.get(run_id(self.store_id, run), {}), problems)
                self._looked[run] = clock
                self._again.discard(run)

    def _held(self, runs: Sequence[str]) -> dict[int, dict[tuple[str, str, int], bool]]:
        """Run -> the tries to tell that the database has -> whether they have ended."""
        table, found = tables.notices, dict[int, dict[tuple[str, str, int], bool]]()
        query = select(table.c.run_id, table.c.event, table.c.channel, table.c.number, table.c.ended)
        query = query.where(table.c.run_id.in_([run_id(self.store_id, run) for run in runs]))
        with self.engine.connect() as connection:
            for row in connection.execute(query):
                found.setdefault(row.run_id, {})[row.event, row.channel, row.number] = row.ended is not None
        return found

    def _look(self, run: str, held: Mapping[tuple[str, str, int], bool], problems: list[str]) -> None:
        there, table, key = recorded_tries(self.store, run), tables.notices, run_id(self.store_id, run)
        if there == held:
            return
        rows = []
        for place in sorted(there):
            try:
                rows.append(_row(key, notice_key(self.store.url, run, place[0]), read_notice(self.store, run, place)))
            except NotFound:
                continue  # deleted meanwhile
            except Unreachable:
                raise
            except SlipwayError as error:
                problems.append(f"{run}: {error}")

        def unit(connection: Connection) -> bool:
            if connection.execute(select(tables.runs.c.id).where(tables.runs.c.id == key)).first() is None:
                return False  # deleted meanwhile
            before = connection.execute(
                select(table).where(table.c.run_id == key).order_by(*table.primary_key)
            ).mappings()
            if [dict(row) for row in before] == rows:
                return False
            connection.execute(delete(table).where(table.c.run_id == key))
            if rows:
                connection.execute(insert(table), rows)
            return True

        if written(self.engine, unit):
            self.changed(run)


def _row(run: int, key: str, notice: NoticeRecord) -> Row:
    begun, ended = notice.begun, notice.ended
    return {
        "run_id": run,
        "event": text(notice.event),
        "channel": text(notice.channel),
        "number": notice.number,
        "key": text(begun.key or key),
        "way": text(begun.way),
        "text": text(begun.text),
        "at": number(begun.time),
        "ended": number(ended.time) if ended is not None else None,
        "sent": int(ended.sent) if ended is not None else None,
        "message": text(ended.message) if ended is not None else "",
    }


# Verdicts of people from a store into the database.


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
