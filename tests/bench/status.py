"""`launcher status` over many finished runs: the first reading, then with the cache. The whole command is timed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, fake_job, write_run

RUNS = int(os.environ.get("RUNS", "10000"))
TRIES = 5
LIMIT = 1.0  # seconds, warm: docs/project/benchmarks.md


def timed(command: list[str], environ: dict[str, str]) -> tuple[float, float, int]:
    """(seconds, seconds of CPU, lines printed) of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, check=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout.count(b"\n")


def median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = FileStore(root / "store", sync=False)
        for index in range(RUNS):
            write_run(store, fake_job("bench", config={"index": index}), [FakeAttempt()])
        environ = {**os.environ, "SLIPWAY_STORE": store.url, "XDG_CACHE_HOME": str(root / "cache"), "HOME": folder}
        command = [sys.executable, "-m", "launcher.cli", "status"]
        cold = timed(command, environ)
        assert cold[2] == RUNS + 1, f"{cold[2] - 1} of {RUNS} runs were shown"
        calls = [timed(command, environ) for _ in range(TRIES)]
        warm = median([call[0] for call in calls]), median([call[1] for call in calls])
        bare = median([timed([sys.executable, "-c", ""], environ)[0] for _ in range(TRIES)])
        size = (root / "cache" / "slipway" / "status.sqlite").stat().st_size
    print(f"| status of {RUNS:,} finished runs, file:// | seconds | CPU | times a bare interpreter |")
    print("|---|---:|---:|---:|")
    print(f"| first reading | {cold[0]:.2f} | {cold[1]:.2f} | {cold[0] / bare:.0f} |")
    print(f"| with the cache, median of {TRIES} | {warm[0]:.2f} | {warm[1]:.2f} | {warm[0] / bare:.0f} |")
    print(f"\ncache: {size / 1e6:.1f} MB; limit: {LIMIT} s of CPU with the cache (wall time on a quiet core)")
    return 0 if warm[1] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
