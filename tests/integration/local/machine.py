"""One machine in a folder: a store, a state folder, the real supervisor and the real runtime."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from launcher.backends.local import daemon, environment
from launcher.backends.local.backend import LocalBackend
from launcher.backends.local.state import StartRecord, read
from launcher.files import replace
from launcher.protocol.records import Exit, Result
from launcher.runtime.process import procs
from launcher.spec.hashing import run_id
from launcher.spec.model import Output, ResolvedJob
from launcher.store import Store, open_store
from launcher.store.layout import RunKeys
from launcher.verbs.submit import Submitted, submit
from tests.support.brief_attempts import survives_a_kill
from tests.support.jobs import group, job
from tests.support.waiting import HANGS

CHECKPOINTS = {"ckpt": Output(kind="checkpoints", match="checkpoint-*", done="done")}
# counts to E["STEPS"], one line a step in `steps`, a checkpoint after every second one
COUNT = """
resume = E.get("SLIPWAY_RESUME")
last = int((pathlib.Path(resume) / "at").read_text()) if resume else 0
say("starts", E["SLIPWAY_ATTEMPT"], last)
for step in range(last + 1, int(E["STEPS"]) + 1):
    time.sleep(0.1)
    say("steps", step)
    if step % 2 == 0:
        folder = pathlib.Path(E["SLIPWAY_OUTPUTS"]) / "ckpt" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "at").write_text(str(step))
        (folder / "done").touch()
"""
# the first attempt does not end by itself: on a busy machine it would be over before the test has seen where it is
STAY = """
if E["SLIPWAY_ATTEMPT"] == "1" and not resume:
    time.sleep(600)
"""


class Machine:
    def __init__(self, path: Path, store: str | None = None, **slots: Any) -> None:
        self.path = path
        self.store = open_store(store or (path / "store").as_uri())
        options = {"state": path / "state", "cpus": 64, "memory": 1 << 40, "gpus": 0, "idle": 30, **slots}
        self.backend = LocalBackend(options)
        self.state = self.backend.state

    def job(self, name: str, script: str, **changes: Any) -> ResolvedJob:
        """A job whose script starts in the machine's folder, with a few names at hand."""
        head = f"import json, os, pathlib, signal, sys, time\nE = os.environ\nhere = pathlib.Path({str(self.path)!r})\n"
        say = "def say(name, *words):\n    print(*words, file=open(here / name, 'a'), flush=True)\n"
        return job(name, head + say + script, store=self.store.url, **changes)

    def count(self, steps: int = 8, **changes: Any) -> ResolvedJob:
        """A job that counts, and whose first attempt stays when it has counted."""
        env = {"STEPS": str(steps)}
        return self.job("count", COUNT + STAY, outputs=CHECKPOINTS, role={"env": env}, **changes)

    def submit(self, *jobs: ResolvedJob) -> list[Submitted]:
        return submit(group(*jobs), self.store, self.backend)

    def lines(self, name: str) -> list[str]:
        path = self.path / name
        return path.read_text().splitlines() if path.exists() else []

    def result(self, one: ResolvedJob) -> Result | None:
        found = self.store.read(RunKeys(run_id(one)).result)
        return msgspec.json.decode(found[0], type=Result) if found else None

    def wait(self, *jobs: ResolvedJob, limit: float = HANGS) -> list[Result]:
        """Waits for the results and until the queue is empty of those runs."""
        wait_for(lambda: all(self.result(one) for one in jobs), limit, self.explain)
        wait_for(lambda: not {run_id(one) for one in jobs} & set(self.state.queued()), limit, self.explain)
        return [result for one in jobs if (result := self.result(one))]

    def exits(self, one: ResolvedJob) -> dict[int, Exit]:
        """The leader's exits by attempt."""
        keys = RunKeys(run_id(one))
        numbers = sorted(int(name) for name in self.store.folders(keys.attempts))
        found = {n: self.store.read(keys.attempt(n).exit(one.members()[0])) for n in numbers}
        return {n: msgspec.json.decode(body[0], type=Exit) for n, body in found.items() if body}

    def attempts(self, one: ResolvedJob) -> int:
        return len(self.store.folders(RunKeys(run_id(one)).attempts))

    def log(self, one: ResolvedJob, member: str = "main-0", attempt: int = 1) -> str:
        prefix = RunKeys(run_id(one)).attempt(attempt).logs(member)
        return b"".join(self.store.get(meta.key) for meta in self.store.scan(prefix)).decode()

    def supervisor(self) -> int | None:
        found = daemon.living_supervisor(self.state)
        return found.pid if found else None

    def runtimes(self) -> dict[str, StartRecord]:
        """The living runtimes by `<run>/<member>`."""
        found = {}
        for path in self.state.path.glob("runs/*/*/record.json"):
            record = read(path, StartRecord)
            if record and procs.alive(record.pid, record.start, record.boot):
                found[f"{path.parent.parent.name}/{path.parent.name}"] = record
        return found

    def killable(self, store: Store, beat: float) -> dict[str, StartRecord]:
        """Those of them whose runs may be tried again after one more kill; `store` is read without faults."""
        return {
            name: record
            for name, record in self.runtimes().items()
            if survives_a_kill(store, name.partition("/")[0], beat)
        }

    def kill_supervisor(self) -> bool:
        found = daemon.living_supervisor(self.state)
        return found is not None and procs.send(procs.Process(found.pid, found.start), signal.SIGKILL)

    def power_cut(self) -> None:
        """Everything dies at once; what comes up is another boot, in which the pids of before mean nothing."""
        self.kill_supervisor()
        for path in self.state.path.glob("runs/*/*"):
            procs.kill_tree(mark=environment.mark(self.state.id, path.parent.name, path.name), grace=0)
        for path in self.state.path.glob("runs/*/*/record.json"):
            record = read(path, StartRecord)
            if record is not None:
                replace(path, msgspec.json.encode(msgspec.structs.replace(record, boot="an-earlier-boot")))

    def explain(self) -> str:
        parts = [self.state.log.read_text()[-2000:] if self.state.log.exists() else "no supervisor.log"]
        parts += [f"{path}:\n{path.read_text()[-300:]}" for path in self.state.path.glob("runs/*/*/*.log")]
        return "\n".join(parts)

    def close(self) -> None:
        if not self.state.path.exists():
            return
        daemon.stop(self.state)
        for path in self.state.path.glob("runs/*/*"):
            procs.kill_tree(mark=environment.mark(self.state.id, path.parent.name, path.name), grace=0)


@contextmanager
def machine(path: Path, store: str | None = None, **slots: Any) -> Iterator[Machine]:
    made = Machine(path, store, **slots)
    before = os.environ.get("SLIPWAY_TUNING")
    os.environ["SLIPWAY_TUNING"] = json.dumps(
        {"poll": 0.05, "quiet": 0.5, "live": 0.2, "upstream": 2.0, "leftovers": 0.5}
    )
    try:
        yield made
    finally:
        made.close()
        if before is None:
            del os.environ["SLIPWAY_TUNING"]
        else:
            os.environ["SLIPWAY_TUNING"] = before


def wait_for(condition: Callable[[], object], limit: float = HANGS, explain: Callable[[], str] = str) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"it did not happen\n{explain()}"
        time.sleep(0.02)


def alive(pid: int | str) -> bool:
    return procs.alive(int(pid), procs.start_time(int(pid)) or 0, procs.boot_id())


def environ(**extra: str) -> dict[str, str]:
    """The environment of a user's shell, for `launcher` as a process."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, **extra}
