"""Kueue's topology-aware scheduling and claims for GPUs, as a real control plane takes them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from launcher.errors import BadInput
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob, Resources
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import NODES, small
from tests.support.cluster.programs import SET

pytestmark = [pytest.mark.cluster("jobset", "kueue", "kwok"), pytest.mark.timeout(600)]

RACK = "cloud.example.com/rack"
QUEUE_API = "kueue.x-k8s.io/v1beta1"
RACKS = {"fake-000": "a", "fake-001": "b", "fake-002": "b", "fake-003": "b"}


@pytest.fixture
def place(place: Place) -> Place:
    place.cluster.jobset()
    place.cluster.kueue()
    place.cluster.kwok(len(RACKS))
    for node, rack in RACKS.items():
        place.cluster.kubectl("label", "node", node, f"{RACK}={rack}", "--overwrite")
    return place


def racks(place: Place) -> str:
    """A queue whose nodes have racks and hosts."""
    name = place.namespace
    covered = ("cpu", "memory", "ephemeral-storage", "nvidia.com/gpu")
    quotas = [{"name": resource, "nominalQuota": "1Ti"} for resource in covered]
    group = {"coveredResources": list(covered), "flavors": [{"name": name, "resources": quotas}]}
    tolerations = NODES["fake"]["tolerations"]
    flavor = {"nodeLabels": {"type": "kwok"}, "tolerations": tolerations, "topologyName": name}
    levels = [{"nodeLabel": label} for label in (RACK, "kubernetes.io/hostname")]
    documents: list[tuple[str, dict[str, Any]]] = [
        ("Topology", {"levels": levels}),
        ("ResourceFlavor", flavor),
        ("ClusterQueue", {"namespaceSelector": {}, "resourceGroups": [group]}),
    ]
    for kind, spec in documents:
        place.cluster.apply({"apiVersion": QUEUE_API, "kind": kind, "metadata": {"name": name}, "spec": spec})
    local = {"name": "racks", "namespace": name}
    place.cluster.apply(
        {"apiVersion": QUEUE_API, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}}
    )
    return "racks"


def of_ranks(name: str, count: int, place: Place, **options: Any) -> ResolvedJob:
    """A job whose ranks fill a node each."""
    job = small(name, place.namespace, options={**NODES["fake"], **options})
    need = Resources(cpus=1.0, memory=1 << 30, gpus=8)
    return replace(job, roles={key: replace(role, replicas=count, resources=need) for key, role in job.roles.items()})


def test_ranks_that_must_share_a_rack_do_or_wait(place: Place) -> None:
    queue = racks(place)
    topology = {"within": RACK, "required": True}
    fits = of_ranks("fits", 3, place, queue=queue, topology=topology)
    never = of_ranks("never", 4, place, queue=queue, topology=topology)
    place.backend.submit(place.backend.render([fits]), [fits])
    selector = f"slipway.dev/run={run_id(fits)}"

    def nodes() -> set[str]:
        pods = place.cluster.get("pods", namespace=place.namespace, selector=selector)
        return {pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]}

    place.cluster.wait_for("nodes for three ranks", lambda: len(nodes()) == 3, 120)
    assert {RACKS[node] for node in nodes()} == {"b"}
    assert set(place.backend.find([run_id(fits)])) == {run_id(fits)}  # what Kueue added is not taken for a change
    place.backend.submit(place.backend.render([never]), [never])

    def refused() -> bool:
        workloads = place.cluster.get("workloads.kueue.x-k8s.io", namespace=place.namespace)
        return any(
            owner["name"] == run_id(never) and "topology" in condition.get("message", "")
            for workload in workloads
            for owner in workload["metadata"]["ownerReferences"]
            for condition in workload.get("status", {}).get("conditions", ())
        )

    place.cluster.wait_for("Kueue's refusal of four ranks", refused, 120)
    assert place.get("jobset", run_id(never))["spec"]["suspend"] is True


def test_gpus_by_claim_and_a_fabric_are_accepted_by_the_server_and_recognised(place: Place) -> None:
    """Kubernetes 1.33 removes claims of devices and says nothing: ranks would start without their GPUs, so such a job
    is not sent there."""
    if SET == "oldest":
        one = of_ranks("claimed", 1, place, gpu_claim="eight-gpus")
        with pytest.raises(BadInput, match=r"resourceClaims: is removed by Kubernetes 1\.33"):
            place.backend.check([one])
        return
    request = {
        "name": "gpus",
        "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 8},
    }
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "eight-gpus"},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
    place.cluster.apply(template, place.namespace)
    job = of_ranks("claimed", 2, place, gpu_claim="eight-gpus", fabric={"kind": "efa", "interfaces": 4})
    first = dict(place.backend.submit(place.backend.render([job]), [job]))
    assert dict(place.backend.submit(place.backend.render([job]), [job])) == first
    selector = f"slipway.dev/run={run_id(job)}"

    def claims() -> list[Any]:
        listed = place.cluster.get("resourceclaims.resource.k8s.io", namespace=place.namespace)
        return [claim for claim in listed if claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"]]

    place.cluster.wait_for("a claim for each rank", lambda: len(claims()) == 2, 120)
    assert len(place.cluster.get("pods", namespace=place.namespace, selector=selector)) == 2
