"""A real PostgreSQL for tests, in a folder of its own, on a Unix socket; one for the whole test process."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.needs import lacking

WHERE = ("/usr/lib/postgresql/*/bin", "/usr/local/bin")
USER = "nobody"  # the server refuses to run as root


class Postgres:
    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.user = pwd.getpwnam(USER) if os.geteuid() == 0 else None
        if self.user is not None:
            os.chown(folder, self.user.pw_uid, self.user.pw_gid)
        data = folder / "data"
        # nothing here outlives the test, so nothing waits for the disk
        self.call("initdb", "-D", str(data), "-U", "test", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C.UTF-8")
        settings = f"-k {folder} -c listen_addresses= -c fsync=off -c full_page_writes=off -c max_connections=50"
        self.call("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", settings, "start")

    def call(self, program: str, *words: str) -> None:
        switch = {"user": self.user.pw_uid, "group": self.user.pw_gid} if self.user is not None else {}
        done = subprocess.run(
            [str(self.programs / program), *words],
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
            extra_groups=[] if switch else None, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}, **switch,
        )  # type: ignore[call-overload]  # fmt: skip
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]

    def stop(self) -> None:
        self.call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, name: str) -> str:
        return f"postgresql://test@/{name}?host={self.folder}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty database."""
        import psycopg

        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(f"host={self.folder} user=test dbname=postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        yield self.url(name)
        with psycopg.connect(f"host={self.folder} user=test dbname=postgres", autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@cache
def a_postgres() -> Postgres:
    """The server of this test process; it ends with the process."""
    found = [path for pattern in WHERE for path in Path("/").glob(f"{pattern[1:]}/postgres")]
    programs = [path.parent for path in found if (path.parent / "initdb").exists()]
    if not programs:
        lacking("postgres")
    folder = Path(tempfile.mkdtemp(prefix="slipway-postgres-"))
    folder.chmod(0o755)
    server = Postgres(programs[0], folder)
    atexit.register(server.stop)
    return server
