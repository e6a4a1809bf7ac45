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
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, cast

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.protocol.facts import Verdict
from launcher.protocol.finish import put_result
from launcher.protocol.read import PAGE, read_run
from launcher.protocol.records import Beat
from launcher.protocol.view import RunView
from launcher.reasons import Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import Output
from launcher.store.base import Meta, Store
from launcher.store.layout import RunKeys, work_run
from launcher.store.manifest import read_manifest
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
    keys: Sequence[str] = ()

    def make_index(self) -> None:
        self.index, self.keys = {}, sorted(self.objects)
        for key in self.keys:
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
        if self.index is None or not prefix.startswith("runs/"):
            yield from super().scan(prefix, after)
            return
        keys = self.keys[bisect_right(self.keys, max(prefix, after)) :] if prefix == "runs/" else self.below(prefix)
        for at, key in enumerate(keys):
            if at % PAGE == 0:
                self.asked("scan")
            if not key.startswith(prefix):
                return
            yield self._meta(key)


def folders_of(store: Store, view: RunView) -> dict[str, Any]:
    """What the leader that uploaded the outputs says of them; a checkout of before has no word for it."""
    from launcher.protocol import records

    if not hasattr(records, "StoredFolder"):
        return {}
    manifest = read_manifest(store, RunKeys(view.run).attempt(1).output_manifest("model"))
    assert manifest is not None
    return {"model": records.StoredFolder(len(manifest.files), manifest.size, manifest.digest)}


def measure() -> None:
    asked: Counter[str] = Counter()
    memory = Indexed("s3://bucket/x", time.time)
    store = cast(Store, memory)
    beat = Beat(seq=3, phase="running", step=100, total=100, running=30.0)
    # as a leader ends its run; older code writes a result that does not say what is shown
    known = signature(put_result).parameters
    runs = []
    for index in range(RUNS):
        job = fake_job("over", config={"index": index}, outputs={"model": Output()})
        attempt = FakeAttempt(beat=beat, outputs={"model": {"weights": b"w"}})
        runs.append(write_run(store, job, [attempt], outcome=None))
        view = read_run(store, runs[-1])
        told: dict[str, Any] = {
            "last": beat,
            "claim": view.attempts[0].claims["main-0"],
            "folders": folders_of(store, view),
        }
        told = {name: value for name, value in told.items() if name in known}
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
