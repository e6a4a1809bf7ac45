"""Changes that a cluster refuses: compares the folder as it was with the folder as it shall be.

The API server (422) or its webhooks refuse such an update. A GitOps controller then stays out of sync for ever, or,
where it is configured so, deletes the object and creates it again: for a Job, that ends a running training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes.check.rules.forms import mapping, string
from launcher.backends.kubernetes.compare.differences import differences
from launcher.backends.kubernetes.lint.look import LintedObject
from launcher.backends.kubernetes.lint.runs import CARRIERS
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route

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
