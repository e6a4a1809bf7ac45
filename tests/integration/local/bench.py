"""Supervisors over a state folder and a store, driven turn by turn, with a shell script in the runtime's place."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from launcher.backends.local import entry, environment
from launcher.backends.local.slots import Capacity
from launcher.backends.local.state import Site, StartRecord, StateDir
from launcher.backends.local.supervisor.loop import Supervisor
from launcher.backends.local.supervisor.spawner import LiveRuntime, ProcessSpawner, Spawner
from launcher.errors import Unreachable
from launcher.files import create, replace
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.spec.hashing import encode_job, run_id, work_hash
from launcher.spec.model import ResolvedJob
from launcher.store import layout, open_store
from launcher.store.opening import make_store
from tests.support.jobs import changed
from tests.support.waiting import HANGS


class Guarded(ProcessSpawner):
    """A daemon ends every process below it that it does not know; here the tests' own servers are below it, too."""

    def __init__(self) -> None:
        self.others = frozenset(process.pid for process in procs.descendants(os.getpid()))

    def reap(self, known: frozenset[int]) -> None:
        super().reap(known | self.others)


class Engine(Guarded):
    """Whoever keeps the processes, when it is away: it cannot say what lives, and ends nothing."""

    away = False

    def adopt(self, record: StartRecord, output: Path) -> LiveRuntime | None:
        if self.away:
            raise Unreachable("away")
        return super().adopt(record, output)

    def sweep(self, mark: str) -> bool:
        if self.away:
            raise Unreachable("away")
        return super().sweep(mark)


class Bench:
    """A state folder, a store, and supervisors over them that are driven turn by turn."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = (path / "store").as_uri()
        self.store = open_store(self.url)
        make_store(self.store)
        self.state = StateDir(path / "state").make()
        self.supervisors: list[Supervisor] = []

    def queue(self, *jobs: ResolvedJob) -> list[str]:
        runs = []
        for one in entry.entries([changed(one, store=self.url) for one in jobs]):
            self.store.create(layout.RunKeys(one.run).job, encode_job(one.job))
            site = Site("/bin/sh", time.time_ns(), {"PATH": os.environ["PATH"]})
            replace(self.state.site(one.run), msgspec.json.encode(site))
            assert create(self.state.entry(one.run), one.text().encode())
            runs.append(one.run)
        return runs

    def supervisor(
        self,
        script: str,
        cpus: float = 64.0,
        gpus: tuple[str, ...] = (),
        spawner: Spawner | None = None,
        **options: object,
    ) -> Supervisor:
        guarded = spawner or Guarded()
        made = Supervisor(
            self.state,
            Capacity(cpus, 1 << 40, gpus),
            {"local": lambda _: guarded},
            lambda named: dict.fromkeys(named, "hush"),
            idle=0.0,
            command=("-c", f"cd '{self.path}'; me=$SLIPWAY_RUN; rank=$SLIPWAY_ROLE-$SLIPWAY_RANK\n{script}"),
            **options,  # type: ignore[arg-type]
        )
        self.supervisors.append(made)
        return made

    def drive(self, supervisor: Supervisor, until: Callable[[], bool], limit: float = HANGS) -> None:
        end = time.monotonic() + limit
        while not until():
            assert time.monotonic() < end, "the supervisor did not get there"
            supervisor.sleep(min(supervisor.turn(), 0.05))

    def drain(self, supervisor: Supervisor) -> None:
        self.drive(supervisor, lambda: not self.state.queued())

    def lines(self, name: str) -> list[str]:
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []

    def succeed(self, one: ResolvedJob) -> None:
        """What the runtime would have written."""
        one = changed(one, store=self.url)
        run = run_id(one)
        result = Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n", work=work_hash(one))
        self.store.create(layout.RunKeys(run).job, encode_job(one))
        self.store.create(layout.RunKeys(run).result, msgspec.json.encode(result))

    def result(self, run: str) -> Result | None:
        found = self.store.read(layout.RunKeys(run).result)
        return msgspec.json.decode(found[0], type=Result) if found else None


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for supervisor in made.supervisors:
        with supervisor.threads:
            pass  # its calls have ended
        os.close(supervisor.wake)
    for path in made.state.path.glob("runs/*/*"):
        procs.kill_tree(mark=environment.mark(made.state.id, path.parent.name, path.name), grace=0)
