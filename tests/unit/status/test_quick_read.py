"""A glance shows what a whole reading shows, whatever state the run is in."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from launcher.protocol.records import Beat, Broken, Cancel
from launcher.reasons import Reason
from launcher.spec.model import Output, ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.userdata.record_cache import Memory
from launcher.verbs.status import Line, read_line
from tests.support.fakerun import START, FakeAttempt, fake_job, write_attempt, write_run

REASONS = [Reason.PREEMPTED, Reason.LOST, Reason.USER_ERROR, Reason.INFRASTRUCTURE, Reason.SUCCEEDED]


def drawn(store: Store, seed: int) -> tuple[str, ResolvedJob]:
    """A run in a random state, most of them open."""
    rng = random.Random(seed)
    job = fake_job(
        "some",
        config={"seed": seed},
        replicas=rng.choice([1, 1, 2, 5]),
        outputs={"checkpoints": Output(kind="checkpoints"), "model": Output()},
    )
    attempts = []
    for number in range(rng.choice([0, 1, 1, 2, 4])):
        ended = START + 60 if rng.random() < 0.7 else None
        saved = sorted(rng.sample(range(10 * number, 10 * number + 9), rng.choice([0, 1, 3])))
        attempts.append(FakeAttempt(reason=rng.choice(REASONS), ended=ended, checkpoints=saved, beat=beat(rng, saved)))
    if attempts and rng.random() < 0.8:
        attempts[-1].ended = None
    run = write_run(store, job, attempts, outcome="failed" if rng.random() < 0.1 else None)
    keys = RunKeys(run)
    if rng.random() < 0.1:
        store.create(keys.cancel, msgspec.json.encode(Cancel(by="me", time=1.0, nonce="c")))
    if attempts and rng.random() < 0.1:
        store.create(keys.attempt(len(attempts)).broken, msgspec.json.encode(Broken("main-0", "main-0", "x", "n")))
    if attempts and rng.random() < 0.2:  # its ranks have been silent for an hour
        for meta in store.scan(keys.attempt(len(attempts)).prefix):
            then = time.time() - 3600
            os.utime(Path(urlsplit(store.url).path) / meta.key, (then, then))
    return run, job


def beat(rng: random.Random, saved: list[int]) -> Beat:
    return Beat(
        seq=rng.randrange(9),
        phase=rng.choice(["waiting", "fetching", "running", "running", "saving"]),
        step=rng.choice([None, 50.0]),
        total=rng.choice([None, 100.0]),
        checkpoint=max(saved, default=None),
        running=rng.random() * 100,
        message=rng.choice(["", "loss 0.3"]),
        first_step=0.0,
    )


def same(one: Line, other: Line) -> bool:
    return msgspec.structs.asdict(one) == msgspec.structs.asdict(other)


@pytest.mark.parametrize("seed", range(60))
def test_a_glance_shows_what_a_reading_shows(file_store: Store, tmp_path: Path, seed: int) -> None:
    run, job = drawn(file_store, seed)
    with Cache(tmp_path / "cache.sqlite") as cache:
        for _ in range(3):  # nothing known, then what this process knows, then what the cache kept
            memory = Memory(file_store, cache).load("runs/")
            for _ in range(2):
                whole = read_line(file_store, run)[1]
                glanced = read_line(file_store, run, None, memory)[1]
                assert same(whole, glanced), (whole, glanced)
            memory.keep()
        highest = len(file_store.folders(RunKeys(run).attempts))
        write_attempt(file_store, job, run, highest + 1, FakeAttempt(ended=None, beat=beat(random.Random(seed), [])))
        memory = Memory(file_store, cache).load("runs/")
        assert same(read_line(file_store, run)[1], read_line(file_store, run, None, memory)[1])


def test_a_run_of_a_store_filled_anew_is_read_anew(file_store: Store, tmp_path: Path) -> None:
    """`rm -rf .slipway` and the same submit again: the same run, other attempts."""
    job = fake_job("again")
    ended = FakeAttempt(reason=Reason.PREEMPTED)
    run = write_run(file_store, job, [ended, FakeAttempt(ended=None, beat=Beat(1, "running"))], outcome=None)
    with Cache(tmp_path / "cache.sqlite") as cache:
        memory = Memory(file_store, cache).load("runs/")
        assert read_line(file_store, run, None, memory)[1].running == 60.0
        memory.keep()
        file_store.delete([meta.key for meta in file_store.scan("")])
        ended = FakeAttempt(reason=Reason.PREEMPTED, ended=START + 5)
        write_run(file_store, job, [ended, FakeAttempt(ended=None, beat=Beat(1, "running"))], outcome=None)
        memory = Memory(file_store, cache).load("runs/")
        assert read_line(file_store, run, None, memory)[1].running == 5.0


def test_a_damaged_row_is_read_again(file_store: Store, tmp_path: Path) -> None:
    run = write_run(file_store, fake_job("a"), [FakeAttempt(ended=None, beat=Beat(1, "running"))], outcome=None)
    with Cache(tmp_path / "cache.sqlite") as cache:
        cache.put_records(file_store.url, [(RunKeys(run).job, b"\xc1")])
        memory = Memory(file_store, cache).load("runs/")
        assert read_line(file_store, run, None, memory)[1].state == "running"
        memory.keep()
        assert len(cache.records(file_store.url, "runs/")) == 2
