"""Errors in a folder of rendered jobs that Argo CD or Flux apply, reported before the merge.

Errors cost money, kill a run, or mean that it never starts: an object that a cluster would refuse, a Job without a
fingerprint or changed after rendering, one run in two files, a TTL, a secret in plain text. Warnings may be intended:
an image of which the catalogue has a newer digest, pruning without a confirmation. Asks no cluster, store or registry.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.check.differences import differences
from launcher.backends.kubernetes.check.files import ManifestFiles, device_refusal, read
from launcher.backends.kubernetes.check.forms import containers, items, mapping, string
from launcher.backends.kubernetes.check.gitops import (
    CARRIERS,
    LintedObject,
    LintLine,
    application,
    kustomizations,
    runs,
)
from launcher.spec.secrets.tokens import has_token
from launcher.spec.values.problems import Problems, show
from launcher.spec.values.source import Route, YamlDocument

# variables whose name says that they hold a secret
_SECRET: Final = re.compile(r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS)$")


def lint(
    manifests: ManifestFiles,
    catalogue: Mapping[str, str],
    version: str = schemas.DEFAULT,
    before: ManifestFiles | None = None,
) -> list[LintLine]:
    """All findings, ordered by place. `catalogue`: image name -> registry/name@sha256:...; `before`: the folder as it
    is in the cluster, to find changes that the cluster would refuse."""
    problems = Problems()
    problems.found.update(manifests.problems)
    documents = read(manifests.objects, problems)
    policies = {name: validate.STRICT._replace(patch=True) for name in manifests.patches}
    validate.judge(documents, problems, version, validate.STRICT, policies)
    lines = {
        LintLine(
            problem.file,
            problem.line,
            "error",
            f"{problem.field}: {problem.what}" if problem.field else problem.what,
            _todo(problem.allowed),
        )
        for problem in problems.found
    }
    for file in (*manifests.objects, *manifests.kustomizations, *manifests.others):
        if why := device_refusal(file):
            lines.add(LintLine(file, 0, "error", why, "another name"))
    looks = _looks(documents, manifests, lines)
    folders = {Path(look.document.file).parent.name for look in looks if look.kind in CARRIERS}
    for look in looks:
        if reason := validate.passed_over(look.value, version):
            look.say("note", (), f"{look.value['kind']} of {look.value['apiVersion']} is passed over: {reason}", "")
        _secrets(look)
        _images(look, catalogue)
        application(look, folders)
    runs(looks)
    carriers = [Path(look.document.file) for look in looks if look.kind in CARRIERS]
    above = {name: text for name, text in manifests.kustomizations.items() if _is_above(name, carriers)}
    kustomizations(read(above, Problems()), lines)
    if before is not None:
        compared(looks, _looks(read(before.objects, Problems()), before, lines))
    return sorted(lines)


def _looks(documents: Iterable[YamlDocument], manifests: ManifestFiles, lines: set[LintLine]) -> list[LintedObject]:
    return [
        LintedObject(document, value, route, lines)
        for document in documents
        for _, route, value in validate.objects(document)
        if document.file not in manifests.patches
    ]


def _is_above(kustomization: str, files: Iterable[Path]) -> bool:
    folder = Path(kustomization).parent
    return any(file.is_relative_to(folder) for file in files)


def _todo(allowed: str) -> str:
    return f"allowed: {allowed}" if allowed else ""


def _secrets(look: LintedObject) -> None:
    """Reports values that look like secrets, and Secrets with data: Git keeps them for ever."""
    todo = "take it out, revoke it, and name it under `secrets:` in the job"
    for route, text in _texts(look.value, ()):
        if has_token(text):
            look.say("error", route, "holds what looks like a secret", todo)
    if look.kind == "Secret":
        for part in ("data", "stringData"):
            if mapping(look.value, part):
                look.error(
                    (part,), "a Secret with its values in Git", "make it in the cluster, or by a secrets operator"
                )
    for at, container in _containers(look):
        for where, item in items(container, "env", at):
            name = string(item, "name")
            if _SECRET.search(name) and string(item, "value"):
                look.error((*where, "value"), f"{show(name)} has its value in plain text", "valueFrom.secretKeyRef")


def _containers(look: LintedObject) -> Iterator[tuple[Route, dict[str, Any]]]:
    for route, template in validate.templates(look.value):
        yield from containers(mapping(template, "spec"), (*route, "spec"))


def _texts(value: Any, route: Route) -> Iterator[tuple[Route, str]]:
    if isinstance(value, str):
        yield route, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*route, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*route, index))


def _images(look: LintedObject, catalogue: Mapping[str, str]) -> None:
    """Reports images of which the catalogue has another digest. A run keeps the image it was rendered with: rendering
    it now would give another run."""
    by_repository = {_repository(reference): (name, reference) for name, reference in catalogue.items()}
    for at, container in _containers(look):
        image = string(container, "image")
        name, reference = by_repository.get(_repository(image), ("", ""))
        digest, newest = image.partition("@")[2], reference.partition("@")[2]
        if name and digest and digest != newest:
            message = f"stale: the catalogue has {name} as {newest[:19]}..., this is {digest[:19]}..."
            todo = "render it again if the run has not started; leave files of finished runs as they are"
            look.warning((*at, "image"), message, todo)


def _repository(image: str) -> str:
    """registry/path/name, without tag and digest."""
    head, slash, last = image.partition("@")[0].rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}"


# Changes that a cluster refuses: compares the folder as it was with the folder as it shall be.
#
# The API server (422) or its webhooks refuse such an update. A GitOps controller then stays out of sync for ever, or,
# where it is configured so, deletes the object and creates it again: for a Job, that ends a running training.

# kind -> paths at and below which nothing may change
IMMUTABLE: Final[dict[str, tuple[str, ...]]] = {
    "Job": tuple(
        f"spec.{name}"
        for name in (
            *("template", "selector", "completionMode", "completions", "podFailurePolicy", "successPolicy"),
            *("backoffLimitPerIndex", "managedBy"),
        )
    ),
    "JobSet": tuple(
        f"spec.{name}"
        for name in (*("replicatedJobs", "failurePolicy", "successPolicy", "startupPolicy", "network", "managedBy"),)
    ),
    **dict.fromkeys(("Deployment", "DaemonSet", "StatefulSet"), ("spec.selector",)),
    **dict.fromkeys(("RoleBinding", "ClusterRoleBinding"), ("roleRef",)),
    "PriorityClass": ("value", "preemptionPolicy"),
    "PersistentVolumeClaim": ("spec.storageClassName", "spec.accessModes", "spec.volumeMode", "spec.selector"),
    "Secret": ("type",),
}
_FROZEN: Final = ("data", "binaryData", "stringData", "immutable")  # with `immutable: true`
_SHOWN: Final = 3


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[Route, str]]:
    """The route and message of every change from one object to another that a cluster refuses.

    >>> changes({"kind": "PriorityClass", "value": 1}, {"kind": "PriorityClass", "value": 2})
    [(('value',), '`2`, was `1`')]
    """
    kind, spec = string(after, "kind"), mapping(after, "spec")
    paths = list(IMMUTABLE.get(kind, ()))
    indexed = kind == "Job" and string(spec, "completionMode") == "Indexed"
    if indexed and spec.get("completions") == spec.get("parallelism"):
        paths.remove("spec.completions")  # an elastic Job: completions and parallelism may change together
    if kind in ("ConfigMap", "Secret") and before.get("immutable") is True:
        paths += _FROZEN
    refused = []
    for path in paths:
        route = tuple(path.split("."))
        for where, message in differences(_at(after, route), _at(before, route), route):
            refused.append((where, message.replace("where its job gives", "was").replace("its job gives", "it had")))
    return refused


def _at(value: Any, route: Sequence[str]) -> Any:
    for key in route:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def compared(looks: Sequence[LintedObject], before: Sequence[LintedObject]) -> None:
    """Reports changes from the earlier folder that a cluster refuses, and jobs that were removed."""
    now = {_identity(look): look for look in looks}
    for old in before:
        new = now.get(_identity(old))
        if new is None:
            if old.kind in CARRIERS:
                message = f"{old.kind} {show(old.name)} is gone: a controller that prunes deletes it, running or not"
                old.say("warning", (), message, "`launcher cancel` it, or wait for its end, first")
            continue
        refused = changes(old.value, new.value)
        for route, message in refused[:_SHOWN]:
            todo = "change the job: another one has another name" if new.kind in CARRIERS else "give it another name"
            new.error(route, f"cannot be changed: {message}", todo)
        if len(refused) > _SHOWN:
            new.error((), f"{len(refused) - _SHOWN} more changes that a cluster refuses")


def _identity(look: LintedObject) -> tuple[str, str, str]:
    return look.kind, string(mapping(look.value, "metadata"), "namespace"), look.name
