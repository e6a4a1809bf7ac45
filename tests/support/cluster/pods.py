"""Pods that a restricted namespace takes, as plain objects."""

from __future__ import annotations

from typing import Any


def pod(name: str, image: str, *command: str, secret: str | None = None, **spec: Any) -> dict[str, Any]:
    """A pod that runs `command` once, as uid 1000; `secret` names one whose keys become its environment."""
    container = {
        "name": "main",
        "image": image,
        "command": list(command),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **({"envFrom": [{"secretRef": {"name": secret}}]} if secret else {}),
    }
    security = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "securityContext": security,
            "containers": [container],
            **spec,
        },
    }


def stuck(pod: dict[str, Any]) -> str:
    """Why a pod does not start, in the cluster's own words: reason and message; "" where nothing is wrong."""
    words = ("ErrImagePull", "ImagePullBackOff", "CreateContainerConfigError", "Unschedulable")
    status = pod.get("status", {})
    told = [each["state"].get("waiting", {}) for each in status.get("containerStatuses", ())]
    told += status.get("conditions", ())
    return "; ".join(f"{one['reason']}: {one.get('message', '')}" for one in told if one.get("reason") in words)


def job(name: str, image: str, *command: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A Job of one such pod; `spec` goes into the pod's."""
    one = pod(name, image, *command, **spec)
    template = {"metadata": {"annotations": annotations or {}}, "spec": one["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"backoffLimit": 0, "template": template},
    }
