"""Manifests to be spoiled: each valid as it is, spoiled in one place by a test."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.check.strict import SchemaFinding
from launcher.spec.values.source import dotted
from tests.unit.kubernetes.support import ROOT

DIGEST = "sha256:" + "ab" * 32
GOLDEN = sorted((ROOT / "tests" / "unit" / "kubernetes" / "golden").glob("*/*.yaml"))
TREE = sorted((ROOT / "k8s").rglob("*.yaml"))

POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "initContainers": [
        {
            "name": "first",
            "image": f"registry.example.com/x@{DIGEST}",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
    "containers": [
        {
            "name": "main",
            "image": f"registry.example.com/x@{DIGEST}",
            "env": [
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "WHERE", "value": "$(NODE)"},
            ],
            "ports": [{"name": "http", "containerPort": 8000}],
            "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 1},
                "limits": {"memory": "1Gi", "nvidia.com/gpu": 1},
            },
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "work", "mountPath": "/work"}],
            "readinessProbe": {"httpGet": {"path": "/", "port": "http"}},
        }
    ],
    "volumes": [{"name": "work", "emptyDir": {"sizeLimit": "1Gi"}}],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train-0123456789ab", "namespace": "ml", "labels": {"app.kubernetes.io/name": "slipway"}},
    "spec": {
        "backoffLimit": 3,
        "completionMode": "Indexed",
        "completions": 2,
        "parallelism": 2,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [78]}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": {"metadata": {"labels": {"slipway.dev/role": "main"}}, "spec": POD},
    },
}
JOB_SET: dict[str, Any] = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "train-0123456789ab"},
    "spec": {
        "failurePolicy": {
            "maxRestarts": 3,
            "rules": [
                {"name": "never", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
                {"name": "again", "action": "RestartJobSet", "targetReplicatedJobs": ["server"]},
            ],
        },
        "replicatedJobs": [
            {"name": "server", "replicas": 1, "template": {"spec": copy.deepcopy(JOB["spec"])}},
            {
                "name": "main",
                "dependsOn": [{"name": "server", "status": "Ready"}],
                "template": {"spec": copy.deepcopy(JOB["spec"])},
            },
        ],
    },
}


def read(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
    return found


def changed(value: Mapping[str, Any], path: str, new: Any) -> dict[str, Any]:
    """A copy in which the value at a path (`spec.containers.0.name`) is another; `...` takes it out. Dots within a key
    are written as `:`."""
    made = copy.deepcopy(dict(value))
    *parents, last = [int(key) if key.isdigit() else key.replace(":", ".") for key in path.split(".")]
    node: Any = made
    for key in parents:
        node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    if new is ...:
        del node[last]
    elif isinstance(node, list) and last == len(node):
        node.append(new)
    else:
        node[last] = new
    return made


def said(value: Mapping[str, Any], version: str = "1.34", **policy: Any) -> list[str]:
    """Every finding as `path: what; allowed`, as the command line prints it after the place."""
    return [line(one) for one in validate.findings(value, version, validate.CheckPolicy(**policy))]


def line(one: SchemaFinding) -> str:
    where = dotted(one.route)
    return f"{where + ': ' if where else ''}{one.named}{f'; allowed: {one.allowed}' if one.allowed else ''}"


BASES: dict[str, dict[str, Any]] = {
    "JOB": JOB,
    "JOB_SET": JOB_SET,
    **read((Path(__file__).parent / "bases.yaml").read_text(encoding="utf-8")),
}


def cases() -> list[dict[str, Any]]:
    """`of`: which base; `set` (path and value) or `drop` (path): what is changed; `says`: the findings."""
    text = (Path(__file__).parent / "rules.yaml").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = yaml.load(text, yaml.CSafeLoader)
    return found


def spoiled(case: Mapping[str, Any]) -> dict[str, Any]:
    made = BASES[case["of"]]
    for path, value in case.get("set", {}).items():
        made = changed(made, path, value)
    return changed(made, case["drop"], ...) if "drop" in case else made
