"""The search and its index: what it finds is what reading every text finds, with the index and without."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from launcher.monitor import database, search_index
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.server.queries.runs import FOUND, Queries
from launcher.spec.model import Output
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.support.cases import every_case
from tests.support.fakerun import FakeAttempt, fake_job, login_pipeline, write_run
from tests.unit.monitor.test_ingest import evaluation

SAID = (
    "I press Save. 100 % done",
    "Ärger im Büro: ÄPFEL_und\\Birnen",
    'He said "go", then \U0001f600\U0001f680 and left; ΑΣ',
    "ΑΣΑ x",
    "line one\nline two",
    "x",
    "",
)


def said(store: Store, answers: tuple[str, ...], name: str = "said", seed: int = 0) -> str:
    """An evaluation whose rollout number i gives answer i."""
    files, lines = {}, []
    for index, answer in enumerate(answers):
        folder = f"episodes/e-{index}"
        files[f"{folder}/episode.json"] = json.dumps(
            {"task_id": f"form-{index}", "instruction": f"Do {index}."}
        ).encode()
        files[f"{folder}/steps.jsonl"] = json.dumps({"index": 0, "response": answer}).encode() + b"\n"
        told = {"benchmark": "b", "version": "1", "agent": "a", "task_id": f"form-{index}", "seed": seed}
        lines.append({**told, "score": 1.0, "success": True, "outcome": "scored", "episode": folder, "steps": 1})
    files["tasks.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return write_run(store, fake_job(name, outputs={"results": Output()}), [FakeAttempt(outputs={"results": files})])


def found(engine: Engine, words: str) -> list[str]:
    return sorted(row["task"] for row in Queries(engine).search(words))


@pytest.fixture(params=["index", "none"])
def searched(request: pytest.FixtureRequest, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """A database whose search asks its index at once, and one that has no index."""
    monkeypatch.setattr(search_index, "NEWEST", 1)
    with engine.begin() as connection:
        assert search_index.there(connection)
        if request.param == "none":
            search_index.drop(connection)
            assert not search_index.there(connection)
    return engine


@pytest.fixture
def told(searched: Engine, file_store: Store) -> Engine:
    """A database that has read SAID."""
    said(file_store, SAID)
    StoreFollower(searched, file_store).once()
    return searched


@every_case(
    ("words", "places"),
    [
        ("PRESS save", [0]), ("save. 1", [0]), ("0 %", [0]), ("%", [0]), ("_", [1]), ("\\", [1]),
        ("äpfel_UND\\b", [1]), ("büro", [1]), ('"go"', [2]), ('"', [2]), ("\U0001f600\U0001f680", [2]), ("ας", []),
        ("ΑΣ", [2, 3]), ("ασα", [3]), ("one\nline", [4]), ("form-5", [5]), ("do 5.", [5]), ("x", [3, 5]),
        ("ne two", [4]), ("wo", [4]), ("o", range(7)), ("nothing of it", []), ("zq", []), ("line oneline", []),
        ("e\n", [4]), ("form-1I press", []), ("%%%", []), ("___", []),
    ],
)  # fmt: skip
def test_what_is_found(told: Engine, words: str, places: list[int]) -> None:
    assert found(told, words) == [f"form-{place}" for place in places]


@pytest.mark.parametrize("seed", range(3))
def test_random_words_are_found_as_by_reading(searched: Engine, file_store: Store, seed: int) -> None:
    chosen = random.Random(seed)
    letters = "aAbB ß\u00dc\u00fc\u01c5%_\\'\"-*:^()\n\U0001f600\u0301"

    def words(longest: int) -> str:
        return "".join(chosen.choice(letters) for _ in range(chosen.randint(1, longest)))

    answers = tuple(words(12) for _ in range(60))
    said(file_store, answers)
    StoreFollower(searched, file_store).once()
    for _ in range(50):
        asked = words(5)
        small = "".join(letter.lower() for letter in asked)
        if not small.strip() or small in "form-1do 1.":
            continue
        there = [index for index, answer in enumerate(answers) if small in "".join(letter.lower() for letter in answer)]
        assert found(searched, asked) == sorted(f"form-{index}" for index in there), (seed, asked)


def test_what_was_written_again_or_deleted(engine: Engine, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "NEWEST", 1)
    run = said(file_store, ("the first answer", "another"))
    follower = StoreFollower(engine, file_store)
    follower.once()
    assert found(engine, "first answer") == ["form-0"]
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(run).prefix)])
    said(file_store, ("the second answer", "another"))
    follower.once(everything=True)
    assert found(engine, "first answer") == []
    assert found(engine, "second answer") == ["form-0"]
    assert found(engine, "another") == ["form-1"]
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(run).prefix)])
    follower.once(everything=True)
    assert found(engine, "another") == []


def test_the_newest_runs_come_first_and_never_too_many(engine: Engine, file_store: Store) -> None:
    for number in range(3):
        said(file_store, tuple(f"press {index}" for index in range(45)), f"run-{number}", number)
    rare = said(file_store, ("something rare",), "rare")
    StoreFollower(engine, file_store).once()
    with engine.begin() as connection:
        for number in range(3):
            connection.execute(
                text("UPDATE runs SET created = :at WHERE name = :name"), {"at": 1e9 + number, "name": f"run-{number}"}
            )
        connection.execute(text("UPDATE runs SET created = 1 WHERE name = 'rare'"))
    rows = Queries(engine).search("PRESS")
    assert len(rows) == FOUND
    assert [row["run_name"] for row in rows] == ["run-2"] * 45 + ["run-1"] * 45 + ["run-0"] * 10
    (only,) = Queries(engine).search("thing rare")
    assert only["run"] == rare


def test_a_search_in_one_run(engine: Engine, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "NEWEST", 1)
    said(file_store, ("press it", "and here"), "one")
    said(file_store, ("press it", "not here"), "other")
    StoreFollower(engine, file_store).once()
    queries = Queries(engine)
    (key,) = queries.named(next(row["run"] for row in queries.evaluated() if row["name"] == "one"))
    assert [row["run_name"] for row in queries.search("press", key)] == ["one"]


def test_the_index_spares_the_texts(engine: Engine, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many tries it reads those that the index names."""
    monkeypatch.setattr(search_index, "NEWEST", 1)
    said(file_store, (*(f"number {index} of many" for index in range(50)), "a needle"))
    StoreFollower(engine, file_store).once()
    read: list[int] = []
    texts_of = search_index.texts_of

    def counted(connection: object, ids: list[int]) -> object:
        read.extend(ids)
        return texts_of(connection, ids)  # type: ignore[arg-type]

    monkeypatch.setattr(search_index, "texts_of", counted)
    assert found(engine, "needle") == ["form-50"]
    assert len(read) <= 2


def test_the_index_of_a_database_of_before(url: str, file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step to this version fills it with what is there; the step back leaves nothing of it."""
    monkeypatch.setattr(search_index, "NEWEST", 1)
    monkeypatch.setattr(search_index, "BATCH", 3)
    engine = database.connect(url)
    database.upgrade(engine)
    login_pipeline(file_store, n=8)
    evaluation(file_store, episodes=6)
    StoreFollower(engine, file_store).once()
    before = [row["id"] for row in Queries(engine).search("alice")]
    database.downgrade(engine, "0004")
    with engine.connect() as connection:
        assert not search_index.there(connection)
    database.upgrade(engine)
    with engine.connect() as connection:
        assert search_index.there(connection)
    assert len(before) > 5
    assert [row["id"] for row in Queries(engine).search("alice")] == before
    database.downgrade(engine, "0004")
    with engine.connect() as connection:
        assert not search_index.there(connection)
    database.upgrade(engine)
    assert [row["id"] for row in Queries(engine).search("alice")] == before
    engine.dispose()


def test_the_index_is_made_anew_when_most_of_it_is_nobody_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "NEWEST", 1)
    monkeypatch.setattr(search_index, "LEFT_OVER", 4)
    store = FileStore(tmp_path / "store", sync=False)
    said(store, ("one", "two", "three needles"))
    engine = database.open_database(f"sqlite:///{tmp_path / 'monitor.sqlite'}")
    StoreFollower(engine, store).once()

    def documents() -> int:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT count(*) FROM search_docsize")).scalar() or 0)

    for _ in range(3):
        assert documents() <= 10
        assert not database.written(engine, search_index.renew_if_worn)
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            connection.execute(text("UPDATE rollouts SET digest = ''"))
            connection.execute(text("UPDATE outputs SET ingested = ''"))
            connection.execute(text("UPDATE runs SET complete = 0"))
        StoreFollower(engine, store).once()
    assert documents() == 12
    assert database.written(engine, search_index.renew_if_worn)
    assert documents() == 3
    assert found(engine, "needle") == ["form-2"]
    engine.dispose()


def test_without_trigrams_in_sqlite_every_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "MADE", ("CREATE VIRTUAL TABLE search USING fts5_of_nobody(texts)",))
    store = FileStore(tmp_path / "store", sync=False)
    said(store, SAID)
    engine = database.open_database(f"sqlite:///{tmp_path / 'monitor.sqlite'}")
    StoreFollower(engine, store).once()
    with engine.connect() as connection:
        assert not search_index.there(connection)
    assert found(engine, "press save") == ["form-0"]
    database.downgrade(engine, "base")
    engine.dispose()
