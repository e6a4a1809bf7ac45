"""What cancel takes from a cluster, asked of a server that holds a few objects and refuses what it is told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.base import Handle
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.objects import JOB, JOB_SET, POD
from tests.integration.kubernetes.speaker import Answer, Speaker, refusal, speaking

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


def pod(namespace: str, run: str) -> dict[str, Any]:
    labels = {"slipway.dev/run": run, "slipway.dev/role": "main"}
    metadata = {"name": f"pod-{run}", "namespace": namespace, "uid": f"p-{run}", "labels": labels}
    return {"metadata": metadata, "status": {"phase": "Running"}}


class Holding:
    """A cluster that holds a pipeline with a pod of each of its runs in namespace `there`."""

    def __init__(self) -> None:
        self.forbidden = ""

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        if method == "DELETE":
            return refusal(403, "Forbidden") if self.forbidden and self.forbidden in path else (200, {})
        if path in (JOB.group, JOB_SET.group):
            return 200, {}
        if path == JOB_SET.path("there"):
            return 200, {"items": [job_set("there")]}
        if path == POD.path("there"):
            run = query["labelSelector"].partition("=")[2]
            return 200, {"items": [pod("there", run)]}
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
