"""Whether a Deployment is ready, from the status that the cluster has of it. Pure.

A status may be older than the node: after `docker stop` and `docker start` the API server still tells what was true
before, until the node's kubelet has looked. So a pod counts only when its containers began after its node did.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final

# reasons for which a container waits and will go on waiting: its image, its configuration, a command that ends
HOPELESS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
)


def available(deployment: Mapping[str, Any], pods: Iterable[Mapping[str, Any]], starts: Mapping[str, float]) -> bool:
    """Whether a Deployment has as many ready pods as it wants, of its newest version. `starts`: node -> when it began,
    in seconds since 1970."""
    status = deployment.get("status") or {}
    spec = deployment.get("spec") or {}
    wanted = int(spec.get("replicas", 1))
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    if min(status.get("updatedReplicas", 0), status.get("availableReplicas", 0)) < wanted:
        return False
    return sum(running(pod, starts) for pod in own(deployment, pods)) >= wanted


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


def running(pod: Mapping[str, Any], starts: Mapping[str, float]) -> bool:
    """Whether a pod is ready, is to stay, and all its containers began after its node did."""
    since = starts.get(pod["spec"].get("nodeName", ""), 0.0)
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if not any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions") or ()):
        return False
    begun = [
        ((container.get("state") or {}).get("running") or {}).get("startedAt")
        for container in status.get("containerStatuses") or ()
    ]
    # a pod's time has whole seconds, a node's has more
    return bool(begun) and all(start and moment(start) >= int(since) for start in begun)


def moment(text: str) -> float:
    """Seconds since 1970 of a time as Kubernetes or Docker writes it.

    >>> moment("2026-11-23T08:53:35Z"), moment("2026-11-23T08:53:35.123456789Z")
    (1795424015.0, 1795424015.123456)
    """
    whole, _, part = text.removesuffix("Z").partition(".")
    when = dt.datetime.fromisoformat(f"{whole}.{part[:6]:0<6}+00:00")
    return when.timestamp()


def trouble(pods: Iterable[Mapping[str, Any]]) -> tuple[str, bool]:
    """Why a pod does not start, and whether waiting is hopeless: its image, its configuration, a command that ends."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
            waiting = (container.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in HOPELESS:
                ended = (container.get("lastState") or {}).get("terminated") or {}
                why = waiting.get("message") or ended.get("message") or ""
                return f"pod {name}: {waiting['reason']}: {why}".rstrip(": "), True
        for condition in status.get("conditions") or ():
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return f"pod {name}: {condition.get('reason')}: {condition.get('message')}", False
    return "", False
