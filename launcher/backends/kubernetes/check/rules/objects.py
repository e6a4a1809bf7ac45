"""Kinds that run no pods: configuration, access, quotas, networks, scaling."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.forms import DATA_KEY, SUBDOMAIN, Say, least, mapping, number, string, texts
from launcher.backends.kubernetes.check.quantity import is_quantity, nanos
from launcher.spec.values.problems import near, show

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
        say("data", f"{size:,} bytes", f"at most {MAX_DATA:,}", key=True)


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
            say.missing(key, f", which {value['type']} needs")
        elif mapping(value, "stringData").get(key) == "" and not key.startswith("tls."):
            say(("stringData", key), f"has no value, which {value['type']} needs")


def namespace(say: Say, value: Mapping[str, Any]) -> None:
    for mode in ("enforce", "audit", "warn"):
        key = f"pod-security.kubernetes.io/{mode}"
        level = mapping(value, "metadata", "labels").get(key)
        if type(level) is str and level not in ("privileged", "baseline", "restricted"):
            say(("metadata", "labels", key), f"{show(level)} is not a level", "privileged, baseline, restricted")


def service(say: Say, spec: Mapping[str, Any]) -> None:
    ports = list(say.each(spec, "ports"))
    if not ports and string(spec, "type") != "ExternalName" and spec.get("clusterIP") != "None":
        say.missing("ports")
    for at, port in ports:
        if len(ports) > 1 and not string(port, "name"):
            at.missing("name", ", which several ports need")


def role(say: Say, value: Mapping[str, Any]) -> None:
    for at, rule in say.each(value, "rules"):
        if "nonResourceURLs" in rule:
            at("nonResourceURLs", "only a ClusterRole may name URLs")


def policy_rule(say: Say, rule: Mapping[str, Any]) -> None:
    if not rule.get("verbs"):
        say("", "`verbs` is empty", "get, list, watch, create, update, patch, delete")
    if "nonResourceURLs" in rule:
        if rule.get("resources") or rule.get("apiGroups"):
            say("", "has `nonResourceURLs` and `resources`", "one of them")
    elif not rule.get("apiGroups"):
        say.missing("apiGroups", allowed='[""] for the core group')
    elif not rule.get("resources"):
        say.missing("resources")


def binding(say: Say, value: Mapping[str, Any]) -> None:
    ref, whole = mapping(value, "roleRef"), value.get("kind") == "ClusterRoleBinding"
    allowed = ("ClusterRole",) if whole else ("ClusterRole", "Role")
    if string(ref, "kind") not in allowed:
        say(("roleRef", "kind"), f"{show(ref.get('kind'))} cannot be bound here", ", ".join(allowed))
    if ref.get("name") == "":
        say(("roleRef", "name"), "names no role")
    if string(ref, "apiGroup") not in ("", _RBAC):
        say(("roleRef", "apiGroup"), f"{show(ref.get('apiGroup'))} has no roles", _RBAC)
    for at, subject in say.each(value, "subjects"):
        kind, group = string(subject, "kind"), string(subject, "apiGroup")
        if kind == "ServiceAccount":
            at.form("name", subject.get("name"), SUBDOMAIN)
            if whole and not string(subject, "namespace"):
                at.missing("namespace", ", which a ServiceAccount needs")
            if group:
                at("apiGroup", "a ServiceAccount is of the core group", '""')
        elif kind in ("User", "Group"):
            if subject.get("name") == "":
                at("name", f"names no {kind}")
            if group not in ("", _RBAC):
                at("apiGroup", f"{show(group)} has no {kind}", _RBAC)
        else:
            at("kind", f"{show(kind)} is not a kind of subject", "ServiceAccount, User, Group")


def network_policy(say: Say, spec: Mapping[str, Any]) -> None:
    types = [policy_type for _, policy_type in texts(spec, "policyTypes")]
    if len(types) > 2:
        say("policyTypes", f"has {len(types)} items", "Ingress, Egress, each once")
    for part in ("ingress", "egress"):
        if part in spec and types and part.capitalize() not in types:
            message = f"has no effect without {part.capitalize()} in policyTypes"
            say(part, message, key=True, policy=policies.NO_EFFECT)


def port_range(say: Say, port: Mapping[str, Any]) -> None:
    first, last = port.get("port"), number(port, "endPort")
    if last is not None and not (type(first) is int and first <= last <= 65535):
        say("endPort", f"`{last}` does not end a range", "a number from `port` on")


def peer(say: Say, value: Mapping[str, Any]) -> None:
    if not value:
        say("", "selects nothing", "podSelector, namespaceSelector, ipBlock")
    if "ipBlock" in value and len(value) > 1:
        say("", "has `ipBlock` beside a selector", "one of them")


def block(say: Say, value: Mapping[str, Any]) -> None:
    whole = _network(say.into("cidr"), value.get("cidr"))
    for at, text in texts(value, "except"):
        part = _network(say.into(*at), text)
        inside = part and whole and part.version == whole.version and part.subnet_of(whole)  # type: ignore[arg-type]
        if part and whole and (not inside or part == whole):
            say(at, f"{text} does not lie within {whole}", "a smaller block of it")


def _network(say: Say, value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    if type(value) is not str:
        return None
    try:
        # the server ignores leading zeros and the bits after the prefix
        network = ipaddress.ip_network(re.sub(r"\b0+(?=\d)", "", value), strict=False)
        if "/" not in value:
            raise ValueError
    except ValueError:
        say("", f"{show(value)} is not a block of addresses", "10.0.0.0/8")
        return None
    if str(network) != value and ":" not in value:
        say("", f"{show(value)} counts as {network}", str(network), policy=policies.NO_EFFECT)
    return network


_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_QUOTAS: Final = (
    *_COMPUTE,
    *(f"{part}.{name}" for part in ("requests", "limits") for name in _COMPUTE),
    *("storage", "requests.storage", "pods", "services", "services.loadbalancers", "services.nodeports", "secrets"),
    *("configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"),
)
_ORDER: Final = ("min", "defaultRequest", "default", "max")


def limit_range(say: Say, value: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for at, limit in say.each(value, "limits"):
        at.once("type", string(limit, "type"), seen, allowed="each type once")


def limit(say: Say, value: Mapping[str, Any]) -> None:
    kind = string(value, "type")
    if "/" not in kind:
        say.choice("type", kind, ("Container", "Pod", "PersistentVolumeClaim"))
    for part in (*_ORDER, "maxLimitRequestRatio"):
        for name in mapping(value, part):
            _resource(say.into(part, name), name, (*_COMPUTE, "storage"))
    for name in ("default", "defaultRequest"):
        if kind == "Pod" and name in value:
            say(name, "is only for containers", "type: Container", key=True)
    for low, high in combinations(_ORDER, 2):
        for name, amount in mapping(value, low).items():
            other = mapping(value, high).get(name)
            if is_quantity(amount) and is_quantity(other) and nanos(amount) > nanos(other):
                say((low, name), f"`{amount}` is more than {high}, `{other}`", f"at most {other}")


def _resource(say: Say, name: str, known: tuple[str, ...]) -> None:
    """A resource without a domain must be one of the few that Kubernetes defines."""
    if "/" not in name and name not in known and not name.startswith(("hugepages-", "requests.hugepages-")):
        say("", f"unknown resource{near(name, known)}", ", ".join((*known, "DOMAIN/NAME")), key=True)


def quota(say: Say, value: Mapping[str, Any]) -> None:
    for name, amount in mapping(value, "hard").items():
        at = say.into("hard", name)
        _resource(at, name, _QUOTAS)
        if is_quantity(amount) and nanos(amount) < 0:
            at("", f"`{amount}` is negative", "0 or more")
        if name.startswith("limits.") and "/" in name:
            allowed = f"requests.{name.removeprefix('limits.')}"
            at("", "a quota of such a resource counts requests", allowed, key=True, policy=policies.NO_EFFECT)


def priority_class(say: Say, value: Mapping[str, Any]) -> None:
    amount = number(value, "value")
    if amount is not None and amount > 1_000_000_000:
        say("value", f"`{amount}` is the system's", "at most 1000000000")
    if string(mapping(value, "metadata"), "name").startswith("system-"):
        say(("metadata", "name"), "names that begin with system- are the system's")


def autoscaler(say: Say, spec: Mapping[str, Any]) -> None:
    low, high = number(spec, "minReplicas"), number(spec, "maxReplicas")
    least(1)(say.into("minReplicas"), low)
    if high is not None and high < (low if low is not None else 1):
        say("maxReplicas", f"`{high}` is less than minReplicas", f"{low or 1} or more")
    at, ref = say.into("scaleTargetRef"), mapping(spec, "scaleTargetRef")
    # 1.33 takes every apiVersion, and then finds nothing to scale
    policy, version = policies.NO_EFFECT if say.version < (1, 34) else "", string(ref, "apiVersion")
    if version and version.count("/") != 1:
        at("apiVersion", "is not a group and a version", "apps/v1", policy=policy)
    for name in ("apiVersion", "kind", "name"):
        if not string(ref, name):
            at.missing(name, policy=policy if name == "apiVersion" else "")


_METRICS: Final = {
    **{"Resource": "resource", "Pods": "pods", "Object": "object", "External": "external"},
    "ContainerResource": "containerResource",
}
_TARGETS: Final = {"Utilization": "averageUtilization", "Value": "value", "AverageValue": "averageValue"}


def metric(say: Say, value: Mapping[str, Any]) -> None:
    kind = string(value, "type")
    say.choice("type", kind, _METRICS)
    source = _METRICS.get(kind, "")
    if source and source not in value:
        say.missing(source, f", which {kind} needs")
    if mapping(value, source).get("name") == "":
        say((source, "name"), "names no resource")


def target(say: Say, value: Mapping[str, Any]) -> None:
    kind = string(value, "type")
    say.choice("type", kind, _TARGETS, hint=True)
    if kind in _TARGETS and _TARGETS[kind] not in value:
        say.missing(_TARGETS[kind], f", which {kind} needs")


def disruption_budget(say: Say, spec: Mapping[str, Any]) -> None:
    bounds = ("minAvailable", "maxUnavailable")
    if set(spec) & set(bounds):
        say.one_of(spec, bounds)
    else:
        message = "has none of the fields that say what it is"
        say("", message, f"one of {', '.join(bounds)}", policy=policies.NO_EFFECT)


def amount(say: Say, value: Any) -> None:
    """Checks a number of pods, or a part of them."""
    if type(value) is str and not (value.endswith("%") and value[:-1].isdigit()):
        say("", f"{show(value)} is neither a number nor a percentage", "1, 50%")
    least(0)(say, value)


def cluster_queue(say: Say, value: Mapping[str, Any]) -> None:
    """Kueue: every flavor of a group lists the covered resources in the same order."""
    seen: set[str] = set()
    for at, group in say.each(value, "spec.resourceGroups"):
        covered = list(texts(group, "coveredResources"))
        for route, name in covered:
            at.into(*route).once("", name, seen, f"{name} is covered already", "each resource once")
        for where, flavor in at.each(group, "flavors"):
            resources = list(where.each(flavor, "resources"))
            for place, resource in resources:
                for name in ("nominalQuota", "borrowingLimit", "lendingLimit"):
                    if is_quantity(resource.get(name)) and nanos(resource[name]) < 0:
                        place(name, f"`{resource[name]}` is negative", "0 or more")
            listed, wanted = [string(resource, "name") for _, resource in resources], [name for _, name in covered]
            if listed != wanted:
                message = f"the flavor {show(flavor.get('name'))} lists {', '.join(listed) or 'nothing'}"
                where("resources", message, "the group's coveredResources, in order: " + ", ".join(wanted))
