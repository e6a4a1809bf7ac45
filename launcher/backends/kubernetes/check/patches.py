"""Checks `kubernetes.patch` when a job is read, so that an error names its line.

The patch is checked by the schema of a pod template, then for what it must not touch, then merged into the pod of a
small job, whose result is checked as `launcher lint` checks any pod: what a server would refuse is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.check.forms import Say, items, mapping
from launcher.backends.kubernetes.check.rules.containers import DIGEST
from launcher.backends.kubernetes.check.rules.pods import mounts
from launcher.backends.kubernetes.check.strict import SchemaFindings
from launcher.backends.kubernetes.render.patch import KEYS, below, merge, patch_faults
from launcher.backends.kubernetes.render.pod import PodContext, template
from launcher.spec.model import Image, Limits, ResolvedJob, Resources, Role
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route
from launcher.spec.values.structures import ValueFault

VERSION: Final = schemas.VERSIONS[-1]  # the newest fields; `submit` checks by the cluster's own version
_TEMPLATE: Final = "io.k8s.api.core.v1.PodTemplateSpec"


def review(patch: Mapping[str, Any]) -> list[ValueFault]:
    """Everything that is wrong with a patch of a pod template, each once."""
    base = _pod()
    if faults := list(_structure(patch)):
        return faults
    if faults := list(patch_faults(base, patch)):
        return faults
    merged = merge(base, patch)
    findings: SchemaFindings = []
    validate.compiled(VERSION, ruled=True)[1].named(_TEMPLATE)(merged, (), findings)
    mounts(Say(findings, validate.numbers(VERSION), ("spec",)), merged["spec"])
    faults = [ValueFault(_place(merged, patch, each.route), each.what, each.allowed) for each in findings]
    return list(dict.fromkeys([*faults, *_images(patch)]))


def _structure(patch: Mapping[str, Any]) -> Iterator[ValueFault]:
    """Unknown fields and wrong types. A patch may leave out required fields, and null removes one."""
    findings: SchemaFindings = []
    validate.compiled(VERSION, ruled=False)[1].named(_TEMPLATE)(_without_directives(patch), (), findings)
    for each in findings:
        if each.what == "has no value" and isinstance(each.route[-1], str):
            continue
        if not each.what.endswith("` is missing") and not each.what.startswith("needs "):
            yield ValueFault(each.route, each.what, each.allowed)


def _without_directives(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_directives(item) for key, item in value.items() if not key.startswith("$")}
    return [_without_directives(item) for item in value] if type(value) is list else value


def _images(patch: Mapping[str, Any]) -> Iterator[ValueFault]:
    spec = mapping(patch, "spec")
    places = [((*at, "image"), item.get("image")) for at, item in items(spec, "initContainers", ("spec",))]
    places += [
        ((*at, "image", "reference"), mapping(item, "image").get("reference"))
        for at, item in items(spec, "volumes", ("spec",))
    ]
    for at, image in places:
        if type(image) is str and DIGEST.search(image) is None:
            message = f"{show(image)} names no digest, so it may be another image tomorrow"
            yield ValueFault(at, message, "name@sha256:...")


def _place(merged: Any, patch: Any, route: Route) -> Route:
    """The place in the patch for a place in the merged pod; the nearest one above it that the patch has."""
    at: list[str | int] = []
    path = ""
    for key in route:
        if isinstance(key, int):
            identity = KEYS.get(path)
            merged = merged[key] if type(merged) is list and key < len(merged) else None
            if type(patch) is not list:
                break
            if identity is not None:
                name = merged.get(identity) if type(merged) is dict else None
                key = next((n for n, item in enumerate(patch) if item.get(identity) == name), -1)
            if not 0 <= key < len(patch):
                break
            patch, path = patch[key], f"{path}[]"
        else:
            merged = merged.get(key) if type(merged) is dict else None
            if type(patch) is not dict or key not in patch:
                break
            patch, path = patch[key], below(path, key)
        at.append(key)
    return tuple(at)


@cache
def _pod() -> dict[str, Any]:
    """The pod of a small job."""
    image = Image("registry.example.com/image", "sha256:" + "0" * 64)
    need = Resources(cpus=1.0, memory=1 << 30)
    role = Role(command=("true",), image=image, resources=need)
    job = ResolvedJob("job", {"main": role}, "s3://store/runs", "kubernetes", limits=Limits(deadline=3600.0))
    return template(job, "job-000000000000", "main", PodContext("job"))
