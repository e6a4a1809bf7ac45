"""Every way to change one field of a rendered object: for the tests of `lint`, of submit's adoption, and of what a real
API server makes of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from launcher.backends.kubernetes.names import RENDERER

Route = tuple[str | int, ...]
# never compared: which launcher wrote the object
LEFT_OUT = ("metadata", "annotations", RENDERER)
EXTRA_ENV = {"name": "SCORE", "value": "0.99"}
EXTRA_CONTAINER = {"name": "beside", "image": "test.local/other@sha256:" + "1" * 64, "command": ["true"]}
# what a pod can have and we never write; each changes what runs, or what it may do
EXTRA_OF_POD: Mapping[str, Any] = {
    "initContainers": [EXTRA_CONTAINER],
    "hostPID": True,
    "hostIPC": True,
    "shareProcessNamespace": True,
    "hostname": "other",
    "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["bucket.example.com"]}],
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.1"]},
    "nodeName": "n9",
    "schedulerName": "other",
    "serviceAccountName": "admin",
    "runtimeClassName": "other",
    "setHostnameAsFQDN": True,
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "other"}],
    "tolerations": [{"operator": "Exists"}],
    "nodeSelector": {"zone": "other"},
}
EXTRA_OF_CONTAINER: Mapping[str, Any] = {
    "args": ["--score", "0.99"],
    "workingDir": "/somewhere",
    "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
    "livenessProbe": {"exec": {"command": ["true"]}},
    "stdin": True,
    "tty": True,
    "restartPolicy": "Always",
    "terminationMessagePath": "/work/other",
    "volumeDevices": [{"name": "work", "devicePath": "/dev/other"}],
    "envFrom": [{"configMapRef": {"name": "other"}}],
}


class Tampering(NamedTuple):
    """`change`: what was done and where, for messages; `route`: of the field in documents[index]."""

    change: str
    index: int
    route: Route
    documents: list[dict[str, Any]]


def tamperings(documents: Sequence[Mapping[str, Any]]) -> Iterator[Tampering]:
    """Every leaf changed, every field removed, and every addition above, one at a time."""
    for index, document in enumerate(documents):
        for route, value in _fields(document):
            if route in ((), ("kind",), ("apiVersion",), ("metadata",), ("spec",), LEFT_OUT):
                continue  # without these it is no object at all
            if not isinstance(value, dict | list) or not value:
                yield _with(documents, index, route, "change", _other(value))
            yield _without(documents, index, route)
        for route, pod in _pods(document):
            for key, value in EXTRA_OF_POD.items():
                if key not in pod:
                    yield _with(documents, index, (*route, key), "add", value)
            yield _with(documents, index, (*route, "containers"), "add", [*pod["containers"], EXTRA_CONTAINER])
            volumes = [*pod["volumes"], {"name": "secret", "secret": {"secretName": "other"}}]
            yield _with(documents, index, (*route, "volumes"), "add", volumes)
            for number, container in enumerate(pod["containers"]):
                at: Route = (*route, "containers", number)
                for key, value in EXTRA_OF_CONTAINER.items():
                    if key not in container:
                        yield _with(documents, index, (*at, key), "add", value)
                yield _with(documents, index, (*at, "env"), "add", [*container["env"], EXTRA_ENV])
                # the last of two of a name counts
                twice = [*container["env"], {"name": "SLIPWAY_STORE", "value": "s3://other"}]
                yield _with(documents, index, (*at, "env"), "add a second", twice)
                yield _with(documents, index, (*at, "env"), "turn", container["env"][::-1])
                privileged = {**container["securityContext"], "privileged": True}
                yield _with(documents, index, (*at, "securityContext"), "add", privileged)
                mounts = [*container["volumeMounts"], {"name": "work", "mountPath": "/usr"}]
                yield _with(documents, index, (*at, "volumeMounts"), "add", mounts)


def _pods(document: Mapping[str, Any]) -> Iterator[tuple[Route, dict[str, Any]]]:
    if document["kind"] == "Job":
        yield ("spec", "template", "spec"), document["spec"]["template"]["spec"]
    if document["kind"] == "JobSet":
        for number, each in enumerate(document["spec"]["replicatedJobs"]):
            route = ("spec", "replicatedJobs", number, "template", "spec", "template", "spec")
            yield route, each["template"]["spec"]["template"]["spec"]


def _fields(value: Any, route: Route = ()) -> Iterator[tuple[Route, Any]]:
    yield route, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _fields(item, (*route, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _fields(item, (*route, number))


def _other(value: Any) -> Any:
    """Another value of the same type, which a schema would accept."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return {"IfNotPresent": "Always", "Never": "OnFailure", "ALL": "CHOWN"}.get(value, f"x{value}")
    return {"sizeLimit": "1Mi"}


def _with(documents: Sequence[Mapping[str, Any]], index: int, route: Route, verb: str, value: Any) -> Tampering:
    copies = copy.deepcopy([dict(each) for each in documents])
    parent: Any = copies[index]
    for key in route[:-1]:
        parent = parent[key]
    parent[route[-1]] = copy.deepcopy(value)
    return Tampering(f"{verb} {'.'.join(map(str, route))}", index, route, copies)


def _without(documents: Sequence[Mapping[str, Any]], index: int, route: Route) -> Tampering:
    copies = copy.deepcopy([dict(each) for each in documents])
    parent: Any = copies[index]
    for key in route[:-1]:
        parent = parent[key]
    del parent[route[-1]]
    return Tampering(f"remove {'.'.join(map(str, route))}", index, route, copies)
