"""`launcher status` over many finished runs: the first reading, then with the cache. The whole command is timed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launcher.store.file import FileStore
from tests.support.fakerun import FakeAttempt, fake_job, write_run

RUNS = int(os.environ.get("RUNS", "10000"))
TRIES = 5
LIMIT = 1.0  # seconds, warm (design 11)


def timed(command: list[str], environ: dict[str, str]) -> tuple[float, int]:
    """(seconds, lines printed) of one call."""
    began = time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, check=True)
    return time.perf_counter() - began, done.stdout.count(b"\n")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = FileStore(root / "store", sync=False)
        for index in range(RUNS):
            write_run(store, fake_job("bench", config={"index": index}), [FakeAttempt()])
        environ = {**os.environ, "SLIPWAY_STORE": store.url, "XDG_CACHE_HOME": str(root / "cache"), "HOME": folder}
        command = [sys.executable, "-m", "launcher.cli", "status"]
        cold, lines = timed(command, environ)
        assert lines == RUNS + 1, f"{lines - 1} of {RUNS} runs were shown"
        warm = sorted(timed(command, environ)[0] for _ in range(TRIES))
        bare = sorted(timed([sys.executable, "-c", ""], environ)[0] for _ in range(TRIES))
        size = (root / "cache" / "slipway" / "status.sqlite").stat().st_size
    print(f"| status of {RUNS:,} finished runs, file:// | seconds | times a bare interpreter |")
    print("|---|---:|---:|")
    print(f"| first reading | {cold:.2f} | {cold / bare[TRIES // 2]:.0f} |")
    print(f"| with the cache, median of {TRIES} | {warm[TRIES // 2]:.2f} | {warm[TRIES // 2] / bare[TRIES // 2]:.0f} |")
    print(f"\ncache: {size / 1e6:.1f} MB; limit {LIMIT} s warm")
    return 0 if warm[TRIES // 2] <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
