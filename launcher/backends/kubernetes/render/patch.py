"""What `kubernetes.patch` may do to a pod: add fields, and change few of those that the launcher writes.

Everything that the launcher writes into a pod carries a promise: that the runtime starts, is told its place, gets its
signals and its time, that results belong to the job, that a pod is found again. So a patch may change only what
CHANGEABLE lists. REFUSED lists what it may not add either, with the field of the job that says the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.render.accelerators import GPU
from launcher.errors import BadInput
from launcher.spec.values.source import Route, dotted
from launcher.spec.values.structures import ValueFault

_ABSENT: Final = object()
_MAIN: Final = f"spec.containers[{names.CONTAINER}]"
_NEVER: Final = "restarts are the runtime's decision (exit code 78 ends a run)"
_RANKS: Final = "the ranks of a run find each other by the pods' names"
_TOPOLOGY: Final = "controllers that created the pod read it"
_OURS: Final = "it says which run a pod belongs to"

# path (names of list items in brackets) -> (why a patch must not set it, what to write instead)
REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "spec.restartPolicy": (_NEVER, "`limits.retries`"),
    "spec.activeDeadlineSeconds": ("the runtime keeps the deadline", "`limits.deadline`"),
    "spec.terminationGracePeriodSeconds": ("the runtime divides it between save and upload", "`limits.grace`"),
    "spec.serviceAccountName": ("the job has a field for it", "`kubernetes.service_account`"),
    "spec.serviceAccount": ("the job has a field for it", "`kubernetes.service_account`"),
    "spec.priorityClassName": ("the job has a field for it", "`kubernetes.priority_class`"),
    "spec.runtimeClassName": ("the job has a field for it", "`kubernetes.runtime_class`"),
    "spec.hostNetwork": ("the job has a field for it", "`kubernetes.host_network`"),
    "spec.nodeSelector": ("the job has a field for it", "`kubernetes.node_selector`"),
    "spec.tolerations": ("the job has a field for it", "`kubernetes.tolerations`"),
    "spec.imagePullSecrets": ("the job has a field for it", "`kubernetes.image_pull_secrets`"),
    "spec.resources": ("queues count what containers request", "`resources`, or those of a container"),
    "spec.nodeName": ("it passes over the scheduler and the queue", "`kubernetes.node_selector`"),
    "spec.shareProcessNamespace": ("the runtime is process 1 and ends what the command leaves", "no such field"),
    "spec.ephemeralContainers": ("Kubernetes allows them in running pods only", "`launcher exec`"),
    **dict.fromkeys(
        ("spec.hostname", "spec.subdomain", "spec.setHostnameAsFQDN", "spec.hostnameOverride"),
        (_RANKS, "no such field"),
    ),
    f"{_MAIN}.image": ("the image is part of what the run computes", "`image`"),
    f"{_MAIN}.command": ("it starts the runtime", "`command`"),
    f"{_MAIN}.args": ("they would reach the runtime, not the command", "`command`"),
    f"{_MAIN}.workingDir": ("the runtime starts the command in the overlay's folder", "`code`"),
    f"{_MAIN}.envFrom": ("the launcher knows which variables are secrets", "`secrets`, `kubernetes.store_secret`"),
    f"{_MAIN}.lifecycle": ("the runtime needs the whole grace period", "`command`"),
    f"{_MAIN}.livenessProbe": (_NEVER, "`roles.ROLE.ready`"),
    f"{_MAIN}.startupProbe": (_NEVER, "`roles.ROLE.ready`"),
    f"{_MAIN}.restartPolicy": (_NEVER, "`limits.retries`"),
    f"{_MAIN}.restartPolicyRules": (_NEVER, "`limits.retries`"),
    **{
        f"{_MAIN}.resources.{part}.{name}": ("the job has a field for it", f"`resources.{field}`")
        for part in ("requests", "limits")
        for name, field in (("memory", "memory"), ("ephemeral-storage", "disk"), (GPU, "gpus"))
    },
    f"{_MAIN}.resources.requests.cpu": ("the job has a field for it", "`resources.cpus`"),
}
# texts, which `re` compiles at their first use: few jobs have a patch
_PATTERNS: Final = (
    (
        rf"spec\.containers\[(?!{names.CONTAINER}\])[^\]]*\]",
        ("a pod with a second container does not end with the run", "`initContainers` with `restartPolicy: Always`"),
    ),
    (
        rf"{re.escape(_MAIN)}\.env\[[^\]]*\]\.value",
        ("a variable's value is part of what the run computes", "the job's `env`; here `valueFrom`"),
    ),
    (
        rf"{re.escape(_MAIN)}\.env\[SLIPWAY_[^\]]*\]",
        ("the launcher tells the runtime by it", "other names"),
    ),
    (
        rf"{re.escape(_MAIN)}\.volumeMounts\[{names.JOBS}(/[^\]]*)?\]",
        ("the job itself is there", "another folder"),
    ),
    (
        r"metadata\.(labels|annotations)\.([a-z0-9.-]*\.)?slipway\.dev/.*",
        (_OURS, "`labels` of the job, and keys of other domains"),
    ),
    (
        (
            r"metadata\.labels\.("
            + "|".join(re.escape(key) for key in (names.APP_NAME, names.APP_MANAGED, names.APP_COMPONENT))
            + rf"|{re.escape(names.APP_INSTANCE)})"
        ),
        (_OURS, "`labels` of the job, and keys of other domains"),
    ),
    (
        (
            r"metadata\.(labels|annotations)\.(([a-z0-9.-]*\.)?(batch\.kubernetes\.io|jobset\.sigs\.k8s\.io|"
            r"kueue\.x-k8s\.io)/.*|controller-uid|job-name)"
        ),
        (_TOPOLOGY, "`kubernetes.queue`, and keys of other domains"),
    ),
    (
        r"metadata\.(?!(?:labels|annotations)(?:\.|$)).*",
        ("the controller names the pod", "labels, annotations"),
    ),
)
# what the launcher writes and a patch may change
CHANGEABLE: Final = (
    r"metadata\.annotations\.(cluster-autoscaler\.kubernetes\.io/safe-to-evict|karpenter\.sh/do-not-disrupt)"
    r"|spec\.(topologySpreadConstraints|securityContext|enableServiceLinks|automountServiceAccountToken)(\W.*)?"
    rf"|{re.escape(_MAIN)}\.(securityContext|imagePullPolicy)(\W.*)?"
    r"|spec\.volumes\[(work|tmp)\]\.(emptyDir|ephemeral)(\W.*)?"
)
_OWN: Final = ("the launcher writes this field itself", "fields that it does not write")
_SCRATCH: Final = r"spec\.volumes\[(work|tmp)\]\.(?!name$|emptyDir|ephemeral)[^.]*"


def patch_faults(template: Mapping[str, Any], patch: Mapping[str, Any]) -> Iterator[ValueFault]:
    """What a patch must not do to this template. The patch has the structure of a pod template."""
    yield from _faults(patch, template, (), "")


def _faults(patch: Any, base: Any, route: Route, path: str) -> Iterator[ValueFault]:
    if (refusal := _refusal(path)) is not None:
        if patch != base:
            yield ValueFault(route, f"must not be patched: {refusal[0]}", refusal[1])
        return
    if type(patch) is dict and (type(base) is dict or base is _ABSENT):
        for key, value in patch.items():
            if key.startswith("$"):
                yield ValueFault((*route, key), "directives of a patch are not supported", "null removes a field")
                continue
            inner = base.get(key, _ABSENT) if type(base) is dict else _ABSENT
            yield from _faults(value, inner, (*route, key), below(path, key))
        return
    if type(patch) is list and (identity := KEYS.get(re.sub(r"\[[^\]]*\]", "[]", path))) is not None:
        there = {item[identity]: item for item in base} if type(base) is list else {}
        seen: set[Any] = set()
        for index, item in enumerate(patch):
            at = (*route, index)
            name = item.get(identity)
            if name is None:
                yield ValueFault(at, f"`{identity}` is missing: items of this list are merged by it")
            elif name in seen:
                yield ValueFault((*at, identity), f"`{name}` is listed already", "each once")
            else:
                seen.add(name)
                if path == f"{_MAIN}.env" and name in there and item != there[name]:
                    yield ValueFault(at, f"must not be patched: `{name}` is the launcher's", "other variables")
                    continue
                yield from _faults(item, there.get(name, _ABSENT), at, f"{path}[{name}]")
        return
    if base is not _ABSENT and patch != base and re.fullmatch(CHANGEABLE, path) is None:
        yield ValueFault(route, f"must not be patched: {_OWN[0]}", _OWN[1])


def _refusal(path: str) -> tuple[str, str] | None:
    if path in REFUSED:
        return REFUSED[path]
    if re.fullmatch(_SCRATCH, path):
        return "an attempt begins with an empty folder", "`emptyDir` or `ephemeral`"
    return next((reason for pattern, reason in _PATTERNS if re.fullmatch(pattern, path)), None)


def patched(template: dict[str, Any], patches: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The template with each patch merged into it, in their order. `patches`: field of the block -> patch. Each may
    change what an earlier one added. Raises BadInput."""
    merged = template
    for field, patch in patches.items():
        for fault in patch_faults(template, patch):
            allowed = f"; allowed: {fault.allowed}" if fault.allowed else ""
            raise BadInput(f"kubernetes.{field}.{dotted(fault.route)}: {fault.message}{allowed}")
        merged = merge(merged, patch)
    return merged


# Strategic merge of a patch into a pod template, as `kubectl patch --type strategic` does it.
# Mappings are merged key by key; null removes a field. A list whose items Kubernetes identifies by a key (KEYS) is
# merged item by item; any other list is replaced. Directives (`$patch`, `$retainKeys`, ...) are not supported: a
# caller refuses them. The order of a merged list follows k8s.io/apimachinery, pkg/util/strategicpatch
# (`mergeSortedSlice`): items of the patch keep their order, and an item that only the object has comes before the
# first item of the patch that followed it in the object.

# path within a pod template, [] for an item of any merged list -> the key of its items: the `patchMergeKey` tags of
# PodSpec, Container and ObjectMeta (k8s.io/api, core/v1/types.go), which are the same from 1.30 to 1.37
_CONTAINERS: Final = ("spec.containers", "spec.initContainers")
KEYS: Final[Mapping[str, str]] = {
    **dict.fromkeys((*_CONTAINERS, "spec.volumes", "spec.imagePullSecrets", "spec.schedulingGates"), "name"),
    "spec.resourceClaims": "name",
    "spec.hostAliases": "ip",
    "spec.topologySpreadConstraints": "topologyKey",
    **{f"{part}[].env": "name" for part in _CONTAINERS},
    **{f"{part}[].ports": "containerPort" for part in _CONTAINERS},
    **{f"{part}[].volumeMounts": "mountPath" for part in _CONTAINERS},
    **{f"{part}[].volumeDevices": "devicePath" for part in _CONTAINERS},
}


def below(path: str, key: str) -> str:
    """The path of a field of a mapping."""
    return f"{path}.{key}" if path else key


def merge(base: Any, patch: Any, path: str = "") -> Any:
    """The base with the patch merged into it; neither is changed. A list of the patch that is merged holds mappings
    with its key, each key once."""
    if type(patch) is dict:
        merged = dict(base) if type(base) is dict else {}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge(merged.get(key), value, below(path, key))
        return merged
    if type(patch) is list:
        if (key := KEYS.get(path)) is not None:
            return _items(base if type(base) is list else [], patch, key, path)
        return [merge(None, item, f"{path}[]") for item in patch]
    return patch


def _items(base: Sequence[Any], patch: Sequence[Any], key: str, path: str) -> list[Any]:
    """A list that is merged item by item."""
    there = {item[key]: item for item in base}
    order = {identity: number for number, identity in enumerate(there)}
    theirs = [merge(there.get(item[key]), item, f"{path}[]") for item in patch]
    changed = {item[key] for item in patch}
    ours = [item for item in base if item[key] not in changed]
    merged: list[Any] = []
    while ours and theirs:
        follows = order.get(theirs[0][key])
        merged.append((ours if follows is not None and order[ours[0][key]] < follows else theirs).pop(0))
    return [*merged, *ours, *theirs]
