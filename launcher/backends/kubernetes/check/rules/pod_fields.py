"""Fields of a pod that only `kubernetes.patch` writes: sidecars, devices, DNS, isolation. Each rule is the server's."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.rules.forms import (
    SUBDOMAIN,
    Say,
    items,
    least,
    mapping,
    number,
    qualified,
    string,
    texts,
)
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route

_CLAIM: Final = ("resourceClaimName", "resourceClaimTemplateName")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


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
        _dropped(say, spec, ("resourceClaims", "resources"), route)
        say = say.under(policies.NO_EFFECT)
    for at, item in items(spec, "resourceClaims", route):
        if not set(item) & set(_CLAIM):
            say(at, "names no claim", f"one of {', '.join(_CLAIM)}", key=True)
        elif set(_CLAIM) <= set(item):
            say(at, f"has {' and '.join(_CLAIM)}", "one of them")


def _dropped(say: Say, value: Mapping[str, Any], fields: Iterable[str], route: Route) -> None:
    """Reports fields that the server removes before it looks at them: the gates DynamicResourceAllocation and
    PodLevelResources are off by default before 1.34."""
    for name in fields:
        if name in value:
            message = "is removed by Kubernetes 1.33, unless its administrator switched the feature on"
            say((*route, name), message, "Kubernetes 1.34 or later", key=True, policy=policies.NO_EFFECT)


def _names(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    """Name servers and host names."""
    servers = list(texts(mapping(spec, "dnsConfig"), "nameservers", (*route, "dnsConfig")))
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


def container_fields(say: Say, value: Mapping[str, Any], route: Route, spec: Mapping[str, Any]) -> None:
    """Checks a container of the pod `spec`."""
    context, at = mapping(value, "securityContext"), (*route, "securityContext")
    privileged = context.get("privileged") is True
    if privileged and context.get("allowPrivilegeEscalation") is False:
        say((*at, "allowPrivilegeEscalation"), "a privileged container has all privileges", "leave it out")
    profiles(say, context, at)
    _devices(say, value, route, spec)
    if say.version < (1, 34):
        _restarts(say, value, route)
    for where, item in items(value, "resizePolicy", route):
        if string(item, "resourceName") not in ("cpu", "memory"):
            say((*where, "resourceName"), f"{show(item.get('resourceName'))} is not one of them", "cpu, memory")
    for where, mount in items(value, "volumeMounts", route):
        if string(mount, "mountPropagation") == "Bidirectional" and not privileged:
            say((*where, "mountPropagation"), "Bidirectional is for privileged containers", "None, HostToContainer")
        if string(mount, "recursiveReadOnly") not in ("", "Disabled") and mount.get("readOnly") is not True:
            say((*where, "recursiveReadOnly"), "needs `readOnly: true`", "Disabled")
    for where, source in items(value, "envFrom", route):
        if "=" in string(source, "prefix"):
            say((*where, "prefix"), f"{show(source['prefix'])} cannot begin a variable's name", "no =")
    for name in _PROBES:
        probe = mapping(value, name)
        if name == "readinessProbe" and number(probe, "terminationGracePeriodSeconds") is not None:
            say((*route, name, "terminationGracePeriodSeconds"), "is not for readiness probes", "leave it out")
        else:
            least(say, probe, (*route, name), {"terminationGracePeriodSeconds": 1})


def _devices(say: Say, value: Mapping[str, Any], route: Route, spec: Mapping[str, Any]) -> None:
    """Checks which claims of the pod a container uses."""
    used, at = mapping(value, "resources"), (*route, "resources")
    if say.version < (1, 34):
        _dropped(say, used, ("claims",), at)
        say = say.under(policies.NO_EFFECT)
    claims = [string(item, "name") for _, item in items(spec, "resourceClaims", ())]
    for where, item in items(used, "claims", at):
        name = string(item, "name")
        if name not in claims:
            say((*where, "name"), f"the pod has no claim {show(name)}{near(name, claims)}", ", ".join(claims) or "none")


def _restarts(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """Before 1.34 only an init container has a restart policy, and only Always."""
    if "restartPolicy" not in value:
        return
    if "containers" in route:
        say((*route, "restartPolicy"), "is only for init containers before Kubernetes 1.34", "leave it out", key=True)
    elif (policy := string(value, "restartPolicy")) not in ("", "Always"):
        say((*route, "restartPolicy"), f"{show(policy)} is not one of them", "Always")


def profiles(say: Say, context: Mapping[str, Any], route: Route) -> None:
    """Checks the seccomp and AppArmor profiles of a pod's or a container's security context."""
    for name in ("seccompProfile", "appArmorProfile"):
        profile = mapping(context, name)
        local = string(profile, "type") == "Localhost"
        if local and not string(profile, "localhostProfile"):
            say((*route, name), "`localhostProfile` is missing, which Localhost needs", key=True)
        elif not local and string(profile, "localhostProfile"):
            say((*route, name, "localhostProfile"), "is only for `type: Localhost`", "leave it out")


def volume_fields(say: Say, kind: str, source: Mapping[str, Any], route: Route) -> None:
    """Checks a volume's source that we do not render."""
    if kind == "hostPath":
        path = string(source, "path")
        if not path or ".." in path.split("/"):
            say((*route, "path"), f"{show(path)} is not a path of the host", "a path without ..")
    elif kind == "nfs":
        if not string(source, "server"):
            say(route, "`server` is missing", key=True)
        if not string(source, "path").startswith("/"):
            say(
                (*route, "path"), f"{show(string(source, 'path'))} is not an absolute path", "a path that begins with /"
            )
    elif kind == "csi":
        driver = string(source, "driver")
        if not driver:
            say(route, "`driver` is missing", key=True)
        else:
            say.form((*route, "driver"), driver.lower(), SUBDOMAIN._replace(most=63))
