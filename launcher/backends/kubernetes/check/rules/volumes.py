"""The volumes of a pod: one source each, files within them, and claims."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.forms import DATA_KEY, SUBDOMAIN, Say, mapping, string
from launcher.backends.kubernetes.check.quantity import is_quantity, nanos
from launcher.spec.values.problems import show

# all volume sources of the API
VOLUMES: Final = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI"),
    *("emptyDir", "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath"),
    *("image", "iscsi", "nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "projected"),
    *("quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume"),
)
# source -> the field that it requires
_NEEDED: Final = {
    **{"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"},
    "ephemeral": "volumeClaimTemplate",
}
_PROJECTED: Final = (
    *("clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"),
)
_FIELD: Final = re.compile(r"metadata\.(?:name|namespace|uid|labels|annotations|(?:labels|annotations)\['[^']+'\])")
_MODES: Final = "ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod"


def volume(say: Say, value: Mapping[str, Any]) -> None:
    # without a source it is an emptyDir to the server; a field without a value is no source
    sources = {name: source for name, source in value.items() if name in VOLUMES and source is not None}
    if not sources and set(value) <= {"name", *VOLUMES}:
        message = "has none of the fields that say what it is, and becomes an empty folder"
        say("", message, "emptyDir, configMap, secret ...", policy=policies.NO_EFFECT)
    elif sources:
        say.one_of(sources, VOLUMES, "emptyDir, configMap, secret, persistentVolumeClaim, projected ...")
    for name, source in sources.items():
        if name in _NEEDED and not mapping(sources, name).get(_NEEDED[name]) and type(source) is dict:
            say.into(name).missing(_NEEDED[name])


def empty(say: Say, value: Mapping[str, Any]) -> None:
    medium, size = string(value, "medium"), value.get("sizeLimit")
    if medium not in ("", "Memory") and not medium.startswith("HugePages"):
        message = f"{show(medium)} is not one of them"
        say("medium", message, '"", Memory, HugePages', policy=policies.NEVER_STARTS)
    if is_quantity(size) and nanos(size) < 0:
        say("sizeLimit", f"`{size}` is negative", "0 or more")


def files(say: Say, value: Mapping[str, Any]) -> None:
    """Checks that each path in a folder of keys or fields occurs once."""
    _once(say.each(value, "items"), policies.NO_EFFECT)


def projected(say: Say, value: Mapping[str, Any]) -> None:
    """The same of a folder of several sources: the server refuses a path that occurs twice."""
    listed: list[tuple[Say, dict[str, Any]]] = []
    for at, source in say.each(value, "sources"):
        for part in ("configMap", "downwardAPI", "secret"):
            listed += at.into(part).each(mapping(source, part), "items")
        listed.append((at.into("serviceAccountToken"), mapping(source, "serviceAccountToken")))
    _once(iter(listed), "")


def _once(listed: Iterator[tuple[Say, dict[str, Any]]], policy: str) -> None:
    seen: set[str] = set()
    for at, item in listed:
        name = string(item, "path")
        if name and name in seen:
            at("path", f"{show(name)} is listed twice", "each path once", policy=policy)
        seen.add(name)


def projection(say: Say, value: Mapping[str, Any]) -> None:
    if not set(value) & set(_PROJECTED):
        say("", "is empty", f"one of {', '.join(_PROJECTED)}", policy=policies.NO_EFFECT)
        return
    part = say.one_of(value, _PROJECTED)
    if part in ("configMap", "secret") and not string(value[part], "name"):
        say.into(part).missing("name")


def key(say: Say, value: Mapping[str, Any]) -> None:
    name = value.get("key")
    if type(name) is str and not DATA_KEY.pattern.fullmatch(name):
        policy = policies.NEVER_STARTS if name else ""
        say("key", f"{show(name)} is not a key", DATA_KEY.allowed, policy=policy)


def field(say: Say, value: Mapping[str, Any]) -> None:
    source = say.one_of(value, ("fieldRef", "resourceFieldRef"))
    name = string(mapping(value, "fieldRef"), "fieldPath")
    if source == "fieldRef" and not _FIELD.fullmatch(name):
        allowed = "metadata.name, metadata.namespace, metadata.uid, metadata.labels, metadata.annotations"
        say(("fieldRef", "fieldPath"), f"{show(name)} is not a field of the downward API for a file", allowed)
    elif source == "resourceFieldRef" and not string(value[source], "containerName"):
        say.into(source).missing("containerName")


def path(say: Say, value: Any) -> None:
    if type(value) is str and (value == "" or value.startswith("/") or ".." in value.split("/")):
        message = f"{show(value)} leads out of the volume" if value else "names no file"
        say("", message, "a relative path without ..")


def claim(say: Say, spec: Mapping[str, Any]) -> None:
    if not spec.get("accessModes"):
        say("", "`accessModes` is missing", _MODES, key=True)
    size = mapping(spec, "resources", "requests").get("storage")
    if size is None:
        say.missing("resources.requests.storage")
    elif is_quantity(size) and nanos(size) <= 0:
        say(("resources", "requests", "storage"), f"`{size}` holds nothing", "more than 0")


def host_path(say: Say, value: Mapping[str, Any]) -> None:
    name = string(value, "path")
    if not name or ".." in name.split("/"):
        say("path", f"{show(name)} is not a path of the host", "a path without ..")


def nfs(say: Say, value: Mapping[str, Any]) -> None:
    if not string(value, "server"):
        say.missing("server")
    if not string(value, "path").startswith("/"):
        say("path", f"{show(string(value, 'path'))} is not an absolute path", "a path that begins with /")


def csi(say: Say, value: Mapping[str, Any]) -> None:
    driver = string(value, "driver")
    if not driver:
        say.missing("driver")
    else:
        say.form("driver", driver.lower(), SUBDOMAIN._replace(most=63))
