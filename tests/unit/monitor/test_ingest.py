"""From stores into the database: the same in any order of arrival, by two at once, after a stop anywhere."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from launcher.errors import Unreachable
from launcher.monitor import database
from launcher.monitor.database import open_database
from launcher.monitor.episodes import sources
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.rows import rows_of
from launcher.protocol.read import read_run
from launcher.protocol.records import Beat, Deleted
from launcher.results.read import StoredOutput, open_output
from launcher.spec.hashing import run_id
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from launcher.store.manifest import StoredFile
from tests.support.fakerun import (
    START,
    FakeAttempt,
    episode_files,
    eval_files,
    fake_job,
    login_pipeline,
    write_attempt,
    write_group,
    write_run,
)
from tests.support.waiting import until
from tests.unit.monitor.contents import contents, dies_and_goes_on, ingested


def evaluation(store: Store, name: str = "eval", episodes: int = 3, **changes: Any) -> str:
    files, lines = eval_files([True]), []
    for index in range(episodes):
        files |= episode_files(f"e-{index}", index % 2 == 0, index)
        told = {"benchmark": "login", "version": "1", "agent": "tiny", "task_id": f"task-{index // 2}", "seed": index}
        told |= {"programs": ("calc", "writer")}
        failed: dict[str, Any] = {"kind": "loop", "rule": "The last answers repeat.", "why": "4 times"}
        lines.append(
            {
                **told,
                "score": float(index % 2 == 0),
                "success": index % 2 == 0,
                "outcome": "scored",
                "episode": f"episodes/e-{index}",
                "steps": 4,
                "failure": None if index % 2 == 0 else failed,
            }
        )
    other = [{**line, "agent": "random", "episode": None} for line in lines]
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    files["baselines/random/tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in other)
    job = fake_job(name, outputs={"results": Output()}, **changes)
    return write_run(store, job, [FakeAttempt(outputs={"results": files})])


def test_the_programs_of_a_database_of_before_are_read(engine: Engine, file_store: Store) -> None:
    evaluation(file_store)
    StoreFollower(engine, file_store).once()
    before = contents(engine)
    assert {row["programs"] for row in before["rollouts"]} == {"calc + writer"}
    database.downgrade(engine, "0008")
    database.upgrade(engine)
    StoreFollower(engine, file_store).once()
    assert contents(engine) == before


def test_what_the_rows_say(engine: Engine, file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=4)
    run = evaluation(file_store)
    found = ingested(engine, file_store)
    runs = {row["run"]: row for row in found["runs"]}
    assert set(runs) == {pipeline.data, pipeline.before, pipeline.sft, pipeline.after, run}
    sft = runs[pipeline.sft]
    assert (sft["name"], sft["state"], sft["attempts"], sft["group_name"]) == ("sft", "succeeded", 2, pipeline.group)
    attempts = [row for row in found["attempts"] if row["run_id"] == sft["id"]]
    assert [(row["number"], row["reason"]) for row in attempts] == [(1, "preempted"), (2, "succeeded")]
    assert attempts[0]["started"] == START + 15
    steps = [row["step"] for row in found["checkpoints"] if row["run_id"] == sft["id"]]
    assert steps == [50, 100, 200, 300]
    states = [(row["state"], row["attempt"]) for row in found["status_history"] if row["run_id"] == sft["id"]]
    assert states == [
        ("queued", None), ("starting", 1), ("ended", 1), ("starting", 2), ("ended", 2), ("succeeded", 2)
    ]  # fmt: skip
    mine = [row for row in found["rollouts"] if row["run_id"] == runs[run]["id"]]
    assert sorted((row["outcome"], row["failure"], row["turns"], bool(row["folder"])) for row in mine) == [
        ("failed", "loop", 4, False),
        ("failed", "loop", 4, True),
        ("solved", "", 4, False),
        ("solved", "", 4, False),
        ("solved", "", 4, True),
        ("solved", "", 4, True),
    ]
    groups = {row["id"]: row for row in found["groups"]}
    owners = {row["id"]: row["agent"] for row in (*found["evals"], *found["baselines"])}
    owned = {
        (owners[groups[row["group_id"]]["eval_id"] or groups[row["group_id"]]["baseline_id"]], bool(row["folder"]))
        for row in mine
    }
    assert owned == {("tiny", True), ("random", False)}
    kept = next(row for row in mine if row["folder"] == "episodes/e-0")
    screens = [row for row in found["observations"] if row["rollout_id"] == kept["id"]]
    assert [row["turn"] for row in screens] == [0, 1, 2, 3, 4]
    for row in screens:
        assert len(file_store.get(row["key"])) == row["bytes"]
    words = [row["words"] for row in found["actions"] if row["rollout_id"] == kept["id"]]
    assert words[1] == "type “alice”"
    assert [row["rule"] for row in found["validations"] if row["evidence"] == "4 times"] == [
        "The last answers repeat."
    ] * 2


def test_the_order_of_arrival_does_not_matter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The objects of four runs with a live evaluation arrive shuffled, data before its manifest as the protocol
    promises nothing of what a listing shows; after each few the follower looks."""
    folder = tmp_path_factory.mktemp("order")
    whole = FileStore(folder / "whole", sync=False)
    login_pipeline(whole, n=3)
    evaluation(whole)
    objects = {meta.key: whole.get(meta.key) for meta in whole.scan("")}
    records = [key for key in objects if "/outputs/results/" not in key]
    url = "file:///the-store"

    def store_of(name: str) -> Store:
        made = FileStore(folder / name, sync=False)
        made.url = url  # type: ignore[misc]
        return made

    made = store_of("straight")
    times = {}
    for key, body in objects.items():
        made.put(key, body)
        times[key] = 0
    straight = open_database(f"sqlite:///{folder / 'straight.sqlite'}")
    expected = without_times(ingested(straight, made))
    assert len(expected["rollouts"]) == 3 + 1 + 3 + 6 + 6

    count = 0

    @settings(max_examples=6, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False), st.integers(3, 12))
    def check(order: random.Random, every: int) -> None:
        nonlocal count
        count += 1
        store = store_of(f"shuffled-{count}")
        engine = open_database(f"sqlite:///{folder / f'shuffled-{count}.sqlite'}")
        follower = StoreFollower(engine, store)
        for key in objects.keys() - set(records):
            store.put(key, objects[key])
        shuffled = list(records)
        order.shuffle(shuffled)
        for index, key in enumerate(shuffled):
            store.put(key, objects[key])
            if index % every == 0:
                follower.once()
        follower.once(everything=True)
        assert without_times(contents(engine)) == expected
        engine.dispose()

    check()
    straight.dispose()


def without_times(found: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Without what comes from the times at which a test wrote the objects."""
    for row in found["runs"]:
        for name in ("created", "started", "seen", "held", "digest", "eta"):
            row[name] = None
    for table in ("members", "attempts"):
        for row in found[table]:
            row["seen"] = None
    for row in found["costs"]:
        row["started"] = None
    found["status_history"] = sorted(({**row, "at": None, "number": None} for row in found["status_history"]), key=str)
    return found


def test_deleted_and_made_again(engine: Engine, url: str, file_store: Store, tmp_path: Path) -> None:
    login_pipeline(file_store, n=4)
    evaluation(file_store)
    first = ingested(engine, file_store)
    other = open_database(f"sqlite:///{tmp_path / 'again.sqlite'}")
    assert ingested(other, file_store) == first
    other.dispose()


def test_a_second_look_writes_nothing(engine: Engine, file_store: Store) -> None:
    login_pipeline(file_store, n=4)
    follower = StoreFollower(engine, file_store)
    follower.once()
    assert follower.once(everything=True).written == 0
    writes: list[str] = []

    def seen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.split()[0] in ("INSERT", "UPDATE", "DELETE"):
            writes.append(statement)

    event.listen(engine, "before_cursor_execute", seen)
    fresh = StoreFollower(engine, file_store)  # a start anew adds its store, no more
    writes.clear()
    assert fresh.once(everything=True).written == 0
    assert writes == []


def test_a_run_that_goes_on(engine: Engine, file_store: Store) -> None:
    job = fake_job("train", outputs={"results": Output(sync="live")})
    run, told = run_id(job), []
    follower = StoreFollower(engine, file_store, told.append)
    write_run(file_store, job, [], outcome=None)
    follower.once()
    assert [row["state"] for row in contents(engine)["runs"]] == ["queued"]
    attempt = FakeAttempt(
        ended=None, beat=Beat(1, "running", step=10, total=100, first_step=0, running=20, usage={"gpu": 0.5})
    )
    write_attempt(file_store, job, run, 1, attempt)
    follower.once()
    row = contents(engine)["runs"][0]
    assert (row["state"], row["step"], row["total"], row["eta"]) == ("running", 10, 100, 180)
    assert contents(engine)["members"][0]["gpu"] == 0.5
    assert told == [run, run]
    follower.once()
    assert told == [run, run]
    file_store.put(RunKeys(run).attempt(1).beat("main-0"), msgspec.json.encode(Beat(2, "running", step=20, total=100)))
    follower.once()
    assert told == [run] * 3
    assert contents(engine)["runs"][0]["step"] == 20


def test_deleted_runs(engine: Engine, file_store: Store) -> None:
    first, second = evaluation(file_store, "one"), evaluation(file_store, "two")
    follower = StoreFollower(engine, file_store)
    follower.once()
    keys = RunKeys(first)
    file_store.create(keys.deleted, msgspec.json.encode(Deleted("me", START, "n", "rm")))
    file_store.delete([meta.key for meta in file_store.scan(keys.prefix) if meta.key not in keys.tombstone])
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(second).prefix)])
    follower.once(everything=True)
    found = contents(engine)
    assert [(row["run"], row["deleted"], row["state"]) for row in found["runs"]] == [(first, 1, "succeeded")]
    for table in ("rollouts", "turns", "tasks", "evals", "environments", "groups", "outputs", "eval_metrics"):
        assert found[table] == [], table


def test_a_store_that_is_away_deletes_nothing(engine: Engine, file_store: Store, monkeypatch: Any) -> None:
    login_pipeline(file_store, n=2)
    follower = StoreFollower(engine, file_store)
    follower.once()
    before = contents(engine)

    def away(prefix: str) -> list[str]:
        raise Unreachable("the store does not answer")

    monkeypatch.setattr(file_store, "folders", away)
    with pytest.raises(Unreachable):
        follower.once()
    assert contents(engine) == before


def test_damage_is_a_line_and_not_the_end(engine: Engine, file_store: Store) -> None:
    good, bad, torn = (evaluation(file_store, name) for name in ("good", "bad", "torn"))
    keys = RunKeys(bad).attempt(1)
    file_store.put(keys.output("results") + "tasks.jsonl", b"not what the manifest says")
    file_store.put(RunKeys(torn).attempt(1).output("results") + "episodes/e-0/steps.jsonl", b"{")
    odd = "odd-000000000000"
    file_store.create(RunKeys(odd).job, b"{]")
    found = StoreFollower(engine, file_store).once()
    assert sorted(line.partition(":")[0] for line in found.problems) == sorted([bad, odd])
    rows = contents(engine)
    runs = {row["id"]: row["run"] for row in rows["runs"]}
    assert sorted(runs.values()) == sorted([good, bad, torn])
    assert [runs[row["run_id"]] for row in rows["outputs"] if row["problem"]] == [bad]
    hurt = [row for row in rows["rollouts"] if "damaged" in row["error"]]
    assert [(runs[row["run_id"]], row["folder"]) for row in hurt] == [(torn, "episodes/e-0")]


def test_hostile_records_become_rows(engine: Engine, file_store: Store) -> None:
    """What no program of ours writes: NUL, lone surrogates, numbers of 30 digits, names that leave the folder."""
    big = 10**30
    task = {
        "benchmark": "a\0b",
        "task_id": "../..\u202e",
        "agent": "<script>",
        "seed": big,
        "score": 1e308,
        "success": True,
    }
    line = {"index": 0, "screenshot": "../../../job.json", "response": "x" * 3_000_000, "thought": "nul \0 here"}
    line["action"] = {"type": ["no", "type"], "x": "here", "y": big, "keys": [{}, 1], "text": {"a": "\0"}}
    files = {
        "tasks.jsonl": json.dumps({**task, "episode": "episodes/e"}).encode(),
        "episodes/e/episode.json": json.dumps({"instruction": "\0", "screen": [big % 2**70, 3]}).encode(),
        "episodes/e/steps.jsonl": json.dumps(line).encode(),
    }
    write_run(file_store, fake_job("odd", outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])
    found = ingested(engine, file_store)
    assert [row["task"] for row in found["tasks"]] == ["../..\u202e"]
    assert [row["seed"] for row in found["rollouts"]] == [str(big)]
    assert found["observations"] == []
    assert len(found["turns"][0]["answer"]) < 66_000
    assert found["turns"][0]["thought"] == "nul \ufffd here"


@pytest.mark.parametrize("when", [1, 3, 6, *[pytest.param(when, marks=pytest.mark.nightly) for when in (2, 4, 5, 7)]])
def test_a_stop_anywhere_and_a_new_start(engine: Engine, file_store: Store, when: int, tmp_path: Path) -> None:
    """The process dies at its n-th commit of seven: the next one goes on, and nothing is there twice."""
    login_pipeline(file_store, n=4)
    evaluation(file_store, episodes=40)

    dies_and_goes_on(engine, file_store, when, tmp_path)


def test_two_at_once_do_no_harm(engine: Engine, url: str, file_store: Store, tmp_path: Path) -> None:
    login_pipeline(file_store, n=6)
    for name in ("one", "two", "three"):
        evaluation(file_store, name, episodes=8)
    second = open_database(url)
    failed: list[BaseException] = []
    together = threading.Barrier(2)

    def run(mine: Engine) -> None:
        try:
            together.wait(60)
            StoreFollower(mine, file_store).once()
        except BaseException as error:  # told to the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(mine,)) for mine in (engine, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    other = open_database(f"sqlite:///{tmp_path / 'other.sqlite'}")
    assert ingested(engine, file_store) == ingested(other, file_store)
    second.dispose()
    other.dispose()


def test_several_stores_in_one_database(engine: Engine, tmp_path: Path) -> None:
    stores = [FileStore(tmp_path / name, sync=False) for name in ("a", "b")]
    runs = [evaluation(store) for store in stores]
    assert runs[0] == runs[1]  # the same job: the same id in both
    for store in stores:
        StoreFollower(engine, store).once()
    found = contents(engine)
    assert len({row["store_id"] for row in found["runs"]}) == len(found["runs"]) == 2
    assert len(found["rollouts"]) == 12


def test_it_is_followed(engine: Engine, file_store: Store) -> None:
    """A record is in the database soon after it is in the store, with nobody asking."""
    told: list[str] = []
    follower = StoreFollower(engine, file_store, told.append)
    thread = threading.Thread(target=follower.follow)
    thread.start()
    try:
        run = evaluation(file_store)
        until(lambda: run in told)
        until(lambda: len(contents(engine)["rollouts"]) == 6)
    finally:
        follower.stop()
        thread.join()


def test_a_group_that_comes_after_its_runs(engine: Engine, file_store: Store) -> None:
    run = evaluation(file_store)
    follower = StoreFollower(engine, file_store)
    follower.once()
    group = write_group(file_store, [run], {run: "eval[seed=1]"})
    follower.once()
    assert [(row["group_name"], row["name"]) for row in contents(engine)["runs"]] == [(group, "eval[seed=1]")]


def test_rows_do_not_depend_on_the_clock(file_store: Store) -> None:
    job = fake_job("train")
    run = write_run(file_store, job, [FakeAttempt(ended=None, beat=Beat(1, "running", step=1, total=9))], outcome=None)
    view = read_run(file_store, run)
    digests = {rows_of(1, msgspec.structs.replace(view, now=view.now + by)).digest for by in (0, 1e3, 1e6)}
    assert len(digests) == 1


def test_a_rollout_is_another_when_its_pictures_lie_elsewhere_or_come_later(file_store: Store) -> None:
    """While a run goes on its pictures lie elsewhere than at its end. A database that had read them there kept the old
    keys, and no picture was shown."""
    run = evaluation(file_store, episodes=2)
    output = open_output(file_store, run, 1)
    assert output is not None
    (path,) = [path for path in output.files if path.startswith("episodes/") and path.endswith("/000.png")][:1]
    folder = path.rpartition("/")[0]

    def digests(**files: StoredFile) -> dict[str, str]:
        changed = msgspec.structs.replace(output.manifest, files={**output.manifest.files, **files})
        other = StoredOutput(file_store, RunKeys(run).attempt(1), "results", changed)
        return {source.folder: source.digest for source in sources(1, other) if source.folder}

    before = digests()
    entry = output.manifest.files[path]
    moved = digests(**{path: msgspec.structs.replace(entry, at="/@3/000.png")})
    later = digests(**{f"{folder}/777.png": entry})
    for changed in (moved, later):
        assert {each for each in before if before[each] != changed[each]} == {folder}


@pytest.mark.two_bodies
def test_a_newer_launchers_end_is_shown_as_unknown(engine: Engine, file_store: Store) -> None:
    """One such record ended the pass over the whole store, and the page was never up to date again."""
    newer, other = evaluation(file_store, "newer"), evaluation(file_store, "other")
    record = json.loads(file_store.get(RunKeys(newer).result)) | {"outcome": "archived", "reason": "moved_away"}
    file_store.put(RunKeys(newer).result, json.dumps(record).encode())
    assert not StoreFollower(engine, file_store).once(everything=True).problems
    assert {row["run"]: (row["state"], row["reason"]) for row in contents(engine)["runs"]} == {
        newer: ("unknown", "unknown"),
        other: ("succeeded", "succeeded"),
    }


def test_a_list_that_cannot_be_true_deletes_nothing(
    engine: Engine, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation(file_store)
    StoreFollower(engine, file_store).once()

    def lies(store: Store) -> list[str]:
        raise Unreachable("its list lacks its own marker")

    monkeypatch.setattr("launcher.monitor.ingest.runs_of", lies)
    with pytest.raises(Unreachable):
        StoreFollower(engine, file_store).once()
    assert contents(engine)["runs"]
