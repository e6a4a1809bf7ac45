"""Where a pod may run: node labels, taints, spot nodes, and how far apart its run's ranks are.

Ranks are spread over hosts where that is possible. `spread` makes another spread, and requires it. `topology` asks
Kueue's topology-aware scheduling for the contrary: all ranks of a role within one rack or block (annotations of
sigs.k8s.io/kueue, apis/kueue/v1beta2/topology_types.go). The ranks are then not spread: Kueue names their nodes.

Spot nodes, by platform:

gke    label and taint cloud.google.com/gke-spot (node auto-provisioning sets the taint, node pools where told to)
aks    label and taint kubernetes.azure.com/scalesetpriority=spot, which every spot pool has
eks    a label that depends on who makes the nodes: managed node groups, or Karpenter and Auto Mode. No taint
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.render.accelerators import selection, tolerations
from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob

REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
_GKE_SPOT: Final = "cloud.google.com/gke-spot"
_AKS_SPOT: Final = "kubernetes.azure.com/scalesetpriority"
# platform -> the label of spot nodes, which is also their taint
_SPOT: Final[Mapping[str, tuple[str, str]]] = {"gke": (_GKE_SPOT, "true"), "aks": (_AKS_SPOT, "spot")}
# labels of spot nodes, any of which fits
_EKS_SPOT: Final = (("eks.amazonaws.com/capacityType", "SPOT"), ("karpenter.sh/capacity-type", "spot"))


def scheduling(job: ResolvedJob, run: str, role: str) -> dict[str, Any]:
    """The fields of a pod's spec that choose its node. Raises BadInput for what contradicts itself."""
    options = job.options
    need = job.roles[role].resources
    labels: dict[str, str] = dict(options.get("node_selector", {}))
    taints: list[dict[str, Any]] = [_toleration(toleration) for toleration in options.get("tolerations", ())]
    spec: dict[str, Any] = {}
    terms: list[dict[str, Any]] = []
    if need.gpus:
        taints = [*tolerations(options), *taints]
        if need.gpu is not None:
            own, terms = selection(need.gpu, options)
            for label, value in own.items():
                if labels.setdefault(label, value) != value:
                    raise BadInput(f"resources.gpu: {need.gpu} needs nodes with {label}={value}, node_selector others")
    if options.get("spot"):
        terms = _spot(str(options.get("platform", names.DEFAULT_PLATFORM)), labels, taints, terms)
    if labels:
        spec["nodeSelector"] = labels
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    if taints:
        spec["tolerations"] = taints
    if job.roles[role].replicas > 1 and "topology" not in options:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": options.get("spread", "kubernetes.io/hostname"),
                # a topology that the user names is required; the default is only preferred, so that a single big node
                # fits too
                "whenUnsatisfiable": "DoNotSchedule" if "spread" in options else "ScheduleAnyway",
                "labelSelector": {"matchLabels": {names.RUN: run, names.ROLE: role}},
            }
        ]
    return spec


def _spot(
    platform: str, labels: dict[str, str], taints: list[dict[str, Any]], terms: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Adds the labels and tolerations of spot nodes, and returns the terms of the node affinity with them."""
    if platform == "eks":
        alternatives = [{"key": key, "operator": "In", "values": [value]} for key, value in _EKS_SPOT]
        return [
            {"matchExpressions": [*term["matchExpressions"], alternative]}
            for term in terms or [{"matchExpressions": []}]
            for alternative in alternatives
        ]
    if platform not in _SPOT:
        raise BadInput(
            f"kubernetes.spot: platform {platform} has no name for spot nodes; allowed: `platform` one of "
            f"{', '.join(sorted([*_SPOT, 'eks']))}, or `node_selector` and `tolerations`"
        )
    key, value = _SPOT[platform]
    if labels.setdefault(key, value) != value:
        raise BadInput(f"kubernetes.spot: spot nodes have {key}={value}, node_selector asks for others")
    taints.append({"key": key, "operator": "Equal", "value": value, "effect": "NoSchedule"})
    return terms


def topology_annotations(job: ResolvedJob) -> dict[str, str]:
    """Annotations of a pod for Kueue's topology-aware scheduling. Raises BadInput for a job in no queue."""
    topology = job.options.get("topology")
    if topology is None:
        return {}
    if "queue" not in job.options:
        raise BadInput("kubernetes.topology: Kueue places the ranks of jobs in a queue; allowed: with `queue`")
    if "spread" in job.options:
        raise BadInput("kubernetes.topology: `spread` asks for ranks apart, `topology` together; allowed: one of them")
    return {REQUIRED if topology.get("required") else PREFERRED: topology["within"]}


def _toleration(toleration: dict[str, Any]) -> dict[str, Any]:
    """The toleration. Raises BadInput for one that the API server refuses."""
    exists = toleration.get("operator") == "Exists"
    wrong = (
        "`operator: Exists` has no `value`"
        if exists and toleration.get("value")
        else "without a `key` it needs `operator: Exists`"
        if not exists and "key" not in toleration
        else "`tolerationSeconds` is for `effect: NoExecute`"
        if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute"
        else ""
    )
    if wrong:
        raise BadInput(f"kubernetes.tolerations: {wrong}")
    return toleration


# All ranks of a run start or none, without a queue: the coscheduling plugin of kubernetes-sigs/scheduler-plugins.
# A PodGroup for each run of several ranks says how many of its pods must fit at once. The pods name it by a label,
# and they name the scheduler that has the plugin (apis/scheduling/v1alpha1/types.go there: `PodGroupLabel`,
# `minMember`).


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
