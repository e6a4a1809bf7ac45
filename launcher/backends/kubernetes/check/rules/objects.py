"""Kinds that run no pods: configuration, access, quotas, networks, scaling."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.quantity import is_quantity, nanos
from launcher.backends.kubernetes.check.rules.containers import port_number
from launcher.backends.kubernetes.check.rules.forms import (
    DATA_KEY,
    LABEL,
    PORT,
    SUBDOMAIN,
    Say,
    items,
    labels,
    least,
    mapping,
    number,
    selector,
    string,
    texts,
)
from launcher.backends.kubernetes.check.rules.volumes import claim_spec
from launcher.backends.kubernetes.check.rules.workloads import a_pod, cron_job, deployment, job, job_set
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route

MAX_DATA: Final = 1 << 20  # bytes of all values in a ConfigMap or Secret
_RBAC: Final = "rbac.authorization.k8s.io"


def config_map(say: Say, value: Mapping[str, Any]) -> None:
    size = 0
    for part in ("data", "binaryData", "stringData"):
        for key, item in mapping(value, part).items():
            say.form((part, key), key, DATA_KEY, key=True)
            if type(item) is str:
                size += len(item.encode()) * 3 // 4 if part == "binaryData" else len(item.encode())
    for key in sorted(set(mapping(value, "data")) & set(mapping(value, "binaryData"))):
        say(("binaryData", key), f"`{key}` is in `data`, too", "each key once", key=True)
    if size > MAX_DATA:
        say(("data",), f"{size:,} bytes", f"at most {MAX_DATA:,}", key=True)


_SECRETS: Final = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def secret(say: Say, value: Mapping[str, Any]) -> None:
    config_map(say, value)
    there = {*mapping(value, "data"), *mapping(value, "stringData")}
    for key in _SECRETS.get(string(value, "type"), ()):
        if key not in there:
            say((), f"`{key}` is missing, which {value['type']} needs", key=True)
    for key, item in mapping(value, "stringData").items():
        if item == "" and key in _SECRETS.get(string(value, "type"), ()) and not key.startswith("tls."):
            say(("stringData", key), f"has no value, which {value['type']} needs")


def namespace(say: Say, value: Mapping[str, Any]) -> None:
    for mode in ("enforce", "audit", "warn"):
        key = f"pod-security.kubernetes.io/{mode}"
        level = mapping(value, "metadata", "labels").get(key)
        if type(level) is str and level not in ("privileged", "baseline", "restricted"):
            say(("metadata", "labels", key), f"{show(level)} is not a level", "privileged, baseline, restricted")


def service(say: Say, value: Mapping[str, Any]) -> None:
    spec = mapping(value, "spec")
    labels(say, mapping(spec, "selector"), ("spec", "selector"))
    ports = list(items(spec, "ports", ("spec",)))
    if not ports and string(spec, "type") != "ExternalName" and spec.get("clusterIP") != "None":
        say(("spec",), "`ports` is missing", key=True)
    for at, port in ports:
        port_number(say, port.get("port"), (*at, "port"))
        port_number(say, port.get("targetPort") or None, (*at, "targetPort"))  # of 0 the server makes `port`
        if string(port, "targetPort"):
            say.form((*at, "targetPort"), port["targetPort"], PORT)
        if string(port, "name"):
            say.form((*at, "name"), port["name"], LABEL)
        elif len(ports) > 1:
            say.missing(at, "name", ", which several ports need")


def role(say: Say, value: Mapping[str, Any]) -> None:
    cluster = value.get("kind") == "ClusterRole"
    for at, rule in items(value, "rules"):
        if not rule.get("verbs"):
            say(at, "`verbs` is empty", "get, list, watch, create, update, patch, delete")
        if "nonResourceURLs" in rule:
            if not cluster:
                say((*at, "nonResourceURLs"), "only a ClusterRole may name URLs")
            if rule.get("resources") or rule.get("apiGroups"):
                say(at, "has `nonResourceURLs` and `resources`", "one of them")
        elif not rule.get("apiGroups"):
            say(at, "`apiGroups` is missing", '[""] for the core group', key=True)
        elif not rule.get("resources"):
            say.missing(at, "resources")


def binding(say: Say, value: Mapping[str, Any]) -> None:
    ref, kinds = mapping(value, "roleRef"), ("ClusterRole", "Role")
    allowed = kinds[:1] if value.get("kind") == "ClusterRoleBinding" else kinds
    if string(ref, "kind") not in allowed:
        say(("roleRef", "kind"), f"{show(ref.get('kind'))} cannot be bound here", ", ".join(allowed))
    if ref.get("name") == "":
        say(("roleRef", "name"), "names no role")
    if string(ref, "apiGroup") not in ("", _RBAC):
        say(("roleRef", "apiGroup"), f"{show(ref.get('apiGroup'))} has no roles", _RBAC)
    for at, subject in items(value, "subjects"):
        kind, group = string(subject, "kind"), string(subject, "apiGroup")
        if kind == "ServiceAccount":
            say.form((*at, "name"), subject.get("name"), SUBDOMAIN)
            if allowed == kinds[:1] and not string(subject, "namespace"):
                say.missing(at, "namespace", ", which a ServiceAccount needs")
            if group:
                say((*at, "apiGroup"), "a ServiceAccount is of the core group", '""')
        elif kind in ("User", "Group"):
            if subject.get("name") == "":
                say((*at, "name"), f"names no {kind}")
            if group not in ("", _RBAC):
                say((*at, "apiGroup"), f"{show(group)} has no {kind}", _RBAC)
        else:
            say((*at, "kind"), f"{show(kind)} is not a kind of subject", "ServiceAccount, User, Group")


def network_policy(say: Say, value: Mapping[str, Any]) -> None:
    spec = mapping(value, "spec")
    selector(say, spec.get("podSelector"), ("spec", "podSelector"))
    types = [policy_type for _, policy_type in texts(spec, "policyTypes")]
    if len(types) > 2:
        say(("spec", "policyTypes"), f"has {len(types)} items", "Ingress, Egress, each once")
    for part, peers in (("ingress", "from"), ("egress", "to")):
        if part in spec and types and part.capitalize() not in types:
            message = f"has no effect without {part.capitalize()} in policyTypes"
            say(("spec", part), message, key=True, policy=policies.NO_EFFECT)
        for at, rule in items(spec, part, ("spec",)):
            for where, port in items(rule, "ports", at):
                _policy_port(say, port, where)
            for where, peer in items(rule, peers, at):
                _peer(say, peer, where)


def _policy_port(say: Say, port: Mapping[str, Any], route: Route) -> None:
    first, last = port.get("port"), number(port, "endPort")
    port_number(say, first, (*route, "port"))
    if type(first) is str:
        say.form((*route, "port"), first, PORT)
    if last is not None and not (type(first) is int and first <= last <= 65535):
        say((*route, "endPort"), f"`{last}` does not end a range", "a number from `port` on")


def _peer(say: Say, peer: Mapping[str, Any], route: Route) -> None:
    if not peer:
        say(route, "selects nothing", "podSelector, namespaceSelector, ipBlock")
    if "ipBlock" in peer and len(peer) > 1:
        say(route, "has `ipBlock` beside a selector", "one of them")
    for name in ("podSelector", "namespaceSelector"):
        selector(say, peer.get(name), (*route, name))
    block, at = mapping(peer, "ipBlock"), (*route, "ipBlock")
    whole = _network(say, block.get("cidr"), (*at, "cidr"))
    for where, text in texts(block, "except", at):
        part = _network(say, text, where)
        inside = part and whole and part.version == whole.version and part.subnet_of(whole)  # type: ignore[arg-type]
        if part and whole and (not inside or part == whole):
            say(where, f"{text} does not lie within {whole}", "a smaller block of it")


def _network(say: Say, value: Any, route: Route) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if type(value) is not str:
        return None
    try:
        # the server ignores leading zeros and the bits after the prefix
        network = ipaddress.ip_network(re.sub(r"\b0+(?=\d)", "", value), strict=False)
        if "/" not in value:
            raise ValueError
    except ValueError:
        say(route, f"{show(value)} is not a block of addresses", "10.0.0.0/8")
        return None
    if str(network) != value and ":" not in value:
        say(route, f"{show(value)} counts as {network}", str(network), policy=policies.NO_EFFECT)
    return network


def claim(say: Say, value: Mapping[str, Any]) -> None:
    claim_spec(say, mapping(value, "spec"), ("spec",))


def limit_range(say: Say, value: Mapping[str, Any]) -> None:
    order = ("min", "defaultRequest", "default", "max")
    seen: set[str] = set()
    for at, limit in items(value, "spec.limits"):
        kind = string(limit, "type")
        if kind in seen:
            say((*at, "type"), f"{show(kind)} is listed twice", "each type once")
        seen.add(kind)
        if kind not in ("Container", "Pod", "PersistentVolumeClaim") and "/" not in kind:
            say((*at, "type"), f"{show(kind)} is not one of them", "Container, Pod, PersistentVolumeClaim")
        for part in (*order, "maxLimitRequestRatio"):
            for name in mapping(limit, part):
                _resource(say, name, (*at, part, name), (*_COMPUTE, "storage"))
        if string(limit, "type") == "Pod":
            for name in ("default", "defaultRequest"):
                if name in limit:
                    say((*at, name), "is only for containers", "type: Container", key=True)
        for low, high in ((a, b) for index, a in enumerate(order) for b in order[index + 1 :]):
            for name, amount in mapping(limit, low).items():
                other = mapping(limit, high).get(name)
                if is_quantity(amount) and is_quantity(other) and nanos(amount) > nanos(other):
                    say((*at, low, name), f"`{amount}` is more than {high}, `{other}`", f"at most {other}")


def _resource(say: Say, name: str, route: Route, known: tuple[str, ...]) -> None:
    """A resource without a domain must be one of the few that Kubernetes defines."""
    if "/" not in name and name not in known and not name.startswith(("hugepages-", "requests.hugepages-")):
        say(route, f"unknown resource{near(name, known)}", ", ".join((*known, "DOMAIN/NAME")), key=True)


_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_QUOTAS: Final = (
    *_COMPUTE,
    *(f"{part}.{name}" for part in ("requests", "limits") for name in _COMPUTE),
    *("storage", "requests.storage", "pods", "services", "services.loadbalancers", "services.nodeports", "secrets"),
    *("configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"),
)


def quota(say: Say, value: Mapping[str, Any]) -> None:
    for name, amount in mapping(value, "spec", "hard").items():
        _resource(say, name, ("spec", "hard", name), _QUOTAS)
        if is_quantity(amount) and nanos(amount) < 0:
            say(("spec", "hard", name), f"`{amount}` is negative", "0 or more")
        for part in ("limits.", "requests."):
            rest = name.removeprefix(part)
            if rest != name and part == "limits." and "/" in rest:
                message = "a quota of such a resource counts requests"
                say(("spec", "hard", name), message, f"requests.{rest}", key=True, policy=policies.NO_EFFECT)


def priority_class(say: Say, value: Mapping[str, Any]) -> None:
    amount, name = number(value, "value"), string(mapping(value, "metadata"), "name")
    if amount is not None and amount > 1_000_000_000:
        say(("value",), f"`{amount}` is the system's", "at most 1000000000")
    if name.startswith("system-"):
        say(("metadata", "name"), "names that begin with system- are the system's")


def autoscaler(say: Say, value: Mapping[str, Any]) -> None:
    spec = mapping(value, "spec")
    low, high = number(spec, "minReplicas"), number(spec, "maxReplicas")
    if low is not None and low < 1:
        say(("spec", "minReplicas"), f"`{low}` is too small", "1 or more")
    if high is not None and high < (low if low is not None else 1):
        say(("spec", "maxReplicas"), f"`{high}` is less than minReplicas", f"{low or 1} or more")
    fields = {"Resource": "resource", "Pods": "pods", "Object": "object", "External": "external"}
    fields["ContainerResource"] = "containerResource"
    # 1.33 takes every apiVersion, and then finds nothing to scale
    version = say.under(policies.NO_EFFECT) if say.version < (1, 34) else say
    named = string(mapping(spec, "scaleTargetRef"), "apiVersion")
    if named and named.count("/") != 1:
        version(("spec", "scaleTargetRef", "apiVersion"), "is not a group and a version", "apps/v1")
    for name in ("apiVersion", "kind", "name"):
        if not string(mapping(spec, "scaleTargetRef"), name):
            (version if name == "apiVersion" else say)(("spec", "scaleTargetRef"), f"`{name}` is missing", key=True)
    for at, metric in items(spec, "metrics", ("spec",)):
        kind = string(metric, "type")
        if kind not in fields:
            say((*at, "type"), f"{show(kind)} is not one of them", ", ".join(fields))
        elif fields[kind] not in metric:
            say(at, f"`{fields[kind]}` is missing, which {kind} needs", key=True)
        else:
            _target(say, mapping(metric, fields[kind]), (*at, fields[kind]))


_TARGETS: Final = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}


def _target(say: Say, metric: Mapping[str, Any], route: Route) -> None:
    if metric.get("name") == "":
        say((*route, "name"), "names no resource")
    target, at = mapping(metric, "target"), (*route, "target")
    kind = string(target, "type")
    if kind not in _TARGETS:
        say((*at, "type"), f"{show(kind)} is not one of them{near(kind, _TARGETS)}", ", ".join(_TARGETS))
    elif _TARGETS[kind] not in target:
        say(at, f"`{_TARGETS[kind]}` is missing, which {kind} needs", key=True)
    least(say, target, at, {"averageUtilization": 1})


def disruption_budget(say: Say, value: Mapping[str, Any]) -> None:
    spec = mapping(value, "spec")
    bounds = ("minAvailable", "maxUnavailable")
    if set(spec) & set(bounds):
        say.one_of(spec, ("spec",), bounds)
    else:
        message = "has none of the fields that say what it is"
        say(("spec",) if "spec" in value else (), message, f"one of {', '.join(bounds)}", policy=policies.NO_EFFECT)
    selector(say, spec.get("selector"), ("spec", "selector"))
    for name in ("minAvailable", "maxUnavailable"):
        amount = spec.get(name)
        if type(amount) is str and not (amount.endswith("%") and amount[:-1].isdigit()):
            say(("spec", name), f"{show(amount)} is neither a number nor a percentage", "1, 50%")
    least(say, spec, ("spec",), {"minAvailable": 0, "maxUnavailable": 0})


def cluster_queue(say: Say, value: Mapping[str, Any]) -> None:
    """Kueue: every flavor of a group lists the covered resources in the same order."""
    seen: set[str] = set()
    for at, group in items(value, "spec.resourceGroups"):
        covered = [name for _, name in texts(group, "coveredResources", at)]
        for where, name in texts(group, "coveredResources", at):
            if name in seen:
                say(where, f"{name} is covered already", "each resource once")
            seen.add(name)
        for where, flavor in items(group, "flavors", at):
            listed = [string(resource, "name") for _, resource in items(flavor, "resources", where)]
            for place, resource in items(flavor, "resources", where):
                for name in ("nominalQuota", "borrowingLimit", "lendingLimit"):
                    if is_quantity(resource.get(name)) and nanos(resource[name]) < 0:
                        say((*place, name), f"`{resource[name]}` is negative", "0 or more")
            if listed != covered:
                message = f"the flavor {show(flavor.get('name'))} lists {', '.join(listed) or 'nothing'}"
                say((*where, "resources"), message, "the group's coveredResources, in order: " + ", ".join(covered))


Rule = Callable[[Say, Mapping[str, Any]], None]
# kind, without its version -> its rule
RULES: Final[dict[str, Rule]] = {
    "ConfigMap": config_map,
    "Secret": secret,
    "Namespace": namespace,
    "Service": service,
    "Pod": a_pod,
    "PersistentVolumeClaim": claim,
    "LimitRange": limit_range,
    "ResourceQuota": quota,
    "batch/Job": job,
    "batch/CronJob": cron_job,
    "apps/Deployment": deployment,
    "apps/DaemonSet": deployment,
    "apps/StatefulSet": deployment,
    f"{_RBAC}/Role": role,
    f"{_RBAC}/ClusterRole": role,
    f"{_RBAC}/RoleBinding": binding,
    f"{_RBAC}/ClusterRoleBinding": binding,
    "networking.k8s.io/NetworkPolicy": network_policy,
    "policy/PodDisruptionBudget": disruption_budget,
    "autoscaling/HorizontalPodAutoscaler": autoscaler,
    "scheduling.k8s.io/PriorityClass": priority_class,
    "jobset.x-k8s.io/JobSet": job_set,
    "kueue.x-k8s.io/ClusterQueue": cluster_queue,
}
