"""All ranks of a run start or none, without a queue: the coscheduling plugin of kubernetes-sigs/scheduler-plugins.

A PodGroup for each run of several ranks says how many of its pods must fit at once. The pods name it by a label, and
they name the scheduler that has the plugin (apis/scheduling/v1alpha1/types.go there: `PodGroupLabel`, `minMember`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.backends.kubernetes import names
from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob


def in_gang(job: ResolvedJob) -> bool:
    """Whether the run's pods start together. A run of one rank needs no gang. Raises BadInput for a job in a queue."""
    if "gang" not in job.options or len(job.members()) == 1:
        return False
    if "queue" in job.options:
        raise BadInput(
            f"kubernetes.gang: {job.name} is in a queue, where Kueue lets all ranks in at once or none; allowed: "
            "one of `gang`, `queue`"
        )
    return True


def gang_labels(job: ResolvedJob, run: str) -> dict[str, str]:
    """The label of a pod by which it belongs to its run's PodGroup."""
    return {names.POD_GROUP: run} if in_gang(job) else {}


def gang_scheduler(job: ResolvedJob) -> dict[str, str]:
    """The field of a pod's spec that names the scheduler with the plugin."""
    return {"schedulerName": job.options["gang"]} if in_gang(job) else {}


def pod_group(job: ResolvedJob, run: str, metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The PodGroup of a run. `metadata`: of the object, without the name."""
    if not in_gang(job):
        return None
    about = {"name": run, **metadata}
    return {
        "apiVersion": names.POD_GROUP_API,
        "kind": "PodGroup",
        "metadata": about,
        "spec": {"minMember": len(job.members())},
    }
