"""A queue whose jobs wait for nodes that an autoscaler brings, and a test that plays the autoscaler: Kueue's own
controller makes the ProvisioningRequests, and reads in their status what came of them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import SET

# the tests' cluster converts nothing between versions, so the newest set gets what it stores
QUEUES = "kueue.x-k8s.io/v1beta2" if SET == "newest" else "kueue.x-k8s.io/v1beta1"
CLASS = "nodes.example.com"
REQUESTS = "provisioningrequests.autoscaling.x-k8s.io"
ZONE = "example.com/zone"  # a node label whose value the autoscaler tells


class Autoscaler:
    """
    check    the admission check, of the whole cluster, with this namespace's name
    retries  how often Kueue asks again, a second later
    """

    def __init__(self, cluster: Cluster, namespace: str, queue: str, *, retries: int = 1) -> None:
        self.cluster, self.namespace, self.check = cluster, namespace, f"{namespace}-nodes"
        retry = {"backoffLimitCount": retries, "backoffBaseSeconds": 1, "backoffMaxSeconds": 1}
        updates = {"nodeSelector": [{"key": ZONE, "valueFromProvisioningClassDetail": "zone"}]}
        config = {
            "provisioningClassName": CLASS,
            "parameters": {"ofTheQueue": "yes"},
            "retryStrategy": retry,
            "podSetUpdates": updates,
        }
        kind = "ProvisioningRequestConfig"
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": kind, "name": self.check}
        asks = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
        quotas = [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "8Gi"}]
        flavors = [{"name": self.check, "resources": quotas}]
        room = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": self.check}]},
        }
        objects: list[tuple[str, str, dict[str, Any]]] = [
            (kind, self.check, config),
            ("AdmissionCheck", self.check, asks),
            ("ResourceFlavor", self.check, {}),
            ("ClusterQueue", namespace, room),
        ]
        place = {"name": queue, "namespace": namespace}
        local = {"kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": namespace}}
        cluster.apply(
            [
                {"apiVersion": QUEUES, **each}
                for each in (*({"kind": a, "metadata": {"name": b}, "spec": c} for a, b, c in objects), local)
            ]
        )
        cluster.kubectl("wait", "--for=condition=Active", f"clusterqueue/{namespace}", "--timeout=60s", timeout=90)

    def requests(self) -> list[dict[str, Any]]:
        """Those that there are, in the order of their attempts."""
        found: list[dict[str, Any]] = self.cluster.get(REQUESTS, namespace=self.namespace)
        return sorted(found, key=lambda one: int(one["metadata"]["name"].rpartition("-")[2]))

    def asked(self, attempt: int = 1, limit: float = 90) -> dict[str, Any]:
        """The request of that attempt, once Kueue has made it."""

        def last() -> dict[str, Any] | None:
            return next((one for one in self.requests() if re.search(rf"-{attempt}$", one["metadata"]["name"])), None)

        return self.cluster.wait_for(f"ProvisioningRequest {attempt}", last, limit) or {}

    def says(self, request: Mapping[str, Any], kind: str, message: str, *, true: bool = True, **details: str) -> None:
        """Sets a condition and keeps the others. `details`: what this class of nodes tells besides."""
        name, stamp = request["metadata"]["name"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        there = (self.cluster.get(REQUESTS, name, self.namespace).get("status") or {}).get("conditions") or []
        said = {"type": kind, "status": str(true), "reason": "Told", "message": message, "lastTransitionTime": stamp}
        status = {"conditions": [*(one for one in there if one["type"] != kind), said]}
        told = {"status": {**status, **({"provisioningClassDetails": details} if details else {})}}
        place = (REQUESTS, name, "-n", self.namespace, "--subresource=status", "--type=merge")
        self.cluster.kubectl("patch", *place, "-p", json.dumps(told))

    def workload(self) -> dict[str, Any]:
        (found,) = self.cluster.get("workloads.kueue.x-k8s.io", namespace=self.namespace)
        assert isinstance(found, dict)
        return found
