"""Nothing is billed for ever: cancel and reap, judged by the stand-in for Lambda Cloud."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.backends.lambda_labs import names, overdue
from launcher.protocol.records import Beat, Claim, Placement, Result
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.store.layout import RunKeys
from launcher.userdata.cache import Cache
from launcher.verbs import reap
from tests.unit.lambda_labs.conftest import Account


def statuses(account: Account) -> list[str]:
    return [each["status"] for each in account.cloud.bodies()]


def reaped(account: Account, tmp_path: Path) -> list[reap.Reaped]:
    backend = account.backend()
    return reap.reap(account.store, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "cache"))


@pytest.mark.parametrize("kind", ["", "drop_before", "drop_after", "unknown", "unknown_after", "500"])
def test_cancel_returns_when_the_machine_was_seen_gone(
    account: Account, settings: Callable[..., object], kind: str
) -> None:
    """SkyPilot 3410, dstack 1551: the answer to `terminate` says nothing; the next looks do."""
    one = account.job("one")
    account.submit(one)
    settings(faults=[{"on": "terminate", "kind": kind, "times": 1}] if kind else [])
    backend = account.backend()
    seen = backend.look_up(run_id(one))
    assert seen is not None
    backend.cancel([seen.handle])
    assert set(statuses(account)) <= {"terminating", "terminated"}
    backend.cancel([seen.handle])
    gone = account.backend().look_up(run_id(one))
    assert gone is not None
    assert (gone.active, gone.phase, gone.billed) == (False, "gone", False)


def test_reap_ends_the_machine_of_a_finished_run_and_reports_strangers(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reap, "LEAVING", -1.0)
    done, other = account.job("done"), account.job("other")
    account.submit(done)
    account.submit(other)
    body = msgspec.json.encode(Result("succeeded", 1, Reason.SUCCEEDED, "", 0.0, "n"))
    account.store.create(RunKeys(run_id(done)).result, body)
    account.store.delete([RunKeys(run_id(other)).job])  # as if of another store
    rows = {row.run: row for row in reaped(account, tmp_path) if row.did in ("stopped", "unknown")}
    assert (rows[run_id(done)].did, rows[run_id(other)].did) == ("stopped", "unknown")
    by_run = {each["body"]["name"]: each["status"] for each in account.cloud.bodies()}
    assert by_run[f"{run_id(done)}-main-0"].startswith("terminat")
    assert not by_run[f"{run_id(other)}-main-0"].startswith("terminat")


def claim(account: Account, run: str) -> None:
    keys = RunKeys(run).attempt(1)
    placement = Placement(names.KIND, f"default/{run}", host="10.0.2.1", boot="b", container="m")
    account.store.create(keys.claim("main-0"), msgspec.json.encode(Claim(placement, "n", 0.0)))
    account.store.put(keys.beat("main-0"), msgspec.json.encode(Beat(1, "running")))


@pytest.mark.parametrize(
    ("limits", "claimed", "why"),
    [
        ({"LATE": -10000.0}, True, "past its deadline"),
        ({"UNCLAIMED": -1.0}, False, "has started no runtime"),
        ({"SILENT": -1000.0, "UNCLAIMED": -1000.0}, True, "silent for"),
        ({}, True, ""),
        ({}, False, ""),
    ],
)
def test_reap_ends_what_is_expired_unclaimed_or_silent_and_nothing_else(
    account: Account,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    claimed: bool,
    why: str,
) -> None:
    one = account.job("one")
    account.submit(one)
    if claimed:
        claim(account, run_id(one))
    for name, value in limits.items():
        monkeypatch.setattr(overdue, name, value)
    rows = reaped(account, tmp_path)
    stopped = [row for row in rows if row.did == "stopped"]
    if not why:
        assert stopped == []
        assert statuses(account)[0] in ("booting", "active")
        return
    assert stopped, rows
    assert why in stopped[0].detail
    assert statuses(account)[0].startswith("terminat")
    if not claimed:  # no process will ever write its end: the next reaper does
        assert [row.did for row in reaped(account, tmp_path)] == ["ended"]
