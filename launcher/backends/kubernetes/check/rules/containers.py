"""One container: image, environment, ports, mounts, resources, probes, devices, privileges."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.quantity import NANO, is_quantity, nanos
from launcher.backends.kubernetes.check.rules.forms import (
    DATA_KEY,
    PORT,
    SUBDOMAIN,
    Say,
    items,
    least,
    mapping,
    number,
    qualified,
    string,
)
from launcher.spec.values.problems import near, show
from launcher.spec.values.source import Route

DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}\Z")
_IMAGE: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?/)?"
    r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*"
    r"(?::[\w][\w.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,})?"
)
_FIELDS: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_KEYED: Final = re.compile(r"metadata\.(?:labels|annotations)\['[^']+'\]")
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_DIVISORS: Final = tuple(f"1{unit}" for unit in ("k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_SOURCES: Final = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
_RESOURCE_FIELD: Final = re.compile(
    r"(?:limits|requests)\.(?:cpu|memory|ephemeral-storage|hugepages-.+)|limits\.nvidia\.com/gpu"
)


def container(say: Say, value: Mapping[str, Any], route: Route, volumes: Collection[str], host_network: bool) -> None:
    """Checks a container or an init container; `volumes`: names of the pod's volumes."""
    image = value.get("image")
    if image is None:
        say.missing(route, "image")
    elif type(image) is str and not _IMAGE.fullmatch(image):
        message = f"{show(image)} is not an image"
        allowed = "registry/name:tag or registry/name@sha256:..."
        say((*route, "image"), message, allowed, policy=policies.NEVER_STARTS if image else "")
    _environment(say, value, route)
    _ports(say, value, route, host_network)
    _mounts(say, value, route, volumes)
    resources(say, mapping(value, "resources"), (*route, "resources"))
    for name in _PROBES:
        if name in value:
            _probe(say, mapping(value, name), (*route, name), name)
    for name in ("postStart", "preStop"):
        if name in mapping(value, "lifecycle"):
            at = (*route, "lifecycle", name)
            _handler(say, mapping(value, "lifecycle", name), at, ("exec", "httpGet", "sleep", "tcpSocket"))


def _environment(say: Say, value: Mapping[str, Any], route: Route) -> None:
    places: dict[str, int] = {}
    listed = list(items(value, "env", route))
    for order, (_, item) in enumerate(listed):
        places.setdefault(string(item, "name"), order)
    for order, (at, item) in enumerate(listed):
        name = string(item, "name")
        if not name or "=" in name or not (name.isascii() and name.isprintable()):
            say((*at, "name"), f"{show(name)} is not a variable's name", "printable ASCII without =")
        if string(item, "value") and "valueFrom" in item:
            say(at, "has `value` and `valueFrom`", "one of them")
        elif "valueFrom" in item:
            _source(say, mapping(item, "valueFrom"), (*at, "valueFrom"))
        for used in re.findall(r"(?<!\$)(?:\$\$)*\$\(([^)]+)\)", string(item, "value")):
            if places.get(used, -1) > order:
                message = f"$({used}) is defined only after `{name}`, so it stays as it is"
                say((*at, "value"), message, f"`{used}` first", policy=policies.NO_EFFECT)
    for at, item in items(value, "envFrom", route):
        kind = say.one_of(item, at, ("configMapRef", "secretRef"))
        _reference(say, mapping(item, kind), (*at, kind) if kind else at)


def _source(say: Say, value: Mapping[str, Any], route: Route) -> None:
    kind = say.one_of(value, route, _SOURCES)
    at, source = (*route, kind), mapping(value, kind)
    if kind == "fieldRef":
        path = string(source, "fieldPath")
        if path not in _FIELDS and not _KEYED.fullmatch(path):
            allowed = ", ".join((*_FIELDS, "metadata.labels['KEY']", "metadata.annotations['KEY']"))
            say((*at, "fieldPath"), f"{show(path)} is not a field of the downward API for a variable", allowed)
    elif kind == "resourceFieldRef":
        resource_field(say, source, at)
    elif kind in ("configMapKeyRef", "secretKeyRef"):
        _reference(say, source, at)
        say.form((*at, "key"), source.get("key"), DATA_KEY)


def _reference(say: Say, value: Mapping[str, Any], route: Route) -> None:
    if "name" not in value:
        say.missing(route, "name")
    say.form((*route, "name"), value.get("name"), SUBDOMAIN)


def resource_field(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """Checks a reference to a container's limit or request, in units of `divisor`."""
    name, divisor = string(value, "resource"), value.get("divisor", 0)
    if not _RESOURCE_FIELD.fullmatch(name):
        say((*route, "resource"), f"{show(name)} is not known", "limits.cpu, requests.memory ...")
    elif is_quantity(divisor) and str(divisor) not in ("0", "1"):
        allowed = ("1m",) if name.endswith(".cpu") else _DIVISORS
        if divisor not in allowed:
            say((*route, "divisor"), f"{show(divisor)} is not a unit of {name}", ", ".join(("1", *allowed)))


def _ports(say: Say, value: Mapping[str, Any], route: Route, host_network: bool) -> None:
    names: set[str] = set()
    for at, item in items(value, "ports", route):
        name = string(item, "name")
        if name and say.form((*at, "name"), name, PORT):
            if name in names:
                say((*at, "name"), f"the port `{name}` is listed twice", "each name once")
            names.add(name)
        port_number(say, item.get("containerPort"), (*at, "containerPort"))
        port_number(say, item.get("hostPort") or None, (*at, "hostPort"))
        if host_network and item.get("hostPort", item.get("containerPort")) != item.get("containerPort"):
            say((*at, "hostPort"), "with hostNetwork it equals containerPort", str(item.get("containerPort")))


def port_number(say: Say, value: Any, route: Route) -> None:
    if type(value) is int and not 1 <= value <= 65535:
        say(route, f"`{value}` is not a port", "1 to 65535")


def _mounts(say: Say, value: Mapping[str, Any], route: Route, volumes: Collection[str]) -> None:
    for at, item in items(value, "volumeMounts", route):
        name, path = string(item, "name"), string(item, "mountPath")
        if name and name not in volumes:
            listed = ", ".join(sorted(volumes)) or "none"
            say((*at, "name"), f"the pod has no volume `{name}`{near(name, volumes)}", listed)
        if not path:
            say.missing(at, "mountPath")
        elif not path.startswith("/") or ":" in path:
            message = f"{show(path)} is not a path to mount at"
            allowed = "an absolute path without a colon"
            say((*at, "mountPath"), message, allowed, policy=policies.NEVER_STARTS)
        for field in ("subPath", "subPathExpr"):
            sub = string(item, field)
            if sub.startswith("/") or ".." in sub.split("/"):
                say((*at, field), f"{show(sub)} leads out of the volume", "a relative path without ..")
        if string(item, "subPath") and string(item, "subPathExpr"):
            say(at, "has `subPath` and `subPathExpr`", "one of them")


def resources(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """Checks limits and requests: names, whole numbers for resources that cannot be shared, requests <= limits."""
    limits, requests = mapping(value, "limits"), mapping(value, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            at = (*route, part, name)
            if not is_quantity(amount):
                continue
            nano = nanos(amount)
            if nano < 0:
                say(at, f"`{amount}` is negative", "0 or more")
            if name in _NATIVE:
                if name != "cpu" and nano % NANO:
                    message = f"`{amount}` is a fraction of a byte"
                    say(at, message, "whole bytes, such as 512Mi", policy=policies.NO_EFFECT)
                continue
            if not name.startswith("hugepages-") and ("/" not in name or not qualified(say, name, at)):
                if "/" not in name:
                    say(
                        at,
                        f"`{name}` is not a resource of a container",
                        "cpu, memory, ephemeral-storage, DOMAIN/NAME",
                        key=True,
                    )
                continue
            if nano % NANO:
                say(at, f"`{amount}` of {name} cannot be split", "a whole number")
            if part == "requests" and name not in limits:
                say(at, f"a request of {name} needs a limit that equals it", f"limits.{name}: {amount}")
    for name, amount in requests.items():
        if name not in limits or not (is_quantity(amount) and is_quantity(limits[name])):
            continue
        asked, most = nanos(amount), nanos(limits[name])
        if asked > most:
            say(
                (*route, "requests", name),
                f"`{amount}` is more than the limit `{limits[name]}`",
                f"at most {limits[name]}",
            )
        elif name not in _NATIVE and asked != most:
            say((*route, "requests", name), f"`{amount}` is not the limit `{limits[name]}`", "the same as the limit")


def _probe(say: Say, value: Mapping[str, Any], route: Route, name: str) -> None:
    _handler(say, value, route, _HANDLERS)
    bounds = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold", "successThreshold")
    least(say, value, route, dict.fromkeys(bounds, 0))  # of 0 the server makes its default
    if name != "readinessProbe" and number(value, "successThreshold") not in (None, 0, 1):
        say((*route, "successThreshold"), "only a readiness probe may ask for more than one success", "1")


def _handler(say: Say, value: Mapping[str, Any], route: Route, kinds: tuple[str, ...]) -> None:
    kind = say.one_of(value, route, kinds)
    if kind == "exec" and not mapping(value, kind).get("command"):
        say.missing((*route, kind), "command")
    for at, header in items(value, "httpGet.httpHeaders", route):
        if not re.fullmatch(r"[-A-Za-z0-9]+", string(header, "name")):
            say((*at, "name"), f"{show(string(header, 'name'))} is not a header's name", "letters, digits and -")
    if kind in ("httpGet", "tcpSocket", "grpc"):
        port = mapping(value, kind).get("port")
        port_number(say, port, (*route, kind, "port"))
        if type(port) is str:
            say.form((*route, kind, "port"), port, PORT)


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
        removed(say, used, ("claims",), at)
        say = say.under(policies.NO_EFFECT)
    claims = [string(item, "name") for _, item in items(spec, "resourceClaims")]
    for where, item in items(used, "claims", at):
        name = string(item, "name")
        if name not in claims:
            say((*where, "name"), f"the pod has no claim {show(name)}{near(name, claims)}", ", ".join(claims) or "none")


def removed(say: Say, value: Mapping[str, Any], fields: Iterable[str], route: Route) -> None:
    """Reports fields that the server removes before it looks at them: the gates DynamicResourceAllocation and
    PodLevelResources are off by default before 1.34."""
    for name in fields:
        if name in value:
            message = "is removed by Kubernetes 1.33, unless its administrator switched the feature on"
            say((*route, name), message, "Kubernetes 1.34 or later", key=True, policy=policies.NO_EFFECT)


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
            say.missing((*route, name), "localhostProfile", ", which Localhost needs")
        elif not local and string(profile, "localhostProfile"):
            say((*route, name, "localhostProfile"), "is only for `type: Localhost`", "leave it out")
