"""Whether a Deployment is ready, from the status that the cluster has of it. Pure.

A status may be older than the node: after `docker stop` and `docker start` the API server still tells what was true
before, until the node's kubelet has looked. So a pod counts only when its node's containerd runs its containers. Their
times tell nothing: the machine's clock may have been set back since its node began.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

# Reasons for which a container waits and will go on waiting, its image or its configuration, and for how many looks in
# a row it may: a pull may fail once.
HOPELESS: Final = {
    "ErrImagePull": 3,
    "ImagePullBackOff": 3,
    "ErrImageNeverPull": 3,
    "InvalidImageName": 3,
    "CreateContainerConfigError": 3,
    "CreateContainerError": 3,
    "RunContainerError": 3,
    # The kubelet waits 10, 20, 40, 80 s between starts. A controller ends when it meets an API server that does not
    # answer yet, as after a restart of the node, and works after the second or third start. The fourth is too long.
    "CrashLoopBackOff": 13,
}


Tasks = Mapping[str, Collection[str]]  # node -> the ids of the containers that its containerd runs


def available(deployment: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], tasks: Tasks) -> bool:
    """Whether a Deployment has as many ready pods as it wants, of its newest version."""
    status = deployment.get("status") or {}
    spec = deployment.get("spec") or {}
    wanted = int(spec.get("replicas", 1))
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    if min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0)) < wanted:
        return False
    return sum(running(pod, tasks) for pod in own(deployment, pods)) >= wanted


def own(deployment: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pods that a Deployment selects by labels, of its namespace."""
    labels = ((deployment.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    namespace = deployment["metadata"].get("namespace")
    return [
        pod
        for pod in pods
        if pod["metadata"].get("namespace") == namespace
        and labels.items() <= (pod["metadata"].get("labels") or {}).items()
    ]


def running(pod: Mapping[str, Any], tasks: Tasks) -> bool:
    """Whether a pod is ready, is to stay, and all its containers run on its node."""
    there = tasks.get(pod["spec"].get("nodeName", ""), ())
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()):
        return False
    containers = status.get("containerStatuses") or ()
    return bool(containers) and all(each.get("containerID", "").partition("://")[2] in there for each in containers)


def running_tasks(listing: str) -> frozenset[str]:
    """The ids of the containers that run, of what `ctr tasks ls` prints.

    >>> sorted(running_tasks("TASK    PID    STATUS\\n0a1b    812    RUNNING\\n2c3d    0    STOPPED\\n"))
    ['0a1b']
    """
    rows = (line.split() for line in listing.splitlines())
    return frozenset(row[0] for row in rows if len(row) == 3 and row[2] == "RUNNING")


def why_not_starting(pods: Iterable[Mapping[str, Any]]) -> tuple[str, int | None]:
    """Why a pod does not start, and after how many looks in a row waiting is hopeless; None: it is not."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in HOPELESS:
                ended = (container.get("lastState") or {}).get("terminated") or {}
                why = waiting.get("message") or ended.get("message") or ""
                return f"pod {name}: {waiting['reason']}: {why}".rstrip(": "), HOPELESS[waiting["reason"]]
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"pod {name}: {condition.get('reason')}: {condition.get('message')}", None
    return "", None
