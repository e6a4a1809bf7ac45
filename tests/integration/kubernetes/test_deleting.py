"""What cancel takes from a cluster, asked of a server that holds a few objects and refuses what it is told to."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Handle
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.objects import JOB, JOB_SET, POD
from launcher.cli import main
from tests.integration.kubernetes.speaker import Answer, Speaker, refusal, speaking
from tests.unit.kubernetes.support import job, only

FIRST, SECOND = "first-0123456789ab", "second-0123456789ab"
PIPELINE = "pipeline-0123456789ab"


def job_set(namespace: str) -> dict[str, Any]:
    metadata = {
        "name": PIPELINE,
        "namespace": namespace,
        "uid": "u",
        "labels": {"slipway.dev/pipeline": PIPELINE},
        "annotations": {"slipway.dev/runs": json.dumps({FIRST: "a", SECOND: "b"})},
    }
    return {"metadata": metadata, "spec": {"replicatedJobs": []}}


def child(namespace: str, run: str) -> dict[str, Any]:
    """The Job that JobSet's controller makes of a stage."""
    owner = {"kind": "JobSet", "name": PIPELINE, "uid": "u", "controller": True}
    return {"metadata": {"name": f"job-{run}", "namespace": namespace, "uid": f"j-{run}", "ownerReferences": [owner]}}


def pod(namespace: str, run: str, controller: str) -> dict[str, Any]:
    labels = {"slipway.dev/run": run, "slipway.dev/role": "main"}
    metadata: dict[str, Any] = {"name": f"pod-{run}", "namespace": namespace, "uid": f"p-{run}", "labels": labels}
    metadata["ownerReferences"] = [{"kind": "Job", "name": "x", "uid": controller, "controller": True}]
    if controller != f"j-{run}":
        metadata["name"] = "strangers"
    return {"metadata": metadata, "status": {"phase": "Running"}}


class Holding:
    """A cluster that holds a pipeline with a pod of each of its runs in namespace `there`, and a stranger's pods beside
    them, with the same labels."""

    def __init__(self) -> None:
        self.forbidden = ""
        self.jobs: dict[str, dict[str, Any]] = {}  # path -> Job

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        if method == "DELETE":
            return refusal(403, "Forbidden") if self.forbidden and self.forbidden in path else (200, {})
        if path in self.jobs:
            return 200, self.jobs[path]
        if path in (JOB.group, JOB_SET.group):
            return 200, {}
        if path == JOB_SET.path("there"):
            return 200, {"items": [job_set("there")]}
        if path == POD.path("there"):
            run = query["labelSelector"].partition("=")[2]
            return 200, {"items": [pod("there", run, f"j-{run}"), pod("there", run, "another")]}
        if path == JOB.path("there") and "jobset-name" in query.get("labelSelector", ""):
            return 200, {"items": [child("there", FIRST), child("there", SECOND)]}
        if path.count("/") == JOB.path("there").count("/"):
            return 200, {"items": []}
        return refusal(404, "NotFound")


@pytest.fixture
def cluster() -> Holding:
    return Holding()


@pytest.fixture
def server(cluster: Holding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Speaker]:
    with speaking(cluster.answer) as made:
        monkeypatch.setenv("KUBECONFIG", str(made.kubeconfig(tmp_path, "here")))
        yield made
        close_all()


def handles(*runs: str) -> list[Handle]:
    return [Handle(run, "kubernetes", PIPELINE, "", {"namespace": "there", "uid": "u"}) for run in runs]


def deleted(server: Speaker) -> set[str]:
    return {path for method, path in server.asked if method == "DELETE"}


def test_an_object_goes_when_all_that_it_carries_is_cancelled(server: Speaker) -> None:
    """It is looked for where its handle says, whatever namespace this backend is set to."""
    KubernetesBackend({}).cancel(handles(FIRST, SECOND))
    assert deleted(server) == {JOB_SET.path("there", PIPELINE)}


def test_of_an_object_with_other_runs_only_the_pods_go(server: Speaker) -> None:
    KubernetesBackend({}).cancel(handles(FIRST))
    assert deleted(server) == {POD.path("there", f"pod-{FIRST}")}


def test_who_may_not_delete_pods_leaves_it_to_their_runtimes(server: Speaker, cluster: Holding) -> None:
    """They find cancel.json at their next beat, and leave."""
    cluster.forbidden = "/pods/"
    KubernetesBackend({}).cancel(handles(FIRST))
    assert deleted(server) == {POD.path("there", f"pod-{FIRST}")}


def test_what_waits_in_a_queue_and_was_applied_by_another_can_be_cancelled(
    server: Speaker,
    cluster: Holding,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its pod has not begun, so the store has never heard of it: cancel.json is there before the controller makes it
    again. The object carries its job, and the store gets that job first."""
    options = {"namespace": "here", "caches": [{"name": "store", "path": str(tmp_path)}]}
    applied = only([job("applied", store=f"file://{tmp_path}/store", options=options)])
    (run,) = applied.runs
    value = copy.deepcopy(applied.main)
    value["metadata"]["uid"] = "j"
    value["spec"]["suspend"] = True
    cluster.jobs[JOB.path("here", run)] = {**value, "status": {}}
    (tmp_path / "slipway.yaml").write_text(f"store: {tmp_path}/store\nbackend: kubernetes\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["cancel", run, "--reason", "wrong"]) == 0
    assert deleted(server) == {JOB.path("here", run)}
    assert json.loads((tmp_path / "store/runs" / run / "cancel.json").read_bytes())["reason"] == "wrong"
    assert "stopping" in capsys.readouterr().out
    assert main(["cancel", SECOND]) == 3  # neither the store nor the cluster has it
    assert main(["exec", run, "--", "ls"]) == 3
    assert "has no pod that runs" in capsys.readouterr().err
