"""The runtime's own part before the command starts, and after it ended: python -m tests.bench.runtime_start

From the start of the process to the command's first instruction; a file store, one rank, nothing to fetch. Beside it a
bare interpreter, in the same run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.integration.runtime.rig import Rig

ROUNDS = 15
TARGET = 0.3  # seconds: docs/project/benchmarks.md


def main() -> int:
    bare, before, after, cpu = [], [], [], []
    for _ in range(ROUNDS):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.monotonic() - began)
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            # sh starts in a millisecond; the clock it reads is the system's
            rig = Rig.of(root, ("sh", "-c", "cat /proc/uptime > $SLIPWAY_INPUTS/../../began"))
            began = time.clock_gettime(time.CLOCK_BOOTTIME)
            process = rig.start()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                print((root / "main-0.out").read_text())
                return 1
            ended = time.clock_gettime(time.CLOCK_BOOTTIME)
            started = float((root / "work/began").read_text().split()[0])  # hundredths of a second
            before.append(started - began)
            after.append(ended - started)
            cpu.append(usage.ru_utime + usage.ru_stime)
    print(f"| the runtime, {ROUNDS} rounds | best s | median s | x bare |\n|---|---|---|---|")
    rows = {
        "bare interpreter": bare,
        "before the command": before,
        "after its start": after,
        "CPU of all of it, the command's too": cpu,
    }
    for name, values in rows.items():
        ratio = min(values) / min(bare)
        print(f"| {name} | {min(values):.3f} | {statistics.median(values):.3f} | {ratio:.1f} |")
    return min(before) > TARGET


if __name__ == "__main__":
    sys.exit(main())
