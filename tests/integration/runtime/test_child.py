"""A command and what goes on beside it: no fault of the runtime's own leaves a command behind that nobody watches."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from launcher.runtime.member import child
from launcher.runtime.member.child import Outcome, run_command
from launcher.runtime.process import procs
from launcher.runtime.secrets.masking import Masker
from launcher.runtime.uploads.log_stream import OutputStream
from launcher.runtime.uploads.spool import Spool
from tests.support.waiting import until


class Quiet:
    """Signals of a process that gets none."""

    terminated: float | None = None

    def wake(self) -> None: ...

    def wait(self, descriptor: int, seconds: float) -> None:
        import select

        select.select([descriptor], [], [], seconds)


class Loose:
    """A leash that nobody holds."""

    pid = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have started from this process, an S3 server for one, is not the command's: it stays."""
    there = [process.pid for process in procs.descendants(os.getpid())]
    kill, reap = procs.kill_tree, procs.reap_adopted

    def kill_tree(*arguments: Any, spare: Any = (), **named: Any) -> None:
        kill(*arguments, spare=[*spare, *there], **named)

    monkeypatch.setattr(procs, "kill_tree", kill_tree)
    monkeypatch.setattr(procs, "reap_adopted", lambda keep: reap(keep=[*keep, *there]))


def run(tmp_path: Path, command: str, tick: Any, monkeypatch: pytest.MonkeyPatch | None = None) -> Outcome:
    spool = Spool(tmp_path / "log")
    try:
        return run_command(
            ["sh", "-c", command],
            {**os.environ, "CHILD_TEST": str(tmp_path)},
            tmp_path,
            output=OutputStream(spool, Masker([]), echo=None),
            signals=Quiet(),  # type: ignore[arg-type]
            stopped=threading.Event(),
            grace=1.0,
            leftovers=0.1,
            poll=0.02,
            tick=tick,
            leash=Loose(),  # type: ignore[arg-type]
        )
    finally:
        spool.close()


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("can't start new thread"), KeyError("x")])
def test_a_tick_that_raises_ends_no_command(tmp_path: Path, fault: Exception) -> None:
    ticks: list[float] = []

    def tick(seconds: float) -> None:
        ticks.append(seconds)
        if len(ticks) > 3:
            (tmp_path / "go").touch()
        raise fault

    outcome = run(tmp_path, "until [ -e go ]; do sleep 0.02; done; exit 3", tick)
    assert outcome.code == 3


def test_a_command_that_cannot_be_watched_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            if self.name == "stop":
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(child.threading, "Thread", NoThread)
    with pytest.raises(RuntimeError, match="new thread"):
        # without exec the shell may start sleep while it is killed; this process does not adopt it, as the runtime does
        run(tmp_path, "exec sleep 600", lambda seconds: None)
    until(lambda: not procs.descendants_with_mark(str(tmp_path), "CHILD_TEST"))  # killed, and on its way out
