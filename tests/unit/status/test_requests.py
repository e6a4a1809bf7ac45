"""How many requests the first reading of finished runs takes, and that it shows what a whole reading shows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from launcher.protocol.records import Beat
from launcher.reasons import Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import Output
from launcher.store.layout import work_run
from launcher.userdata.cache import Cache
from launcher.userdata.memory import Memory
from launcher.verbs.status import read_line, read_lines
from tests.support.fakerun import START, FakeAttempt, fake_job, write_run
from tests.support.memory_store import MemoryStore

RUNS = 100


@pytest.fixture
def asked() -> Counter[str]:
    return Counter()


@pytest.fixture
def store(asked: Counter[str]) -> MemoryStore:
    return MemoryStore("s3://bucket/x", lambda: START + 1e6, asked=lambda method: asked.update([method]))


def finished(store: MemoryStore, *, recorded: bool = True) -> list[str]:
    beat = Beat(seq=3, phase="running", step=100, total=100, running=30.0)
    runs = []
    for index in range(RUNS):
        job = fake_job("over", config={"index": index}, outputs={"model": Output(), "results": Output()})
        runs.append(write_run(store, job, [FakeAttempt(beat=beat)]))
        if recorded:
            store.create(work_run(work_hash(job), runs[-1]), b"{}")
    return runs


def test_a_finished_run_costs_six_requests_and_its_work_none(
    store: MemoryStore, asked: Counter[str], tmp_path: Path
) -> None:
    """It was eleven: two listings found out that it has ended, and the cancel, the events, each output and its work
    were asked for."""
    runs = finished(store)
    asked.clear()
    with Cache(tmp_path / "cache") as cache:
        lines, problems = read_lines(store, runs, cache=cache, backend_of=lambda job: None)
    assert problems == []
    assert {(line.state, line.progress) for line in lines} == {("succeeded", 1.0)}
    # result, job, claim, exit, heartbeat; the attempts; and once for all of them, the listing of works/
    assert asked == {"read": 5 * RUNS, "level": RUNS, "scan": 1}


def test_a_work_that_the_listing_lacks_is_looked_at_and_written(
    store: MemoryStore, asked: Counter[str], tmp_path: Path
) -> None:
    finished(store, recorded=False)
    runs = finished(store)
    missing = next(key for key in sorted(store.objects) if key.startswith("works/"))
    body = store.objects.pop(missing)
    asked.clear()
    with Cache(tmp_path / "cache") as cache:
        read_lines(store, runs, cache=cache, backend_of=lambda job: None)
    assert asked["create"] == 1
    assert missing in store.objects
    assert store.objects[missing] != body  # the result itself, as every writer writes it
    assert asked["scan"] <= 2  # of works/; and the events of the run whose record was missing


@pytest.mark.parametrize("seed", range(40))
def test_it_shows_what_a_whole_reading_shows(store: MemoryStore, seed: int) -> None:
    rng = random.Random(seed)
    saves = rng.random() < 0.5
    outputs = {"model": Output(), **({"checkpoints": Output(kind="checkpoints")} if saves else {})}
    job = fake_job("over", config={"seed": seed}, outputs=outputs, replicas=rng.choice([1, 1, 2, 5]))
    attempts = [
        FakeAttempt(
            reason=rng.choice([Reason.PREEMPTED, Reason.LOST, Reason.USER_ERROR, Reason.SUCCEEDED]),
            ended=rng.choice([None, START + 60]),
            beat=Beat(
                seq=number, phase="running", step=50, total=rng.choice([50, 100]), checkpoint=number, running=9.0
            ),
            checkpoints=sorted(rng.sample(range(9), rng.choice([0, 1, 3]))) if saves else [],
        )
        for number in range(rng.choice([0, 1, 1, 2, 4]))
    ]
    run = write_run(
        store, job, attempts, outcome=rng.choice(["succeeded", "failed", "cancelled"]), cancelled=rng.random() < 0.2
    )
    assert read_line(store, run, memory=Memory(store))[1] == read_line(store, run)[1]
