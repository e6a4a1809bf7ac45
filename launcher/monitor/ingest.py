"""Follows stores into the database.

A pass lists the runs of a store and reads those that the database does not hold completely. What it skips it decides
by the database alone: a process that starts anew goes on where the last one stopped, and what a slower process wrote
over is written again at the next pass. A run that has ended is complete once its results are in; some of these are
compared with the store now and then, because a store can be emptied and filled again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from launcher.clock import boottime
from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable
from launcher.monitor import search_index, tables
from launcher.monitor.database import written
from launcher.monitor.notice_ingest import NoticeFollower, follow_verdicts
from launcher.monitor.result_ingest import BATCH, FreshOutput, ResultIngest, drop_output, in_order
from launcher.monitor.row_writer import drop_runs, mark, put, put_runs
from launcher.monitor.rows import Row, rows_of, run_id, text
from launcher.monitor.tables import identify
from launcher.monitor.training_ingest import TrainingIngest
from launcher.protocol.deleted import read_deleted
from launcher.protocol.read import RunListings, read_listed, read_run
from launcher.protocol.records import StoredFolder
from launcher.protocol.view import RunView
from launcher.results.read import RESULTS, StoredOutput
from launcher.store.base import Store, settable
from launcher.store.find import group_of, read_group
from launcher.store.layout import GROUPS, MANIFEST, RunKeys
from launcher.store.manifest import Manifest, final_key, find_output
from launcher.store.proof import runs_of

PAUSE: Final = 0.5  # seconds between two passes over a folder
FAR: Final = 1.0  # the same over an object store, where a pass costs money
COMPARED: Final = 8  # complete runs that are compared with the store at once
AT_ONCE: Final = 64  # runs that are read at once over a network, each by one request after the other
COMPARING: Final = 10.0  # seconds from one such comparison to the next
SETTLED: Final = 60.0  # seconds after its end in which a run is read at every pass: late records may follow

Changed = Callable[[str], None]  # called with the id of a run whose rows are new


class Stopping(SlipwayError):
    """`stop` was called while a run's results were read; the next start goes on."""


class KnownRun(NamedTuple):
    """What the database has of a run."""

    complete: bool
    digest: str
    state: str


class ReadRun(NamedTuple):
    """A run as the store has it. `deleted`: its outputs were; `untold`: nobody was told anything of it."""

    view: RunView
    deleted: bool
    untold: bool


class FoundOutput(NamedTuple):
    """An output of a run, whose manifest has the key `at`. `manifest`: None where nothing but `folder` is needed."""

    attempt: int
    name: str
    at: str
    folder: StoredFolder
    manifest: Manifest | None


@dataclass
class Pass:
    """What one pass found: how many runs the store has and how many were written, and what could not be read."""

    runs: int = 0
    written: int = 0
    rollouts: int = 0
    problems: tuple[str, ...] = ()


class StoreFollower:
    """Keeps the database like one store."""

    def __init__(self, engine: Engine, store: Store, changed: Changed = lambda run: None) -> None:
        self.engine, self.store, self.changed = engine, store, changed
        self.id = identify("store", store.url)
        self._groups: dict[str, tuple[str, str]] = {}  # run -> its group, and what the group calls it
        self._read_groups: set[str] = set()
        self._said: dict[str, str] = {}  # run -> the digest that was last told to `changed`
        self._trainings: dict[int, TrainingIngest] = {}  # of runs that are not complete
        self._large: set[str] = set()  # runs of which one listing does not tell everything
        self._notices = NoticeFollower(engine, store, self.id, changed)
        self._compared = boottime()
        self._stop = threading.Event()
        self.passed: float | None = None  # when the last pass over the whole store ended
        self.problems = 0  # what it could not read
        written(engine, lambda connection: put(connection, tables.stores, [{"id": self.id, "url": text(store.url)}]))

    def follow(self, problem: Callable[[str], None] = lambda line: None) -> None:
        """Passes until `stop`. A store or a database that does not answer is said once, and asked again."""
        last: tuple[str, ...] = ()
        with suppress(SQLAlchemyError):  # the next start tries again
            written(self.engine, search_index.renew_if_worn)
        while not self._stop.is_set():
            try:
                problems = self.once().problems
                self.passed = time.time()
            except Stopping:
                return
            except SlipwayError as error:
                problems = (str(error),)
            except SQLAlchemyError as error:
                problems = (f"the database: {str(error).partition(chr(10))[0]}",)
            except Exception as error:  # a thread that ended would leave a page that is called live and never changes
                problems = (f"a fault of the monitor itself: {type(error).__name__}",)
            for line in sorted(set(problems) - set(last)):
                problem(line)
            last, self.problems = problems, len(problems)
            self._stop.wait(PAUSE if self.store.url.startswith("file:") else FAR)

    def stop(self) -> None:
        self._stop.set()

    def once(self, *, everything: bool = False) -> Pass:
        """One pass; with `everything`, all complete runs are compared with the store. Raises Unreachable if the store
        does not answer: then nothing counts as deleted."""
        new = self._new_groups()
        listed = runs_of(self.store)
        held = self._held()
        there = set(listed)
        gone = [run for run in held if run not in there]
        if gone:
            written(self.engine, lambda connection: drop_runs(connection, [run_id(self.id, run) for run in gone]))
            for run in gone:
                self._said.pop(run, None)
                self.changed(run)
        complete = [run for run in listed if run in held and held[run].complete and run not in new]
        again = set(self._compare(complete if everything else self._sample(complete)))
        found = Pass(len(listed))
        problems: list[str] = []
        skipped = set(complete) - again
        wanted = [run for run in listed if run not in skipped]
        listings = RunListings(self.store, wanted, listed)

        def read(run: str) -> tuple[ReadRun | None, str]:
            try:
                return ReadRun(*self._view(run, listings)), ""
            except NotFound:
                return None, ""
            except Unreachable:
                raise
            except (BadInput, SlipwayError) as error:
                return None, f"{run}: {error}"

        waiting: list[ReadRun] = []
        for one, problem in in_order(read, wanted, self.store, AT_ONCE):
            if self._stop.is_set():
                break
            if problem:
                problems.append(problem)
            if one is not None:
                waiting.append(one)
            if len(waiting) == BATCH:
                self._take(waiting, held, found, problems)
                waiting = []
        if not self._stop.is_set():
            self._take(waiting, held, found, problems)
        if not self._stop.is_set():
            follow_verdicts(self.engine, self.store, self.id, self.changed, problems)
            self._notices.follow(problems, everything=everything)
        found.problems = tuple(problems)
        return found

    def _view(self, run: str, listings: RunListings | None = None) -> tuple[RunView, bool, bool]:
        """(the run, whether its outputs were deleted, whether nobody was told of it). In a folder each of its records
        is asked for: a listing would walk through all that the run has stored."""
        keys = RunKeys(run)
        if not settable(self.store) and run not in self._large:
            found = read_listed(self.store, run, listings)
            if found is not None:
                deleted = keys.deleted in found.keys and read_deleted(self.store, run) is not None
                return found.view, deleted, not any(key.startswith(keys.notices) for key in found.keys)
            self._large.add(run)
        return read_run(self.store, run), read_deleted(self.store, run) is not None, False

    def _held(self) -> dict[str, KnownRun]:
        table = tables.runs
        query = select(table.c.run, table.c.complete, table.c.digest, table.c.state).where(table.c.store_id == self.id)
        with self.engine.connect() as connection:
            return {row.run: KnownRun(bool(row.complete), row.digest, row.state) for row in connection.execute(query)}

    def _new_groups(self) -> set[str]:
        """The runs of the groups that this process had not read."""
        new: set[str] = set()
        for meta in self.store.scan(GROUPS):
            name = group_of(meta)
            if name in self._read_groups:
                continue
            try:
                record = read_group(self.store, name)
            except Unreachable:
                raise
            except SlipwayError:
                record = None  # `launcher doctor` tells about it
            self._read_groups.add(name)
            for run in record.runs if record is not None else ():
                mine = (name, record.names.get(run, "") if record is not None else "")
                if run not in self._groups or mine < self._groups[run]:  # of several groups, always the same one
                    self._groups[run] = mine
                    new.add(run)
        return self._differ(new)

    def _differ(self, runs: set[str]) -> set[str]:
        """Of these runs, those to which the database gives another group."""
        if not runs:
            return runs
        table = tables.runs
        query = select(table.c.run, table.c.group_name).where(table.c.store_id == self.id)
        with self.engine.connect() as connection:
            known = {row.run: row.group_name for row in connection.execute(query)}
        return {run for run in runs if known.get(run) != self._groups[run][0]}

    def _sample(self, complete: Sequence[str]) -> Sequence[str]:
        """The complete runs that this pass compares: mostly none."""
        if boottime() < self._compared + COMPARING:
            return ()
        self._compared = boottime()
        return random.sample(complete, min(COMPARED, len(complete)))

    def _compare(self, complete: Sequence[str]) -> Iterator[str]:
        """Of these complete runs, those that the store tells differently: deleted, another run of the same id, or with
        records that came late."""
        for run in complete:
            rows = self._rows(run)
            if rows is None or rows != self._digest(run):
                yield run

    def _rows(self, run: str) -> str | None:
        try:
            view, deleted, _ = self._view(run)
        except (NotFound, BadInput):
            return None
        return rows_of(self.id, view, *self._groups.get(run, ("", "")), deleted).digest

    def _digest(self, run: str) -> str:
        table = tables.runs
        with self.engine.connect() as connection:
            return str(connection.execute(select(table.c.digest).where(table.c.id == run_id(self.id, run))).scalar())

    def _take(
        self,
        read: Sequence[ReadRun],
        held: Mapping[str, KnownRun],
        found: Pass,
        problems: list[str],
    ) -> None:
        """Writes runs in one transaction, then brings their results in, then marks those that are complete."""
        if not read:
            return
        rows = {
            one.view.run: rows_of(self.id, one.view, *self._groups.get(one.view.run, ("", "")), deleted=one.deleted)
            for one in read
        }
        new = {run for run in rows if run not in held or held[run].digest != rows[run].digest}
        if new:
            written(self.engine, lambda connection: put_runs(connection, [rows[run] for run in new]))
            found.written += len(new)
            for one in read:
                if one.view.run in new:
                    self._notices.again(one.view.run, untold=one.untold and one.view.run not in held)
        outputs = self._held_outputs([run.run["id"] for run in rows.values()])
        fresh: list[FreshOutput] = []
        # after the rows and for these runs alone: a manifest may name thousands of files
        for one, there in zip(read, in_order(self._found, read, self.store, BATCH), strict=True):
            if isinstance(there, SlipwayError):
                problems.append(f"{one.view.run}: {there}")
                continue
            key = rows[one.view.run].run["id"]
            fresh += self._fresh(key, one.view.run, there, outputs.get(key, {}))
        counts = ResultIngest(self.engine, self.store, self._training, self._check_stop).bring_in(fresh, problems)
        changed, complete = [], []
        for one in read:
            run, result = one.view.run, one.view.result
            key = rows[run].run["id"]
            told = counts[key]
            found.rollouts += told
            settled = result is not None and one.view.now - result.time > SETTLED
            if settled and (run in new or told or not held[run].complete):
                complete.append(key)
            if run in new or told or self._said.get(run) != rows[run].digest:
                changed.append(run)
        if complete:
            written(self.engine, lambda connection: mark(connection, complete, complete=1))
        for key in complete:
            self._trainings.pop(key, None)
        for run in changed:
            self._said[run] = rows[run].digest
            self.changed(run)

    def _held_outputs(self, keys: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Run -> output -> what the database has of it."""
        table = tables.outputs
        found: dict[int, dict[str, Any]] = {}
        with self.engine.connect() as connection:
            for row in connection.execute(select(table).where(table.c.run_id.in_(keys))):
                found.setdefault(row.run_id, {})[row.name] = row
        return found

    def _training(self, key: int) -> TrainingIngest:
        return self._trainings.setdefault(key, TrainingIngest(self.engine, key))

    def _fresh(
        self, key: int, run: str, found: Sequence[FoundOutput], held: Mapping[str, Any]
    ) -> Iterator[FreshOutput]:
        """The outputs of a run that differ from those in the database, `held`. Deletes those that the run lacks."""
        rows = [_output_row(key, each) for each in found]
        for name in set(held) - {row["name"] for row in rows}:
            written(self.engine, partial(drop_output, key=key, name=name))
        for row, each in zip(rows, found, strict=True):
            known = held.get(row["name"])
            same = known is not None and known.digest == row["digest"]
            if known is None or not same or not (known.ingested == row["digest"] or known.problem):
                keys, manifest = RunKeys(run).attempt(each.attempt), each.manifest
                output = StoredOutput(self.store, keys, each.name, manifest) if manifest is not None else None
                yield FreshOutput(run, row, output)

    def _found(self, one: ReadRun) -> list[FoundOutput] | SlipwayError:
        """The outputs of a run; or why they cannot be read. Raises Unreachable."""
        try:
            return [] if one.deleted else list(self._outputs(one.view))
        except Unreachable:
            raise
        except SlipwayError as error:
            return error

    def _outputs(self, view: RunView) -> Iterator[FoundOutput]:
        """Of the attempt that counts."""
        job, result = view.job, view.result
        if job is None or (result is not None and result.adopted is not None):
            return  # an adopted run shows the other run's
        numbers = [attempt.number for attempt in view.attempts]
        last = result.attempt if result is not None and result.outcome == "succeeded" else max(numbers, default=0)
        told_of = result.shown if result is not None else None
        shown = told_of.folders if told_of is not None and told_of.attempt == last else {}
        for name, output in job.outputs.items():
            if output.kind == "checkpoints":
                continue
            attempt = view.attempt(last)
            if attempt is None:
                continue
            folder = RunKeys(view.run).attempt(last).output(name)
            if name != RESULTS and name in attempt.outputs and name in shown:
                yield FoundOutput(last, name, final_key(folder), shown[name], None)
                continue
            told = attempt.live(job.members()[0]).get(name)
            stored = find_output(self.store, folder, told, newer=view.result is not None)
            if stored is not None:
                at, manifest = stored
                of = StoredFolder(len(manifest.files), manifest.size, manifest.digest)
                yield FoundOutput(last, name, at, of, manifest)

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopping("the monitor is stopping")


def _output_row(key: int, found: FoundOutput) -> Row:
    return {
        "run_id": key,
        "name": text(found.name),
        "attempt": found.attempt,
        "key": text(found.at),
        "final": int(found.at.endswith(MANIFEST)),
        "files": found.folder.files,
        "bytes": found.folder.bytes,
        "digest": identify_text(found.at, found.folder.digest),
    }


def identify_text(*parts: str) -> str:
    return f"{identify(*parts):x}"
