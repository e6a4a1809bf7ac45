"""How many requests the monitor's first reading of a run takes over a network, and that it is what a whole one says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from sqlalchemy import Engine, select

from launcher.monitor import tables
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.rows import rows_of
from launcher.notices.events import FAILED
from launcher.notices.ledger import NoticeBegun
from launcher.protocol.finish import put_result
from launcher.protocol.read import PAGE, read_listed, read_run
from launcher.protocol.records import Beat, Event
from launcher.protocol.verdict import Verdict
from launcher.reasons import Reason
from launcher.spec.model import Output, ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import NoticeKeys, RunKeys
from tests.support.fakerun import START, FakeAttempt, eval_files, fake_job, login_pipeline, write_run
from tests.support.memory_store import MemoryStore

RUNS = 40
BEAT = Beat(seq=3, phase="running", step=80, total=100, message="said last", running=30.0, usage={"cpus": 1.5})


@pytest.fixture
def asked() -> Counter[str]:
    return Counter()


@pytest.fixture
def far(asked: Counter[str]) -> Store:
    store = MemoryStore("s3://bucket/x", lambda: START + 1e6, asked=lambda method: asked.update([method]))
    return cast(Store, store)


def ended(store: Store, job: ResolvedJob, attempts: Sequence[FakeAttempt]) -> str:
    """A run whose leader wrote its result, as runtimes do."""
    run = write_run(store, job, attempts, outcome=None)
    verdict = Verdict("succeeded", len(attempts), Reason.SUCCEEDED)
    put_result(store, read_run(store, run), job, verdict, writer="main-0", data={}, last=attempts[-1].beat)
    return run


def test_a_training_takes_six_requests_and_an_evaluation_two_more(
    far: Store, engine: Engine, asked: Counter[str]
) -> None:
    """It was thirteen: two listings, each record and the last heartbeat, each output twice, and what people were told
    of the run."""
    for index in range(RUNS):
        model, results = {"model": {"w": b"w"}}, {"results": eval_files([True, False])}
        ended(
            far,
            fake_job("t", config={"n": index}, outputs={"model": Output()}),
            [FakeAttempt(beat=BEAT, outputs=model)],
        )
        ended(
            far,
            fake_job("e", config={"n": index}, outputs={"results": Output()}),
            [FakeAttempt(beat=BEAT, outputs=results)],
        )
    asked.clear()
    found = StoreFollower(engine, far).once()
    assert (found.written, found.problems) == (2 * RUNS, ())
    # a listing; job, result, claim, exit, manifest; of an evaluation summary and tasks
    few = 5  # listings of the store itself: groups, runs, verdicts
    assert asked["scan"] + asked["level"] <= 2 * RUNS + few
    assert asked["head"] == 0
    assert asked["read"] == 2 * RUNS * 5 + RUNS * 2


def several() -> list[tuple[ResolvedJob, list[FakeAttempt], str | None]]:
    """Jobs with their attempts and outcomes: ranks, checkpoints, lost attempts, live runs."""
    saves = {"model": Output(), "checkpoints": Output(kind="checkpoints")}
    lost = FakeAttempt(reason=Reason.PREEMPTED, checkpoints=[10, 20], beat=BEAT)
    killed = FakeAttempt(ended=None, beat=BEAT, checkpoints=[30])
    good = FakeAttempt(beat=BEAT, checkpoints=[40], outputs={"model": {"w": b"w"}})
    return [
        (fake_job("one", outputs=saves), [lost, killed, good], "succeeded"),
        (fake_job("ranks", outputs=saves, replicas=3), [killed, good], "succeeded"),
        (fake_job("live", outputs=saves, replicas=2), [lost, killed], None),
        (fake_job("waits"), [], None),
        (fake_job("failed"), [FakeAttempt(reason=Reason.USER_ERROR, code=1)], "failed"),
        (fake_job("cancelled"), [], "cancelled"),
    ]


def test_one_listing_says_what_all_records_say(far: Store) -> None:
    runs = [
        write_run(far, job, attempts, outcome=outcome, cancelled=outcome == "cancelled")
        for job, attempts, outcome in several()
    ]
    event = Event(attempt=1, writer="main-0", seq=1, kind="warning", message="hot", time=START)
    far.create(RunKeys(runs[0]).event(1, "main-0", 1), msgspec.json.encode(event))
    pipeline = login_pipeline(far)
    for run in (*runs, pipeline.sft, pipeline.after):
        listed = read_listed(far, run)
        assert listed is not None
        assert listed.view == read_run(far, run), run


def test_what_the_result_says_stands_for_the_last_heartbeat(far: Store) -> None:
    job = fake_job("one", outputs={"model": Output()}, replicas=2)
    run = ended(far, job, [FakeAttempt(reason=Reason.PREEMPTED, beat=BEAT), FakeAttempt(beat=BEAT)])
    listed = read_listed(far, run)
    assert listed is not None
    assert rows_of(1, listed.view) == rows_of(1, read_run(far, run))


def test_a_run_of_more_objects_than_one_answer_names_is_read_record_by_record(
    far: Store, engine: Engine, asked: Counter[str]
) -> None:
    files = {f"{index:04d}": b"x" for index in range(PAGE)}
    run = write_run(
        far, fake_job("large", outputs={"model": Output()}), [FakeAttempt(outputs={"model": files})], outcome=None
    )
    assert read_listed(far, run) is None
    follower = StoreFollower(engine, far)
    assert follower.once().written == 1
    asked.clear()
    follower.once()  # it goes on, so it is read again, and not listed whole any more
    assert (asked["scan"], asked["level"]) == (3, 2)  # groups, verdicts, its events; all runs, its attempts
    assert asked["head"] == 1


def test_what_people_were_told_of_a_run_is_read(far: Store, engine: Engine) -> None:
    runs = [write_run(far, fake_job("told", config={"n": n})) for n in range(2)]
    begun = NoticeBegun(by="someone", time=START, nonce="n", way="mail", text="it failed")
    far.create(NoticeKeys(runs[1], FAILED, "team", 1).begun, msgspec.json.encode(begun))
    StoreFollower(engine, far).once()
    with engine.connect() as connection:
        (row,) = connection.execute(select(tables.notices)).mappings()
    told: dict[str, Any] = dict(row)
    assert (told["channel"], told["text"]) == ("team", "it failed")


def test_a_manifest_that_cannot_be_read_is_a_line_and_stops_nothing(far: Store, engine: Engine) -> None:
    files = {"model": {"w": b"w"}}
    runs = [
        write_run(far, fake_job("one", config={"n": n}, outputs={"model": Output()}), [FakeAttempt(outputs=files)])
        for n in range(3)
    ]
    far.put(RunKeys(runs[1]).attempt(1).output_manifest("model"), b"{")
    found = StoreFollower(engine, far).once()
    assert found.written == 3
    (problem,) = found.problems
    assert problem.startswith(f"{runs[1]}: ")
    assert "not a manifest" in problem
    with engine.connect() as connection:
        held = {row.run_id for row in connection.execute(select(tables.outputs.c.run_id))}
        shown = {row.run: row.id for row in connection.execute(select(tables.runs.c.run, tables.runs.c.id))}
    assert held == {shown[run] for run in (runs[0], runs[2])}
