"""Which backend is asked for a way to a member's desktop, and for which of its ports."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.backends import forwarding
from launcher.errors import NotFound
from launcher.monitor.server.live.desktops import LiveDesktops, LiveScreen
from launcher.protocol.records import Endpoint
from launcher.spec.model import Alternative, ResolvedJob
from launcher.spec.profile import LocalSettings, Profile
from launcher.store.base import Store
from launcher.store.file import FileStore
from launcher.store.layout import RunKeys
from tests.integration.monitor.test_rfb import Server, rectangle, update
from tests.support.fakerun import FakeAttempt, fake_job, write_run
from tests.support.waiting import until

MEMBER = "desktop-0"


@contextmanager
def vnc() -> Iterator[int]:
    """A desktop of one pixel, for any number of callers; those that say nothing are left."""

    def talk(channel: socket.socket) -> None:
        with channel, contextlib.suppress(OSError, IndexError):
            server = Server(channel)
            server.begin(1, 1, "word")
            server.say(update(rectangle(0, 0, 1, 1, bytes(4))))
            channel.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            with contextlib.suppress(OSError):  # the test is over
                while True:
                    threading.Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=work, daemon=True).start()
        yield int(listener.getsockname()[1])


class Way:
    """A backend whose members' port `there` is this machine's port `here`."""

    def __init__(self, there: int, here: int) -> None:
        self.there, self.here = there, here
        self.members: list[str] = []

    def execute(self, run: str, member: str, command: Sequence[str], *, tty: bool) -> list[str]:
        assert command == ["cat", f"/tmp/desktop-view-{self.there}.json"]
        return ["echo", '{"password": "word"}']

    def forward(self, run: str, member: str, ports: Sequence[tuple[int, int]]) -> list[str]:
        self.members.append(member)
        assert [there for _, there in ports] == [self.there]
        return forwarding.argv([(here, self.here) for here, _ in ports])


def job(name: str, *others: str) -> ResolvedJob:
    made = fake_job(name, alternatives=tuple(Alternative(other) for other in others))
    return msgspec.structs.replace(
        made, roles={"desktop": msgspec.structs.replace(made.roles["main"], ports={"vnc": 6080})}
    )


def ready(store: Store, run: str, number: int, **ports: str) -> None:
    told = Endpoint(MEMBER, ports, 0.0)
    store.put(RunKeys(run).attempt(number).endpoint(MEMBER), msgspec.json.encode(told))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The backends by name that the monitor has."""
    known: dict[str, Any] = {}
    monkeypatch.setattr(
        "launcher.monitor.server.live.desktops.backends", lambda profile: lambda job: known[job.backend]
    )
    return known


def seen(live: LiveDesktops, store: Store, run: str, made: ResolvedJob) -> LiveScreen:
    """What the page is told once there is a picture, or a reason why there is none."""
    watch = live.watch(store, run, made, MEMBER)
    until(lambda: watch.look().number or watch.look().problem)
    return watch.look()


@pytest.mark.parametrize(
    ("ports", "words"),
    [({}, "told of no port `vnc`"), ({"vnc": "here"}, "told of no port `vnc`"), (None, "is not ready yet")],
)
def test_a_desktop_that_cannot_be_seen_says_why(
    tmp_path: Path, asked: dict[str, Any], ports: dict[str, str] | None, words: str
) -> None:
    store = FileStore(tmp_path, sync=False)
    made = job("one")
    run = write_run(store, made, [FakeAttempt(ended=None)], outcome=None)
    if ports is not None:
        ready(store, run, 1, **ports)
    asked["local"] = Way(6080, 1)
    live = LiveDesktops(Profile(store.url, LocalSettings(tmp_path)))
    found = seen(live, store, run, made)
    assert (found.number, words in found.problem) == (0, True), found.problem
    with pytest.raises(NotFound, match="main-0 shows no desktop"):
        live.watch(store, run, made, "main-0")
    live.stop()


def test_a_backend_that_gives_no_way_is_told(tmp_path: Path, asked: dict[str, Any]) -> None:
    store = FileStore(tmp_path, sync=False)
    made = job("away")
    run = write_run(store, made, [FakeAttempt(ended=None)], outcome=None)
    asked["local"] = None  # its SDK, or its settings, are missing here
    live = LiveDesktops(Profile(store.url, LocalSettings(tmp_path)))
    assert seen(live, store, run, made).problem == "from here the run's backend gives no way to its members"
    live.stop()
