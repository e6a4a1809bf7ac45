"""What people were told of runs, from the store's records into the database and onto the pages."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import Engine

from launcher.monitor import notice_ingest
from launcher.monitor.database import open_database
from launcher.monitor.ingest import StoreFollower
from launcher.monitor.server.queries.runs import Queries
from launcher.notices import ledger
from launcher.notices.events import Notice
from launcher.spec.check.notify import NoticeChannel
from launcher.store.base import Store
from launcher.store.layout import NoticeKeys, RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.notify import Notifier
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.unit.monitor.contents import contents, ingested

MAIL = NoticeChannel(mail=("me@example.com",))
PAGER = NoticeChannel(command=("page",))
# as launchers before this one wrote them
OLD_BEGUN = b'{"by":"host 1","time":1700000000.5,"nonce":"a"}'
OLD_ENDED = b'{"sent":true,"time":1700000002.0,"nonce":"a"}'


def just_ended(store: Store, name: str = "train") -> str:
    return write_run(store, fake_job(name), [FakeAttempt(started=time.time() - 60, ended=time.time() - 1)])


def tell(store: Store, folder: Path, answers: dict[str, str]) -> None:
    """Tells of all runs by a mail and a pager; `answers`: what goes wrong with each."""
    notifier = Notifier(
        store, {"me": MAIL, "pager": PAGER}, str, send=lambda channel, notice, secret: answers[channel.way]
    )
    with Cache(folder / "cache") as cache:
        notifier.once(cache)


def test_each_try_is_a_row(engine: Engine, file_store: Store, tmp_path: Path) -> None:
    run = just_ended(file_store)
    seen: list[str] = []
    follower = StoreFollower(engine, file_store, seen.append)
    follower.once()
    queries = Queries(engine)
    assert list(queries.told()) == []
    seen.clear()
    tell(file_store, tmp_path, {"mail": "", "command": "page ended with exit code 3"})
    follower.once()
    assert run in seen
    (key,) = queries.named(run)
    rows = {row["channel"]: row for row in queries.told(key)}
    mail, page = rows["me"], rows["pager"]
    # read apart from the code: the records themselves, and the key that the receivers were given
    begun = json.loads(file_store.get(NoticeKeys(run, "ended", "me", 1).begun))
    assert (mail["event"], mail["number"], mail["way"], mail["sent"], mail["message"]) == ("ended", 1, "mail", 1, "")
    assert (mail["text"], mail["at"], mail["key"]) == (f"{run} succeeded", begun["time"], begun["key"])
    assert mail["key"] == Notice(run, "ended", "succeeded", "", file_store.url).key
    assert (page["way"], page["sent"], page["message"]) == ("command", 0, "page ended with exit code 3")
    assert [row["run"] for row in queries.told()] == [run, run]
    before = contents(engine)
    seen.clear()
    follower.once()
    assert contents(engine) == before
    assert seen == []


def test_a_try_that_has_not_ended_and_then_has(engine: Engine, file_store: Store) -> None:
    run = just_ended(file_store)
    keys = NoticeKeys(run, "ended", "team", 1)
    file_store.create(keys.begun, OLD_BEGUN)
    follower = StoreFollower(engine, file_store)
    follower.once()
    (row,) = Queries(engine).told()
    assert (row["sent"], row["ended"], row["at"], row["text"], row["way"]) == (None, None, 1700000000.5, "", "")
    assert row["key"] == Notice(run, "ended", "succeeded", "", file_store.url).key  # it follows from what is told
    file_store.create(keys.ended, OLD_ENDED)
    follower.once()
    (row,) = Queries(engine).told()
    assert (row["sent"], row["ended"]) == (1, 1700000002.0)


def test_a_new_database_has_the_same_rows_and_so_has_a_deleted_run(
    engine: Engine, file_store: Store, tmp_path: Path
) -> None:
    """Also where the run ended long ago, and after `launcher rm` has taken the records."""
    run = write_run(file_store, fake_job("old"), [FakeAttempt()])  # ended months ago
    keys = NoticeKeys(run, "ended", "team", 1)
    file_store.create(keys.begun, OLD_BEGUN)
    file_store.create(keys.ended, OLD_ENDED)
    file_store.create(f"{RunKeys(run).notices}ended/team/x/begun.json", b"no record")
    follower = StoreFollower(engine, file_store)
    follower.once()
    assert len(Queries(engine).told()) == 1
    other = open_database(f"sqlite:///{tmp_path / 'other.sqlite'}")
    assert contents(engine) == ingested(other, file_store)
    file_store.delete([meta.key for meta in file_store.scan(RunKeys(run).notices)])
    assert ingested(engine, file_store)["notices"] == []
    other.dispose()


def test_a_damaged_record_is_a_problem_and_hides_no_other(engine: Engine, file_store: Store) -> None:
    run = just_ended(file_store)
    file_store.create(NoticeKeys(run, "ended", "team", 1).begun, b"{")
    file_store.create(NoticeKeys(run, "budget", "team", 1).begun, OLD_BEGUN)
    found = StoreFollower(engine, file_store).once()
    assert [row["event"] for row in Queries(engine).told()] == ["budget"]
    assert len(found.problems) == 1
    assert "notices/ended/team/1/begun.json is not a valid record" in found.problems[0]


def test_old_runs_are_not_listed_again(
    engine: Engine, file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(file_store, fake_job("old"), [FakeAttempt()])
    lives = write_run(file_store, fake_job("lives"), [FakeAttempt(ended=None)], outcome=None)
    follower = StoreFollower(engine, file_store)
    follower.once()
    listed: list[str] = []
    places = ledger.recorded_tries
    monkeypatch.setattr(notice_ingest, "recorded_tries", lambda store, run: listed.append(run) or places(store, run))
    follower.once()
    follower.once()
    assert listed == [lives, lives]
