"""Which backend is asked for a way to a member's desktop, and for which of its ports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.monitor.server.live.desktops import LiveDesktops
from launcher.monitor.server.pages.desktops import screens_of
from launcher.protocol.records import Claim, Placement
from launcher.spec.hashing import encode_job
from launcher.spec.profile import LocalSettings, Profile
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.support.fakerun import FakeAttempt, write_run
from tests.support.waiting import until
from tests.unit.monitor.test_live_desktops import MEMBER, Way, job, ready, seen, vnc


def claimed(store: Store, run: str, number: int, moved_to: str = "") -> None:
    place = Placement(kind="pod", where="cluster", host="node", boot="boot")
    claim = Claim(place, f"{number}", 0.0, moved_to=moved_to)
    store.create(RunKeys(run).attempt(number).claim(MEMBER), msgspec.json.encode(claim))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The backends by name that the monitor has."""
    known: dict[str, Any] = {}
    monkeypatch.setattr(
        "launcher.monitor.server.live.desktops.backends", lambda profile: lambda job: known[job.backend]
    )
    return known


def test_a_run_that_was_moved_is_seen_through_the_backend_it_was_moved_to(
    tmp_path: Path, asked: dict[str, Any]
) -> None:
    store = FileStore(tmp_path, sync=False)
    made = job("several", "lambda", "kubernetes")
    run = write_run(store, made, [FakeAttempt(ended=None)], outcome=None)
    assert screens_of("running", encode_job(made).decode()) == [MEMBER]
    claimed(store, run, 2, moved_to="lambda")
    claimed(store, run, 3)
    live = LiveDesktops(Profile(store.url, LocalSettings(tmp_path)))
    with vnc() as port:
        asked |= {"local": None, "kubernetes": None, "lambda": Way(6080, port)}
        try:
            assert seen(live, store, run, made).problem == f"{MEMBER} is not ready yet"
            ready(store, run, 3, vnc="10.0.0.7:6080")
            until(lambda: seen(live, store, run, made).number)
            assert seen(live, store, run, made).width == 1
        finally:
            live.stop()
    assert asked["lambda"].members == [MEMBER]
