"""A pod's spec: containers by name, volumes and their mounts, scheduling, names, isolation."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.rules.containers import container, container_fields, profiles, removed
from launcher.backends.kubernetes.check.rules.forms import (
    LABEL,
    SUBDOMAIN,
    VALUE,
    Say,
    annotation_sizes,
    items,
    labels,
    least,
    mapping,
    number,
    qualified,
    selector,
    string,
    texts,
)
from launcher.backends.kubernetes.check.rules.volumes import volumes_of
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route

_CLAIM: Final = ("resourceClaimName", "resourceClaimTemplateName")
MAX_ID: Final = (1 << 31) - 1  # of users, groups and seconds


def template(say: Say, value: Mapping[str, Any], route: Route, claims: Collection[str] = (), policy: str = "") -> None:
    """Checks a pod template: its metadata and spec. `claims`: as `pod` has it. `policy`: what an error in the spec
    breaks, where the server does not judge it."""
    at = (*route, "metadata")
    labels(say, mapping(value, "metadata", "labels"), (*at, "labels"))
    annotation_sizes(say, mapping(value, "metadata", "annotations"), (*at, "annotations"))
    if "spec" not in value:
        say.missing(route, "spec", policy=policy)
    pod(say.under(policy), mapping(value, "spec"), (*route, "spec"), claims)


def pod(say: Say, spec: Mapping[str, Any], route: Route, claims: Collection[str] = ()) -> None:
    """Checks a pod's spec. `claims`: names of the volumes that its StatefulSet makes for it."""
    if "containers" in spec and not spec["containers"]:
        say((*route, "containers"), "has no container", "one at least")
    volumes = volumes_of(say, spec, route)
    pod_fields(say, spec, route)
    profiles(say, mapping(spec, "securityContext"), (*route, "securityContext"))
    names: dict[str, str] = {}
    used: set[str] = set()
    for part in ("initContainers", "containers"):
        for at, value in items(spec, part, route):
            name = string(value, "name")
            if say.form((*at, "name"), value.get("name"), LABEL):
                if name in names and names[name] != part:  # duplicates within one list are found by the schema
                    say((*at, "name"), f"`{name}` is the name of an init container, too", "each name once")
                names[name] = part
            container(say, value, at, {*volumes, *claims}, spec.get("hostNetwork") is True)
            container_fields(say, value, at, spec)
            _context(say, mapping(value, "securityContext"), (*at, "securityContext"))
            if part == "initContainers" and string(value, "restartPolicy") != "Always":
                _ends(say, value, at)
            _sleeps(say, value, at, number(spec, "terminationGracePeriodSeconds"))
            used |= {string(item, "name") for _, item in items(value, "volumeMounts", at)}
            used |= {string(item, "name") for _, item in items(value, "volumeDevices", at)}
    for name, at in volumes.items():
        if name not in used:
            message = f"no container mounts the volume `{name}`"
            say((*at, "name"), message, "mount it, or leave it out", policy=policies.NO_EFFECT)
    least(say, spec, route, {"activeDeadlineSeconds": 1})
    least(say, spec, route, {"terminationGracePeriodSeconds": 0}, policies.NO_EFFECT)
    if (number(spec, "activeDeadlineSeconds") or 0) > MAX_ID:
        say((*route, "activeDeadlineSeconds"), f"`{spec['activeDeadlineSeconds']}` is too large", f"at most {MAX_ID}")
    _context(say, mapping(spec, "securityContext"), (*route, "securityContext"))
    # an empty one counts as left out
    for field in ("priorityClassName", "serviceAccountName", "serviceAccount", "nodeName"):
        if string(spec, field):
            say.form((*route, field), spec[field], SUBDOMAIN)
    if "runtimeClassName" in spec:
        say.form((*route, "runtimeClassName"), spec["runtimeClassName"], SUBDOMAIN)
    for field in ("hostname", "subdomain"):
        if string(spec, field):
            say.form((*route, field), spec[field], LABEL)
    for at, value in items(spec, "imagePullSecrets", route):
        if not string(value, "name"):
            say.missing(at, "name", policy=policies.NO_EFFECT)
    labels(say, mapping(spec, "nodeSelector"), (*route, "nodeSelector"))
    for at, value in items(spec, "tolerations", route):
        _toleration(say, value, at)
    _spread(say, spec, route)
    _affinity(say, mapping(spec, "affinity"), (*route, "affinity"))


def _context(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """Checks ids of users and groups, and that each sysctl is set once."""
    for name in ("runAsUser", "runAsGroup", "fsGroup"):
        identity = number(value, name)
        if identity is not None and not 0 <= identity <= MAX_ID:
            say((*route, name), f"`{identity}` is out of range", f"0 to {MAX_ID}")
    groups = value.get("supplementalGroups")
    for index, identity in enumerate(groups if type(groups) is list else ()):
        if type(identity) is int and not 0 <= identity <= MAX_ID:
            say((*route, "supplementalGroups", index), f"`{identity}` is out of range", f"0 to {MAX_ID}")
    seen: set[str] = set()
    for at, item in items(value, "sysctls", route):
        name = string(item, "name")
        if name in seen:
            say((*at, "name"), f"{show(name)} is listed twice", "each once")
        seen.add(name)


def _ends(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """An init container that ends by itself has no probes and no hooks."""
    for name in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        if name in value:
            say((*route, name), "is only for init containers that stay", "restartPolicy: Always", key=True)


def _sleeps(say: Say, value: Mapping[str, Any], route: Route, grace: int | None) -> None:
    most = 30 if grace is None else grace
    for name in ("postStart", "preStop"):
        seconds = number(mapping(value, "lifecycle", name, "sleep"), "seconds")
        if seconds is not None and not 0 <= seconds <= most:
            at = (*route, "lifecycle", name, "sleep", "seconds")
            say(at, f"`{seconds}` is not within the grace period", f"0 to {most}")


def _toleration(say: Say, value: Mapping[str, Any], route: Route) -> None:
    key, operator, effect = string(value, "key"), string(value, "operator") or "Equal", string(value, "effect")
    if key:
        qualified(say, key, (*route, "key"))
    elif operator != "Exists":
        say(route, "without a key it tolerates everything, which only `operator: Exists` may say", "a key")
    if operator == "Exists" and string(value, "value"):
        say((*route, "value"), "Exists takes no value", "leave it out, or `operator: Equal`")
    elif operator == "Equal":
        say.form((*route, "value"), value.get("value"), VALUE)
    if "tolerationSeconds" in value and effect != "NoExecute":
        say((*route, "tolerationSeconds"), "is only for `effect: NoExecute`")


def _spread(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    for at, value in items(spec, "topologySpreadConstraints", route):
        least(say, value, at, {"maxSkew": 1, "minDomains": 1})
        key = (string(value, "topologyKey"), string(value, "whenUnsatisfiable"))
        if not key[0]:
            say.missing(at, "topologyKey")
        else:
            qualified(say, key[0], (*at, "topologyKey"))
        if "minDomains" in value and key[1] != "DoNotSchedule":
            say((*at, "minDomains"), "is only for `whenUnsatisfiable: DoNotSchedule`")
        selector(say, value.get("labelSelector"), (*at, "labelSelector"))


def _affinity(say: Say, value: Mapping[str, Any], route: Route) -> None:
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    node, at = mapping(value, "nodeAffinity"), (*route, "nodeAffinity")
    if hard in node and mapping(node, hard).get("nodeSelectorTerms") == []:
        say((*at, hard, "nodeSelectorTerms"), "has no term", "one at least")
    for where, term in items(mapping(node, hard), "nodeSelectorTerms", (*at, hard)):
        _terms(say, term, where)
    for where, item in items(node, soft, at):
        _weight(say, item, where)
        _terms(say, mapping(item, "preference"), (*where, "preference"))
    for kind in ("podAffinity", "podAntiAffinity"):
        pods, at = mapping(value, kind), (*route, kind)
        for where, term in items(pods, hard, at):
            _pod_term(say, term, where)
        for where, item in items(pods, soft, at):
            _weight(say, item, where)
            _pod_term(say, mapping(item, "podAffinityTerm"), (*where, "podAffinityTerm"))


def _weight(say: Say, value: Mapping[str, Any], route: Route) -> None:
    weight = number(value, "weight")
    if weight is not None and not 1 <= weight <= 100:
        say((*route, "weight"), f"`{weight}` is out of range", "1 to 100")


def _terms(say: Say, term: Mapping[str, Any], route: Route) -> None:
    for at, item in items(term, "matchExpressions", route):
        qualified(say, string(item, "key"), (*at, "key"))
        operator, values = string(item, "operator"), list(texts(item, "values", at))
        if operator in ("In", "NotIn") and not values:
            say(at, f"{operator} needs `values`")
        elif operator in ("Exists", "DoesNotExist") and values:
            say((*at, "values"), f"{operator} takes no values")
        for place, value in values:
            say.form(place, value, VALUE)
        if operator in ("Gt", "Lt") and not (len(values) == 1 and values[0][1].lstrip("-").isdigit()):
            message = f"{operator} takes one whole number, as a text"
            say((*at, "values"), message, policy=policies.NEVER_STARTS if len(values) == 1 else "")


def _pod_term(say: Say, term: Mapping[str, Any], route: Route) -> None:
    if not string(term, "topologyKey"):
        say.missing(route, "topologyKey")
    else:
        qualified(say, string(term, "topologyKey"), (*route, "topologyKey"))
    selector(say, term.get("labelSelector"), (*route, "labelSelector"))


def pod_fields(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    """Checks a pod's spec, but for its containers."""
    if "ephemeralContainers" in spec:
        say((*route, "ephemeralContainers"), "cannot be there from the beginning", "leave it out", key=True)
    _names(say, spec, route)
    if spec.get("shareProcessNamespace") is True and spec.get("hostPID") is True:
        say((*route, "shareProcessNamespace"), "excludes hostPID", "one of them")
    if spec.get("hostUsers") is False:
        for name in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(name) is True:
                say((*route, name), "excludes `hostUsers: false`", "one of them")
    system = string(mapping(spec, "os"), "name")
    if "os" in spec and system not in ("linux", "windows"):
        say((*route, "os"), f"{show(system)} is not one of them", "linux, windows")
    for at, item in items(spec, "schedulingGates", route):
        qualified(say, string(item, "name"), (*at, "name"))
    for at, item in items(spec, "readinessGates", route):
        qualified(say, string(item, "conditionType"), (*at, "conditionType"))
    if say.version < (1, 34):
        removed(say, spec, ("resourceClaims", "resources"), route)
        say = say.under(policies.NO_EFFECT)
    for at, item in items(spec, "resourceClaims", route):
        if not set(item) & set(_CLAIM):
            say(at, "names no claim", f"one of {', '.join(_CLAIM)}", key=True)
        elif set(_CLAIM) <= set(item):
            say(at, f"has {' and '.join(_CLAIM)}", "one of them")


def _names(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    """Name servers and host names."""
    servers = list(texts(spec, "dnsConfig.nameservers", route))
    if string(spec, "dnsPolicy") == "None" and not servers:
        say((*route, "dnsPolicy"), "None needs the name servers", "dnsConfig.nameservers")
    for at, server in servers:
        _address(say, server, at)
    for at, item in items(spec, "hostAliases", route):
        _address(say, string(item, "ip"), (*at, "ip"))
        for where, name in texts(item, "hostnames", at):
            say.form(where, name, SUBDOMAIN)


def _address(say: Say, text: str, route: Route) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not text.replace(".", "").isdigit():  # older servers take leading zeros
            say(route, f"{show(text)} is not an address", "10.0.0.10")
