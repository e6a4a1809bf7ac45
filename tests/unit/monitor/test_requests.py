"""How many requests the monitor's first reading of a run takes over a network, and that it is what a whole one says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest
from sqlalchemy import Engine, delete, select

from launcher.monitor import tables
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.rows import rows_of
from launcher.notices.events import FAILED
from launcher.notices.ledger import NoticeBegun
from launcher.protocol.facts import Verdict
from launcher.protocol.finish import put_result
from launcher.protocol.read import NEIGHBOURS, PAGE, RunListings, read_listed, read_run
from launcher.protocol.records import Beat, Event, StoredFolder
from launcher.reasons import Reason
from launcher.spec.model import Output, ResolvedJob
from launcher.store.base import Store
from launcher.store.layout import NoticeKeys, RunKeys
from launcher.store.manifest import read_manifest
from tests.support.fakerun import START, FakeAttempt, eval_files, fake_job, login_pipeline, write_run
from tests.support.memory_store import MemoryStore

RUNS = 40
OUTPUT_ROWS = select(
    tables.outputs.c.run_id,
    tables.outputs.c.name,
    tables.outputs.c.attempt,
    tables.outputs.c.final,
    tables.outputs.c.files,
    tables.outputs.c.bytes,
    tables.outputs.c.problem,
    tables.outputs.c.digest == tables.outputs.c.ingested,
).where(tables.outputs.c.name == "model")
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
    verdict, view = Verdict("succeeded", len(attempts), Reason.SUCCEEDED), read_run(store, run)
    folders = {}
    for name in view.attempts[-1].outputs:
        manifest = read_manifest(store, RunKeys(run).attempt(len(attempts)).output_manifest(name))
        assert manifest is not None
        folders[name] = StoredFolder(len(manifest.files), manifest.size, manifest.digest)
    put_result(
        store, view, job, verdict, writer="main-0", data={}, last=attempts[-1].beat,
        claim=view.attempts[-1].claims["main-0"], folders=folders,
    )  # fmt: skip
    return run


def test_a_training_takes_two_requests_and_an_evaluation_three_more(
    far: Store, engine: Engine, asked: Counter[str]
) -> None:
    """It was thirteen: two listings, each record and the last heartbeat, each output twice, and what people were told
    of the run; then six, when each run had a listing of its own and its result did not repeat claim, exit and sizes."""
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
    few = 5  # listings of the store itself: groups, runs, verdicts
    assert asked["scan"] + asked["level"] <= -(-2 * RUNS // NEIGHBOURS) + few
    assert asked["head"] == 0
    # job and result; of an evaluation manifest, summary and tasks
    assert asked["read"] == 2 * RUNS * 2 + RUNS * 3
    with engine.connect() as connection:
        (output,) = {tuple(row)[1:] for row in connection.execute(OUTPUT_ROWS)}
    assert output == ("model", 1, 1, 1, 1, "", 1)


def test_an_output_has_the_same_row_whether_the_result_tells_of_it_or_its_manifest(far: Store, engine: Engine) -> None:
    job, attempt = fake_job("t", outputs={"model": Output()}), FakeAttempt(beat=BEAT, outputs={"model": {"w": b"w"}})
    run = ended(far, job, [attempt])
    StoreFollower(engine, far).once()
    with engine.connect() as connection:
        told = list(connection.execute(select(tables.outputs)))
    objects = cast(MemoryStore, far).objects
    result = msgspec.json.decode(objects[RunKeys(run).result][0])
    assert result["shown"].pop("folders")
    objects[RunKeys(run).result] = msgspec.json.encode(result), objects[RunKeys(run).result][1]
    with engine.begin() as connection:
        connection.execute(delete(tables.outputs))
    StoreFollower(engine, far).once()
    with engine.connect() as connection:
        assert list(connection.execute(select(tables.outputs))) == told


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


def test_the_claim_and_the_exit_that_a_result_repeats_are_those_of_the_attempt(far: Store, asked: Counter[str]) -> None:
    run = ended(far, fake_job("one", outputs={"model": Output()}), [FakeAttempt(beat=BEAT, image="sha256:1")])
    whole = read_run(far, run)
    asked.clear()
    listed = read_listed(far, run)
    assert listed is not None
    assert asked == {"scan": 1, "read": 2}
    (repeated,), (stored,) = listed.view.attempts, whole.attempts
    assert (repeated.claims, repeated.claimed, repeated.exits) == (stored.claims, stored.claimed, stored.exits)
    assert rows_of(1, listed.view) == rows_of(1, whole)


@pytest.mark.parametrize("url", ["s3://bucket/x", "az://bucket/x"])
def test_neighbours_are_listed_together_and_each_has_what_it_has(url: str, asked: Counter[str]) -> None:
    """Among them a run that is not asked for, one whose name begins with another's, and one that is too large."""
    memory = MemoryStore(url, lambda: START, asked=lambda method: asked.update([method]))
    store, names = cast(Store, memory), ["a", "a-b", "a0", "b", "c", "d"]
    for name in names:
        for at in range(PAGE if name == "b" else 3):
            store.put(f"{RunKeys(name).prefix}{at:04d}", b"")
    store.put("runs/!before", b"")
    asked.clear()
    wanted = ["a", "a-b", "a0", "b", "c", "gone"]
    listings = RunListings(store, wanted, [*names, "gone"])
    taken = {name: listings.take(name) for name in wanted}
    assert taken["b"] is taken["gone"] is None
    for name in ("a", "a-b", "a0", "c"):
        assert sorted(taken[name] or ()) == [f"{RunKeys(name).prefix}{at:04d}" for at in range(3)]
    # `d` parts `gone` from the others; of these the listing begins anew behind the large one
    assert asked["scan"] == (3 if url.startswith("s3:") else len(wanted))


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
