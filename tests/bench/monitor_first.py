"""The monitor's first ingest of finished runs without results: CPU milliseconds a run, of the monitor alone.

RUNS=1000 OLD=<another checkout> python -m tests.bench.monitor_first
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, fake_job, write_run

RUNS = int(os.environ.get("RUNS", "1000"))


def measure() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(Path(folder) / "store", sync=False)
        for index in range(RUNS):
            write_run(store, fake_job("over", config={"index": index}), [FakeAttempt()])
        follower = StoreFollower(open_database(f"sqlite:///{folder}/monitor.sqlite"), store)
        began = time.process_time()
        found = follower.once()
        print(f"{1000 * (time.process_time() - began) / RUNS:.2f}")
        assert found.written == RUNS


def main() -> int:
    if sys.argv[1:] == ["one"]:
        measure()
        return 0
    from tests.bench.checkouts import checkouts, measured  # the other checkout may lack it

    print(f"| first ingest of {RUNS:,} runs | CPU ms a run, three times |")
    print("|---|---:|")
    figures: dict[str, list[str]] = {code: [] for code in checkouts()}
    for _ in range(3):
        for code, checkout in checkouts().items():
            figures[code].append(measured(__file__, checkout))
    for code, each in figures.items():
        print(f"| {code} | {', '.join(each)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
