"""Two accounts of Lambda, whose users share a store and the name of the account: who holds the key of one hears of the
other's machines that there are none. That says nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.backends.lambda_labs import accounts
from launcher.errors import SlipwayError, Unreachable
from launcher.protocol.records import Event
from launcher.spec.hashing import run_id
from launcher.spec.model import Alternative, Limits, ResolvedJob, Timing
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs.cancel import cancel
from launcher.verbs.leftovers import Reaped
from launcher.verbs.reap import reap
from launcher.verbs.status import read_line
from launcher.verbs.submit import submit
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.lambda_labs.conftest import SPEED, Account
from tests.integration.lambda_labs.test_ending import claim
from tests.support.jobs import group

OTHER = "secret_another-account_0123456789"
SECOND = "secret_a-second-key-of-the-first_0123456789"
QUICK = Timing(beat=0.01, stale=0.05, fence=0.02)  # an attempt that is silent is lost at once


class Two:
    """`own` launched the runs; `use` chooses the key that asks from now on."""

    def __init__(self, own: FakeLambda, other: FakeLambda, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.own, self.other, self.patch = Account(own, path), Account(other, path), patch
        self.store = self.own.store

    def use(self, account: Account, key: str) -> None:
        self.patch.setenv("LAMBDA_API_URL", account.cloud.url)
        self.patch.setenv("LAMBDA_API_KEY", key)

    def as_stranger(self) -> None:
        self.use(self.other, OTHER)

    def as_colleague(self) -> None:
        """Another key of the same account; whoever launched has deleted theirs."""
        self.own.cloud.admin("settings", keys=[SECOND])
        self.use(self.own, SECOND)

    def reap(self) -> list[Reaped]:
        backend = self.own.backend()
        with Cache() as cache:
            return reap(self.store, lambda job: backend, {"lambda": backend}, cache=cache)

    def untouched(self, one: ResolvedJob, machines: int = 1) -> None:
        """Nobody has ended the run, moved it, or launched it again."""
        assert self.store.read(RunKeys(run_id(one)).result) is None
        assert self.other.launches() == []
        assert len(self.own.launches()) == machines
        assert all(not each["status"].startswith("terminat") for each in self.own.cloud.bodies())


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    own = FakeLambda(tmp_path / "own", speed=SPEED)
    other = FakeLambda(tmp_path / "other", speed=SPEED, key=OTHER)
    made = Two(own, other, tmp_path, monkeypatch)
    made.use(made.own, KEY)
    try:
        yield made
    finally:
        own.close()
        other.close()


@pytest.mark.parametrize(
    ("claimed", "changes"),
    [
        (True, {"alternatives": (Alternative("kubernetes", {"namespace": "n"}),)}),
        (True, {}),
        (False, {"limits": Limits(deadline=600.0, grace=2.0, start_deadline=0.001)}),
    ],
)
def test_a_reaper_with_another_accounts_key_ends_and_moves_nothing(
    two: Two, claimed: bool, changes: dict[str, Any]
) -> None:
    one = two.own.job("one", timing=QUICK, **changes)
    two.own.submit(one)
    if claimed:
        claim(two.own, run_id(one))
    two.as_stranger()
    with pytest.raises(Unreachable, match="in another account of Lambda"):
        two.own.backend().look_up(run_id(one))
    rows = [row for row in two.reap() if row.run == run_id(one)]
    assert {row.did for row in rows} <= {"unknown", "unreachable"}, rows
    backend = two.own.backend()
    _, line = read_line(two.store, run_id(one), lambda job: backend)
    assert not line.final
    assert "in another account of Lambda" in line.detail
    two.untouched(one)


@pytest.mark.parametrize("fault", ["", "drop_after"])
def test_a_submit_with_another_accounts_key_launches_nothing(two: Two, fault: str) -> None:
    """Also where the first launch had no answer, so that nothing names its machine."""
    one = two.own.job("one")
    if fault:
        two.own.cloud.admin("settings", list_lag=1e6, faults=[{"on": "launch", "kind": fault, "times": 1}] * 3)
        with pytest.raises(SlipwayError):
            two.own.submit(one, two.own.backend(settle=0.0))
    else:
        two.own.submit(one)
    launched = len(two.own.launches())
    two.as_stranger()
    with pytest.raises(Unreachable, match="in another account of Lambda"):
        submit(group(one), two.store, two.own.backend())
    two.untouched(one, launched)


def test_a_cancel_with_another_accounts_key_says_what_is_left(two: Two) -> None:
    """The run is told to end through the store; its machine is billed until somebody with a key of its account ends it,
    and nobody is told otherwise."""
    one = two.own.job("one")
    two.own.submit(one)
    two.as_stranger()
    with pytest.raises(Unreachable, match="in another account of Lambda"):
        cancel(two.store, run_id(one), two.own.backend())
    assert two.store.head(RunKeys(run_id(one)).cancel) is not None
    two.untouched(one)
    two.use(two.own, KEY)
    cancel(two.store, run_id(one), two.own.backend())
    assert all(each["status"].startswith("terminat") for each in two.own.cloud.bodies())


def test_a_colleagues_key_of_the_same_account_counts(two: Two) -> None:
    """Its SSH keys are the account's: what Lambda says to it of the machine is true."""
    one = two.own.job("one", timing=QUICK)
    machine = two.own.submit(one)
    claim(two.own, run_id(one))
    two.as_colleague()
    backend = two.own.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    assert seen.active
    backend.api.terminate([machine])
    two.own.cloud.admin("clock", add=3600.0)  # Lambda knows no more of it
    gone = two.own.backend().look_up(run_id(one))
    assert gone is not None
    assert gone.phase == "gone"
    assert [row.did for row in two.reap()] == ["ended"]


def test_the_records_say_which_account_it_was_and_no_key(two: Two) -> None:
    one = two.own.job("one")
    two.own.submit(one)
    for meta in list(two.store.scan(RunKeys(run_id(one)).events)):
        event = msgspec.json.decode(two.store.get(meta.key), type=Event)
        assert {accounts.KEY, accounts.SSH_KEY} <= set(event.fields)
        assert KEY not in str(event.fields)


def test_the_records_of_an_older_launcher_are_believed(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not say which account it was."""
    one = two.own.job("one")
    with monkeypatch.context() as older:
        older.setattr(accounts, "marks", lambda api, run, ssh_key: {})
        two.own.submit(one)
    two.as_stranger()
    gone = two.own.backend().look_up(run_id(one))
    assert gone is not None
    assert gone.phase == "gone"
