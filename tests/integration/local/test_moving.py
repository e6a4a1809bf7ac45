"""A run between two queues of this machine: real supervisors, runtimes and commands; the mover is killed (kill -9)
at any request, the first queue's runtime is frozen, its supervisor is dead."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from launcher.backends.local import daemon, environment
from launcher.backends.local.state import StartRecord, StateDir, read
from launcher.protocol.read import read_run
from launcher.protocol.records import Result
from launcher.reasons import Reason
from launcher.runtime.process import procs
from launcher.store import open_store
from launcher.store.layout import RunKeys
from tests.integration.local.machine import environ
from tests.support import outside
from tests.support.waiting import until

LAUNCHER = Path(sys.executable).with_name("launcher")
# every step is a line `attempt step`; a checkpoint after each third; two commands at once would break the lock
COMMAND = """
import fcntl, os, pathlib, sys, time
here = pathlib.Path(sys.argv[1])
attempt = os.environ["SLIPWAY_ATTEMPT"]
lock = open(here / "lock", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (here / "overlap").touch()
resume = os.environ.get("SLIPWAY_RESUME")
step = int((pathlib.Path(resume) / "at").read_text()) if resume else 0
while not (here / "enough").exists():
    step += 1
    with open(here / "steps", "a") as file:
        file.write(f"{attempt} {step}\\n")
    if step % 3 == 0:
        folder = pathlib.Path(os.environ["SLIPWAY_OUTPUTS"]) / "ckpt" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "at").write_text(str(step))
    time.sleep(0.1)
"""
# the verb in a process that is killed at its n-th request of the store, not cleaned up after
DYING = """
import os, signal, sys
from pathlib import Path
from launcher.spec.profile import load_profile
from launcher.store import open_store
from launcher.verbs.move import move
from launcher.verbs.ask_backend import backends
from tests.support.crashing import CrashingStore

def die():
    os.kill(os.getpid(), signal.SIGKILL)

profile = load_profile(Path.cwd(), None, os.environ)
store = CrashingStore(open_store(profile.store), int(sys.argv[2]), die=die)
print(move(store, sys.argv[1], backends(profile)).state)
"""


@dataclass
class TwoQueues:
    path: Path
    env: dict[str, str]

    def launcher(self, *words: str, code: int | None = 0) -> str:
        done = subprocess.run(
            [LAUNCHER, *words], cwd=self.path, env=self.env, capture_output=True, text=True, check=False
        )
        assert code in (None, done.returncode), done.stdout + done.stderr
        return done.stdout + done.stderr

    def dies_moving(self, run: str, at: int) -> bool:
        """Whether `launcher move` was killed before its end."""
        root = Path(__file__).resolve().parents[3]
        env = {**self.env, "PYTHONPATH": os.pathsep.join([self.env["PYTHONPATH"], str(root)])}
        argv = [sys.executable, "-c", DYING, run, str(at)]
        done = subprocess.run(argv, cwd=self.path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode != 0

    def submit(self) -> str:
        said = self.launcher("submit", "job.yaml")
        found = re.search(r"moves-[0-9a-f]{12}", said)
        assert found is not None, said
        return found[0]

    def steps(self, attempt: int) -> list[int]:
        path = self.path / "steps"
        rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [int(row[1]) for row in rows if len(row) == 2 and row[0] == str(attempt)]

    def checkpoint(self, run: str, attempt: int) -> int:
        """The newest complete checkpoint of an attempt in the store; -1: none."""
        folder = self.path / "store" / "runs" / run / "attempts" / str(attempt) / "checkpoints"
        return max((int(path.parent.name) for path in folder.glob("*/complete.json")), default=-1)

    def result(self, run: str) -> Result:
        until(lambda: (self.path / "store" / RunKeys(run).result).exists(), self.explain)
        return msgspec.json.decode((self.path / "store" / RunKeys(run).result).read_bytes(), type=Result)

    def runtime(self, queue: str) -> StartRecord:
        (record,) = (read(path, StartRecord) for path in (self.path / queue).glob("runs/*/*/record.json"))
        assert record is not None
        return record

    def queued(self, queue: str) -> list[str]:
        return StateDir(self.path / queue).queued()

    def explain(self) -> str:
        logs = [*self.path.glob("*/supervisor.log"), *self.path.glob("*/runs/*/*/*.log")]
        return "\n".join(f"{path}:\n{path.read_text()[-1500:]}" for path in logs)

    def went_on(self, run: str, *, first: int = 1, second: int = 3, newest: int | None = None) -> None:
        """The whole story: the second queue goes on where the last checkpoint is, and nobody computes beside it.
        `newest`: that checkpoint, where the first attempt stored more after the second queue had gone on."""
        until(lambda: len(self.steps(second)) > 3, self.explain)
        (self.path / "enough").touch()
        result = self.result(run)
        assert (result.outcome, result.attempt) == ("succeeded", second)
        assert not (self.path / "overlap").exists()
        newest = self.checkpoint(run, first) if newest is None else newest
        assert newest > 0
        assert self.steps(second)[0] == newest + 1
        view = read_run(open_store(f"file://{self.path}/store"), run, full=False)
        assert [(attempt.number, attempt.moved_to) for attempt in view.attempts if attempt.moved_to] == [(2, "spare")]
        until(lambda: not self.queued("first") and not self.queued("second"), self.explain)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoQueues]:
    site = outside.install(tmp_path / "site", name="spare", target="slipway_spare:TRAITS")
    tuning = json.dumps({"poll": 0.05, "quiet": 0.5, "live": 0.2, "upstream": 2.0, "leftovers": 0.5})
    folders = {"XDG_STATE_HOME": str(tmp_path / "user"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    made = TwoQueues(tmp_path, environ(PYTHONPATH=str(site), SLIPWAY_TUNING=tuning, **folders))
    (tmp_path / "slipway.yaml").write_text(
        "store: store\nlocal: {state: first, cpus: 64, memory: 1024Gi, gpus: 0}\n"
        f"spare: {{state: {tmp_path}/second}}\n"
    )
    job = {
        "name": "moves",
        "command": [sys.executable, "-c", COMMAND, str(tmp_path)],
        "outputs": {"ckpt": {"kind": "checkpoints"}},
        "resources": {"cpus": 0.1},
        "limits": {"grace": "1s"},
        "timing": {"beat": "300ms", "stale": "8s", "fence": "4s"},
        "backend": ["local", "spare"],
    }
    text = json.dumps(job).replace("300ms", "0.3s")
    (tmp_path / "job.yaml").write_text(text)
    try:
        yield made
    finally:
        for queue in ("first", "second"):
            state = StateDir(tmp_path / queue)
            if state.path.exists():
                daemon.stop(state)
                for path in state.path.glob("runs/*/*"):
                    procs.kill_tree(mark=environment.mark(state.id, path.parent.name, path.name), grace=0)


def test_a_person_moves_a_run_that_computes(two: TwoQueues) -> None:
    run = two.submit()
    until(lambda: two.checkpoint(run, 1) >= 3, two.explain)
    said = two.launcher("move", run)
    assert re.search(rf"{run} +spare +moved", said), said
    until(lambda: len(two.steps(3)) > 0, two.explain)
    status = two.launcher("status", run)
    assert "local, then spare" in status
    assert "moved to spare: by `launcher move`" in status
    assert "attached" in two.launcher("submit", "job.yaml")
    assert re.search(r"spare +there", two.launcher("move", run, "--to", "spare"))
    assert "the last of its backends" in two.launcher("move", run, code=5)
    two.went_on(run)
    exits = read_run(open_store(f"file://{two.path}/store"), run).attempts[0].exits
    assert exits["main-0"].reason is Reason.LOST
    assert "does not move" in two.launcher("move", run, code=5)


@pytest.mark.parametrize("at", [10, 14, 34])  # before its claim, and after it
def test_a_mover_that_is_killed_is_followed_by_another(two: TwoQueues, at: int) -> None:
    killed_moving(two, at)


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(0, 48, 2))
def test_wherever_it_is_killed(two: TwoQueues, at: int) -> None:
    killed_moving(two, at)


def killed_moving(two: TwoQueues, at: int) -> None:
    run = two.submit()
    until(lambda: two.checkpoint(run, 1) >= 3, two.explain)
    killed = two.dies_moving(run, at)
    said = two.launcher("move", run, "--to", "spare")
    assert re.search(r"spare +(moved|completed|there)", said), said
    assert killed or "there" in said
    two.went_on(run)


def test_the_first_queue_is_frozen_while_the_run_moves(two: TwoQueues) -> None:
    run = two.submit()
    until(lambda: two.checkpoint(run, 1) >= 3, two.explain)
    record = two.runtime("first")
    supervisor = daemon.living_supervisor(StateDir(two.path / "first"))
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGSTOP)
    os.kill(record.pid, signal.SIGSTOP)
    try:
        two.launcher("move", run)
        until(lambda: len(two.steps(3)) > 3, two.explain)
        before, newest = two.steps(1), two.checkpoint(run, 1)
    finally:
        os.kill(record.pid, signal.SIGCONT)
        os.kill(supervisor.pid, signal.SIGCONT)
    two.went_on(run, newest=newest)
    assert two.steps(1) == before, "its command ended before the second queue's began"


def test_a_queue_without_room_gives_the_run_to_the_next(two: TwoQueues) -> None:
    """The supervisor says in the store that it goes on; a reaper does the rest."""
    text = two.path / "job.yaml"
    job = json.loads(text.read_text())
    job["limits"]["start_deadline"] = "1s"
    text.write_text(json.dumps(job))
    profile = two.path / "slipway.yaml"
    profile.write_text(profile.read_text().replace("cpus: 64", "cpus: 1"))
    blocker = {"name": "blocker", "command": ["sleep", "600"], "resources": {"cpus": 1}, "backend": "local"}
    (two.path / "blocker.yaml").write_text(json.dumps(blocker))
    two.launcher("submit", "blocker.yaml")
    until(lambda: list((two.path / "first").glob("runs/blocker-*/*/record.json")), two.explain)
    run = two.submit()
    claim = two.path / "store" / RunKeys(run).attempt(1).claim("main-0")
    until(claim.exists, two.explain)
    said = two.launcher("reap")
    assert "spare did not have it yet" in said
    until(lambda: len(two.steps(2)) > 3, two.explain)
    (two.path / "enough").touch()
    assert two.result(run).attempt == 2
    assert two.launcher("reap") == "nothing to do\n"
    two.launcher("cancel", "blocker")
