"""The monitor over many runs: the rate of the first ingest, the time of a pass in which nothing is new, how soon a new
record is on the page, and how long the pages take. RUNS and TURNS say how many; pictures are named and not there,
because no ingest reads one.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path

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


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-monitor-") as name:
        folder = Path(name)
        store = FileStore(folder / "store", sync=False)
        evaluations = TURNS // (STEPS * EPISODES)
        for number in range(RUNS - evaluations):
            write_run(store, fake_job("train", fresh=number))
        for number in range(evaluations):
            evaluation(store, number)
        database = folder / "monitor.sqlite"
        engine = open_database(f"sqlite:///{database}")
        began, used = time.monotonic(), time.process_time()
        StoreFollower(engine, store).once()
        took, busy = time.monotonic() - began, time.process_time() - used
        with engine.connect() as connection:
            runs = connection.execute(select(func.count()).select_from(t.runs)).scalar()
            turns = connection.execute(select(func.count()).select_from(t.turns)).scalar() or 0
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        print(f"first ingest: {runs:,} runs, {turns:,} turns in {took:.0f} s ({busy:.0f} s of CPU)")
        print(f"that is {turns / took:,.0f} turns/s, {turns / busy:,.0f} turns per second of CPU")
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"database: {database.stat().st_size / 1e6:.0f} MB; memory {memory / 1e3:.0f} MB")
        follower = StoreFollower(engine, store)
        passes = []
        for _ in range(5):
            began = time.monotonic()
            follower.once()
            passes.append(time.monotonic() - began)
        print(
            f"a pass with nothing new: {statistics.median(passes[1:]):.2f} s (the first of a process {passes[0]:.2f} s)"
        )
        engine.dispose()
        monitor = Monitor(folder / "home", store.url, "--database", f"sqlite:///{database}")
        try:
            page = monitor.ask("/evaluations").text.partition('href="/evaluations/')[2].partition('"')[0]
            for path in ("/", "/evaluations", f"/evaluations/{page}", "/search?q=form+77"):
                times = []
                for _ in range(ASKED):
                    began = time.monotonic()
                    assert monitor.ask(path).status == 200
                    times.append(time.monotonic() - began)
                print(
                    f"{path.replace(page, 'RUN')}: median {statistics.median(times):.3f} s, slowest {max(times):.3f} s"
                )
            ways = []
            for number in range(ADDED):
                run = write_run(store, fake_job(f"added-{number}"), [], outcome=None)
                began = time.monotonic()
                while run not in monitor.ask("/now/runs").text:
                    time.sleep(0.02)
                ways.append(time.monotonic() - began)
            print(
                f"a new record is on the page after: median {statistics.median(ways):.2f} s, slowest {max(ways):.2f} s"
            )
        finally:
            monitor.stop()


if __name__ == "__main__":
    main()
