"""What Kubernetes makes of what we render when a part of it ends: models of the controllers' rules, of which only what
they read is ours."""

from __future__ import annotations

import re
from typing import Any

from launcher.backends.kubernetes import names
from launcher.reasons import EXIT_AGAIN, EXIT_NEVER, EXIT_PREEMPTED, EXIT_USER

ENDS = [
    (EXIT_NEVER, False),
    (EXIT_NEVER, True),
    (EXIT_AGAIN, False),
    (EXIT_PREEMPTED, True),
    (EXIT_USER, False),
    (137, False),
    (137, True),
]


def pod_failed(spec: dict[str, Any], code: int, disrupted: bool) -> tuple[str, str, str]:
    """(what happens to the Job, its condition's reason, its message): pkg/controller/job of Kubernetes 1.34."""
    for index, rule in enumerate(spec["podFailurePolicy"]["rules"]):
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes and code in codes["values"] and codes["containerName"] == names.CONTAINER:
            message = f"Container main for pod ns/p failed with exit code {code} matching FailJob rule at index {index}"
        elif conditions and disrupted and conditions[0] == {"type": "DisruptionTarget", "status": "True"}:
            message = f"Pod ns/p has condition DisruptionTarget matching FailJob rule at index {index}"
        else:
            continue
        if rule["action"] == "FailJob":
            return "fails", "PodFailurePolicy", message
        return ("again" if rule["action"] == "Ignore" else "index fails"), "", ""
    if spec.get("backoffLimit") == 0:
        return "fails", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    return "again, counted", "", ""


def job_failed(spec: dict[str, Any], child: str, reason: str, message: str) -> str:
    """What happens to the set: pkg/controllers/failure_policy.go of JobSet 0.10."""
    for rule in spec["failurePolicy"]["rules"]:
        if reason not in rule["onJobFailureReasons"] or child not in rule.get("targetReplicatedJobs", [child]):
            continue
        if any(re.search(one, message) for one in rule.get("onJobFailureMessagePatterns", [""])):
            return str(rule["action"])
    return "RestartJobSet" if spec["failurePolicy"]["maxRestarts"] > 0 else "FailJobSet"


def children(document: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in document["spec"]["replicatedJobs"]}
