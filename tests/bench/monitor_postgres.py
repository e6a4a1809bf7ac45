"""The monitor's queries on PostgreSQL: copies the database that `python -m tests.bench.monitor` left in FOLDER into a
server of its own, and asks what the pages ask, by the clock and by the processor's time of the server's process."""

from __future__ import annotations

import os
import sqlite3
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Engine, text

from launcher.monitor import search_index
from launcher.monitor import tables as t
from launcher.monitor.database import open_database
from launcher.monitor.server.queries.runs import Queries
from tests.bench.monitor import SEARCHED
from tests.support.postgres import a_postgres

COPIED = (t.stores, t.runs, t.environments, t.tasks, t.evals, t.baselines, t.groups, t.rollouts, t.turns)
ASKED = 7
TICKS = os.sysconf("SC_CLK_TCK")


def copy(source: Path, engine: Engine, url: str) -> None:
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as old, engine.begin() as connection:
        search_index.drop(connection)
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        for table in COPIED:
            names = ", ".join(f'"{column.name}"' for column in table.columns)
            with raw.cursor() as cursor, cursor.copy(f"COPY {table.name} ({names}) FROM STDIN") as into:
                for row in old.execute(f"SELECT {names} FROM {table.name}"):
                    into.write_row(row)
    began = time.monotonic()
    with engine.begin() as connection:
        assert search_index.make(connection)
    with psycopg.connect(url, autocommit=True) as apart:
        apart.execute("VACUUM ANALYZE")
    print(f"indexes of the search and statistics: {time.monotonic() - began:.0f} s", flush=True)


def busy(process: int) -> float:
    """The seconds that a process was on a processor."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def timed(name: str, engine: Engine, ask: Callable[[], Any]) -> None:
    with engine.connect() as connection:
        process = int(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    clock, server, own = [], busy(process), time.process_time()
    for _ in range(ASKED):
        began = time.monotonic()
        ask()
        clock.append(time.monotonic() - began)
    used = (busy(process) - server) / ASKED, (time.process_time() - own) / ASKED
    print(
        f"{name}: median {statistics.median(clock):.3f} s, slowest {max(clock):.3f} s; "
        f"CPU of the server {used[0]:.3f} s, "
        f"of the monitor {used[1]:.3f} s",
        flush=True,
    )


def main() -> None:
    source = Path(os.environ["FOLDER"]) / "monitor.sqlite"
    print(f"load {os.getloadavg()[0]:.1f}")
    server = a_postgres()
    with server.database() as url:
        engine = open_database(url)
        copy(source, engine, url)
        with engine.connect() as connection:
            for table in (t.runs, t.rollouts, t.turns):
                print(table.name, connection.execute(text(f"SELECT count(*) FROM {table.name}")).scalar())
        queries = Queries(engine)
        timed("runs of /", engine, queries.overview)
        timed("/evaluations", engine, queries.evaluated)
        for words in SEARCHED:
            timed(f"search `{words}`", engine, partial(queries.search, words))
        engine.dispose()
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
