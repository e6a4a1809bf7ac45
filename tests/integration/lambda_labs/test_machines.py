"""The real runtime on machines of the stand-in: the user data as it was rendered, run as a process here, with docker
replaced by a program that starts this environment's Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from launcher.backends.lambda_labs import ending, names
from launcher.protocol.read import read_run
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from launcher.store.layout import RunKeys
from launcher.store.logs import Log
from launcher.userdata.cache import Cache
from launcher.verbs import leftovers, reap
from launcher.verbs.cancel import cancel
from launcher.verbs.submit import submit
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.lambda_labs.conftest import Account, account_with_machines
from tests.support.jobs import group
from tests.support.waiting import until

SAY = """
import os, socket
E = os.environ
print("rank", E["SLIPWAY_RANK"], "of", E["WORLD_SIZE"], "node", E["RANK"], "at", E["MASTER_ADDR"], flush=True)
assert not [name for name in E if name.startswith("AWS_") or "LAMBDA" in name]
"""
WAIT = "import time\nprint('working', flush=True)\ntime.sleep(3600)"


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    with account_with_machines(tmp_path, monkeypatch) as made:
        yield made


def given(account: Account, name: str, script: str, nodes: int) -> ResolvedJob:
    one = account.nodes(name, nodes)
    roles = {role: replace(each, command=("python", "-c", script)) for role, each in one.roles.items()}
    return replace(one, roles=roles)


def result(account: Account, one: ResolvedJob) -> Callable[[], object]:
    return lambda: account.store.head(RunKeys(run_id(one)).result)


def consoles(account: Account) -> str:
    return "\n".join(path.read_text() for path in (account.path / "cloud").glob("*/console"))


def output(account: Account, one: ResolvedJob, member: str) -> str:
    log = Log(account.store, RunKeys(run_id(one)).attempt(1), member)
    return b"".join(piece.body for piece in log.more() if piece.body).decode()


def test_two_machines_join_by_name_and_rank_and_run_the_command(
    account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = given(account, "two", SAY, 2)
    assert [each.state for each in submit(group(two), account.store, account.backend())] == ["submitted"]
    until(result(account, two), lambda: consoles(account))
    view = read_run(account.store, run_id(two))
    assert view.result is not None
    assert (view.result.outcome, view.result.attempt) == ("succeeded", 1)
    tags = {
        body["body"]["name"][-6:]: {tag["key"]: tag["value"] for tag in body["body"]["tags"]}
        for body in account.cloud.bodies()
    }
    for member in ("main-0", "main-1"):
        placement = view.attempts[0].claims[member].placement
        assert (placement.kind, placement.where) == ("machine", f"default/{run_id(two)}")
        assert placement.container == tags[member][names.LAUNCH]  # so reap knows which machine works
        rank = member[-1]
        assert f"rank {rank} of 2 node {rank} at " in output(account, two, member)
    # both power themselves off, and are billed until reap has ended them
    until(lambda: len(account.cloud.ledger("off")) == 2, lambda: consoles(account))
    monkeypatch.setattr(leftovers, "LEAVING", -1.0)
    backend = account.backend()
    reap.reap(account.store, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "cache"))
    assert all(body["status"].startswith("terminat") for body in account.cloud.bodies())


TOO_OLD = 'docker: "requirement error": unsatisfied condition: cuda>=13.0, \\ please update your driver'


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 78", ""),
        ("exit 1", "the runtime ended within 30 s, 20 times in a row, at last with exit code 1: "),
        (
            f"echo '{TOO_OLD}' >&2; exit 125",
            "the runtime could not be started, 4 times in a row, exit code 125: docker: requirement error: "
            "unsatisfied condition: cuda>=13.0,  please update your driver",
        ),
    ],
    ids=["says nothing", "ends at once", "the driver is too old"],
)
def test_a_failed_set_up_leaves_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    """SkyPilot 4392: the machine lives, and nothing of the job ever starts on it. It powers itself off and is billed
    until reap ends it; the run has its end, with the machine's own words if it had any."""
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\necho tried >> {tmp_path}/tried\n{script}\n")
    broken.chmod(0o755)
    cloud = FakeLambda(tmp_path / "cloud", speed=20.0, program=broken)
    try:
        cloud.admin("settings", boot=10.0, lag=5.0)
        monkeypatch.setenv("LAMBDA_API_URL", cloud.url)
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        account = Account(cloud, tmp_path)
        one = account.job("one")
        submit(group(one), account.store, account.backend())
        until(lambda: (tmp_path / "tried").exists())
        until(lambda: cloud.ledger("off"), lambda: consoles(account))

        def rows() -> list[leftovers.Reaped]:
            backend = account.backend()
            return reap.reap(account.store, lambda job: backend, {"lambda": backend}, cache=Cache(tmp_path / "cache"))

        if why:
            seen = account.backend().look_up(run_id(one))
            assert seen is not None
            assert (seen.active, seen.billed, seen.reason) == (False, True, "infrastructure")
            assert f"main-0: {why}" in seen.evidence
        else:
            assert [row.did for row in rows()] == []  # it may still be installing
            monkeypatch.setattr(ending, "UNCLAIMED", -1.0)
        told = {row.did: row.detail for row in rows()}
        assert set(told) == {"stopped", "ended"}
        assert (why or "has started no runtime in") in told["stopped"]
        end = read_run(account.store, run_id(one)).result
        assert end is not None
        assert (end.outcome, end.reason) == ("failed", "infrastructure")
        assert why in end.message
        assert rows() == []
        assert [body["status"].startswith("terminat") for body in cloud.bodies()] == [True]
    finally:
        cloud.close()


def test_a_cancelled_run_ends_on_its_machine(account: Account) -> None:
    one = given(account, "one", WAIT, 1)
    submit(group(one), account.store, account.backend())
    until(lambda: "working" in output(account, one, "main-0"), lambda: consoles(account))
    cancel(account.store, run_id(one), account.backend())
    until(lambda: account.cloud.bodies()[0]["status"].startswith("terminat"))
