"""Pods of others that carry a run's labels are never taken for the run's: not watched, not read, not entered."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.watch.snapshot import Snapshot
from launcher.errors import NotFound
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from tests.integration.backend.kubernetes import opened
from tests.integration.backend.test_backend import put
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import NOWHERE, small
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.pods import job as plain_job
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster("jobset"), pytest.mark.timeout(300)]


def stranger(cluster: Cluster, namespace: str, labels: dict[str, str], **spec: Any) -> str:
    """A Job of someone else whose pod has our labels; gives the pod's name once it is there."""
    command = ("python3", "-c", "import time; print('stranger', flush=True); time.sleep(600)")
    value = plain_job("stranger", cluster.py(), *command, **spec)
    value["spec"]["template"]["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "slipway", **labels}
    cluster.apply(value, namespace)

    def made() -> str | None:
        pods = cluster.get("pods", None, namespace, "batch.kubernetes.io/job-name=stranger")
        return next((pod["metadata"]["name"] for pod in pods), None)

    return cluster.wait_for("the stranger's pod", made, 60) or ""


def shape(name: str, namespace: str) -> ResolvedJob:
    one = small(name, namespace)
    count = 2 if name == "ranks" else 1
    return replace(one, roles={key: replace(role, replicas=count) for key, role in one.roles.items()})


@pytest.mark.parametrize("name", ["job", "ranks"])
def test_a_strangers_pod_with_the_labels_of_a_run_is_not_the_runs(place: Place, name: str) -> None:
    place.cluster.jobset()
    job = shape(name, place.namespace)
    run = run_id(job)
    place.backend.submit(place.backend.render([job]), [job])
    count = sum(role.replicas for role in job.roles.values())

    def members(snapshot: Snapshot) -> list[str]:
        (carrier,) = [owner for owner in snapshot.owners.values() if run in owner.metadata.runs]
        return [pod["metadata"]["name"] for pod in snapshot.members(carrier, run)]

    def looked() -> list[str]:
        return members(place.backend.look_closely(run)[1])

    own = place.cluster.wait_for("its own pods", lambda: len(names := looked()) == count and names, 60)
    (role,) = job.roles
    labels = {"slipway.dev/run": run, "slipway.dev/role": role, "batch.kubernetes.io/job-completion-index": "0"}
    labels |= {"jobset.sigs.k8s.io/jobset-name": run} if name == "ranks" else {}
    theirs = stranger(place.cluster, place.namespace, labels, nodeSelector=NOWHERE)
    selector = f"slipway.dev/run={run}"
    assert theirs in [pod["metadata"]["name"] for pod in place.cluster.get("pods", None, place.namespace, selector)]
    assert looked() == own
    board = place.backend.board()
    until(lambda: (place.namespace, theirs) in board.sight.pods)
    until(lambda: len(members(board.sight)) == count)
    assert members(board.sight) == own


def test_a_strangers_job_that_names_our_run_does_not_stand_for_it(place: Place) -> None:
    job = small("victim", place.namespace)
    run = run_id(job)
    place.backend.submit(place.backend.render([job]), [job])
    value = plain_job("evil", place.cluster.py(), "true", nodeSelector=NOWHERE)
    value["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "slipway", "slipway.dev/array": "evil"}
    value["metadata"]["annotations"] = {"slipway.dev/runs": f'{{"{run}": "{"f" * 64}"}}'}
    place.cluster.apply(value, place.namespace)
    board = place.backend.board()
    until(lambda: (place.namespace, "Job", "evil") in board.sight.owners)
    for observation in (board.look_up(run), place.backend.look_up(run)):
        assert observation is not None
        assert observation.handle.name == run
    assert [each.handle.name for each in place.backend.mine() if each.handle.run == run] == [run]


def test_a_strangers_pod_is_neither_entered_nor_read(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stranger's pod is newer than the run's, and the only one that runs after the run has ended."""
    with opened(request, tmp_path, monkeypatch) as harness:
        backend = harness.backend
        assert isinstance(backend, KubernetesBackend)
        (handle,) = put(harness, harness.job("one"))
        until(lambda: (seen := backend.look_up(handle.run)) is not None and seen.phase == "running")
        cluster, namespace = harness.cluster, harness.namespace  # type: ignore[attr-defined]
        theirs = stranger(cluster, namespace, {"slipway.dev/run": handle.run, "slipway.dev/role": "main"})
        until(lambda: cluster.get("pod", theirs, namespace)["status"]["phase"] == "Running")
        argv = backend.execute(handle.run, "main-0", ["python3", "-c", "import os; print(os.uname()[1])"], tty=False)
        assert theirs not in argv
        done = subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, text=True, timeout=60, check=True)
        assert done.stdout.strip() != theirs
        harness.let_go()
        until(lambda: (seen := backend.look_up(handle.run)) is not None and not seen.active)
        assert b"stranger" not in b"".join(backend.logs(handle, "main", 0, False))
        with pytest.raises(NotFound, match="has no pod that runs"):
            backend.execute(handle.run, "main-0", ["true"], tty=False)
