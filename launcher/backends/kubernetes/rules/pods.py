"""A pod's spec: containers by name, volumes and who mounts them, where it may run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes.quantity import is_quantity, nanos
from launcher.backends.kubernetes.rules.containers import container
from launcher.backends.kubernetes.rules.forms import (
    DATA_KEY,
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
from launcher.spec.problems import show
from launcher.spec.source import Route

# every source that the API knows, but for those of clouds that it took out again
VOLUMES: Final = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI"),
    *("emptyDir", "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath"),
    *("image", "iscsi", "nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "projected"),
    *("quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume"),
)
# source -> the field without which it says nothing
_NEEDED: Final = {"configMap": "name", "secret": "secretName"}


def template(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """A pod template: its metadata and spec."""
    at = (*route, "metadata")
    labels(say, mapping(value, "metadata", "labels"), (*at, "labels"))
    annotation_sizes(say, mapping(value, "metadata", "annotations"), (*at, "annotations"))
    pod(say, mapping(value, "spec"), (*route, "spec"))


def pod(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    if "containers" in spec and not spec["containers"]:
        say((*route, "containers"), "has no container", "one at least")
    volumes = _volumes(say, spec, route)
    names: dict[str, str] = {}
    used: set[str] = set()
    for part in ("initContainers", "containers"):
        for at, value in items(spec, part, route):
            name = string(value, "name")
            if name and say.form((*at, "name"), name, LABEL):
                if name in names and names[name] != part:  # within one list the schema finds it
                    say((*at, "name"), f"`{name}` is the name of an init container, too", "each name once")
                names[name] = part
            container(say, value, at, volumes, spec.get("hostNetwork") is True)
            used |= {string(item, "name") for _, item in items(value, "volumeMounts", at)}
            used |= {string(item, "name") for _, item in items(value, "volumeDevices", at)}
    for name, at in volumes.items():
        if name not in used:
            say((*at, "name"), f"no container mounts the volume `{name}`", "mount it, or leave it out")
    least(say, spec, route, {"activeDeadlineSeconds": 1, "terminationGracePeriodSeconds": 0})
    for field in ("priorityClassName", "serviceAccountName", "serviceAccount", "runtimeClassName"):
        if field in spec:
            say.form((*route, field), spec[field], SUBDOMAIN)
    for field in ("hostname", "subdomain"):
        if field in spec:
            say.form((*route, field), spec[field], LABEL)
    for at, value in items(spec, "imagePullSecrets", route):
        if not string(value, "name"):
            say(at, "`name` is missing", key=True)
    labels(say, mapping(spec, "nodeSelector"), (*route, "nodeSelector"))
    for at, value in items(spec, "tolerations", route):
        _toleration(say, value, at)
    _spread(say, spec, route)
    _affinity(say, mapping(spec, "affinity"), (*route, "affinity"))


def _volumes(say: Say, spec: Mapping[str, Any], route: Route) -> dict[str, Route]:
    found: dict[str, Route] = {}
    for at, value in items(spec, "volumes", route):
        name = string(value, "name")
        if name and say.form((*at, "name"), name, LABEL):
            found[name] = at
        kind = say.one_of(value, at, VOLUMES, "emptyDir, configMap, secret, persistentVolumeClaim, projected ...")
        inside, where = mapping(value, kind), (*at, kind)
        if kind == "emptyDir":
            if string(inside, "medium") not in ("", "Memory") and not string(inside, "medium").startswith("HugePages"):
                say((*where, "medium"), f"{show(inside['medium'])} is not one of them", '"", Memory, HugePages')
            size = inside.get("sizeLimit")
            if size is not None and is_quantity(size) and nanos(size) < 0:
                say((*where, "sizeLimit"), f"`{size}` is negative", "0 or more")
        elif kind in _NEEDED and not string(inside, _NEEDED[kind]):
            say(where, f"`{_NEEDED[kind]}` is missing", key=True)
        if kind in ("configMap", "secret", "projected", "downwardAPI"):
            _files(say, inside, where)
        if kind == "projected":
            for source, one in items(inside, "sources", where):
                part = say.one_of(
                    one,
                    source,
                    (
                        "clusterTrustBundle",
                        "configMap",
                        "downwardAPI",
                        "podCertificate",
                        "secret",
                        "serviceAccountToken",
                    ),
                )
                _files(say, mapping(one, part), (*source, part))
    return found


def _files(say: Say, value: Mapping[str, Any], route: Route) -> None:
    """The files of a volume made of keys: their modes and paths."""
    mode = number(value, "defaultMode")
    if mode is not None and not 0 <= mode <= 0o777:
        say((*route, "defaultMode"), f"`{mode}` is not a file mode", "0 to 0777, which is 511")
    for at, item in items(value, "items", route):
        mode, path = number(item, "mode"), string(item, "path")
        if mode is not None and not 0 <= mode <= 0o777:
            say((*at, "mode"), f"`{mode}` is not a file mode", "0 to 0777, which is 511")
        if "key" in item:
            say.form((*at, "key"), item["key"], DATA_KEY)
        if path.startswith("/") or ".." in path.split("/"):
            say((*at, "path"), f"{show(path)} leads out of the volume", "a relative path without ..")


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
            say(at, "`topologyKey` is missing", key=True)
        else:
            qualified(say, key[0], (*at, "topologyKey"))
        if "minDomains" in value and key[1] != "DoNotSchedule":
            say((*at, "minDomains"), "is only for `whenUnsatisfiable: DoNotSchedule`")
        selector(say, value.get("labelSelector"), (*at, "labelSelector"))


def _affinity(say: Say, value: Mapping[str, Any], route: Route) -> None:
    hard, soft = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
    node, at = mapping(value, "nodeAffinity"), (*route, "nodeAffinity")
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
        elif operator in ("Gt", "Lt") and not (len(values) == 1 and values[0][1].lstrip("-").isdigit()):
            say((*at, "values"), f"{operator} takes one whole number, as a text")


def _pod_term(say: Say, term: Mapping[str, Any], route: Route) -> None:
    if not string(term, "topologyKey"):
        say(route, "`topologyKey` is missing", key=True)
    else:
        qualified(say, string(term, "topologyKey"), (*route, "topologyKey"))
    selector(say, term.get("labelSelector"), (*route, "labelSelector"))
