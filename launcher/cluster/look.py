"""The state of a local cluster: one row for each part."""

from __future__ import annotations

import json
from typing import NamedTuple

from launcher.cluster import plan, tools, up
from launcher.cluster.files import ClusterFiles


class ClusterPart(NamedTuple):
    """`state`: ok, waiting, absent or failed."""

    part: str
    state: str
    detail: str


def look(place: ClusterFiles) -> list[ClusterPart]:
    """The state of every part that can be reached. Raises BadInput when a program is missing."""
    tools.require(up.PROGRAMS)
    names = up.clusters()
    if place.name not in names:
        others = f"; there is: {', '.join(names)}" if names else ""
        return [ClusterPart("cluster", "absent", f"no kind cluster is called {place.name}{others}")]
    if place.creating.exists():
        return [ClusterPart("cluster", "failed", "incomplete; `launcher cluster up` creates it again")]
    answer = tools.ask([*place.kubectl, "version", "-o", "json"], minutes=1)
    if answer.code:
        return [ClusterPart("cluster", "failed", f"{answer.words}; `launcher cluster up` starts what was stopped")]
    version = json.loads(answer.out).get("serverVersion", {}).get("gitVersion", "")
    if reasons := up.unready(place):
        return [ClusterPart("cluster", "waiting", f"its node is not ready: {'; '.join(reasons)}")]
    parts = [ClusterPart("cluster", "ok", f"Kubernetes {version}, context {place.context}, {place.kubeconfig}")]
    answer = tools.ask([*place.kubectl, "get", "deployments", "-A", "-o", "json"], minutes=1)
    if answer.code:
        return [*parts, ClusterPart("objects", "failed", answer.words)]
    there = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in json.loads(answer.out)["items"]}
    parts.append(
        _deployment("store", there.get((plan.STORE_NAMESPACE, "store")), f"{plan.STORE_URL} at {plan.OUTSIDE}")
    )
    for name, added in plan.ADDITIONS.items():
        parts.append(_deployment(name, there.get((added.namespace, added.deployment)), f"not asked for: --{name}"))
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


def _deployment(name: str, found: dict[str, object] | None, detail: str) -> ClusterPart:
    if found is None:
        return ClusterPart(name, "absent", detail if name in plan.ADDITIONS else "the tree is not applied")
    status = found.get("status")
    ready = status.get("readyReplicas", 0) if isinstance(status, dict) else 0
    images = _images(found)
    shown = images if name in plan.ADDITIONS else detail
    return ClusterPart(name, "ok" if ready else "waiting", shown)


def _images(found: dict[str, object]) -> str:
    spec = found.get("spec")
    containers = spec["template"]["spec"]["containers"] if isinstance(spec, dict) else []
    return ", ".join(str(one["image"]) for one in containers)
