"""Opens the monitor's database, brings it to this version, and writes to it.

Writers may be several processes at once. They write a unit (a run, a rollout) in one transaction: SQLite lets one write
at a time; PostgreSQL refuses a second row of the same key, or one of two transactions that wait for each other, and
then the unit is written again, after the other's.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError

from launcher.errors import BadInput, SlipwayError
from launcher.install import install

T = TypeVar("T")
BUSY: Final = 30.0  # seconds in which another process may hold SQLite's lock
TRIES: Final = 8  # of a unit that another process writes at the same time
MIGRATING: Final = 7_340_001  # PostgreSQL's advisory lock while a database is brought to this version


def open_database(url: str) -> Engine:
    """The database at this version; it is made if there is none. `url`: SQLAlchemy's, `sqlite:///FILE` or
    `postgresql://HOST/NAME`. Raises BadInput for another kind, and for a database of a newer version; SlipwayError for
    one that cannot be opened."""
    engine = connect(url)
    try:
        upgrade(engine)
    except (DBAPIError, OSError) as error:
        engine.dispose()
        raise SlipwayError(f"the database {shown(url)} cannot be used: {_first_line(error)}") from None
    except CommandError as error:
        engine.dispose()
        raise BadInput(f"the database {shown(url)} was made by a newer launcher: {error}") from None
    return engine


def connect(url: str) -> Engine:
    """As `open_database`, of whatever version it is."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise BadInput("--database: not a URL; allowed: sqlite:///FILE, postgresql://USER@HOST/NAME") from None
    kind = parsed.drivername
    if kind not in ("sqlite", "postgresql"):
        raise BadInput(f"--database: `{kind}`; allowed: sqlite:///FILE, postgresql://USER@HOST/NAME")
    if kind == "sqlite":
        if parsed.database and parsed.database != ":memory:":
            path = Path(parsed.database)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(OSError):  # told when it is opened
                path.touch(0o600)
        engine = create_engine(parsed, connect_args={"timeout": BUSY})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(parsed.set(drivername="postgresql+psycopg"), pool_pre_ping=True)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise BadInput(f"--database: PostgreSQL needs psycopg: {install('psycopg[binary]')}") from None


def shown(url: str) -> str:
    """The URL without its password."""
    return make_url(url).render_as_string(hide_password=True)


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # the transactions are begun by _begin_sqlite, not by the driver
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON", "cache_size = -65536"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the lock when it begins: one that first reads could not take it later without a failure."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def written(engine: Engine, unit: Callable[[Connection], T]) -> T:
    """Runs `unit` in a transaction of its own, again if another process wrote the same at the same time."""
    for attempt in range(TRIES):
        try:
            with engine.connect().execution_options(writes=True) as connection, connection.begin():
                return unit(connection)
        except (IntegrityError, OperationalError):
            if attempt == TRIES - 1:
                raise
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
    raise AssertionError("not reached")


def config(connection: Connection) -> Config:
    """Alembic's configuration; no file of ours is needed."""
    made = Config()
    made.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    made.set_main_option("path_separator", "os")
    made.attributes["connection"] = connection
    return made


def upgrade(engine: Engine, to: str = "head") -> None:
    """Brings the database to a version. Of several processes one does it, and the others wait."""
    with engine.connect() as connection:  # the common case takes no lock
        if to == "head" and MigrationContext.configure(connection).get_current_revision() == head():
            return
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATING})
        command.upgrade(config(connection), to)


def downgrade(engine: Engine, to: str) -> None:
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        command.downgrade(config(connection), to)


def head() -> str | None:
    """The version of this launcher's tables."""
    return ScriptDirectory(str(Path(__file__).parent / "migrations")).get_current_head()


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().partition("\n")[0]
