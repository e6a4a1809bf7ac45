"""What an API server refuses although the schema allows it: a rule for each definition of the API.

A rule is checked wherever its definition stands, in every kind. Rules of `FIELDS` are about one field; `WHOLE` about
several of one value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check.forms import (
    LABEL,
    PORT,
    SUBDOMAIN,
    FieldRule,
    Say,
    annotation_sizes,
    between,
    file_mode,
    formed,
    labels,
    least,
    port,
    qualified,
    some_port,
)
from launcher.backends.kubernetes.check.policies import NO_EFFECT
from launcher.backends.kubernetes.check.rules import containers, objects, pods, volumes, workloads
from launcher.backends.kubernetes.check.strict import Check, SchemaFindings
from launcher.spec.values.source import Route

Rule = Callable[[Say, Mapping[str, Any]], None]
_IDS: Final = dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"), between(0, pods.MAX_ID))
_WAITS: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold", "successThreshold")
_JOB: Final = (
    *("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "maxFailedIndexes"),
    *("activeDeadlineSeconds", "ttlSecondsAfterFinished"),
)
_NAMED: Final = ("priorityClassName", "serviceAccountName", "serviceAccount", "nodeName")
_COUNTS: Final = dict.fromkeys(("replicas", "minReadySeconds", "revisionHistoryLimit"), least(0))
FIELDS: Final[Mapping[str, Mapping[str, FieldRule]]] = {
    "meta.v1.ObjectMeta": {"labels": labels, "annotations": annotation_sizes},
    "meta.v1.LabelSelector": {"matchLabels": labels},
    "meta.v1.LabelSelectorRequirement": {"key": qualified},
    "batch.v1.JobSpec": dict.fromkeys(_JOB, least(0)),
    "batch.v1.CronJobSpec": dict.fromkeys(("successfulJobsHistoryLimit", "failedJobsHistoryLimit"), least(0)),
    "batch.v1.PodFailurePolicyOnPodConditionsPattern": {"type": qualified},
    **dict.fromkeys(("apps.v1.DeploymentSpec", "apps.v1.DaemonSetSpec", "apps.v1.StatefulSetSpec"), _COUNTS),
    "PodSpec": {
        **dict.fromkeys(_NAMED, formed(SUBDOMAIN, empty=True)),
        "runtimeClassName": formed(SUBDOMAIN),
        **dict.fromkeys(("hostname", "subdomain"), formed(LABEL, empty=True)),
        "nodeSelector": labels,
        "activeDeadlineSeconds": least(1),
        "terminationGracePeriodSeconds": least(0, NO_EFFECT),
    },
    "Container": {"name": formed(LABEL)},
    "ContainerPort": {"name": formed(PORT, empty=True), "containerPort": port, "hostPort": some_port},
    "Probe": {**dict.fromkeys(_WAITS, least(0)), "terminationGracePeriodSeconds": least(1)},  # 0: the default
    **{name: {"port": port} for name in ("HTTPGetAction", "TCPSocketAction", "GRPCAction")},
    **dict.fromkeys(("SecurityContext", "PodSecurityContext"), _IDS),
    "Volume": {"name": formed(LABEL)},
    "KeyToPath": {"mode": file_mode, "path": volumes.path},
    "DownwardAPIVolumeFile": {"mode": file_mode, "path": volumes.path},
    "ServiceAccountTokenProjection": {"expirationSeconds": between(600, 1 << 32), "path": volumes.path},
    **{
        f"{name}VolumeSource": {"defaultMode": file_mode}
        for name in ("ConfigMap", "Secret", "DownwardAPI", "Projected")
    },
    "TopologySpreadConstraint": {"maxSkew": least(1), "minDomains": least(1)},
    **{name: {"weight": between(1, 100)} for name in ("PreferredSchedulingTerm", "WeightedPodAffinityTerm")},
    "PodSchedulingGate": {"name": qualified},
    "PodReadinessGate": {"conditionType": qualified},
    "ServiceSpec": {"selector": labels},
    "ServicePort": {"port": port, "targetPort": some_port, "name": formed(LABEL, empty=True)},
    "networking.v1.NetworkPolicyPort": {"port": port},
    "policy.v1.PodDisruptionBudgetSpec": dict.fromkeys(("minAvailable", "maxUnavailable"), objects.amount),
    "autoscaling.v2.MetricTarget": {"averageUtilization": least(1)},
}
WHOLE: Final[Mapping[str, Rule]] = {
    "meta.v1.LabelSelectorRequirement": pods.expression,
    "batch.v1.Job": workloads.job,
    "batch.v1.JobSpec": workloads.job_spec,
    "batch.v1.PodFailurePolicyRule": workloads.failure_rule,
    "batch.v1.PodFailurePolicyOnExitCodesRequirement": workloads.codes,
    "batch.v1.CronJob": workloads.cron_job,
    "batch.v1.CronJobSpec": workloads.cron_spec,
    **dict.fromkeys(("apps.v1.DeploymentSpec", "apps.v1.DaemonSetSpec", "apps.v1.StatefulSetSpec"), workloads.service),
    "jobset.x-k8s.io/v1alpha2/JobSet": workloads.job_set,
    "PodTemplateSpec": pods.template,
    "PodSpec": pods.pod,
    "Toleration": pods.toleration,
    "TopologySpreadConstraint": pods.spread,
    "NodeSelector": pods.node_selector,
    "NodeSelectorTerm": pods.node_term,
    "PodAffinityTerm": pods.pod_term,
    "PodSecurityContext": pods.sysctls,
    "PodDNSConfig": pods.name_servers,
    "HostAlias": pods.host_alias,
    "Container": containers.container,
    "EnvVar": containers.variable,
    "EnvVarSource": containers.source,
    "EnvFromSource": containers.sources,
    **dict.fromkeys(("ConfigMapKeySelector", "SecretKeySelector"), containers.reference),
    **dict.fromkeys(("ConfigMapEnvSource", "SecretEnvSource"), containers.reference),
    "ResourceFieldSelector": containers.resource_field,
    "ResourceRequirements": containers.resources,
    "VolumeMount": containers.mount,
    "Probe": containers.probe,
    "LifecycleHandler": containers.hook,
    "ExecAction": containers.command,
    "HTTPHeader": containers.header,
    "SecurityContext": containers.privileges,
    **dict.fromkeys(("SeccompProfile", "AppArmorProfile"), containers.profile),
    "Volume": volumes.volume,
    "EmptyDirVolumeSource": volumes.empty,
    **dict.fromkeys(("ConfigMapVolumeSource", "SecretVolumeSource", "DownwardAPIVolumeSource"), volumes.files),
    "ProjectedVolumeSource": volumes.projected,
    "VolumeProjection": volumes.projection,
    "KeyToPath": volumes.key,
    "DownwardAPIVolumeFile": volumes.field,
    "PersistentVolumeClaimSpec": volumes.claim,
    "HostPathVolumeSource": volumes.host_path,
    "NFSVolumeSource": volumes.nfs,
    "CSIVolumeSource": volumes.csi,
    "ConfigMap": objects.config_map,
    "Secret": objects.secret,
    "Namespace": objects.namespace,
    "ServiceSpec": objects.service,
    "rbac.v1.Role": objects.role,
    "rbac.v1.PolicyRule": objects.policy_rule,
    **dict.fromkeys(("rbac.v1.RoleBinding", "rbac.v1.ClusterRoleBinding"), objects.binding),
    "networking.v1.NetworkPolicySpec": objects.network_policy,
    "networking.v1.NetworkPolicyPeer": objects.peer,
    "networking.v1.NetworkPolicyPort": objects.port_range,
    "networking.v1.IPBlock": objects.block,
    "LimitRangeSpec": objects.limit_range,
    "LimitRangeItem": objects.limit,
    "ResourceQuotaSpec": objects.quota,
    "scheduling.v1.PriorityClass": objects.priority_class,
    **dict.fromkeys((f"autoscaling.{part}.HorizontalPodAutoscalerSpec" for part in ("v1", "v2")), objects.autoscaler),
    "autoscaling.v2.MetricSpec": objects.metric,
    "autoscaling.v2.MetricTarget": objects.target,
    "policy.v1.PodDisruptionBudgetSpec": objects.disruption_budget,
    **dict.fromkeys((f"kueue.x-k8s.io/{part}/ClusterQueue" for part in ("v1beta1", "v1beta2")), objects.cluster_queue),
}


def has_rules(definition: str) -> bool:
    """Whether there are rules for the kind that has this definition."""
    name = _short(definition)
    return name in WHOLE or f"{name}Spec" in WHOLE or name == "rbac.v1.ClusterRole"  # which has rules for its parts


def rule_of(definition: str, version: tuple[int, int]) -> Check | None:
    """The check of all rules of a definition; None where there are none."""
    name = _short(definition)
    fields, whole = FIELDS.get(name, {}), WHOLE.get(name)
    if not fields and whole is None:
        return None

    def check(value: Any, route: Route, findings: SchemaFindings) -> None:
        if type(value) is not dict:
            return
        say = Say(findings, version, route)
        for field, rule in fields.items():
            if field in value:
                rule(say.into(field), value[field])
        if whole is not None:
            whole(say, value)

    return check


def _short(definition: str) -> str:
    name = definition.removeprefix("io.k8s.api.").removeprefix("io.k8s.apimachinery.pkg.apis.")
    return name.removeprefix("core.v1.")
