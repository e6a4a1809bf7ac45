"""The threads of an attempt go on whatever a round raises: a runtime that beats no more is taken for dead."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.protocol.records import Beat, Exit
from launcher.reasons import Reason
from launcher.runtime.member.member import Member, Started
from launcher.runtime.uploads.spool import Shipper, Spool
from launcher.store.base import Store
from launcher.store.file import FileStore
from tests.contract.protocol.drive import LIVING, job, placement
from tests.support.waiting import HANGS, until

FAULTS = [
    MemoryError(),
    RuntimeError("can't start new thread"),
    msgspec.DecodeError("no JSON"),
    OSError(24, "too many"),
]


class FaultyStore:
    """A store whose methods raise what a test wants."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.url = inner.url
        self.fault: BaseException | None = None
        self.raised = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if self.fault is not None:
            self.raised.set()
            raise self.fault
        return getattr(self._inner, name)


def begun(store: Store, **more: Any) -> Member:
    at = placement()
    LIVING.add(at.pid)
    member = Member(store, job(store, stale=600.0), "main-0", at, **more)
    assert isinstance(member.start(), Started)
    assert member.before_command() is None
    return member


def beats(store: Store, member: Member) -> int:
    found = store.read(member.keys.attempt(1).beat("main-0"))
    return msgspec.json.decode(found[0], type=Beat).seq if found else 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("log_raises", [False, True])
def test_beats_go_on_after_any_exception(tmp_path: Path, fault: Exception, log_raises: bool) -> None:
    folder = FileStore(tmp_path / "store", sync=False)
    store = FaultyStore(folder)
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        if log_raises and store.fault is not None:
            raise MemoryError

    member = begun(store, log=log)
    before = beats(folder, member)
    store.fault = fault
    assert store.raised.wait(HANGS)
    store.fault = None
    until(lambda: beats(folder, member) > before + 1, lambda: "no beat any more")
    assert any(type(fault).__name__ in line for line in lines)
    assert member.stop is None
    assert member.end(Exit("main-0", Reason.SUCCEEDED), outputs_done=True) == 0


def test_a_stop_counts_though_its_line_can_not_be_said(tmp_path: Path) -> None:
    folder = FileStore(tmp_path / "store", sync=False)

    def log(line: str) -> None:
        if line.startswith("stopping"):
            raise MemoryError

    member = begun(folder, log=log)
    folder.create(member.keys.cancel, b'{"by": "me", "time": 0, "nonce": "x"}')
    assert member.stopped.wait(HANGS)
    assert member.stop is not None
    assert member.stop.reason is Reason.CANCELLED
    assert member.end(Exit("main-0", Reason.CANCELLED), outputs_done=False) == 78


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_a_log_goes_on_after_any_exception(tmp_path: Path, fault: Exception) -> None:
    folder = FileStore(tmp_path / "store", sync=False)
    store: Any = FaultyStore(folder)
    store.fault = fault
    spool = Spool(tmp_path / "spool")
    shipper = Shipper(store, spool, lambda first, end: f"log/{first:020d}-{end:020d}", first=0.01, longest=0.02)
    spool.append(b"one\n")
    assert store.raised.wait(HANGS)
    store.fault = None
    until(lambda: list(folder.scan("log/")), lambda: "nothing is sent any more")
    shipper.finish()
    spool.close()
