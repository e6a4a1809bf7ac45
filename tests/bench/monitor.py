"""The monitor over many runs: the rate of the first ingest, the time of a pass in which nothing is new, how soon a new
record is on the page, how long the pages take, and when a browser shows something of them. RUNS and TURNS say how many;
pictures are named and not there, because no ingest reads one. FOLDER keeps store and database for the next call.

Beside the clock stands what the processors worked: a machine with other work has the same seconds of that.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright
from sqlalchemy import func, select

from launcher.monitor import tables as t
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.spec.model import Output
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.served import Monitor
from tests.support.fakerun import START, FakeAttempt, fake_job, write_run

RUNS = int(os.environ.get("RUNS", "10000"))
TURNS = int(os.environ.get("TURNS", "1000000"))
STEPS, EPISODES = 20, 500  # turns of an episode, episodes of an evaluation
ASKED = 15  # times that a page is asked for
ADDED = 10  # records whose way to the page is timed
PAINTED = 7  # times that a browser opens a page
# in every try; in one of 500; in one of 500; nowhere; two letters; two letters that are nowhere
SEARCHED = ("press button", "form 77", "form 499 and press button 19", "no such words", "77", "zq")
TICKS = os.sysconf("SC_CLK_TCK")
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def worked(processes: Iterable[int]) -> float:
    """The seconds that processes were on a processor."""
    total = 0
    for process in processes:
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def descendants(process: int) -> list[int]:
    found = [process]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def evaluation(store: FileStore, number: int) -> None:
    """An evaluation of EPISODES episodes; its pictures stand in the manifest alone."""
    files: dict[str, bytes] = {}
    lines = []
    for index in range(EPISODES):
        folder, won = f"episodes/e-{index:04d}", (index + number) % 3 != 0
        steps = [
            {
                "index": step,
                "screenshot": f"{step:03d}.png",
                "action": {"type": "click", "x": 0.01 * step, "y": 0.5},
                "response": f"I see form {index} and press button {step}. Action: click",
            }
            for step in range(STEPS)
        ]
        head = {"task_id": f"task-{index % 50}", "instruction": f"Fill form {index}.", "screen": [1280, 800]}
        files[f"{folder}/steps.jsonl"] = b"".join(json.dumps(step).encode() + b"\n" for step in steps)
        files[f"{folder}/episode.json"] = json.dumps(head).encode()
        told = {"benchmark": "forms", "version": "1", "agent": "model", "task_id": f"task-{index % 50}", "seed": index}
        lines.append(
            {**told, "score": float(won), "success": won, "outcome": "scored", "episode": folder, "steps": STEPS}
        )
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    run = write_run(store, fake_job("eval", outputs={"results": Output()}, fresh=number), [FakeAttempt()])
    keys = RunKeys(run).attempt(1)
    for path, body in files.items():
        store.put(keys.output("results") + path, body)
    entries = {path: {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()} for path, body in files.items()}
    for index in range(EPISODES):
        for step in range(STEPS + 1):
            path = f"episodes/e-{index:04d}/{step:03d}.png"
            entries[path] = {"size": 90_000, "sha256": hashlib.sha256(f"{number}/{path}".encode()).hexdigest()}
    store.create(keys.output_manifest("results"), json.dumps({"files": entries, "time": START, "nonce": "n"}).encode())


def fill(store: FileStore) -> None:
    evaluations = TURNS // (STEPS * EPISODES)
    for number in range(RUNS - evaluations):
        write_run(store, fake_job("train", fresh=number))
    for number in range(evaluations):
        evaluation(store, number)


def ingest(store: FileStore, database: Path) -> None:
    engine = open_database(f"sqlite:///{database}")
    began, used = time.monotonic(), time.process_time()
    StoreFollower(engine, store).once()
    took, busy = time.monotonic() - began, time.process_time() - used
    with engine.connect() as connection:
        runs = connection.execute(select(func.count()).select_from(t.runs)).scalar()
        turns = connection.execute(select(func.count()).select_from(t.turns)).scalar() or 0
    print(f"first ingest: {runs:,} runs, {turns:,} turns in {took:.0f} s ({busy:.0f} s of CPU)")
    print(f"that is {turns / took:,.0f} turns/s, {turns / busy:,.0f} turns per second of CPU")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"database: {database.stat().st_size / 1e6:.0f} MB; memory {memory / 1e3:.0f} MB", flush=True)
    engine.dispose()


def passes(store: FileStore, database: Path) -> None:
    engine = open_database(f"sqlite:///{database}")
    follower, found = StoreFollower(engine, store), []
    for _ in range(5):
        began = time.monotonic()
        follower.once()
        found.append(time.monotonic() - began)
    print(f"a pass with nothing new: {statistics.median(found[1:]):.2f} s (the first of a process {found[0]:.2f} s)")
    engine.dispose()


def pages(monitor: Monitor) -> list[str]:
    """Times the server's answers; returns the addresses."""
    page = monitor.ask("/evaluations").text.partition('href="/evaluations/')[2].partition('"')[0]
    paths = ["/", "/evaluations", f"/evaluations/{page}", *(f"/search?q={quote(words)}" for words in SEARCHED)]
    for path in paths:
        times, busy = [], worked([monitor.process.pid])
        for _ in range(ASKED):
            began = time.monotonic()
            assert monitor.ask(path).status == 200
            times.append(time.monotonic() - began)
        busy = (worked([monitor.process.pid]) - busy) / ASKED
        print(
            f"{path.replace(page, 'RUN')}: median {statistics.median(times):.3f} s, slowest {max(times):.3f} s; "
            f"{busy:.3f} s of CPU, with what the ingest did meanwhile",
            flush=True,
        )
    return paths


def paints(monitor: Monitor, paths: list[str]) -> None:
    """The first contentful paint of each page in Chromium, from the start of the navigation, with an empty cache."""
    program = shutil.which("chromium")
    if program is None:
        print("no chromium: first paints are not measured")
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for path in paths:
            times, busy = [], list[float]()
            for _ in range(PAINTED):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                page = context.new_page()
                page.goto(monitor.address)  # the token becomes a cookie
                page.goto("about:blank")
                before = worked([monitor.process.pid, *descendants(os.getpid())])
                page.goto(monitor.base + path)
                busy.append(worked([monitor.process.pid, *descendants(os.getpid())]) - before)
                page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
                times.append(page.evaluate(PAINT))
                context.close()
            print(
                f"first paint of {path}: median {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms; "
                f"the load took server and browser {statistics.median(busy):.2f} s of CPU",
                flush=True,
            )
        browser.close()


def ways(monitor: Monitor, store: FileStore) -> None:
    found = []
    for number in range(ADDED):
        run = write_run(store, fake_job(f"added-{number}-{os.getpid()}"), [], outcome=None)
        began = time.monotonic()
        while run not in monitor.ask("/now/runs").text:
            time.sleep(0.02)
        found.append(time.monotonic() - began)
    print(f"a new record is on the page after: median {statistics.median(found):.2f} s, slowest {max(found):.2f} s")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-monitor-") as name:
        folder = Path(os.environ.get("FOLDER") or name)
        store, database = FileStore(folder / "store", sync=False), folder / "monitor.sqlite"
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        if not database.exists():
            fill(store)
            ingest(store, database)
        passes(store, database)
        monitor = Monitor(folder / "home", store.url, "--database", f"sqlite:///{database}")
        try:
            paints(monitor, pages(monitor))
            ways(monitor, store)
        finally:
            monitor.stop()
        print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
