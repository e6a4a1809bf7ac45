"""Exactly one machine for a run, judged by the ledger of the stand-in for Lambda Cloud."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher import wait_hint
from launcher.backends.lambda_labs import access
from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.errors import BadInput, SlipwayError, Unreachable
from launcher.protocol.read import read_run
from launcher.spec.hashing import encode_job, run_id
from launcher.spec.model import ResolvedJob
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store
from launcher.verbs.ask_backend import ask_backend
from launcher.verbs.submit import submit
from tests.integration.lambda_labs.conftest import TIMES, Account
from tests.support.jobs import group

Settings = Callable[..., object]


@pytest.mark.parametrize("kind", ["drop_before", "drop_after", "unknown", "unknown_after", "500", "429"])
def test_a_launch_without_a_clear_answer_makes_one_machine(account: Account, settings: Settings, kind: str) -> None:
    """dstack 3453 and SkyPilot 3410: the answer is lost after the machine was made, or says `global/unknown`."""
    settings(faults=[{"on": "launch", "kind": kind, "times": 1}])
    machine = account.submit(account.job("one"))
    assert account.launches() == [machine]
    assert account.submit(account.job("one")) == machine
    assert account.launches() == [machine]


def test_a_machine_that_no_list_shows_yet_is_not_launched_again(account: Account, settings: Settings) -> None:
    """SkyPilot 656: a launch whose answer is lost, then a list that lags: no second place is tried meanwhile."""
    settings(list_lag=30.0, faults=[{"on": "launch", "kind": "drop_after", "times": 1}])
    machine = account.submit(account.job("one"))
    assert account.launches() == [machine]
    settings(list_lag=100000.0)  # known by its id, whatever lists show
    assert account.submit(account.job("one")) == machine


def test_a_failover_leaves_no_machine_in_the_first_region(account: Account, settings: Settings) -> None:
    """SkyPilot 656: the launch in the first region takes effect and its answer says that Lambda fails; its capacity is
    used up by that, so a launcher that believed the answer would go on to the second region."""
    settings(
        capacity={"gpu_1x_a10": {"us-east-1": 1, "us-west-1": 5}},
        list_lag=30.0,
        faults=[{"on": "launch", "kind": "unknown_after", "times": 1}],
    )
    machine = account.submit(account.job("one", {"regions": ["us-east-1", "us-west-1"]}))
    (made,) = account.cloud.bodies()
    assert (made["id"], made["body"]["region_name"]) == (machine, "us-east-1")


class Killed(BaseException):
    """kill -9 between two calls."""


@pytest.mark.parametrize("after", [False, True])
def test_killed_between_any_two_requests_then_again_is_one_machine(
    account: Account, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The n-th request to Lambda is the last of its launcher, before or after it took effect."""
    total = 0
    for at in range(50):
        one, backend = account.job(f"a{at}"), account.backend()
        once, sent = backend.api._once, 0

        def cut(*arguments: Any, once: Any = once, at: int = at) -> bytes:
            nonlocal sent
            sent += 1
            if sent - 1 == at and not after:
                raise Killed
            try:
                answer: bytes = once(*arguments)
            except SlipwayError:  # a 429, where the machine is busy and requests come close together
                if sent - 1 == at:
                    raise Killed from None
                raise
            if sent - 1 == at:
                raise Killed
            return answer

        monkeypatch.setattr(backend.api, "_once", cut)
        try:
            account.submit(one, backend)
            whole = True
        except Killed:
            whole = False
        machine = account.submit(one)
        launched = [entry["id"] for entry in account.cloud.ledger("launched") if entry["run"] == run_id(one)]
        assert launched == [machine]
        total += 1
        if whole:
            break
    assert total > 3


LAUNCHER = """
import sys, msgspec
from launcher.backends.lambda_labs import access
from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.spec.hashing import decode_job
options = msgspec.json.decode(sys.argv[1])
for text in sys.argv[2:]:
    job = decode_job(text.encode())
    backend = LambdaBackend(options)
    backend.submit(backend.render([job]), [job])
"""


def test_three_launchers_at_once_make_one_machine_each_run(account: Account) -> None:
    """Processes of their own, as on three machines; without the lease 27 to 30 of 60 were launched twice."""
    jobs = [account.job(f"j{index}") for index in range(4)]
    options = json.dumps({**TIMES, "folders": [str(account.path)]})
    command = [sys.executable, "-c", LAUNCHER, options, *(encode_job(one).decode() for one in jobs)]
    launchers = [subprocess.Popen(command, env=os.environ) for _ in range(3)]
    assert [each.wait() for each in launchers] == [0, 0, 0]
    runs = [entry["run"] for entry in account.cloud.ledger("launched")]
    assert sorted(runs) == sorted(run_id(one) for one in jobs)
    assert [entry for entry in account.cloud.ledger("throttled") if entry["limit"] == "launches"] == []


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_processes_that_are_killed_make_one_machine_each_run(account: Account) -> None:
    """The storm in virtual time (test_storm.py) with real processes, signals and sockets, and fewer of them: three
    launchers at a time get SIGKILL at a random moment, then one is left in peace."""
    dice = random.Random(7)
    options = json.dumps({**TIMES, "lease": 12.0, "folders": [str(account.path)]})
    kills, lasts = 0, 0.6  # seconds that a launcher of these three jobs takes here
    for number in range(20):
        jobs = [account.job(f"k{number}-{index}") for index in range(3)]
        command = [sys.executable, "-c", LAUNCHER, options, *(encode_job(one).decode() for one in jobs)]
        launchers = [subprocess.Popen(command, env=os.environ, stderr=subprocess.DEVNULL) for _ in range(3)]
        for each in launchers:
            time.sleep(dice.uniform(0.05, 0.6) * lasts)
            kills += each.poll() is None
            each.kill()
        assert {each.wait() for each in launchers} <= {0, -signal.SIGKILL}
        for _ in range(10):  # a busy machine may take longer than a lease lasts; then the same command goes on
            began = time.monotonic()
            if subprocess.run(command, env=os.environ).returncode == 0:
                lasts = min(time.monotonic() - began, 3.0)
                break
        for one in jobs:
            entries = [entry for entry in account.cloud.ledger("launched") if entry["run"] == run_id(one)]
            assert len(entries) == 1, number
    assert kills > 20


def test_capacity_is_taken_in_the_users_order_and_costs_no_launch(account: Account, settings: Settings) -> None:
    settings(capacity={"gpu_1x_a10": {"us-east-1": 0}, "gpu_1x_h100_pcie": {"us-west-1": 2, "us-east-1": 1}})
    account.submit(account.job("one", {"regions": ["us-west-1", "us-east-1"]}))
    (made,) = account.cloud.bodies()
    assert (made["body"]["instance_type_name"], made["body"]["region_name"]) == ("gpu_1x_h100_pcie", "us-west-1")
    settings(capacity={})
    with pytest.raises(Unreachable, match="no capacity now for gpu_1x_a10, gpu_1x_h100_pcie in any region"):
        account.submit(account.job("two"))
    assert len(account.launches()) == 1


def test_the_machines_of_a_run_are_in_one_region(account: Account, settings: Settings) -> None:
    """Private addresses reach no other region. Another type there will do."""
    settings(capacity={"gpu_1x_a10": {"us-east-1": 1, "us-west-1": 5}, "gpu_1x_h100_pcie": {"us-west-1": 5}})
    two = account.nodes("two", 2)
    with pytest.raises(Unreachable) as raised:
        account.submit(two)
    told = "main-0 is there already, in us-east-1, where the others must be, and is billed: `launcher cancel"
    assert f"{told} {run_id(two)}`" in str(raised.value)
    settings(capacity={"gpu_1x_a10": {"us-west-1": 5}, "gpu_1x_h100_pcie": {"us-west-1": 5, "us-east-1": 1}})
    account.submit(two)
    bodies = [body["body"] for body in account.cloud.bodies()]
    assert [(body["region_name"], body["instance_type_name"]) for body in bodies] == [
        ("us-east-1", "gpu_1x_a10"),
        ("us-east-1", "gpu_1x_h100_pcie"),
    ]


def test_capacity_that_comes_is_waited_for(
    account: Account, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the user is told so, once, after what must be said before."""
    told: list[str] = []
    monkeypatch.setattr(wait_hint, "say", told.append)
    monkeypatch.setattr(wait_hint, "before", lambda: told.append("cost"))
    settings(capacity={"gpu_1x_a10": {"us-east-1": 0}})
    waiting = account.job("one", {"wait_for_capacity": 600.0})
    asked: list[int] = []

    class Watched(LambdaBackend):
        pass

    backend = Watched(account.backend().options)
    types = backend.api.types

    def offered() -> Any:
        asked.append(1)
        if len(asked) == 3:
            settings(capacity={"gpu_1x_a10": {"us-east-1": 1}})
        return types()

    backend.api.types = offered  # type: ignore[method-assign]
    assert account.submit(waiting, backend) in account.launches()
    assert len(asked) >= 3
    cost, wait = told
    assert cost == "cost"
    assert "waits: Lambda has no capacity now for gpu_1x_a10, gpu_1x_h100_pcie in any region; asks again for " in wait


def test_credentials_are_made_when_a_machine_is_launched_and_not_before_the_wait_for_it(
    account: Account, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They live as long as the machine may. Hours of waiting for capacity would be taken off the end of the run."""
    settings(capacity={"gpu_1x_a10": {"us-east-1": 0}})
    clock, made = [1000.0], []

    def make(job: ResolvedJob) -> dict[str, str]:
        made.append(clock[0])
        return {"AWS_SESSION_TOKEN": f"made at {clock[0]:.0f}"}

    monkeypatch.setattr(access, "access", make)
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    backend = account.backend()
    types = backend.api.types

    def offered() -> Any:
        clock[0] += 3600
        if clock[0] == 1000 + 3 * 3600:
            settings(capacity={"gpu_1x_a10": {"us-east-1": 1}})
        return types()

    monkeypatch.setattr(backend.api, "types", offered)
    account.submit(account.job("one", {"wait_for_capacity": 600.0}), backend)
    (body,) = account.cloud.bodies()
    assert "made at 11800" in body["body"]["user_data"]
    assert made == [1000.0, 11800.0]  # at once, so that nobody waits for hours in vain, and for the launch


def test_a_submit_that_died_between_two_machines_is_completed_by_the_same_submit(
    account: Account, settings: Settings
) -> None:
    """SkyPilot 656, dstack 3453 for several machines: what is there is kept, what is missing is launched."""
    two = account.nodes("two", 2)
    settings(quota=1)
    with pytest.raises(Unreachable, match="quota-exceeded"):
        submit(group(two), account.store, account.backend())
    settings(quota=10)
    assert [each.state for each in submit(group(two), account.store, account.backend())] == ["submitted"]
    assert [each.state for each in submit(group(two), account.store, account.backend())] == ["attached"]
    assert [body["body"]["name"][-6:] for body in account.cloud.bodies()] == ["main-0", "main-1"]


def test_a_submit_after_all_machines_are_gone_launches_again(account: Account) -> None:
    """A machine that ended before its runtime began: the same command repairs it."""
    one = account.job("one")
    first = account.submit(one)
    account.backend().api.terminate([first])
    account.cloud.admin("clock", add=60)
    assert [each.state for each in submit(group(one), account.store, account.backend())] == ["submitted"]
    assert len(account.launches()) == 2


@pytest.mark.parametrize("record", ["cancel", "result"])
def test_a_launcher_that_waits_launches_nothing_for_a_run_that_is_over(
    account: Account, settings: Settings, record: str
) -> None:
    """It may wait for six hours; meanwhile somebody cancels the run, or it ends elsewhere."""
    one = account.job("one")
    settings(faults=[{"on": "launch", "kind": "drop_before", "times": 1}])
    backend = account.backend()
    types = backend.api.types

    def offered() -> Any:
        account.store.create(getattr(RunKeys(run_id(one)), record), b"{}")
        return types()

    backend.api.types = offered  # type: ignore[method-assign]
    account.store.create(RunKeys(run_id(one)).job, encode_job(one))
    (handle,) = backend.submit(backend.render([one]), [one]).values()
    assert dict(handle.place) == {"store": account.store.url}
    assert account.launches() == []


def test_quota_and_refused_types_are_told(account: Account, settings: Settings) -> None:
    settings(quota=0)
    with pytest.raises(Unreachable, match=r"Quota exceeded\. \(global/quota-exceeded\); end a machine"):
        account.submit(account.job("one"))
    with pytest.raises(BadInput, match="`gpu_9x` is not offered; allowed: gpu_1x_a10"):
        account.submit(account.job("two", {"instance_types": ["gpu_9x"]}))
    assert account.launches() == []


def test_a_machine_is_launched_where_its_file_system_is(account: Account, settings: Settings) -> None:
    """us-east-1 comes first, and the next region would do: Lambda refused."""
    settings(disks={"data": {"region": "us-west-1"}})
    account.submit(account.job("one", {"file_systems": ["data"]}))
    (body,) = account.cloud.bodies()
    assert body["body"]["region_name"] == "us-west-1"
    account.submit(account.job("two", {"file_systems": ["not-listed"]}))
    assert account.cloud.bodies()[-1]["body"]["region_name"] == "us-east-1"
    with pytest.raises(BadInput, match=r"data is in us-west-1, .* lambda.regions allows us-east-1 only"):
        account.submit(account.job("three", {"file_systems": ["data"], "regions": ["us-east-1"]}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"quota": 0}, "Quota exceeded. (global/quota-exceeded)"),
        ({"capacity": {}}, "Lambda has no capacity now for gpu_1x_a10, gpu_1x_h100_pcie in any region"),
    ],
    ids=["quota", "capacity"],
)
def test_status_has_the_words_of_a_refusal(
    account: Account,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
    words: str,
) -> None:
    """It said that the submit was interrupted, though the store knows why."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("launcher.userdata.submits.note_of", lambda *_: True)  # its process has ended
    settings(**change)
    make_store(account.store)
    one, backend = account.job("one"), account.backend()
    with pytest.raises(SlipwayError):
        submit(group(one), account.store, backend)
    said = ask_backend(account.store, read_run(account.store, run_id(one)), lambda job: backend)
    assert words in said.message
    assert "interrupted" not in said.message
    assert said.repair.startswith("launcher submit --run ")
