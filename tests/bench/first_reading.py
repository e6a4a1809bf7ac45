"""The first reading of finished runs from a store over a network, by `status` and by the monitor: requests, seconds,
CPU of this process.

    RUNS=1000 OLD=<another checkout> python -m tests.bench.first_reading

The store is in memory, and each request takes 20 ms.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any, cast

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.protocol.finish import put_result
from launcher.protocol.read import read_run
from launcher.protocol.records import Beat
from launcher.protocol.verdict import Verdict
from launcher.reasons import Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import Output
from launcher.store.base import Meta, Store
from launcher.store.layout import work_run
from launcher.userdata.cache import Cache
from launcher.verbs.status import read_lines
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.memory_store import MemoryStore

RUNS = int(os.environ.get("RUNS", "1000"))
READER = os.environ.get("READER", "status")
DELAY = 0.02  # seconds that a request takes


class Indexed(MemoryStore):
    """Lists a run without looking at every key, which would be this process's work and is a server's."""

    index: dict[str, list[str]] | None = None  # of each run; none until all is written

    def make_index(self) -> None:
        self.index = {}
        for key in sorted(self.objects):
            self.index.setdefault("/".join(key.split("/", 2)[:2]) + "/", []).append(key)

    def level(self, prefix: str) -> tuple[list[Meta], list[str]]:
        if self.index is None or prefix.count("/") < 2:
            return super().level(prefix)
        rest = {key: key.removeprefix(prefix) for key in self.below(prefix)}
        self.asked("level")
        metas = [self._meta(key) for key, name in rest.items() if "/" not in name]
        return metas, sorted({name.partition("/")[0] for name in rest.values() if "/" in name})

    def below(self, prefix: str) -> list[str]:
        """The keys with this prefix, which begins with a run's."""
        assert self.index is not None
        run = "/".join(prefix.split("/", 2)[:2]) + "/"
        return [key for key in self.index.get(run, ()) if key.startswith(prefix)]

    def scan(self, prefix: str, after: str = "") -> Iterator[Meta]:
        if self.index is None or not prefix.startswith("runs/") or prefix.count("/") < 2:
            return super().scan(prefix, after)
        self.asked("scan")
        return map(self._meta, self.below(prefix))


def measure() -> None:
    asked: Counter[str] = Counter()
    memory = Indexed("s3://bucket/x", time.time)
    store = cast(Store, memory)
    beat = Beat(seq=3, phase="running", step=100, total=100, running=30.0)
    # as a leader ends its run; older code writes a result that does not say what is shown
    told: Any = {"last": beat} if "last" in signature(put_result).parameters else {}
    runs = []
    for index in range(RUNS):
        job = fake_job("over", config={"index": index}, outputs={"model": Output()})
        attempt = FakeAttempt(beat=beat, outputs={"model": {"weights": b"w"}})
        runs.append(write_run(store, job, [attempt], outcome=None))
        view = read_run(store, runs[-1])
        put_result(store, view, job, Verdict("succeeded", 1, Reason.SUCCEEDED), writer="main-0", data={}, **told)
        store.create(work_run(work_hash(job), runs[-1]), b"{}")

    def request(method: str) -> None:
        asked[method] += 1
        time.sleep(DELAY)

    memory.make_index()
    memory.asked = request
    with tempfile.TemporaryDirectory() as folder, Cache(Path(folder) / "cache") as cache:
        began, cpu = time.perf_counter(), time.process_time()
        if READER == "monitor":
            follower = StoreFollower(open_database(f"sqlite:///{folder}/monitor.sqlite"), store)
            assert follower.once().written == RUNS
        else:
            lines, problems = read_lines(store, runs, cache=cache, backend_of=lambda job: None)
            assert len(lines) == RUNS
            assert not problems
        took, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"{sum(asked.values()) / RUNS:.1f} | {took:.1f} | {1000 * used / RUNS:.1f}")


def main() -> int:
    if sys.argv[1:] == ["one"]:
        measure()
        return 0
    from tests.bench.checkouts import checkouts, measured  # the other checkout may lack it

    print(f"| first reading of {RUNS:,} finished runs, 20 ms a request | requests a run | s | CPU ms a run |")
    print("|---|---:|---:|---:|")
    for reader in ("status", "monitor"):
        os.environ["READER"] = reader
        for code, checkout in checkouts().items():
            print(f"| {reader}, {code} | {measured(__file__, checkout)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
