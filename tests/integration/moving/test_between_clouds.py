"""A run between two real backends, Lambda and Azure ML, in both orders: their stand-ins by HTTP and TLS, the unmodified
SDK, machines and nodes that are processes with the real runtime and a command that saves checkpoints. The mover is
killed (kill -9) at any request of the store."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.azureml.backend import AzureBackend
from launcher.backends.base import Backend
from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.errors import NoCapacity
from launcher.protocol.read import read_run
from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import Alternative, Image, Limits, Output, ResolvedJob, Timing
from launcher.store import open_store
from launcher.store.layout import RunKeys
from launcher.verbs.move import move, move_until_placed
from launcher.verbs.submit import submit
from tests.fakes.azureml import cloud as azure_cloud
from tests.fakes.azureml.running import FakeAzure
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.lambda_labs.conftest import TIMES
from tests.integration.local.test_moving import COMMAND
from tests.integration.moving.moved import MovedRuns
from tests.support.crashing import Crashed, CrashingStore
from tests.support.jobs import group, job
from tests.support.waiting import until

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the SDK's marshmallow
LAMBDA = {"instance_types": ["gpu_1x_a10"], "ssh_key": "laptop"}
AZURE = {
    "subscription": azure_cloud.SUBSCRIPTION,
    "resource_group": azure_cloud.GROUP,
    "workspace": azure_cloud.WORKSPACE,
    "compute": "gpu",
}
BLOCKS: dict[str, dict[str, Any]] = {"lambda": LAMBDA, "azureml": AZURE}
ORDERS = [("lambda", "azureml"), ("azureml", "lambda")]


class TwoClouds(MovedRuns):
    def __init__(self, path: Path, machines: FakeLambda, workspace: FakeAzure) -> None:
        self.path, self.machines, self.workspace = path, machines, workspace
        self.store = open_store((path / "store").as_uri())
        own = {"folders": [str(path)], "store": self.store.url}
        self.backends: dict[str, Backend] = {
            "lambda": LambdaBackend({**LAMBDA, **TIMES, **own}),
            "azureml": AzureBackend({**AZURE, **own, "poll": 0.05, "patience": 5.0}),
        }

    def job(self, order: tuple[str, str], **limits: Any) -> ResolvedJob:
        role = {
            "command": ("python", "-c", COMMAND, str(self.path)),
            "image": Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}"),
        }
        return job(
            "moves",
            role=role,
            store=self.store.url,
            backend=order[0],
            options=BLOCKS[order[0]],
            alternatives=(Alternative(order[1], BLOCKS[order[1]]),),
            outputs={"ckpt": Output(kind="checkpoints", match="checkpoint-*")},
            limits=Limits(deadline=3600.0, grace=1.0, **limits),
            timing=Timing(beat=0.3, stale=9.0, fence=5.0),
        )

    def explain(self) -> str:
        logs = [*self.path.glob("machines/*/console"), *self.path.glob("workspace/**/std_log.txt")]
        return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in logs)

    def take_away(self, run: str, name: str) -> None:
        """The machine of the run is gone, without a word to anybody."""
        if name == "lambda":
            backend = self.backends["lambda"]
            assert isinstance(backend, LambdaBackend)
            seen = backend.look_up(run)
            assert seen is not None
            backend.api.terminate([seen.handle.place["main-0"]])
        else:
            self.workspace.admin("set", name=run, status="Failed")
            self.freeze(run, name, signal.SIGKILL)

    def freeze(self, run: str, name: str, number: int) -> None:
        """A signal to every process of the run there."""
        folder = str(self.path / ("machines" if name == "lambda" else "workspace"))
        for pid in [int(each) for each in os.listdir("/proc") if each.isdigit()]:  # noqa: PTH208
            try:
                environment = Path(f"/proc/{pid}/environ").read_bytes()
                where = str(Path(f"/proc/{pid}/cwd").readlink())
            except OSError:
                continue
            if run.encode() in environment and (where.startswith(folder) or folder.encode() in environment):
                os.kill(pid, number)

    def went_on(self, run: str, to: str, newest: int | None = None) -> None:
        """It goes on at the other from its last checkpoint, and nobody computes beside it."""
        until(lambda: len(self.steps(3)) > 3, self.explain)
        (self.path / "enough").touch()
        until(lambda: self.store.head(RunKeys(run).result), self.explain)
        view = read_run(self.store, run)
        assert view.result is not None
        assert (view.result.outcome, view.result.attempt) == ("succeeded", 3)
        assert [(each.number, each.moved_to) for each in view.attempts if each.moved_to] == [(2, to)]
        assert not (self.path / "overlap").exists()
        assert self.steps(3)[0] == (self.newest(run, 1) if newest is None else newest) + 1


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoClouds]:
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("SLIPWAY_TUNING", '{"poll": 0.05, "quiet": 0.3, "live": 0.2, "leftovers": 0.5}')
    machines = FakeLambda(tmp_path / "machines", speed=200.0, program=shim)
    machines.admin("settings", boot=10.0, lag=5.0)
    workspace = FakeAzure(tmp_path / "workspace", speed=20.0, program=shim)
    workspace.admin("settings", queue=5.0)
    monkeypatch.setenv("LAMBDA_API_URL", machines.url)
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    for name, value in workspace.environ.items():
        monkeypatch.setenv(name, value)
    for name in ("https_proxy", "no_proxy", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    made = TwoClouds(tmp_path, machines, workspace)
    try:
        yield made
    finally:
        (tmp_path / "enough").touch()
        machines.close()
        workspace.close()


@pytest.mark.parametrize("order", ORDERS)
def test_a_machine_that_is_taken_away(two: TwoClouds, order: tuple[str, str]) -> None:
    one = two.job(order)
    run = run_id(one)
    submit(group(one), two.store, two.of(one))
    until(lambda: two.newest(run, 1) >= 3, two.explain)
    two.take_away(run, order[0])
    until(lambda: any(did == "moved" for did, _ in two.reap()), two.explain)
    two.went_on(run, order[1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("at", [9, 15, 30])  # before the claim that moves it, after it, and at the other backend
def test_a_mover_that_is_killed_is_followed_by_a_reaper(two: TwoClouds, order: tuple[str, str], at: int) -> None:
    one = two.job(order)
    run = run_id(one)
    submit(group(one), two.store, two.of(one))
    until(lambda: two.newest(run, 1) >= 3, two.explain)
    try:
        move(CrashingStore(two.store, at), run, two.of)
    except Crashed:
        two.reap()
        if read_run(two.store, run).turn == 0:
            move(two.store, run, two.of)
    two.reap()
    two.went_on(run, order[1])


@pytest.mark.parametrize("order", ORDERS)
def test_a_machine_that_is_frozen_while_its_run_moves(two: TwoClouds, order: tuple[str, str]) -> None:
    """The other waits until it must be dead; thawed, it ends without another step."""
    one = two.job(order)
    run = run_id(one)
    submit(group(one), two.store, two.of(one))
    until(lambda: two.newest(run, 1) >= 3, two.explain)
    two.freeze(run, order[0], signal.SIGSTOP)
    before, newest = two.steps(1), two.newest(run, 1)
    try:
        move(two.store, run, two.of)
        until(lambda: len(two.steps(3)) > 3, two.explain)
    finally:
        two.freeze(run, order[0], signal.SIGCONT)
    two.went_on(run, order[1], newest)
    assert two.steps(1) == before


def test_a_cloud_without_capacity_passes_it_on(two: TwoClouds) -> None:
    two.machines.admin("settings", capacity={"gpu_1x_a10": {}, "gpu_1x_h100_pcie": {}})
    one = two.job(("lambda", "azureml"))
    run = run_id(one)
    with pytest.raises(NoCapacity) as full:
        submit(group(one), two.store, two.of(one))
    assert move_until_placed(two.store, run, two.of, full.value).backend == "azureml"
    until(lambda: len(two.steps(2)) > 3, two.explain)
    (two.path / "enough").touch()
    until(lambda: two.store.head(RunKeys(run).result), two.explain)
    view = read_run(two.store, run)
    assert view.result is not None
    assert (view.result.reason, view.result.attempt) == (Reason.SUCCEEDED, 2)
    assert two.machines.ledger("launched") == []
