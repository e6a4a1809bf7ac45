"""How the pages write times, whatever a record claims, and threads that outlive what they cannot do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from launcher.monitor.database import open_database
from launcher.monitor.ingest import Pass, StoreFollower
from launcher.monitor.server.pages import formats
from launcher.monitor.server.queries.runs import Queries
from launcher.monitor.server.waiting_reasons import WaitingReasons
from launcher.spec.profile import LocalSettings, Profile
from launcher.store.file import FileStore


@pytest.mark.parametrize(
    ("passed", "text"),
    [(0, "just now"), (59, "just now"), (200, "3 min ago"), (7300, "2 h ago"), (90_000, "1 d ago"), (-5, "just now")],
)
def test_how_long_ago_something_was(passed: float, text: str) -> None:
    assert formats.since(1.7e9 - passed, 1.7e9) == text
    assert formats.since(0.0, 1.7e9) == formats.clock(0.0)  # what is longer than a year ago has its date


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def chosen(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield chosen
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("name", "winter", "summer"),
    [
        # from the rules in POSIX form: these need no table of zones
        ("UTC0", "2026-01-15 12:00:00 UTC", "2026-07-15 12:00:00 UTC"),
        ("CET-1CEST,M3.5.0,M10.5.0/3", "2026-01-15 13:00:00 UTC+01:00", "2026-07-15 14:00:00 UTC+02:00"),
        ("NST3:30NDT,M3.2.0,M11.1.0", "2026-01-15 08:30:00 UTC-03:30", "2026-07-15 09:30:00 UTC-02:30"),
    ],
)
def test_a_time_has_its_zone(zone: Any, name: str, winter: str, summer: str) -> None:
    zone(name)
    assert formats.clock(1768478400.0) == winter  # 2026-01-15T12:00:00Z
    assert formats.clock(1784116800.0) == summer  # 2026-07-15T12:00:00Z
    assert formats.clock(None) == ""


@pytest.mark.parametrize("claimed", [1e18, -1e18, 1e300, -1e300])
def test_a_number_that_is_no_time_breaks_no_page(claimed: float) -> None:
    assert formats.clock(claimed) == f"no time: {claimed:g}"


def test_a_follower_goes_on_after_a_fault_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the page would say "live" and change no more."""
    engine = open_database(f"sqlite:///{tmp_path / 'monitor.sqlite'}")
    follower = StoreFollower(engine, FileStore(tmp_path / "store", sync=False))
    passes: list[int] = []
    said: list[str] = []

    def once() -> Pass:
        passes.append(1)
        if len(passes) == 1:
            raise ZeroDivisionError("secret words")
        follower.stop()
        return Pass()

    monkeypatch.setattr(follower, "once", once)
    follower.follow(said.append)
    assert len(passes) == 2
    assert said == ["a fault of the monitor itself: ZeroDivisionError"]
    engine.dispose()


def test_reasons_go_on_after_the_database_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = open_database(f"sqlite:///{tmp_path / 'monitor.sqlite'}")
    waiting = WaitingReasons(Queries(engine), {}, Profile("file:///x", LocalSettings(tmp_path)), lambda run: None)
    rounds: list[int] = []

    def once() -> None:
        rounds.append(1)
        if len(rounds) == 1:
            raise OperationalError("SELECT", {}, Exception("the server was shut down"))
        waiting.stop()

    monkeypatch.setattr(waiting, "once", once)
    monkeypatch.setattr("launcher.monitor.server.waiting_reasons.PAUSE", 0.01)
    waiting.follow()
    assert len(rounds) == 2
    engine.dispose()
