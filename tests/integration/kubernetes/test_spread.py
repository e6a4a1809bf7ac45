"""Ranks over zones: asked for, they are spread; not asked for, they may all be in one. The real scheduler decides.

The nodes are objects alone, without a kubelet: the scheduler looks at nothing else of them. The jobs tolerate that such
nodes are soon found not to answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.reasons import Reason
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob, Resources
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import small

pytestmark = [pytest.mark.cluster("jobset"), pytest.mark.timeout(600)]

ZONE = "topology.kubernetes.io/zone"
OURS = "slipway.test/zones"
# node -> its zone, and the cores that it has at first: zones b and c have room for no rank
NODES = {
    "zoned-0": ("a", "8"),
    "zoned-1": ("a", "8"),
    "zoned-2": ("a", "8"),
    "zoned-3": ("b", "100m"),
    "zoned-4": ("c", "100m"),
}
TOLERATED = [
    {"key": key, "operator": "Exists"}
    for key in (OURS, "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
]
RANKS = 3


def node(name: str, cpu: str) -> dict[str, Any]:
    has = {"cpu": cpu, "memory": "64Gi", "pods": "50", "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "none is there"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**labels, ZONE: NODES[name][0], OURS: "yes"}},
        "spec": {"taints": [{"key": OURS, "value": "yes", "effect": "NoSchedule"}]},
        "status": {"capacity": has, "allocatable": has, "conditions": [ready]},
    }


@pytest.fixture
def place(place: Place) -> Iterator[Place]:
    place.cluster.jobset()
    place.cluster.apply([node(name, cpu) for name, (_, cpu) in NODES.items()])
    yield place
    kubectl, namespace = place.cluster.kubectl, place.namespace
    kubectl("delete", "jobsets", "--all", "-n", namespace, "--wait=false")
    kubectl("delete", "nodes", *NODES, "--wait=false")
    # nobody else would say that they have ended
    kubectl("delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false", "-n", namespace, check=False)


def ranks(name: str, place: Place, **options: Any) -> ResolvedJob:
    job = small(name, place.namespace, options={"node_selector": {OURS: "yes"}, "tolerations": TOLERATED, **options})
    need = Resources(cpus=1.0, memory=1 << 30)
    return replace(job, roles={key: replace(role, replicas=RANKS, resources=need) for key, role in job.roles.items()})


def zones(place: Place, run: str) -> Counter[str]:
    """Zone -> ranks that the scheduler has put there; "" is nowhere yet."""
    pods = place.cluster.get("pods", namespace=place.namespace, selector=f"slipway.dev/run={run}")
    return Counter(NODES[pod["spec"]["nodeName"]][0] if "nodeName" in pod["spec"] else "" for pod in pods)


def test_ranks_are_spread_over_zones_where_that_is_asked_for_and_nowhere_else(place: Place) -> None:
    free, apart = ranks("free", place), ranks("apart", place, spread=ZONE)
    for job in (free, apart):
        place.backend.submit(place.backend.render([job]), [job])
    # only zone a has room: that is enough for those that asked for nothing, and they get a host each there
    place.cluster.wait_for("nodes for all ranks", lambda: zones(place, run_id(free)) == {"a": RANKS}, 120)
    pods = place.cluster.get("pods", namespace=place.namespace, selector=f"slipway.dev/run={run_id(free)}")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == RANKS
    # one rank may be in zone a, and a second one may not while the other zones have none
    place.cluster.wait_for("one rank", lambda: zones(place, run_id(apart)) == {"a": 1, "": RANKS - 1}, 120)

    def told() -> bool:
        seen = place.backend.look_up(run_id(apart))
        return seen is not None and seen.reason == Reason.UNSCHEDULABLE and "topology spread" in seen.evidence

    place.cluster.wait_for("the launcher's word on it", told, 120)
    assert zones(place, run_id(apart)) == {"a": 1, "": RANKS - 1}
    # the other zones get room
    for name in ("zoned-3", "zoned-4"):  # apply leaves the status of what is there alone
        room = json.dumps({"status": node(name, "8")["status"]})
        place.cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", room)
    place.cluster.wait_for("a zone each", lambda: zones(place, run_id(apart)) == {"a": 1, "b": 1, "c": 1}, 120)
