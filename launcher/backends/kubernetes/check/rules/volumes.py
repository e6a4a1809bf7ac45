"""The volumes of a pod: one source each, files within them, and claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from launcher.backends.kubernetes.check import policies
from launcher.backends.kubernetes.check.quantity import is_quantity, nanos
from launcher.backends.kubernetes.check.rules.containers import resource_field
from launcher.backends.kubernetes.check.rules.forms import (
    DATA_KEY,
    LABEL,
    SUBDOMAIN,
    Say,
    items,
    mapping,
    number,
    string,
)
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route

# all volume sources of the API
VOLUMES: Final = (
    *("awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI"),
    *("emptyDir", "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath"),
    *("image", "iscsi", "nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "projected"),
    *("quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume"),
)
# source -> the field that it requires
_NEEDED: Final = {"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}
_PROJECTED: Final = (
    *("clusterTrustBundle", "configMap", "downwardAPI", "podCertificate", "secret", "serviceAccountToken"),
)
_FIELD: Final = re.compile(r"metadata\.(?:name|namespace|uid|labels|annotations|(?:labels|annotations)\['[^']+'\])")
_MODES: Final = "0 to 0777, which is 511"
MODES: Final = "ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod"
SHORTEST: Final = 600  # least seconds that a service account's token is valid


def volumes_of(say: Say, spec: Mapping[str, Any], route: Route) -> dict[str, Route]:
    """The volumes by name, with their routes."""
    volumes: dict[str, Route] = {}
    for at, value in items(spec, "volumes", route):
        if say.form((*at, "name"), value.get("name"), LABEL):
            volumes[string(value, "name")] = at
        # without a source it is an emptyDir to the server; a field without a value is no source
        sources = {name: source for name, source in value.items() if name in VOLUMES and source is not None}
        kind = "emptyDir"
        if sources:
            kind = say.one_of(sources, at, VOLUMES, "emptyDir, configMap, secret, persistentVolumeClaim, projected ...")
        elif set(value) <= {"name", *VOLUMES}:
            message = "has none of the fields that say what it is, and becomes an empty folder"
            say(at, message, "emptyDir, configMap, secret ...", policy=policies.NO_EFFECT)
        inside, where = mapping(value, kind), (*at, kind)
        if kind == "emptyDir":
            _empty(say, inside, where)
        elif kind in _NEEDED and not string(inside, _NEEDED[kind]):
            say(where, f"`{_NEEDED[kind]}` is missing", key=True)
        elif kind == "ephemeral":
            if "volumeClaimTemplate" not in inside:
                say.missing(where, "volumeClaimTemplate")
            else:
                template = (*where, "volumeClaimTemplate", "spec")
                claim_spec(say, mapping(inside, "volumeClaimTemplate", "spec"), template)
        volume_fields(say, kind, inside, where)
        if kind in ("configMap", "secret", "downwardAPI", "projected"):
            _files(say, inside, where, kind, {}, shared=False)
        if kind == "projected":
            paths: dict[str, Route] = {}
            for source, projected in items(inside, "sources", where):
                if not set(projected) & set(_PROJECTED):
                    say(source, "is empty", f"one of {', '.join(_PROJECTED)}", policy=policies.NO_EFFECT)
                    continue
                part = say.one_of(projected, source, _PROJECTED)
                _projected(say, mapping(projected, part), (*source, part), part, paths)
    return volumes


def _empty(say: Say, value: Mapping[str, Any], route: Route) -> None:
    medium, size = string(value, "medium"), value.get("sizeLimit")
    if medium not in ("", "Memory") and not medium.startswith("HugePages"):
        message = f"{show(medium)} is not one of them"
        say((*route, "medium"), message, '"", Memory, HugePages', policy=policies.NEVER_STARTS)
    if size is not None and is_quantity(size) and nanos(size) < 0:
        say((*route, "sizeLimit"), f"`{size}` is negative", "0 or more")


def _projected(say: Say, value: Mapping[str, Any], route: Route, kind: str, paths: dict[str, Route]) -> None:
    if kind in ("configMap", "secret") and not string(value, "name"):
        say.missing(route, "name")
    if kind == "serviceAccountToken":
        _path(say, value, route, paths)
        seconds = number(value, "expirationSeconds")
        if seconds is not None and not SHORTEST <= seconds <= 1 << 32:
            say((*route, "expirationSeconds"), f"`{seconds}` is out of range", f"{SHORTEST} to {1 << 32}")
    _files(say, value, route, kind, paths)


def _files(
    say: Say, value: Mapping[str, Any], route: Route, kind: str, paths: dict[str, Route], *, shared: bool = True
) -> None:
    """Checks the files of a volume made of keys or fields: modes, paths, and that each path occurs once. `shared`: the
    folder is made of several sources, and the server refuses a path that occurs twice."""
    _mode(say, value, route, "defaultMode")
    for at, item in items(value, "items", route):
        _mode(say, item, at, "mode")
        _path(say, item, at, paths, "" if shared else policies.NO_EFFECT)
        key = item.get("key")
        if type(key) is str and not DATA_KEY.pattern.fullmatch(key):
            policy = policies.NEVER_STARTS if key else ""
            say((*at, "key"), f"{show(key)} is not a key", DATA_KEY.allowed, policy=policy)
        if kind == "downwardAPI":
            source = say.one_of(item, at, ("fieldRef", "resourceFieldRef"))
            path = string(mapping(item, "fieldRef"), "fieldPath")
            if source == "fieldRef" and not _FIELD.fullmatch(path):
                allowed = "metadata.name, metadata.namespace, metadata.uid, metadata.labels, metadata.annotations"
                say(
                    (*at, "fieldRef", "fieldPath"),
                    f"{show(path)} is not a field of the downward API for a file",
                    allowed,
                )
            elif source == "resourceFieldRef":
                resource_field(say, mapping(item, source), (*at, source))
                if not string(mapping(item, source), "containerName"):
                    say.missing((*at, source), "containerName")


def _mode(say: Say, value: Mapping[str, Any], route: Route, name: str) -> None:
    mode = number(value, name)
    if mode is not None and not 0 <= mode <= 0o777:
        say((*route, name), f"`{mode}` is not a file mode", _MODES)


def _path(say: Say, value: Mapping[str, Any], route: Route, paths: dict[str, Route], policy: str = "") -> None:
    path = value.get("path")
    if type(path) is not str:
        return
    if path == "" or path.startswith("/") or ".." in path.split("/"):
        message = f"{show(path)} leads out of the volume" if path else "names no file"
        say((*route, "path"), message, "a relative path without ..")
    elif path in paths:
        say((*route, "path"), f"{show(path)} is listed twice", "each path once", policy=policy)
    paths.setdefault(path, route)


def claim_spec(say: Say, spec: Mapping[str, Any], route: Route) -> None:
    """Checks the spec of a PersistentVolumeClaim."""
    if not spec.get("accessModes"):
        say(route, "`accessModes` is missing", MODES, key=True)
    size = mapping(spec, "resources", "requests").get("storage")
    if size is None:
        say.missing(route, "resources.requests.storage")
    elif is_quantity(size) and nanos(size) <= 0:
        say((*route, "resources", "requests", "storage"), f"`{size}` holds nothing", "more than 0")


def volume_fields(say: Say, kind: str, source: Mapping[str, Any], route: Route) -> None:
    """Checks a volume's source that we do not render."""
    if kind == "hostPath":
        path = string(source, "path")
        if not path or ".." in path.split("/"):
            say((*route, "path"), f"{show(path)} is not a path of the host", "a path without ..")
    elif kind == "nfs":
        if not string(source, "server"):
            say.missing(route, "server")
        if not string(source, "path").startswith("/"):
            say(
                (*route, "path"), f"{show(string(source, 'path'))} is not an absolute path", "a path that begins with /"
            )
    elif kind == "csi":
        driver = string(source, "driver")
        if not driver:
            say.missing(route, "driver")
        else:
            say.form((*route, "driver"), driver.lower(), SUBDOMAIN._replace(most=63))
