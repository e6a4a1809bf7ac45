"""`backend: [kubernetes, lambda]`: from a cluster's Job to a machine of Lambda, both with the real backend over HTTP
and the real runtime. The mover is killed at any request of the store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Backend
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.lambda_labs.backend import LambdaBackend
from launcher.cli import main
from launcher.protocol.read import read_run
from launcher.reasons import Reason
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import Alternative, Image, Limits, Output, ResolvedJob, Timing, at_turn
from launcher.store import open_store
from launcher.store.layout import RunKeys
from launcher.store.opening import make_store
from launcher.verbs.move import move
from launcher.verbs.submit import submit
from tests.fakes.lambda_cloud.running import KEY, FakeLambda
from tests.integration.lambda_labs.conftest import TIMES
from tests.integration.local.test_moving import COMMAND
from tests.integration.moving.moved import MovedRuns
from tests.integration.moving.pods import Pods
from tests.support.crashing import Crashed, CrashingStore
from tests.support.jobs import group, job
from tests.support.waiting import until

LAMBDA = {"instance_types": ["gpu_1x_a10"], "ssh_key": "laptop"}


class Both(MovedRuns):
    def __init__(self, path: Path, pods: Pods, machines: FakeLambda) -> None:
        self.path, self.pods, self.machines = path, pods, machines
        self.store = open_store((path / "store").as_uri())
        own = {"folders": [str(path)], "store": self.store.url}
        self.block = {"namespace": "n", "caches": [{"name": "shared", "path": str(path)}]}
        self.backends: dict[str, Backend] = {
            "kubernetes": KubernetesBackend(self.block),
            "lambda": LambdaBackend({**LAMBDA, **TIMES, **own}),
        }

    def job(self, **limits: Any) -> ResolvedJob:
        role = {
            "command": ("python", "-c", COMMAND, str(self.path)),
            "image": Image(reference="registry.test/shim", digest=f"sha256:{'0' * 64}"),
        }
        return job(
            "moves",
            role=role,
            store=self.store.url,
            backend="kubernetes",
            options=self.block,
            alternatives=(Alternative("lambda", LAMBDA),),
            outputs={"ckpt": Output(kind="checkpoints", match="checkpoint-*")},
            limits=Limits(deadline=3600.0, grace=1.0, **limits),
            timing=Timing(beat=0.3, stale=9.0, fence=5.0),
        )

    def submitted(self, **limits: Any) -> str:
        one = self.job(**limits)
        submit(group(one), self.store, self.of(one))
        return run_id(one)

    def preempted(self) -> str:
        run = self.submitted()
        until(lambda: self.newest(run, 1) >= 3, self.explain)
        self.pods.preempt(run)
        return run

    def explain(self) -> str:
        logs = [*self.path.glob("machines/*/console"), *self.path.glob("pods/*/log")]
        return "\n".join(f"{path}:\n{path.read_text()[-2000:]}" for path in logs)

    def living(self) -> list[str]:
        """Machines that Lambda bills."""
        return [each["id"] for each in self.machines.bodies() if each["status"] not in ("terminating", "terminated")]

    def went_on(self, run: str, attempt: int, first: int) -> None:
        """At Lambda from the last checkpoint, on one machine; the cluster has nothing of it any more."""
        until(lambda: len(self.steps(attempt)) > 3, self.explain)
        assert self.pods.alive() == []
        assert self.pods.jobs == {}
        assert len(self.machines.ledger("launched")) == 1
        (self.path / "enough").touch()
        until(lambda: self.store.head(RunKeys(run).result), self.explain)
        view = read_run(self.store, run)
        assert view.result is not None
        assert view.job is not None
        assert (view.result.reason, view.result.attempt) == (Reason.SUCCEEDED, attempt)
        assert [each.moved_to for each in view.attempts if each.moved_to] == ["lambda"]
        assert not (self.path / "overlap").exists()
        assert self.steps(attempt)[0] == first
        assert {work_hash(at_turn(view.job, turn)) for turn in (0, 1)} == {work_hash(self.job())}


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    shim.chmod(0o755)
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "user" / name.lower()))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("SLIPWAY_TUNING", '{"poll": 0.05, "quiet": 0.3, "live": 0.2, "leftovers": 0.5}')
    machines = FakeLambda(tmp_path / "machines", speed=200.0, program=shim)
    machines.admin("settings", boot=10.0, lag=5.0)
    monkeypatch.setenv("LAMBDA_API_URL", machines.url)
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    try:
        with Pods(tmp_path).running() as pods:
            monkeypatch.setenv("KUBECONFIG", str(pods.server.kubeconfig(tmp_path)))
            yield Both(tmp_path, pods, machines)
            (tmp_path / "enough").touch()
    finally:
        close_all()
        machines.close()


def test_a_preempted_pod_goes_on_at_lambda(both: Both) -> None:
    run = both.preempted()
    last = both.newest(run, 1)
    until(lambda: any(did == "moved" for did, _ in both.reap()), both.explain)
    both.went_on(run, 3, last + 1)
    assert len(both.pods.started) == 1


def test_a_pod_that_finds_no_node_goes_to_lambda(both: Both) -> None:
    both.pods.room = False
    run = both.submitted(start_deadline=1.0)
    until(lambda: any(did == "moved" for did, _ in both.reap()), both.explain)
    both.went_on(run, 2, 1)
    assert both.pods.started == []


def killed_moving(both: Both, at: int) -> None:
    run = both.preempted()
    last = both.newest(run, 1)
    try:
        move(CrashingStore(both.store, at), run, both.of)
    except Crashed:
        both.reap()
        if read_run(both.store, run).turn == 0:
            move(both.store, run, both.of)
    both.reap()
    both.went_on(run, 3, last + 1)


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(0, 48, 3))
def test_wherever_it_is_killed(both: Both, at: int) -> None:
    killed_moving(both, at)


@pytest.mark.nightly  # the command waits for Lambda in real seconds
def test_what_it_costs_is_listed_and_cancel_ends_it_on_both(
    both: Both, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster did not hear that the run has left it: its Job is still there when a person cancels."""
    run = both.preempted()
    profile = {"store": both.store.url, "backend": "kubernetes", "kubernetes": {"namespace": "n"}, "lambda": LAMBDA}
    make_store(both.store)
    (both.path / "slipway.yaml").write_text(json.dumps(profile))
    monkeypatch.chdir(both.path)

    def paid() -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["status", "--paid", "-o", "json"]) == 0
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    assert paid() == []
    job_there, pods_there = dict(both.pods.jobs), dict(both.pods.pods)
    move(both.store, run, both.of)
    both.pods.jobs, both.pods.pods = job_there, pods_there
    until(lambda: len(both.steps(3)) > 0, both.explain)
    (item,) = paid()
    assert (item["run"], item["backend"], item["hourly"]) == (run, "lambda", 0.75)
    assert main(["cancel", run]) == 0
    assert both.pods.jobs == {}
    until(lambda: both.living() == [], lambda: both.machines.bodies())
    assert both.reap() == []
    assert paid() == []
    (both.path / "enough").touch()
