"""What verbs cost over many runs that wait in the queue of this machine: CPU seconds of the whole command.

    RUNS=4000 OLD=<another checkout> python -m tests.bench.local_queue

Nothing starts a run: this process holds the supervisor's lock. OLD is measured in turns with this checkout, each on a
queue of its own.
"""

from __future__ import annotations

import fcntl
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from launcher.backends.local.state import StateDir

RUNS = int(os.environ.get("RUNS", "4000"))
OLD = os.environ.get("OLD", "")
HERE = Path(__file__).parents[2]
VERBS = {
    "submit": ["submit", "job.yaml"],
    "submit again": ["submit", "job.yaml"],
    "`status`": ["status"],
    "the same, again": ["status"],
    "`cancel --all`": ["cancel", "--all"],
}


def job(runs: int) -> str:
    values = ", ".join(map(str, range(runs)))
    return (
        f'name: queued\nbackend: local\ncommand: ["true"]\nmatrix: {{config.index: [{values}]}}\n'
        "resources: {cpus: 1}\n"
    )


def timed(checkout: Path, verb: list[str], folder: Path) -> tuple[float, float]:
    """(CPU seconds, seconds) of one call."""
    environ = {**os.environ, "PYTHONPATH": str(checkout), "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    environ = {**environ, "XDG_STATE_HOME": str(folder / "state-home"), "SLIPWAY_STORE": f"file://{folder / 'store'}"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "launcher.cli", *verb],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") >= RUNS, done.stdout[-2000:]
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, took


def main() -> int:
    checkouts = {"new": HERE} | ({"old": Path(OLD)} if OLD else {})
    figures: dict[str, dict[str, tuple[float, float]]] = {verb: {} for verb in VERBS}
    with tempfile.TemporaryDirectory() as name:
        locks = []
        for code in checkouts:
            folder = Path(name) / code
            state = StateDir(folder / "queue").make()
            locks.append(os.open(state.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(locks[-1], fcntl.LOCK_EX)
            (folder / "slipway.yaml").write_text(f"backend: local\nlocal: {{state: {state.path}}}\n")
            (folder / "job.yaml").write_text(job(RUNS))
        for verb, command in VERBS.items():
            for code, checkout in checkouts.items():
                figures[verb][code] = timed(checkout, command, Path(name) / code)
                print(verb, code, *figures[verb][code], file=sys.stderr, flush=True)
    print(f"| {RUNS:,} queued runs | {' | '.join(f'{code}: CPU s | s' for code in checkouts)} |")
    print("|---|" + "---:|---:|" * len(checkouts))
    for verb, by_code in figures.items():
        print(f"| {verb} | {' | '.join(f'{cpu:.2f} | {wall:.1f}' for cpu, wall in by_code.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
