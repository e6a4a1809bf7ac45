"""The wall clock of a machine jumps, forwards by hours and back: it goes off at its deadline, not before and not after,
and its run is no other's. The user data run as a process; the stand-in's `shutdown -P +N` goes by the machine's wall
clock, as systemd-logind's does, and what its programs see of that clock is moved too."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.lambda_labs.names import lifetime
from launcher.protocol.read import read_run
from launcher.spec.hashing import run_id
from launcher.spec.model import Limits, ResolvedJob, Timing
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs import reap
from launcher.verbs.submit import submit
from tests.fakes.lambda_cloud.running import FakeLambda
from tests.integration.lambda_labs.conftest import Account, account_of
from tests.support.jobs import group
from tests.support.waiting import until

HOUR = 3600.0
SPEED = 20.0  # of the cloud's clock
JUMPS = [5 * HOUR, -5 * HOUR]
WAIT = "import time, pathlib, sys\nwhile not pathlib.Path(sys.argv[1]).exists():\n    time.sleep(0.05)\n"
# every process of a machine reads the wall clock as its file says; nothing else of it changes
WALL = """
import time
from pathlib import Path

def moved(real):
    def clock(*given):
        try:
            return real(*given) + float(Path({file!r}).read_text())
        except (OSError, ValueError):
            return real(*given)
    return clock

time.time = moved(time.time)
"""


class Jumping:
    """An account whose machines read a wall clock that a test moves."""

    def __init__(self, account: Account) -> None:
        self.account, self.path = account, account.path

    def submit(self, **changes: Any) -> ResolvedJob:
        one = self.account.job("one", timing=Timing(beat=0.2, stale=20.0, fence=10.0), **changes)
        roles = {
            name: replace(role, command=("python", "-c", WAIT, str(self.path / "enough")))
            for name, role in one.roles.items()
        }
        one = replace(one, roles=roles)
        submit(group(one), self.account.store, self.account.backend())
        return one

    def move(self, seconds: float) -> None:
        """The machine's wall clock, for its programs and for its system."""
        (self.path / "jump.new").write_text(str(seconds))
        (self.path / "jump.new").rename(self.path / "jump")
        (body,) = self.account.cloud.bodies()
        self.account.cloud.admin("instance", id=body["id"], jump=seconds)

    def stand_still(self, seconds: float) -> None:
        """Stops the cloud's clock at so many seconds after the machine's start, however long a busy machine took."""
        (started,) = self.account.cloud.ledger("started")
        now = self.account.cloud.admin("clock", speed=0)["now"]
        self.account.cloud.admin("clock", add=started["at"] + seconds - now)

    def beats(self, one: ResolvedJob) -> int:
        view = read_run(self.account.store, run_id(one))
        beat = view.attempts[-1].beats.get("main-0") if view.attempts else None
        return beat[0].seq if beat is not None else 0

    def off(self) -> bool:
        return bool(self.account.cloud.ledger("off"))

    def explain(self) -> str:
        return "\n".join(path.read_text() for path in (self.path / "cloud").glob("*/console"))


@pytest.fixture
def jumping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jumping]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(WALL.format(file=str(tmp_path / "jump")))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{Path(__file__).parents[3]}")
    monkeypatch.setenv("SLIPWAY_TUNING", '{"poll": 0.05, "quiet": 0.3, "live": 0.2, "leftovers": 0.5}')
    cloud = FakeLambda(tmp_path / "cloud", speed=SPEED, program=Path(sys.executable))
    cloud.admin("settings", boot=10.0, lag=5.0)
    with account_of(cloud, tmp_path, monkeypatch) as account:
        yield Jumping(account)
        (tmp_path / "enough").touch()


@pytest.mark.parametrize("jump", JUMPS)
def test_a_run_goes_on_and_ends_as_one_attempt(jumping: Jumping, tmp_path: Path, jump: float) -> None:
    one = jumping.submit()
    until(lambda: jumping.beats(one) > 2, jumping.explain)
    jumping.move(jump)
    seen = jumping.beats(one)
    until(lambda: jumping.beats(one) > seen + 5, jumping.explain)
    backend = jumping.account.backend()
    store = jumping.account.store
    assert reap.reap(store, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "cache")) == []
    assert not jumping.off()
    (jumping.path / "enough").touch()
    until(lambda: store.head(RunKeys(run_id(one)).result), jumping.explain)
    view = read_run(store, run_id(one))
    assert view.result is not None
    assert (view.result.outcome, view.result.attempt) == ("succeeded", 1)
    assert 0 <= view.result.running < 60, "the time that is billed and limited is no wall clock's"
    assert len(jumping.account.launches()) == 1
    until(jumping.off, jumping.explain)


@pytest.mark.parametrize("jump", JUMPS)
def test_it_goes_off_when_its_time_is_over_and_not_before(jumping: Jumping, jump: float) -> None:
    """Judged by the cloud's clock: `late` is what the machine did by itself."""
    one = jumping.submit(limits=Limits(deadline=2 * HOUR, grace=2.0))
    until(lambda: jumping.beats(one) > 2, jumping.explain)
    jumping.move(jump)
    jumping.stand_still(lifetime(one) - 300)
    seen = jumping.beats(one)
    until(lambda: jumping.beats(one) > seen + 3, jumping.explain)
    assert not jumping.off(), "its time is not over"
    jumping.account.cloud.admin("clock", add=400, speed=SPEED)
    until(jumping.off, jumping.explain)


def test_it_goes_off_although_the_process_that_counts_was_killed(jumping: Jumping) -> None:
    """As a kernel without memory may do."""
    one = jumping.submit(limits=Limits(deadline=2 * HOUR, grace=2.0))
    until(lambda: jumping.beats(one) > 2, jumping.explain)
    (counting,) = (path for path in jumping.path.glob("cloud/*/asleep.*") if path.read_text() == f"{lifetime(one)}\n")
    process = int(counting.suffix[1:])
    parent = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    for each in (parent, process):
        os.kill(each, signal.SIGKILL)
    counting.unlink()
    jumping.stand_still(lifetime(one) + 300)
    seen = jumping.beats(one)
    until(lambda: jumping.beats(one) > seen + 3, jumping.explain)
    assert not jumping.off(), "systemd's timer has 300 s left"
    jumping.account.cloud.admin("clock", add=400, speed=SPEED)
    until(jumping.off, jumping.explain)
