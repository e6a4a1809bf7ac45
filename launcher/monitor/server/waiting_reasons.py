"""Why runs wait, as their backends say: `2nd of 5, waits for 2 cpus`. It is asked for apart from the pages, because a
backend may take long to answer. Nothing is written: `launcher status` ends what will never start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from launcher.errors import SlipwayError
from launcher.monitor import tables as t
from launcher.monitor.server.queries.runs import Queries
from launcher.protocol.read import read_run
from launcher.spec.profile import Profile
from launcher.store.base import Store
from launcher.verbs.ask_backend import ask_backend, backends

PAUSE: Final = 4.0  # seconds between two rounds
MOST: Final = 50  # runs that are asked about in a round


class WaitingReasons:
    def __init__(self, queries: Queries, stores: Mapping[str, Store], profile: Profile, changed: Callable[[int], None]):
        self._queries, self._stores, self._changed = queries, stores, changed
        self._backend_of = backends(profile)
        self._why: dict[int, str] = {}
        self._stop = threading.Event()

    def why(self, run: int) -> str:
        return self._why.get(run, "")

    def stop(self) -> None:
        self._stop.set()

    def follow(self) -> None:
        while not self._stop.is_set():
            with suppress(SQLAlchemyError):  # the follower tells of it
                self.once()
            self._stop.wait(PAUSE)

    def once(self) -> None:
        query = (
            select(t.runs.c.id, t.runs.c.run, t.stores.c.url)
            .join(t.stores)
            .where(t.runs.c.state.in_(("queued", "starting")))
            .order_by(t.runs.c.created.desc())
            .limit(MOST)
        )
        found: dict[int, str] = {}
        for row in self._queries.all(query):
            store = self._stores.get(row["url"])
            if store is None:
                continue
            try:
                found[row["id"]] = ask_backend(store, read_run(store, row["run"]), self._backend_of).message
            except SlipwayError as error:
                found[row["id"]] = str(error).partition("\n")[0]
        before, self._why = self._why, {run: why for run, why in found.items() if why}
        for run in before.keys() | self._why.keys():
            if before.get(run) != self._why.get(run):
                self._changed(run)
