"""One container: image, environment, ports, mounts, resources, probes, privileges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.forms import DATA_KEY, SUBDOMAIN, Say, items, mapping, number, qualified, string
from launcher.backends.kubernetes.check.quantity import NANO, is_quantity, nanos
from launcher.spec.values.problems import show

DIGEST: Final = re.compile(r"@sha256:[0-9a-f]{64}\Z")
_PATH: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_IMAGE: Final = re.compile(
    rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::\d+)?/)?{_PATH}(?:/{_PATH})*"
    r"(?::[\w][\w.-]{0,127})?(?:@[a-z0-9]+:[0-9a-f]{32,})?"
)
_FIELDS: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_KEYED: Final = re.compile(r"metadata\.(?:labels|annotations)\['[^']+'\]")
_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")
_DIVISORS: Final = tuple(f"1{unit}" for unit in ("k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_SOURCES: Final = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
_RESOURCE_FIELD: Final = re.compile(
    r"(?:limits|requests)\.(?:cpu|memory|ephemeral-storage|hugepages-.+)|limits\.nvidia\.com/gpu"
)


def container(say: Say, value: Mapping[str, Any]) -> None:
    image = value.get("image")
    if image is None:
        say.missing("image")
    elif type(image) is str and not _IMAGE.fullmatch(image):
        allowed = "registry/name:tag or registry/name@sha256:..."
        say("image", f"{show(image)} is not an image", allowed, policy=policies.NEVER_STARTS if image else "")
    _order(say, value)
    seen: set[str] = set()
    for at, item in say.each(value, "ports"):
        name = string(item, "name")
        at.once("name", name, seen, f"the port `{name}` is listed twice", "each name once")
    for at, mount in say.each(value, "volumeMounts"):
        privileged = mapping(value, "securityContext").get("privileged") is True
        if string(mount, "mountPropagation") == "Bidirectional" and not privileged:
            at("mountPropagation", "Bidirectional is for privileged containers", "None, HostToContainer")
    for name in ("livenessProbe", "startupProbe"):
        if number(mapping(value, name), "successThreshold") not in (None, 0, 1):
            say((name, "successThreshold"), "only a readiness probe may ask for more than one success", "1")
    if number(mapping(value, "readinessProbe"), "terminationGracePeriodSeconds") is not None:
        at_grace = ("readinessProbe", "terminationGracePeriodSeconds")
        say(at_grace, "is not for readiness probes", "leave it out")
    for at, item in say.each(value, "resizePolicy"):
        at.choice("resourceName", string(item, "resourceName"), ("cpu", "memory"))
    if say.version < (1, 34) and "restartPolicy" in value:  # only an init container has one, and only Always
        if "containers" in say.route:
            message = "is only for init containers before Kubernetes 1.34"
            say("restartPolicy", message, "leave it out", key=True)
        elif policy := string(value, "restartPolicy"):
            say.choice("restartPolicy", policy, ("Always",))


def _order(say: Say, value: Mapping[str, Any]) -> None:
    """Reports variables that use one that is defined after them."""
    names = [string(item, "name") for _, item in items(value, "env")]
    for order, (at, item) in enumerate(say.each(value, "env")):
        for used in re.findall(r"(?<!\$)(?:\$\$)*\$\(([^)]+)\)", string(item, "value")):
            if used in names and names.index(used) > order:
                message = f"$({used}) is defined only after `{names[order]}`, so it stays as it is"
                at("value", message, f"`{used}` first", policy=policies.NO_EFFECT)


def variable(say: Say, value: Mapping[str, Any]) -> None:
    name = string(value, "name")
    if not name or "=" in name or not (name.isascii() and name.isprintable()):
        say("name", f"{show(name)} is not a variable's name", "printable ASCII without =")
    if string(value, "value") and "valueFrom" in value:
        say("", "has `value` and `valueFrom`", "one of them")


def source(say: Say, value: Mapping[str, Any]) -> None:
    path = string(mapping(value, "fieldRef"), "fieldPath")
    if say.one_of(value, _SOURCES) == "fieldRef" and path not in _FIELDS and not _KEYED.fullmatch(path):
        allowed = ", ".join((*_FIELDS, "metadata.labels['KEY']", "metadata.annotations['KEY']"))
        message = f"{show(path)} is not a field of the downward API for a variable"
        say(("fieldRef", "fieldPath"), message, allowed)


def sources(say: Say, value: Mapping[str, Any]) -> None:
    say.one_of(value, ("configMapRef", "secretRef"))
    if "=" in string(value, "prefix"):
        say("prefix", f"{show(value['prefix'])} cannot begin a variable's name", "no =")


def reference(say: Say, value: Mapping[str, Any]) -> None:
    """Checks the name of a ConfigMap or Secret, and the key in it."""
    if "name" not in value:
        say.missing("name")
    say.form("name", value.get("name"), SUBDOMAIN)
    say.form("key", value.get("key"), DATA_KEY)


def resource_field(say: Say, value: Mapping[str, Any]) -> None:
    """Checks a reference to a container's limit or request, in units of `divisor`."""
    name, divisor = string(value, "resource"), value.get("divisor", 0)
    if not _RESOURCE_FIELD.fullmatch(name):
        say("resource", f"{show(name)} is not known", "limits.cpu, requests.memory ...")
    elif is_quantity(divisor) and str(divisor) not in ("0", "1"):
        allowed = ("1m",) if name.endswith(".cpu") else _DIVISORS
        if divisor not in allowed:
            say("divisor", f"{show(divisor)} is not a unit of {name}", ", ".join(("1", *allowed)))


def mount(say: Say, value: Mapping[str, Any]) -> None:
    path = string(value, "mountPath")
    if not path:
        say.missing("mountPath")
    elif not path.startswith("/") or ":" in path:
        allowed = "an absolute path without a colon"
        say("mountPath", f"{show(path)} is not a path to mount at", allowed, policy=policies.NEVER_STARTS)
    for field in ("subPath", "subPathExpr"):
        sub = string(value, field)
        if sub.startswith("/") or ".." in sub.split("/"):
            say(field, f"{show(sub)} leads out of the volume", "a relative path without ..")
    if string(value, "subPath") and string(value, "subPathExpr"):
        say("", "has `subPath` and `subPathExpr`", "one of them")
    if string(value, "recursiveReadOnly") not in ("", "Disabled") and value.get("readOnly") is not True:
        say("recursiveReadOnly", "needs `readOnly: true`", "Disabled")


def resources(say: Say, value: Mapping[str, Any]) -> None:
    """Checks limits and requests: names, whole numbers for resources that cannot be shared, requests <= limits."""
    removed(say, value, "claims")
    limits, requests = mapping(value, "limits"), mapping(value, "requests")
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            if is_quantity(amount):
                _amount(say.into(part, name), name, amount, alone=part == "requests" and name not in limits)
    for name, amount in requests.items():
        most = limits.get(name)
        if not (is_quantity(amount) and is_quantity(most)) or nanos(amount) == nanos(most):
            continue
        if nanos(amount) > nanos(most):
            say(("requests", name), f"`{amount}` is more than the limit `{most}`", f"at most {most}")
        elif name not in _NATIVE:
            say(("requests", name), f"`{amount}` is not the limit `{most}`", "the same as the limit")


def _amount(say: Say, name: str, amount: Any, *, alone: bool) -> None:
    """`alone`: a request without a limit."""
    nano = nanos(amount)
    if nano < 0:
        say("", f"`{amount}` is negative", "0 or more")
    if name in _NATIVE:
        if name != "cpu" and nano % NANO:
            message = f"`{amount}` is a fraction of a byte"
            say("", message, "whole bytes, such as 512Mi", policy=policies.NO_EFFECT)
    elif "/" not in name and not name.startswith("hugepages-"):
        message = f"`{name}` is not a resource of a container"
        say("", message, "cpu, memory, ephemeral-storage, DOMAIN/NAME", key=True)
    elif name.startswith("hugepages-") or qualified(say, name):
        if nano % NANO:
            say("", f"`{amount}` of {name} cannot be split", "a whole number")
        if alone:
            say("", f"a request of {name} needs a limit that equals it", f"limits.{name}: {amount}")


def probe(say: Say, value: Mapping[str, Any]) -> None:
    say.one_of(value, ("exec", "httpGet", "tcpSocket", "grpc"))


def hook(say: Say, value: Mapping[str, Any]) -> None:
    say.one_of(value, ("exec", "httpGet", "sleep", "tcpSocket"))


def command(say: Say, value: Mapping[str, Any]) -> None:
    if not value.get("command"):
        say.missing("command")


def header(say: Say, value: Mapping[str, Any]) -> None:
    name = string(value, "name")
    if not re.fullmatch(r"[-A-Za-z0-9]+", name):
        say("name", f"{show(name)} is not a header's name", "letters, digits and -")


def privileges(say: Say, context: Mapping[str, Any]) -> None:
    if context.get("privileged") is True and context.get("allowPrivilegeEscalation") is False:
        say("allowPrivilegeEscalation", "a privileged container has all privileges", "leave it out")


def profile(say: Say, value: Mapping[str, Any]) -> None:
    """Checks a seccomp or AppArmor profile."""
    local, named = string(value, "type") == "Localhost", string(value, "localhostProfile")
    if local and not named:
        say.missing("localhostProfile", ", which Localhost needs")
    elif named and not local:
        say("localhostProfile", "is only for `type: Localhost`", "leave it out")


def removed(say: Say, value: Mapping[str, Any], *fields: str) -> None:
    """Reports fields that the server removes before it looks at them: the gates DynamicResourceAllocation and
    PodLevelResources are off by default before 1.34."""
    for name in fields:
        if name in value and say.version < (1, 34):
            message = "is removed by Kubernetes 1.33, unless its administrator switched the feature on"
            say(name, message, "Kubernetes 1.34 or later", key=True, policy=policies.NO_EFFECT)
