"""Runs real runtimes on small jobs in a file store, and reads what they left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from launcher.protocol.read import read_run
from launcher.protocol.records import Exit, Result
from launcher.protocol.view import RunView
from launcher.runtime.process import leash, procs
from launcher.runtime.process.procs import MARK
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import Limits, ResolvedJob, Role, Timing
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.store.logs import read_pieces
from launcher.store.manifest import find_output, key_of
from launcher.store.opening import make_store, open_store
from tests.support.waiting import until as until

TUNING = {
    "poll": 0.05,
    "quiet": 0.3,
    "live": 0.1,
    "log_first": 0.05,
    "log_longest": 0.2,
    "upstream": 0.5,
    "ready": 0.05,
    "leftovers": 0.3,
    "connect": 5.0,
    "silent": 0.6,
}
TIMING = Timing(beat=0.3, stale=12.0, fence=6.0)


def python(code: str) -> tuple[str, ...]:
    return ("python", "-c", code)


@dataclass
class Rig:
    """One run of a job with one member (or several), in a folder of the test's."""

    root: Path
    job: ResolvedJob
    environ: dict[str, str] = field(default_factory=dict)
    tuning: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, root: Path, command: Sequence[str], *, store: str = "", role: Mapping[str, Any] | None = None, **job: Any
    ) -> Rig:
        job.setdefault("limits", Limits(grace=2.0))
        job.setdefault("timing", TIMING)
        job.setdefault("roles", {"main": Role(command=tuple(command), **(role or {}))})
        made = ResolvedJob(name="test", store=store or (root / "store").as_uri(), backend="local", **job)
        make_store(open_store(made.store))
        return cls(root, made)

    @property
    def run(self) -> str:
        return run_id(self.job)

    @property
    def keys(self) -> RunKeys:
        return RunKeys(self.run)

    @property
    def store(self) -> Store:
        return open_store(self.job.store, there=True)

    def start(self, member: str = "main-0", **popen: Any) -> subprocess.Popen[bytes]:
        role, _, rank = member.rpartition("-")
        environ = {
            **os.environ,
            "SLIPWAY_STORE": self.job.store,
            "SLIPWAY_RUN": self.run,
            "SLIPWAY_ROLE": role,
            "SLIPWAY_RANK": rank,
            "SLIPWAY_JOB": encode_job(self.job).decode(),
            "SLIPWAY_PLACEMENT": json.dumps({"kind": "process", "where": "here/queue/1"}),
            "SLIPWAY_WORKDIR": str(self.root / "work" / member),
            "SLIPWAY_TUNING": json.dumps({**TUNING, **self.tuning}),
            MARK: f"{self.root} {member}",
            **self.environ,
        }
        with (self.root / f"{member}.out").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "launcher.runtime"],
                env=environ,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                **popen,
            )

    def go(self, member: str = "main-0", **popen: Any) -> int:
        """Runs one runtime to its end; the container's exit code."""
        with self.start(member, **popen) as process:
            return process.wait(timeout=60)

    # what is in the store

    def view(self) -> RunView:
        return read_run(self.store, self.run)

    def exit(self, attempt: int = 1, member: str = "main-0") -> Exit:
        return msgspec.json.decode(self.store.get(self.keys.attempt(attempt).exit(member)), type=Exit)

    def result(self) -> Result | None:
        found = self.store.read(self.keys.result)
        return msgspec.json.decode(found[0], type=Result) if found else None

    def log(self, attempt: int = 1, member: str = "main-0") -> bytes:
        prefix = self.keys.attempt(attempt).logs(member)
        return b"".join(piece.body for piece in read_pieces(self.store, prefix, ".log"))

    def output(self, path: str, attempt: int = 1) -> bytes:
        """A file of an output, the newest version of a live one."""
        name, _, rest = path.partition("/")
        found = find_output(self.store, folder := self.keys.attempt(attempt).output(name))
        assert found is not None
        return self.store.get(key_of(folder, rest, found[1].files[rest].at))

    def objects(self, prefix: str = "") -> list[str]:
        start = self.keys.prefix + prefix
        return [meta.key.removeprefix(self.keys.prefix) for meta in self.store.scan(start)]


def leash_of(runtime: int) -> int:
    """The pid of a runtime's leash."""
    (pid,) = [process.pid for process in procs.descendants(runtime) if _comm(process.pid) == leash.NAME.decode()]
    return pid


def command_of(runtime: int) -> set[procs.Process]:
    """What a runtime started, its leash aside."""
    return {process for process in procs.descendants(runtime) if _comm(process.pid) != leash.NAME.decode()}


def _comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def terminate(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(timeout=60)


# prints `up`, and does `handler` when it is asked to stop
SLOW = """
import os, signal, sys, time
from pathlib import Path
out = Path(os.environ["SLIPWAY_OUTPUTS"])
def stop(*_):
    {handler}
signal.signal(signal.SIGTERM, stop)
print("up", flush=True)
time.sleep(60)
"""


def started(rig: Rig, text: bytes = b"up\n") -> subprocess.Popen[bytes]:
    process = rig.start()
    until(lambda: text in rig.log())
    return process


def no_process_left(rig: Rig, member: str = "main-0") -> bool:
    return not procs.descendants_with_mark(f"{rig.root} {member}")
