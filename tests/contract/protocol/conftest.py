from __future__ import annotations

import threading

import pytest

from launcher.runtime.process import procs
from tests.contract.protocol.drive import LIVING
from tests.support.crashing import Crashed


@pytest.fixture(autouse=True)
def _threads_of_dead_processes_end_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not Crashed:
            others(args)

    monkeypatch.setattr(threading, "excepthook", hook)


@pytest.fixture(autouse=True)
def _threads_are_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procs, "alive", lambda pid, start, boot: pid in LIVING)
