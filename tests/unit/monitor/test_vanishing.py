"""Records that go while a page is being made: between any two of its questions to the database, a resume may take a
training's steps back, and `launcher rm` a run. A page is then whole, or says that it is not there."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import RowMapping, Select, Table, create_engine, delete, select
from sqlalchemy.pool import StaticPool
from starlette.types import ASGIApp, Message

from launcher.monitor import tables as t
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.server.entry import EntryCodes
from launcher.monitor.server.live.desktops import LiveDesktops
from launcher.monitor.server.pages.monitor_pages import MonitorPages
from launcher.monitor.server.queries.runs import Queries, Rows
from launcher.monitor.server.serve import application
from launcher.monitor.server.stream import Hub
from launcher.monitor.server.waiting_reasons import WaitingReasons
from launcher.spec.profile import LocalSettings, Profile
from launcher.store.file import FileStore
from tests.support.fakerun import login_pipeline
from tests.unit.monitor.test_ingest import evaluation
from tests.unit.monitor.test_trainings import training


class VanishingQueries(Queries):
    """Before its question number `last` the rows of a table are deleted, and what belongs to them."""

    table: Table = t.runs
    last = asked = 0

    def all(self, query: Select[Any]) -> Rows:
        self._ask()
        return super().all(query)

    def one(self, query: Select[Any]) -> RowMapping | None:
        self._ask()
        return super().one(query)

    def _ask(self) -> None:
        self.asked += 1
        if self.asked == self.last:
            with self.engine.begin() as connection:
                connection.execute(delete(self.table))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[FileStore, Path, dict[str, list[int]]]:
    """(a store, its database, ids of the rows that pages are of)."""
    folder = tmp_path_factory.mktemp("vanishing")
    store = FileStore(folder / "store", sync=False)
    training(store)
    evaluation(store, episodes=2)
    login_pipeline(store, n=2)
    engine = open_database(f"sqlite:///{folder / 'monitor.sqlite'}")
    StoreFollower(engine, store).once()
    queries = Queries(engine)
    trained = queries.all(select(t.trainings.c.run_id))[0]["run_id"]
    ids = {
        "trained": [trained],
        "groups": [row["id"] for row in queries.all(select(t.groups.c.id).where(t.groups.c.step_id.is_not(None)))],
        "runs": [row["id"] for row in queries.all(select(t.runs.c.id))],
        "rollouts": [row["id"] for row in queries.all(select(t.rollouts.c.id))],
    }
    engine.dispose()
    return store, folder / "monitor.sqlite", ids


def paths(ids: dict[str, list[int]]) -> list[str]:
    (trained,) = ids["trained"]
    of_training = [f"/trainings/{trained}{rest}" for rest in ("/line", "/steps/1", "/evals/2/groups")]
    of_rollout = [f"/rollouts/{ids['rollouts'][0]}", f"/rollouts/{ids['rollouts'][0]}/0.picture"]
    of_run = [f"/runs/{ids['runs'][0]}", f"/runs/{ids['runs'][0]}/log", f"/runs/{ids['runs'][0]}/job"]
    tables = [f"/evaluations/{run}/table" for run in ids["runs"][:1]]
    return ["/", "/trainings", "/evaluations", "/verdicts", *of_training, *of_rollout, *of_run, *tables,
            f"/groups/{ids['groups'][0]}", f"/judge/{trained}", "/search?q=alice"]  # fmt: skip


def ask(app: ASGIApp, path: str) -> int:
    """The status of a page's answer; the server's application is called as uvicorn calls it."""
    where, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1"), (b"cookie", b"slipway-monitor-80=word")]
    scope = {"type": "http", "method": "GET", "path": where, "query_string": query.encode(), "headers": headers}
    found: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    async def answer() -> None:
        await app(scope, receive, send)

    asyncio.run(answer())
    return found[0]


@pytest.mark.parametrize("table", [t.runs, t.steps, t.rollouts], ids=lambda table: str(table.name))
def test_a_page_is_whole_or_is_not_there(filled: tuple[FileStore, Path, dict[str, list[int]]], table: Table) -> None:
    store, database, ids = filled
    engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    queries = VanishingQueries(engine)
    queries.table = table
    profile = Profile("file:///x", LocalSettings(Path("/x")))
    waiting = WaitingReasons(queries, {store.url: store}, profile, lambda run: None)
    pages = MonitorPages(queries, Hub(), {store.url: store}, waiting, {}, {}, LiveDesktops(profile))
    app = application(pages, "word", EntryCodes(), 80)
    wrong: list[tuple[str, int, object]] = []
    with closing(sqlite3.connect(database)) as whole, engine.connect() as connection:
        memory = connection.connection.driver_connection
        assert isinstance(memory, sqlite3.Connection)
        for path in paths(ids):
            queries.last, queries.asked = 0, 1
            while queries.last <= queries.asked:
                whole.backup(memory)
                memory.execute("PRAGMA foreign_keys = ON")
                queries.last, queries.asked = queries.last + 1, 0
                try:
                    status: object = ask(app, path)
                except Exception as error:
                    status = repr(error)
                if status not in (200, 303, 404):
                    wrong.append((path, queries.last, status))
    engine.dispose()
    assert wrong == []
