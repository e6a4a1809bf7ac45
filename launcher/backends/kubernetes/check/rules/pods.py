"""A pod's spec: containers by name, scheduling, names, and which container mounts which volume."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.forms import (
    SUBDOMAIN,
    VALUE,
    Say,
    items,
    mapping,
    number,
    qualified,
    string,
    texts,
)
from launcher.backends.kubernetes.check.rules.containers import PROBES, removed
from launcher.spec.values.problems import near, show

_CLAIM: Final = ("resourceClaimName", "resourceClaimTemplateName")
MAX_ID: Final = (1 << 31) - 1  # of users, groups and seconds
_PARTS: Final = ("initContainers", "containers")


def template(say: Say, value: Mapping[str, Any]) -> None:
    if "spec" not in value:
        say.missing("spec")


def pod(say: Say, spec: Mapping[str, Any]) -> None:
    if "containers" in spec and not spec["containers"]:
        say("containers", "has no container", "one at least")
    if "ephemeralContainers" in spec:
        say("ephemeralContainers", "cannot be there from the beginning", "leave it out", key=True)
    if (number(spec, "activeDeadlineSeconds") or 0) > MAX_ID:
        say("activeDeadlineSeconds", f"`{spec['activeDeadlineSeconds']}` is too large", f"at most {MAX_ID}")
    for at, value in say.each(spec, "imagePullSecrets"):
        if not string(value, "name"):
            at.missing("name", policy=policies.NO_EFFECT)
    if string(spec, "dnsPolicy") == "None" and not mapping(spec, "dnsConfig").get("nameservers"):
        say("dnsPolicy", "None needs the name servers", "dnsConfig.nameservers")
    if spec.get("shareProcessNamespace") is True and spec.get("hostPID") is True:
        say("shareProcessNamespace", "excludes hostPID", "one of them")
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name) is True and spec.get("hostUsers") is False:
            say(name, "excludes `hostUsers: false`", "one of them")
    if "os" in spec:
        say.choice("os", string(spec["os"], "name"), ("linux", "windows"))
    removed(say, spec, "resourceClaims", "resources")
    for at, item in say.each(spec, "resourceClaims"):
        if not set(item) & set(_CLAIM):
            at("", "names no claim", f"one of {', '.join(_CLAIM)}", key=True)
        elif set(_CLAIM) <= set(item):
            at("", f"has {' and '.join(_CLAIM)}", "one of them")
    _containers(say, spec)


def _containers(say: Say, spec: Mapping[str, Any]) -> None:
    """Checks what the containers of a pod share."""
    names: dict[str, str | int] = {}
    claims = [string(item, "name") for _, item in items(spec, "resourceClaims")]
    grace = number(spec, "terminationGracePeriodSeconds")
    most = 30 if grace is None else grace
    for at, value in say.each(spec, *_PARTS):
        name, part = string(value, "name"), at.route[-2]
        if names.setdefault(name, part) != part:  # duplicates within one list are found by the schema
            at("name", f"`{name}` is the name of an init container, too", "each name once")
        for field in (*PROBES, "lifecycle"):
            if field in value and part == "initContainers" and string(value, "restartPolicy") != "Always":
                at(field, "is only for init containers that stay", "restartPolicy: Always", key=True)
        for hook in ("postStart", "preStop"):
            seconds = number(mapping(value, "lifecycle", hook, "sleep"), "seconds")
            if seconds is not None and not 0 <= seconds <= most:
                message = f"`{seconds}` is not within the grace period"
                at(("lifecycle", hook, "sleep", "seconds"), message, f"0 to {most}")
        for where, item in at.each(value, "ports"):
            own = item.get("containerPort")
            if spec.get("hostNetwork") is True and item.get("hostPort", own) != own:
                where("hostPort", "with hostNetwork it equals containerPort", str(own))
        for where, item in at.each(value, "resources.claims"):
            name = string(item, "name")
            if name not in claims:
                where("name", f"the pod has no claim {show(name)}{near(name, claims)}", ", ".join(claims) or "none")


def mounts(say: Say, spec: Mapping[str, Any], claims: Collection[str] = ()) -> None:
    """Checks that the volumes that containers mount are there, and the other way round. `claims`: names of the volumes
    that a StatefulSet makes for its pods."""
    volumes = {string(volume, "name"): at for at, volume in say.each(spec, "volumes") if string(volume, "name")}
    known, used = {*volumes, *claims}, set[str]()
    for at, value in say.each(spec, *_PARTS):
        for where, item in at.each(value, "volumeMounts"):
            name = string(item, "name")
            if name and name not in known:
                listed = ", ".join(sorted(known)) or "none"
                where("name", f"the pod has no volume `{name}`{near(name, known)}", listed)
        used |= {string(item, "name") for _, item in at.each(value, "volumeMounts", "volumeDevices")}
    for name, at in volumes.items():
        if name not in used:
            message = f"no container mounts the volume `{name}`"
            at("name", message, "mount it, or leave it out", policy=policies.NO_EFFECT)


def sysctls(say: Say, value: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for at, item in say.each(value, "sysctls"):
        at.once("name", string(item, "name"), seen)


def toleration(say: Say, value: Mapping[str, Any]) -> None:
    key, operator = string(value, "key"), string(value, "operator") or "Equal"
    if key:
        qualified(say, key, ("key",))
    elif operator != "Exists":
        say("", "without a key it tolerates everything, which only `operator: Exists` may say", "a key")
    if operator == "Exists" and string(value, "value"):
        say("value", "Exists takes no value", "leave it out, or `operator: Equal`")
    elif operator == "Equal":
        say.form("value", value.get("value"), VALUE)
    if "tolerationSeconds" in value and string(value, "effect") != "NoExecute":
        say("tolerationSeconds", "is only for `effect: NoExecute`")


def spread(say: Say, value: Mapping[str, Any]) -> None:
    pod_term(say, value)
    if "minDomains" in value and string(value, "whenUnsatisfiable") != "DoNotSchedule":
        say("minDomains", "is only for `whenUnsatisfiable: DoNotSchedule`")


def pod_term(say: Say, value: Mapping[str, Any]) -> None:
    if not string(value, "topologyKey"):
        say.missing("topologyKey")
    else:
        qualified(say, value["topologyKey"], ("topologyKey",))


def node_selector(say: Say, value: Mapping[str, Any]) -> None:
    if value.get("nodeSelectorTerms") == []:
        say("nodeSelectorTerms", "has no term", "one at least")


def node_term(say: Say, term: Mapping[str, Any]) -> None:
    for at, item in say.each(term, "matchExpressions"):
        qualified(at, string(item, "key"), ("key",))
        operator = _values(at, item)
        values = list(texts(item, "values"))
        for route, value in values:
            at.form(route, value, VALUE)
        if operator in ("Gt", "Lt") and not (len(values) == 1 and values[0][1].lstrip("-").isdigit()):
            message = f"{operator} takes one whole number, as a text"
            at("values", message, policy=policies.NEVER_STARTS if len(values) == 1 else "")


def expression(say: Say, value: Mapping[str, Any]) -> None:
    """Checks an entry of a label selector's matchExpressions."""
    say.choice("operator", _values(say, value), ("In", "NotIn", "Exists", "DoesNotExist"))


def _values(say: Say, value: Mapping[str, Any]) -> str:
    """The operator of an expression; reports values that do not fit."""
    operator, values = string(value, "operator"), value.get("values")
    if operator in ("In", "NotIn") and not values:
        say("", f"{operator} needs `values`")
    elif operator in ("Exists", "DoesNotExist") and values:
        say("values", f"{operator} takes no values")
    return operator


def name_servers(say: Say, value: Mapping[str, Any]) -> None:
    for route, server in texts(value, "nameservers"):
        _address(say.into(*route), server)


def host_alias(say: Say, value: Mapping[str, Any]) -> None:
    _address(say.into("ip"), string(value, "ip"))
    for route, name in texts(value, "hostnames"):
        say.form(route, name, SUBDOMAIN)


def _address(say: Say, text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        if not text.replace(".", "").isdigit():  # older servers take leading zeros
            say("", f"{show(text)} is not an address", "10.0.0.10")
