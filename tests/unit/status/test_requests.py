"""How many requests the first reading of finished runs takes, and that it shows what a whole reading shows."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from launcher.protocol.facts import Verdict
from launcher.protocol.finish import put_result
from launcher.protocol.read import read_run
from launcher.protocol.records import Beat, Event
from launcher.reasons import Reason
from launcher.spec.hashing import work_hash
from launcher.spec.model import Output, ResolvedJob
from launcher.store.layout import RunKeys, work_run
from launcher.userdata.cache import Cache
from launcher.userdata.record_cache import Memory
from launcher.verbs.cost import costs
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


def test_it_costs_two_where_its_result_says_what_is_shown(
    store: MemoryStore, asked: Counter[str], tmp_path: Path
) -> None:
    runs = []
    for index in range(RUNS):
        job = fake_job("over", config={"index": index}, outputs={"checkpoints": Output(kind="checkpoints")})
        last = Beat(seq=3, phase="running", step=100, total=100, checkpoint=90)
        runs.append(write_run(store, job, [FakeAttempt(beat=last, checkpoints=[10, 90])], outcome=None))
        told(store, runs[-1], job, last)
    asked.clear()
    with Cache(tmp_path / "cache") as cache:
        lines, problems = read_lines(store, runs, cache=cache, backend_of=lambda job: None)
    assert problems == []
    assert {(line.state, line.progress, line.checkpoint, line.attempts) for line in lines} == {
        ("succeeded", 1.0, 90, 1)
    }
    assert asked == {"read": 2 * RUNS, "scan": 1}


@pytest.mark.parametrize("healthy", [True, False])
def test_a_run_that_a_provider_bills_costs_a_listing_and_its_machines_events_more(
    store: MemoryStore, asked: Counter[str], tmp_path: Path, healthy: bool
) -> None:
    """It was ten: all of the run was read again. Where nobody recorded since when a machine was billed, it is so
    still."""
    ending = {"state": "ending", "instance": "i-1", "type": "gpu_1x_a10", "region": "r", "cents_per_hour": "360"}
    ending |= {"at": f"{START + 3600:.0f}"} | ({"first_healthy": f"{START:.0f}"} if healthy else {})
    runs = []
    for index in range(RUNS):
        job = fake_job("over", config={"index": index}, backend="lambda")
        runs.append(write_run(store, job, [FakeAttempt()]))
        launched = Event(0, "lambda-main-0", 0, "handle", "", {"instance": "i-1"}, START)
        for event in (launched, Event(0, "lambda-main-0", 1, "handle", "", ending, START)):
            store.create(RunKeys(runs[-1]).event(0, event.writer, event.seq), msgspec.json.encode(event))
    with Cache(tmp_path / "cache") as cache:
        lines, _ = read_lines(store, runs, cache=cache)
        asked.clear()
        found = costs(store, lines, {}, memory := Memory(store, cache))
        assert {str(each.bill.cost) for each in found} == {"3.600000"}
        assert (asked["scan"], asked["read"]) == ((RUNS, 2 * RUNS) if healthy else (2 * RUNS, 10 * RUNS))
        assert bool(asked["level"]) != healthy
        asked.clear()
        costs(store, lines, {}, memory)
        assert not asked


def told(store: MemoryStore, run: str, job: ResolvedJob, last: Beat | None) -> None:
    """Ends a run as its leader would, which knows its last heartbeat."""
    view = read_run(store, run)
    verdict = Verdict("succeeded", len(view.attempts), Reason.SUCCEEDED)
    put_result(store, view, job, verdict, writer="main-0", data={}, last=last)


@pytest.mark.parametrize("seed", range(20))
def test_a_result_says_what_the_attempts_say(store: MemoryStore, seed: int) -> None:
    rng = random.Random(seed)
    outputs = {"checkpoints": Output(kind="checkpoints")} if rng.random() < 0.5 else {}
    job = fake_job("over", config={"seed": seed}, outputs=outputs, replicas=rng.choice([1, 2]))
    last = Beat(seq=3, phase="running", step=rng.choice([50, 100]), total=100, message="going on")
    attempts = [
        FakeAttempt(
            reason=rng.choice([Reason.PREEMPTED, Reason.LOST]),
            beat=last,
            checkpoints=sorted(rng.sample(range(9), 2)) if outputs else [],
        )
        for _ in range(rng.choice([0, 1, 1, 3]))
    ]
    run = write_run(store, job, attempts, outcome=None)
    told(store, run, job, last if attempts else None)
    few = read_line(store, run, memory=Memory(store))[1]
    whole = read_line(store, run)[1]
    # the last attempt's start is as its leader knows it, which may have read its claim late
    assert few.held[:-1] == whole.held[:-1]
    assert [each.seconds for each in few.held] == [each.seconds for each in whole.held]
    assert structs.replace(few, held=()) == structs.replace(whole, held=())


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
