"""How verbs that look at every run grow with the number of runs: CPU seconds, and the memory at its peak.

    SIZES=1000,10000,50000 OLD=<another checkout> python -m tests.bench.growth
    SIZES=10000 S3=1 python -m tests.bench.growth

Half of the runs are trainings with curves, half are evaluations. With S3 a server on this machine has them, and a
script writes them into its folder. KEEP names a folder in which the stores stay for the next call.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from launcher.spec.hashing import work_hash
from launcher.spec.model import Output
from launcher.store.file import FileStore
from launcher.store.layout import work_run
from tests.support.fakerun import START, FakeAttempt, eval_files, fake_job, write_group, write_run

SIZES = [int(size) for size in os.environ.get("SIZES", "1000,10000").split(",")]
KEEP, S3 = os.environ.get("KEEP", ""), os.environ.get("S3", "")
BUCKET = "grown"
GROUP = 50  # runs of a group
ALL = "ALL"  # in the words of a verb: the group of all runs
VERBS = {
    "`status`": ["status"],
    "the same, again": ["status"],
    "`results`": ["results", ALL],
    "`cost`": ["cost"],
    "`groups`": ["groups"],
    "`report`": ["report", ALL],
    "`gc`": ["gc"],
}
MONITOR = """
import sys
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.store import open_store
follower = StoreFollower(open_database("sqlite:///" + sys.argv[2]), open_store(sys.argv[1]))
while follower.once().written:
    pass
"""


def write(folder: Path, runs: int) -> None:
    """Runs that have ended, in groups, and a group of them all."""
    store = FileStore(folder, sync=False)
    store.make()
    group: list[str] = []
    every: list[str] = []
    for index in range(runs):
        began = START + 100.0 * index
        if index % 2:
            files = eval_files([(index + task) % 3 != 0 for task in range(8)])
            job = fake_job("evaluate", config={"index": index}, outputs={"results": Output()})
            attempt = FakeAttempt(started=began, ended=began + 60, outputs={"results": files})
        else:
            curve = [("train/loss", float(step), 3.0 / (1 + step)) for step in range(20)]
            job = fake_job("train", config={"index": index}, outputs={"model": Output()})
            attempt = FakeAttempt(started=began, ended=began + 60, metrics=curve, outputs={"model": {"w": b"w"}})
        run = write_run(store, job, [attempt])
        store.create(work_run(work_hash(job), run), b"{}")
        group.append(run)
        every.append(run)
        if len(group) == GROUP or index == runs - 1:
            write_group(store, group)
            group = []
    (folder.parent / f"{runs}.all").write_text(write_group(store, every))


@contextmanager
def store_of(folder: Path, runs: int) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """(URL, the group of all, environment variables) of a store with so many runs."""
    if not S3:
        if not (folder / str(runs)).exists():
            write(folder / str(runs), runs)
        yield f"file://{folder / str(runs)}", (folder / f"{runs}.all").read_text(), {}
        return
    from tests.support.s3 import ENVIRONMENT, running

    with running() as server:
        bucket = server.log.parent / "data" / BUCKET
        write(bucket / "store", runs)
        yield server.url(BUCKET), (bucket / f"{runs}.all").read_text(), ENVIRONMENT


def measured(argv: list[str], folder: Path, environ: Mapping[str, str]) -> tuple[float, float, float]:
    """(CPU seconds, MB at its peak, seconds) of a command."""
    began = time.monotonic()
    with (folder / "printed").open("w") as printed, (folder / "wrong").open("w") as wrong:
        child = subprocess.Popen(argv, cwd=folder, env=environ, stdout=printed, stderr=wrong)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, (argv, (folder / "wrong").read_text()[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000, time.monotonic() - began


def main() -> int:
    from tests.bench.checkouts import checkouts

    only = os.environ.get("VERBS", "").split()
    figures: dict[tuple[str, str, int], tuple[float, float, float]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        for size in SIZES:
            url, group, variables = stack.enter_context(store_of(Path(KEEP or name), size))
            for code, checkout in checkouts().items():
                folder = Path(name) / f"{code}-{size}"
                folder.mkdir()
                kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLIPWAY_", "XDG_"))}
                environ = {**kept, **variables, "PYTHONPATH": str(checkout), "HOME": str(folder), "SLIPWAY_STORE": url}
                monitor = [sys.executable, "-c", MONITOR, url, str(folder / "monitor.sqlite")]
                words = {verb: [group if word == ALL else word for word in each] for verb, each in VERBS.items()}
                argvs = {verb: [sys.executable, "-m", "launcher.cli", *each] for verb, each in words.items()}
                for verb, argv in {**argvs, "monitor's first ingest": monitor}.items():
                    if only and not any(word in verb for word in only):
                        continue
                    figures[verb, code, size] = measured(argv, folder, environ)
                    print(verb, code, size, *figures[verb, code, size], file=sys.stderr, flush=True)
    print(f"| {'S3' if S3 else 'a folder'} | {' | '.join(f'{size:,} runs: CPU s; MB' for size in SIZES)} |")
    print("|---|" + "---:|" * len(SIZES))
    for verb, code in dict.fromkeys((verb, code) for verb, code, _ in figures):
        each = [figures[verb, code, size] for size in SIZES]
        print(f"| {verb}, {code} | {' | '.join(f'{cpu:.2f}; {peak:.0f}' for cpu, peak, _ in each)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
