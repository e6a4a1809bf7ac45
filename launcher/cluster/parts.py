"""The state of a local cluster: one row for each part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from launcher.cluster import plan, readiness, tools, up
from launcher.cluster.additions import ADDITIONS
from launcher.cluster.files import ClusterFiles


class ClusterPart(NamedTuple):
    """`state`: ok, waiting, absent or failed."""

    part: str
    state: str
    detail: str


def read_parts(place: ClusterFiles) -> list[ClusterPart]:
    """The state of every part that can be reached. Raises BadInput when a program is missing."""
    tools.require(up.PROGRAMS)
    names = up.clusters()
    if place.name not in names:
        others = f"; there is: {', '.join(names)}" if names else ""
        return [ClusterPart("cluster", "absent", f"no kind cluster is called {place.name}{others}")]
    if place.creating.exists():
        return [ClusterPart("cluster", "failed", "incomplete; `launcher cluster up` creates it again")]
    if not place.kubeconfig.is_file():
        return [ClusterPart("cluster", "failed", "there is no kubeconfig of it here; `launcher cluster up` writes it")]
    answer = tools.ask([*place.kubectl, "version", "-o", "json"], minutes=1)
    if answer.code:
        return [ClusterPart("cluster", "failed", f"{answer.words}; `launcher cluster up` starts what was stopped")]
    version = json.loads(answer.out).get("serverVersion", {}).get("gitVersion", "")
    if reasons := up.unready(place):
        return [ClusterPart("cluster", "waiting", f"its node is not ready: {'; '.join(reasons)}")]
    parts = [ClusterPart("cluster", "ok", f"Kubernetes {version}, context {place.context}, {place.kubeconfig}")]
    answer = tools.ask([*place.kubectl, "get", "deployments,pods", "-A", "-o", "json"], minutes=1)
    if answer.code:
        return [*parts, ClusterPart("objects", "failed", answer.words)]
    items = json.loads(answer.out)["items"]
    pods = [item for item in items if item["kind"] == "Pod"]
    tasks = up.tasks(up.nodes(place))

    def part(name: str, namespace: str, deployment: str, detail: str) -> ClusterPart:
        wanted = (namespace, deployment)
        for item in items:
            metadata = item["metadata"]
            if item["kind"] == "Deployment" and (metadata["namespace"], metadata["name"]) == wanted:
                return _deployment(name, item, readiness.available(item, pods, tasks), detail)
        return ClusterPart(name, "absent", detail if name in ADDITIONS else "the tree is not applied")

    parts.append(part("store", plan.STORE_NAMESPACE, "store", f"{plan.STORE_URL} at {plan.OUTSIDE}"))
    for name, added in ADDITIONS.items():
        parts.append(part(name, added.namespace, added.deployment, f"not asked for: --{name}"))
    answer = tools.ask(
        [*place.kubectl, "-n", plan.SYSTEM, "get", "cronjob", "slipway-reaper", "-o", "json", "--ignore-not-found"],
        minutes=1,
    )
    if answer.code or not answer.out.strip():
        parts.append(ClusterPart("reaper", "absent", answer.words if answer.code else "the tree is not applied"))
    else:
        spec = json.loads(answer.out)["spec"]
        image = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]["image"]
        parts.append(
            ClusterPart("reaper", "absent", f"suspended: load its image with --image {plan.REAPER_IMAGE}")
            if spec.get("suspend")
            else ClusterPart("reaper", "ok", image)
        )
    room = up.room(place)
    if room is not None:
        parts.append(
            ClusterPart("cpus", "ok", f"{room.free:.2f} of {room.cpus:g} free; a job that asks for more waits")
        )
    return parts


def _deployment(name: str, deployment: Mapping[str, Any], ready: bool, detail: str) -> ClusterPart:
    containers = deployment["spec"]["template"]["spec"]["containers"]
    images = ", ".join(str(container["image"]) for container in containers)
    return ClusterPart(name, "ok" if ready else "waiting", images if name in ADDITIONS else detail)
