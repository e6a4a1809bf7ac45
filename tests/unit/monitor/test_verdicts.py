"""What people say of rollouts: kept in the store, brought into the database in any order, set against the checkers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import Engine, text

from launcher.errors import BadInput
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.queries.verdicts import VerdictQueries
from launcher.results.verdicts import give_verdict, list_verdicts, read_verdict
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import VERDICTS, RunKeys, verdict
from tests.unit.monitor.contents import contents
from tests.unit.monitor.test_ingest import evaluation
from tests.unit.monitor.test_trainings import training

WON, LOST, VOID = "train/1/0/0", "train/1/0/1", "train/1/0/2"


def judge(store: Store, run: str, place: str, success: bool | None, person: str = "ann", **more: Any) -> str:
    return give_verdict(store, run, place, success, f"{person} saw it", person, **more)[0]


def test_a_verdict_is_a_record_of_its_own(file_store: Store) -> None:
    run = training(file_store)
    before = {meta.key: file_store.get(meta.key) for meta in file_store.scan("")}
    first = judge(file_store, run, WON, False, checker=True, blind=True)
    second = judge(file_store, run, WON, None)
    assert list(list_verdicts(file_store)) == [(run, first), (run, second)]
    found = read_verdict(file_store, run, first)
    assert found is not None
    assert (found.place, found.success, found.by, found.reason) == (WON, False, "ann", "ann saw it")
    assert (found.blind, found.checker) == (True, True)
    after = {meta.key: file_store.get(meta.key) for meta in file_store.scan("")}
    assert {key: body for key, body in after.items() if not key.startswith(VERDICTS)} == before
    for reason in ("", "  \n", "x" * 2001):
        with pytest.raises(BadInput, match="reason: "):
            give_verdict(file_store, run, WON, True, reason, "ann")
    assert len(list(list_verdicts(file_store))) == 2


def test_the_rows_say_it_and_the_checker_s_word_stays(engine: Engine, file_store: Store) -> None:
    run = training(file_store)
    follower = StoreFollower(engine, file_store)
    follower.once()
    before = contents(engine)
    judge(file_store, run, WON, False, checker=True)
    follower.once()
    after = contents(engine)
    (row,) = after.pop("verdicts")
    assert before.pop("verdicts") == []
    assert after == before
    assert (row["run"], row["place"], row["success"], row["person"], row["checker"]) == (run, WON, 0, "ann", 1)
    with engine.connect() as connection:
        (view,) = connection.execute(text("SELECT * FROM v_verdicts")).mappings().all()
    assert (view["rollout"], view["checked"], view["counts"]) == (
        next(one["id"] for one in after["rollouts"] if one["place"] == WON), 1, 1
    )  # fmt: skip


def test_any_order_and_a_database_made_again(engine: Engine, file_store: Store, tmp_path: Any) -> None:
    """Verdicts may come before their run. Deleting the database loses none of them; deleting the record does."""
    whole = FileStore(tmp_path / "whole", sync=False)
    run = training(whole)
    names = [judge(whole, run, place, place == WON, person) for place in (WON, LOST) for person in ("ann", "bob")]
    expected = set(names)
    objects = {meta.key: whole.get(meta.key) for meta in whole.scan("")}
    keys = sorted(key for key in objects if "/outputs/results/" not in key)
    follower = StoreFollower(engine, file_store)
    for key in objects.keys() - set(keys):
        file_store.put(key, objects[key])
    random.Random(7).shuffle(keys)
    for index, key in enumerate(keys):
        file_store.put(key, objects[key])
        if index % 2 == 0:
            follower.once()
    follower.once(everything=True)
    found = contents(engine)
    assert {row["name"] for row in found["verdicts"]} == expected
    again = open_database(f"sqlite:///{tmp_path / 'again.sqlite'}")
    StoreFollower(again, file_store).once()
    assert contents(again)["verdicts"] == found["verdicts"]
    again.dispose()
    file_store.delete([verdict(run, names[0])])
    follower.once()
    assert {row["name"] for row in contents(engine)["verdicts"]} == expected - {names[0]}
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(run).prefix)])
    follower.once(everything=True)
    assert {row["name"] for row in contents(engine)["verdicts"]} == expected - {names[0]}


def test_the_agreement_of_people_and_checkers(engine: Engine, file_store: Store) -> None:
    """Wilson's interval of 4 of 6: the bounds by hand, with z = 1.959964."""
    run = evaluation(file_store, episodes=6)
    follower = StoreFollower(engine, file_store)
    follower.once()
    queries = VerdictQueries(Queries(engine))
    assert queries.agreement().judged == 0
    assert queries.agreement().interval is None
    for index in range(6):  # the checker: solved where the index is even
        place = f"episodes/e-{index}"
        judge(file_store, run, place, index % 2 == 1, "ann")  # replaced below
        judge(file_store, run, place, index in (0, 2, 3), "ann", blind=index < 3)
    judge(file_store, run, "episodes/e-0", None, "bob")  # says nothing against anybody
    judge(file_store, run, "episodes/e-77", True, "bob")  # a rollout that is not there
    follower.once()
    found = queries.agreement()
    assert (found.both, found.neither, found.only_person, found.only_checker) == (2, 2, 1, 1)
    assert (found.same, found.judged) == (4, 6)
    assert found.interval is not None
    # (4 + z2/2 -+ z sqrt(4 * 2 / 6 + z2/4)) / (6 + z2), z2 = 3.841459
    assert found.interval.low == pytest.approx(0.2999934, abs=1e-6)
    assert found.interval.high == pytest.approx(0.9032286, abs=1e-6)
    blind = queries.agreement(blind=True)
    assert (blind.same, blind.judged) == (3, 3)
    other = training(file_store)
    follower.once()
    (key,), (second,) = queries.queries.named(run), queries.queries.named(other)
    assert queries.agreement(key) == found
    assert queries.agreement(second).judged == 0
    said = queries.of([key])
    newest = said[key, "episodes/e-0"]
    assert [(row["person"], row["success"]) for row in newest] == [("bob", None), ("ann", 1)]
    assert queries.count() == 14 == len(queries.trail())


def test_who_judges_blind_gets_each_rollout_once(engine: Engine, file_store: Store) -> None:
    run = training(file_store)
    follower = StoreFollower(engine, file_store)
    follower.once()
    queries = VerdictQueries(Queries(engine))
    (key,) = queries.queries.named(run)
    places = {row["id"]: row["place"] for row in contents(engine)["rollouts"]}
    seen: list[str] = []
    while (rollout := queries.unjudged(key, "ann")) is not None:
        seen.append(places[rollout])
        judge(file_store, run, places[rollout], True)
        follower.once()
    assert sorted(seen) == sorted(place for place in places.values() if place != VOID)
    assert queries.unjudged(key, "bob") is not None


def test_a_record_that_is_no_verdict_is_said(engine: Engine, file_store: Store) -> None:
    run = training(file_store)
    file_store.put(verdict(run, "000-odd"), b"{]")
    file_store.put(f"{VERDICTS}{run}/deep/er.json", b"{}")
    found = StoreFollower(engine, file_store).once()
    assert [line.partition(":")[0] for line in found.problems] == [run]
    assert contents(engine)["verdicts"] == []
