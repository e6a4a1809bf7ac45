"""What the pages show, from a database of each kind; and a store on a real S3 server."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine, text

from launcher.monitor.ingest import StoreFollower
from launcher.monitor.server import serve
from launcher.monitor.server.queries.runs import Queries, RunFilters
from launcher.monitor.server.queries.trainings import TrainingQueries
from launcher.protocol.records import Beat
from launcher.spec.model import Image, Output, Role
from launcher.store.base import Store
from tests.support.fakerun import FakeAttempt, episode_files, eval_files, fake_job, login_pipeline, write_run
from tests.unit.monitor.test_ingest import evaluation


def test_what_the_pages_ask_for(engine: Engine, file_store: Store) -> None:
    pipeline = login_pipeline(file_store, n=8)
    evaluated = evaluation(file_store, episodes=6)
    for name, gpu in (("one", 0.25), ("two", 0.75)):
        attempt = FakeAttempt(ended=None, beat=Beat(1, "running", step=1, total=4, usage={"gpu": gpu, "memory": 5e9}))
        write_run(file_store, fake_job(name, replicas=2), [attempt], outcome=None)
    write_run(file_store, fake_job("waits"), [], outcome=None)
    StoreFollower(engine, file_store).once()
    queries = Queries(engine)
    overview = queries.overview()
    assert [row["name"] for row in overview.open][-1] == "waits"
    assert {row["name"] for row in overview.ended} == {"episodes", "eval-before", "sft", "eval-after", "eval"}
    assert sum(overview.counts.values()) == 8
    usage = queries.usage(row["id"] for row in overview.open)
    assert sorted((row["gpu"], row["memory"]) for row in usage.values()) == [(0.25, 1e10), (0.75, 1e10)]
    (key,) = queries.named(evaluated)
    run = queries.run(key)
    assert run is not None
    assert (run["run"], run["url"]) == (evaluated, file_store.url)
    found = {row["run"]: (row["rollouts"], row["solved"]) for row in queries.evaluated()}
    assert found[evaluated] == (12, 6)
    assert pipeline.after in found
    table = queries.evaluation(key)
    assert [(agent.name, agent.baseline, agent.solved, agent.tries) for agent in table.agents] == [
        ("tiny", False, 3, 6),
        ("random", True, 3, 6),
    ]
    assert table.agents[0].failures == [("loop", 3)]
    assert [name for _, name in table.tasks] == ["task-0", "task-1", "task-2"]
    kept = next(row for row in queries.rollouts(key) if row["folder"] == "episodes/e-1")
    turns = queries.turns(kept["id"])
    assert [turn.number for turn in turns] == [0, 1, 2, 3, 4]
    assert turns[4].turn is None
    assert all(turn.picture for turn in turns)
    place = queries.observation(kept["id"], 2)
    assert place is not None
    assert place["key"].endswith("episodes/e-1/002.png")
    assert [row["rule"] for row in queries.validations(kept["id"])] == ["The last answers repeat."]


def test_runs_are_found_by_name_state_and_label(engine: Engine, file_store: Store) -> None:
    beat = Beat(1, "running", step=1, total=4)
    write_run(
        file_store, fake_job("sft-a", labels={"team": "agents"}), [FakeAttempt(ended=None, beat=beat)], outcome=None
    )
    write_run(file_store, fake_job("sft-b", labels={"team": "agents%"}), [FakeAttempt()])
    write_run(file_store, fake_job("eval", labels={"kind": "team"}), [FakeAttempt()])
    StoreFollower(engine, file_store).once()
    queries = Queries(engine)

    def shown(**filters: str) -> list[str]:
        overview = queries.overview(RunFilters(**filters))
        assert sum(overview.counts.values()) == len(overview.open) + len(overview.ended)
        return sorted(row["name"] for row in (*overview.open, *overview.ended))

    assert shown() == ["eval", "sft-a", "sft-b"]
    assert shown(name="SFT") == ["sft-a", "sft-b"]
    assert shown(name="sft", state="running") == ["sft-a"]
    assert shown(label="team") == ["sft-a", "sft-b"]  # the key, and not the value of another
    assert shown(label="team=agents") == ["sft-a"]
    assert shown(label="team=%") == []
    assert shown(name="%") == []
    assert [row["name"] for row in queries.runs_with("team=agents%")] == ["sft-b"]
    assert {row["name"] for row in queries.runs_with("agents")} == {"sft-a", "sft-b"}
    (run,) = queries.runs_with("sft-a")
    assert [row["id"] for row in queries.runs_with(run["run"])] == [run["id"]]


def test_every_run_of_a_trainer_is_a_training(engine: Engine, file_store: Store) -> None:
    image = Image(environment="a" * 64)
    for program in ("training.sft", "training.dpo", "training.reward", "training.data", "eval.run"):
        role = Role(command=("python", "-m", program), image=image)
        job = fake_job(program.replace(".", "-"), roles={"main": role}, config={"model": "hf://a/b"})
        write_run(file_store, job, [FakeAttempt(ended=None, beat=Beat(1, "running", step=3, total=9))], outcome=None)
    StoreFollower(engine, file_store).once()
    found = TrainingQueries(Queries(engine)).trained()
    assert sorted((each.method, each.model, each.step, each.total, each.records) for each in found) == [
        (method, "hf://a/b", 3, 9, False) for method in ("dpo", "reward", "sft")
    ]


def test_a_task_that_could_not_run_is_no_failure_of_the_infrastructure(engine: Engine, file_store: Store) -> None:
    files = eval_files([True, None, None])
    lines = [json.loads(line) for line in files["tasks.jsonl"].splitlines()]
    lines[2] |= {"outcome": "not run", "error": "no program gimp"}
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    head = json.loads(episode_files("lacks", None)["episodes/lacks/episode.json"])
    files |= {"episodes/lacks/episode.json": json.dumps({**head, "outcome": "not run"}).encode()}
    run = write_run(
        file_store, fake_job("eval", outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})]
    )
    StoreFollower(engine, file_store).once()
    queries = Queries(engine)
    (key,) = queries.named(run)
    rows = queries.rollouts(key)
    assert sorted(row["outcome"] for row in rows) == ["infra", "not run", "not run", "solved"]
    table = queries.evaluation(key)
    assert [name for _, name in table.tasks] == ["login", "task-0", "task-1", "task-2"]
    assert [name for _, name in table.failures_first] == ["login", "task-1", "task-2", "task-0"]
    told = {agent.name: (agent.solved, agent.tries, agent.infra, agent.not_run) for agent in table.agents}
    assert told == {"eval": (1, 3, 1, 1), "tiny": (0, 1, 0, 1)}
    assert {agent.name: agent.lacking for agent in table.agents}["eval"] == [("no program gimp", 1)]


def test_of_too_many_runs_the_metrics_leave_out_those_that_wait_then_those_seen_last(
    engine: Engine, file_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest silent run is what an alert is about, whenever it was made."""
    live = {"ended": None, "beat": Beat(1, "running", step=1, total=4)}
    for name in ("waits", "fresh", "silent", "between"):
        attempts = [] if name == "waits" else [FakeAttempt(**live)]  # type: ignore[arg-type]
        write_run(file_store, fake_job(name), attempts, outcome=None)
    StoreFollower(engine, file_store).once()
    with engine.begin() as connection:
        for seen, name in enumerate(("silent", "between", "fresh"), 1):
            connection.execute(text(f"UPDATE runs SET seen = {seen} WHERE name = '{name}'"))
    order = ["silent", "between", "fresh", "waits"]
    for most in (4, 3, 1):
        monkeypatch.setattr(serve, "MOST", most)
        told = {family.name: family.samples for family in serve.families(Queries(engine), [])}
        assert [labels["job"] for labels, _ in told["slipway_run_info"]] == order[:most]
        assert told["slipway_runs_left_out"] == [({}, 4 - most)]


def test_the_search_takes_words_as_they_are(engine: Engine, file_store: Store) -> None:
    evaluation(file_store, episodes=2)
    StoreFollower(engine, file_store).once()
    queries = Queries(engine)
    assert len(queries.search("LOG IN as")) == 2
    assert len(queries.search("Action: ...")) == 2
    for words in ("%", "_ction", "\\", "'; DROP TABLE runs; --", "a" * 200):
        assert list(queries.search(words)) == []
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM runs")).scalar() == 1
