"""The records of a training in the database: what they say, in any order of arrival, after a crash, thrown away."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event, insert, select
from sqlalchemy.exc import IntegrityError

from launcher.monitor import database, tables
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.protocol.records import Beat
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.support.fakerun import START, FakeAttempt, fake_job, write_output, write_run
from tests.support.faketraining import group_lines, piece, step_line, training_files, training_pieces, write_live
from tests.unit.monitor.contents import contents, dies_and_goes_on, ingested
from tests.unit.monitor.test_ingest import evaluation, without_times

OUTPUTS = {"results": Output(sync="live")}


def training(store: Store, name: str = "rl", files: dict[str, bytes] | None = None, **changes: Any) -> str:
    job = fake_job(name, outputs=OUTPUTS, **changes)
    return write_run(store, job, [FakeAttempt(outputs={"results": files or training_files()})])


def of_phase(found: dict[str, list[dict[str, Any]]], phase: str, step: int) -> list[dict[str, Any]]:
    rows = [row for row in found["rollouts"] if row["place"].startswith(f"{phase}/{step}/")]
    return sorted(rows, key=lambda row: str(row["place"]))


def test_what_the_rows_say(engine: Engine, file_store: Store) -> None:
    training(file_store)
    found = ingested(engine, file_store)
    (told,) = found["trainings"]
    assert (told["method"], told["name"], told["model"], told["began"]) == ("grpo", "rl-login", "tiny", START)
    assert json.loads(told["config"]) == {"group_size": 3, "environment": "login"}
    assert [(row["status"], row["step"], row["progress"]) for row in found["training_statuses"]] == [
        ("started", 0, 0.0), ("resumed", 1, 0.25), ("done", 2, 0.5)
    ]  # fmt: skip
    steps = {row["number"]: (row["at"], json.loads(row["figures"])) for row in found["steps"]}
    assert steps == {
        1: (START + 10, {"loss": 0.5, "reward": 1 / 3}),
        2: (START + 20, {"loss": 0.25, "train_runtime": 7.0}),
    }
    (evaluated,), (baseline,) = found["evals"], found["baselines"]
    assert (evaluated["agent"], evaluated["step"], evaluated["figures"]) == (
        "policy after step 2", 2, '{"success":1.0}'
    )  # fmt: skip
    assert (baseline["agent"], baseline["step"]) == ("baseline at step 0", 0)
    groups = sorted(
        (row["number"], row["seed"], row["dropped"]) for row in found["groups"] if row["step_id"] is not None
    )
    assert groups == [(0, "10", ""), (0, "12", ""), (1, "11", "all rollouts have the same return")]
    places = [(row["place"], row["outcome"], row["total"]) for row in of_phase(found, "train", 1)]
    assert places == [
        ("train/1/0/0", "solved", 0.96),
        ("train/1/0/1", "failed", -0.04),
        ("train/1/0/2", "infra", None),
        ("train/1/1/0", "failed", -0.04),
        ("train/1/1/1", "failed", -0.04),
    ]
    assert [row["outcome"] for row in of_phase(found, "train", 2)] == ["solved", "failed", "solved"]
    first, lost = of_phase(found, "train", 1)[0], of_phase(found, "train", 1)[2]
    assert (lost["error"], lost["success"], lost["score"]) == ("DesktopGone: the cable", None, None)
    assert (first["instruction"], first["seconds"], first["version"], first["width"]) == (
        "Log in as user 0.", 1.5, 0, 320
    )  # fmt: skip
    assert json.loads(first["parts"]) == {"score": 1.0, "turns": -0.04}
    turns = [row for row in found["turns"] if row["rollout_id"] == first["id"]]
    assert [(row["advantage"], row["entropy"], row["masked"][:9]) for row in turns] == [
        (0.5, 0.25, ""), (None, 0.5, "not among")
    ]  # fmt: skip
    told = [["CLICK", -0.01, 0.05], ["(x=0.5, y=0.5)", -1.5, 0.7], ["<end>", -6.0, 3.0]]
    assert json.loads(turns[0]["tokens"]) == told
    assert [entropy for _, _, entropy in json.loads(turns[1]["tokens"])] == [None, None, None]
    (judged,) = [row for row in found["validations"] if row["rollout_id"] == first["id"]]
    assert (judged["success"], judged["evidence"]) == (1, '{"screen":"welcome"}')
    screens = [row for row in found["observations"] if row["rollout_id"] == first["id"]]
    assert [row["turn"] for row in screens] == [0, 1]
    assert all(len(file_store.get(row["key"])) == row["bytes"] for row in screens)
    refused = {row["refused"] for row in found["actions"]}
    assert refused == {"", "outside of the window"}


def test_a_group_belongs_to_exactly_one(engine: Engine, file_store: Store) -> None:
    """Of training step, evaluation and baseline; each pair of them, and none of them, is refused by the database."""
    training(file_store)
    found = ingested(engine, file_store)
    ids = {"step_id": found["steps"][0]["id"], "eval_id": found["evals"][0]["id"]}
    ids["baseline_id"] = found["baselines"][0]["id"]
    owned = [sum(row[column] is not None for column in ids) for row in found["groups"]]
    assert owned == [1] * 5
    empty: dict[str, Any] = {**found["groups"][0], "id": 1, **dict.fromkeys(ids)}
    pairs = [{a: ids[a], b: ids[b]} for a, b in (("step_id", "eval_id"), ("step_id", "baseline_id"))]
    for wrong in ({}, *pairs, {name: ids[name] for name in ("eval_id", "baseline_id")}, ids):
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(insert(tables.groups), {**empty, **wrong})


def versions() -> list[dict[str, bytes]]:
    """The results as they grew: piece by piece, each first in half."""
    files = training_files()
    pieces = training_pieces()
    found = []
    for number, body in enumerate(pieces, 1):
        closed = {f"records/{at:06d}.jsonl": pieces[at - 1] for at in range(1, number)}
        half = {**closed, f"records/{number:06d}.jsonl": body[: len(body) // 2]}
        whole = {**closed, f"records/{number:06d}.jsonl": body}
        found += [half, whole] if number > 1 else [whole]
    pictures = {path: body for path, body in files.items() if path.startswith("rollouts/")}
    return [version | pictures for version in found]


def test_the_order_of_arrival_does_not_matter(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The records of a run, and the manifests of all versions of its live results, arrive shuffled; after each few the
    follower looks. An evaluation comes between."""
    folder = tmp_path_factory.mktemp("order")
    whole = FileStore(folder / "whole", sync=False)
    run = training(whole)
    evaluation(whole)
    kept: dict[str, Any] = {}
    for number, files in enumerate(versions(), 1):
        kept = write_live(whole, run, number, files, kept)
    objects = {meta.key: whole.get(meta.key) for meta in whole.scan("")}
    data = {key for key in objects if "/outputs/results/" in key or "/results.live/0" in key}
    assert len(objects) > len(data) > len(versions())
    url = "file:///the-store"

    def store_of(name: str) -> Store:
        made = FileStore(folder / name, sync=False)
        made.url = url  # type: ignore[misc]
        return made

    straight = open_database(f"sqlite:///{folder / 'straight.sqlite'}")
    made = store_of("straight")
    for key, body in objects.items():
        made.put(key, body)
    expected = without_times(ingested(straight, made))
    assert len(expected["rollouts"]) == 2 + 5 + 3 + 2 + 6
    straight.dispose()
    count = 0

    @settings(max_examples=8, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.randoms(use_true_random=False), st.integers(1, 6))
    def check(order: random.Random, every: int) -> None:
        nonlocal count
        count += 1
        store = store_of(f"shuffled-{count}")
        engine = open_database(f"sqlite:///{folder / f'shuffled-{count}.sqlite'}")
        follower = StoreFollower(engine, store)
        for key in data:
            store.put(key, objects[key])
        shuffled = sorted(objects.keys() - data)
        order.shuffle(shuffled)
        for index, key in enumerate(shuffled):
            store.put(key, objects[key])
            if index % every == 0:
                follower.once()
        follower.once(everything=True)
        assert without_times(contents(engine)) == expected
        engine.dispose()

    check()


def test_a_training_that_runs_is_followed_piece_by_piece(engine: Engine, file_store: Store, tmp_path: Path) -> None:
    """What a crash had told of step 2 is there until the resume throws it away; and no closed piece is read twice."""
    job = fake_job("rl", outputs=OUTPUTS)
    run = write_run(file_store, job, [FakeAttempt(ended=None, beat=Beat(1, "running"))], outcome=None)
    follower = StoreFollower(engine, file_store)
    seen: list[int] = []
    read: list[str] = []
    get = file_store.get

    def counted(key: str) -> bytes:
        read.append(key)
        return get(key)

    kept: dict[str, Any] = {}
    file_store.get = counted  # type: ignore[method-assign]
    for number, files in enumerate(versions(), 1):
        kept = write_live(file_store, run, number, files, kept)
        beat = Beat(number + 1, "running", outputs={"results": number})
        file_store.put(RunKeys(run).attempt(1).beat("main-0"), msgspec.json.encode(beat))
        follower.once()
        seen.append(len(contents(engine)["rollouts"]))
        later = StoreFollower(open_database(f"sqlite:///{tmp_path / str(number)}.sqlite"), file_store)
        later.once()
        assert contents(engine) == contents(later.engine), number
        later.engine.dispose()
    # the third piece's rollouts of step 2 came, and went at the resume
    assert seen == [2, 3, 7, 8, 10, 8, 10, 10, 12]
    first = [key for key in read if key.endswith("/records/000001.jsonl")]
    assert len(first) == 2 + len(seen)  # those that begin anew read it once, this one while it was the last
    write_output(file_store, RunKeys(run).attempt(1), "results", versions()[-1])  # all files at keys of their own
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(run).prefix) if "/results.live/" in meta.key])
    follower.once()
    for row in contents(engine)["observations"]:
        assert len(file_store.get(row["key"])) == row["bytes"]


def test_a_second_look_writes_nothing(engine: Engine, file_store: Store) -> None:
    training(file_store)
    follower = StoreFollower(engine, file_store)
    follower.once()
    writes: list[str] = []

    def seen(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if statement.split()[0] in ("INSERT", "UPDATE", "DELETE"):
            writes.append(statement)

    event.listen(engine, "before_cursor_execute", seen)
    fresh = StoreFollower(engine, file_store)
    writes.clear()
    assert fresh.once(everything=True).written == 0
    assert writes == []


def test_records_that_are_gone_leave_nothing(engine: Engine, file_store: Store) -> None:
    """A second attempt begins without them; and a run that is deleted takes its training along."""
    job = fake_job("rl", outputs=OUTPUTS)
    first = FakeAttempt(outputs={"results": training_files()})
    run = write_run(file_store, job, [first, FakeAttempt(outputs={"results": {}})])
    assert not contents(engine)["trainings"]
    write_output(file_store, RunKeys(run).attempt(3), "results", training_files())
    other = training(file_store, "other")
    follower = StoreFollower(engine, file_store)
    follower.once()
    assert len(contents(engine)["trainings"]) == 1
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(other).prefix)])
    follower.once(everything=True)
    found = contents(engine)
    for table in ("trainings", "steps", "evals", "groups", "rollouts", "turns", "tasks", "environments", "validators"):
        assert found[table] == [], table


def test_the_migration_goes_down_and_up_with_a_training(engine: Engine, file_store: Store) -> None:
    """An older launcher had no rows of trainings. The next look brings them back, also of runs that were complete."""
    training(file_store)
    evaluation(file_store)
    StoreFollower(engine, file_store).once()
    before = contents(engine)
    database.downgrade(engine, "0002")
    with engine.connect() as connection:
        assert connection.execute(select(tables.rollouts.c.id)).all() != []
        assert connection.execute(select(tables.steps.c.id)).all() == []
    database.upgrade(engine)
    StoreFollower(engine, file_store).once()
    assert contents(engine) == before


@pytest.mark.parametrize("count", [1, 3, 6])
def test_a_stop_anywhere_and_a_new_start(engine: Engine, file_store: Store, count: int, tmp_path: Path) -> None:
    lines = [line for step in range(1, 30) for line in group_lines("train", step, 0, (True, False, True))]
    training(file_store, files={"records/000001.jsonl": piece(1, [*lines, step_line("train", 29, loss=1.0)])})

    dies_and_goes_on(engine, file_store, count, tmp_path)


def test_damaged_and_hostile_records(engine: Engine, file_store: Store) -> None:
    """A line that is none is said; names that leave the folder, NUL and numbers of 30 digits become rows or nothing."""
    training(file_store, "bad", {"records/000001.jsonl": piece(1, []) + b"{]\n"})
    newer = {"record": "piece", "schema_version": "2.0.0", "piece": 1}
    training(file_store, "newer", {"records/000001.jsonl": json.dumps(newer).encode() + b"\n"})
    place = {"phase": "train", "step": 1, "group": 0, "rollout": 0}
    odd = [
        {"record": "group", **place, "task_id": "../\0", "instruction": "<script>", "seed": 10**30},
        {"record": "observation", **place, "turn": 0, "screenshot": "../../../job.json"},
        {"record": "turn", **place, "turn": 0, "response": "x" * 3_000_000, "logprobs": [-1.0], "texts": ["\0"]},
        {"record": "action", **place, "turn": 0, "number": 0, "action": {"type": ["no"], "x": "here"}},
        {"record": "rollout", **place, "outcome": "scored", "total": 1e308, "success": True, "turns": 1, "tokens": 1},
        {"record": "comet", "tail": True},
    ]
    odd[0]["seed"] = 2**62
    odd[-2]["episode"] = "../../.."
    training(file_store, "odd", {"records/000001.jsonl": piece(1, odd)})
    found = StoreFollower(engine, file_store).once()
    assert sorted(line.partition("-")[0] for line in found.problems) == ["bad", "newer"]
    rows = contents(engine)
    (rollout,) = rows["rollouts"]
    assert (rollout["place"], rollout["seed"]) == ("train/1/0/0", str(2**62))
    assert rows["observations"] == []
    assert len(rows["turns"][0]["answer"]) < 66_000
    assert [row["task"] for row in rows["tasks"]] == ["../\ufffd"]
