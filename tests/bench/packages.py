"""How long a submit looks at the packages of this machine: the first time, and again with nothing changed. With the
CPU time, because another program's work makes the wall time longer."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import msgspec

from launcher.spec.code.distributions import installed
from launcher.spec.code.environment import local_environment

ROUNDS = 30


def look() -> tuple[float, float]:
    """(wall, CPU) in ms."""
    wall, cpu = time.perf_counter(), time.process_time()
    local_environment(remember=True)
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - cpu) * 1e3


def main() -> None:
    site = str(Path(msgspec.__file__).parents[1])
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        first = look()
        again = [look() for _ in range(ROUNDS)]
    print(f"{len(installed([site]))} distributions, {ROUNDS} looks with nothing changed\n")
    print("| | wall, ms | CPU, ms |\n|---|---|---|")
    print(f"| first | {first[0]:.1f} | {first[1]:.1f} |")
    for name, of in (("again, best", min), ("again, median", statistics.median)):
        print(f"| {name} | {of(wall for wall, _ in again):.1f} | {of(cpu for _, cpu in again):.1f} |")


if __name__ == "__main__":
    main()
