"""Runs in a queue that orders nodes: Kueue's own controller makes the ProvisioningRequest, the tests are the
autoscaler."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.jobs.several import Desk
from tests.support.cluster.autoscaler import CLASS, ZONE, Autoscaler
from tests.support.cluster.cluster import Cluster

pytestmark = [pytest.mark.cluster("kueue"), pytest.mark.nightly, pytest.mark.timeout(900)]
QUEUE = "ordered"
BLOCK = {"queue": QUEUE, "provisioning": {"maxRunDurationSeconds": "3600"}}
PARTS = ("autoscaling.x-k8s.io/consume-provisioning-request", "autoscaling.x-k8s.io/provisioning-class-name")


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    cluster.kueue()
    for name, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    return Desk(cluster, tmp_path / "desk")


@pytest.fixture
def autoscaler(desk: Desk) -> Autoscaler:
    return Autoscaler(desk.cluster, desk.namespace, QUEUE)


def says(desk: Desk, run: str, words: str) -> dict[str, object]:
    """Waits until `status` says it; gives what it says."""
    return desk.until(words, lambda: next((t for t in [desk.status(run)] if words in str(t["detail"])), None), run)


def test_nodes_are_ordered_with_the_jobs_parameters_and_it_starts_when_they_are_there(
    desk: Desk, autoscaler: Autoscaler
) -> None:
    (run,) = desk.submit(desk.until_told("ordered", kubernetes=BLOCK))
    request = autoscaler.asked()
    assert request["spec"]["provisioningClassName"] == CLASS
    assert request["spec"]["parameters"] == {"ofTheQueue": "yes", "maxRunDurationSeconds": "3600"}
    (pods,) = request["spec"]["podSets"]
    template = desk.cluster.get("podtemplate", pods["podTemplateRef"]["name"], desk.namespace)["template"]
    assert (pods["count"], template["metadata"]["labels"]["slipway.dev/run"]) == (1, run)
    told = says(desk, run, f"admission check {autoscaler.check} is Pending")
    assert (told["state"], told["reason"]) == ("queued", "capacity")
    autoscaler.says(request, "Accepted", "taken")
    autoscaler.says(request, "Provisioned", "ready in about 10 minutes", true=False)
    told = says(desk, run, f"admission check {autoscaler.check} is Pending (ready in about 10 minutes)")
    assert (told["state"], told["reason"]) == ("queued", "capacity")
    desk.cluster.kubectl("label", "node", "n1", f"{ZONE}=b", "--overwrite")
    autoscaler.says(request, "Provisioned", "2 nodes", zone="b")
    desk.wait_for_log(run, "up")
    (pod,) = desk.pods(run)
    assert [pod["metadata"]["annotations"][name] for name in PARTS] == [request["metadata"]["name"], CLASS]
    assert pod["spec"]["nodeSelector"][ZONE] == "b"
    # what Kueue added is not taken for a change of the job
    assert desk.submit(desk.until_told("ordered", kubernetes=BLOCK)) == [run]
    desk.let_go(run)
    assert desk.result(run).outcome == "succeeded"
    assert len(desk.view(run).attempts) == 1


def test_one_that_waits_for_nodes_is_cancelled_and_its_order_goes(desk: Desk, autoscaler: Autoscaler) -> None:
    (run,) = desk.submit(desk.counting("cancelled", 2, kubernetes=BLOCK))
    autoscaler.asked()
    desk.launcher("cancel", run)
    desk.wait_for_state(run, "cancelled")
    desk.until("the end of its order", lambda: not autoscaler.requests(), run)
