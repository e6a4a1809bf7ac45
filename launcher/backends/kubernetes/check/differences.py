"""Where two values differ: mappings by key, lists of named things (containers, variables, volumes) by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.check.forms import mapping
from launcher.backends.kubernetes.check.quantity import is_quantity, nanos
from launcher.spec.values.problems import show
from launcher.spec.values.source import Route

ABSENT: Final = object()  # in place of a value that one side does not have
Allows = Callable[[Route, Any, Any], bool]  # (route, the value there, the value that its job gives) -> no difference


class FieldDifference(NamedTuple):
    route: Route
    message: str


def differences(there: Any, wanted: Any, route: Route = (), allows: Allows | None = None) -> list[FieldDifference]:
    """Where two values differ, and how, in the order of the first. `allows`: is asked of every part that differs,
    from the outermost to the innermost; True ends the comparison of that part.

    >>> differences({"a": 1, "b": [1]}, {"a": 2, "b": [1]})
    [FieldDifference(route=('a',), message='`1`, where its job gives `2`')]
    """
    if type(there) is type(wanted) and there == wanted and type(there) not in (dict, list):
        return []
    if allows is not None and allows(route, there, wanted):
        return []
    if there is ABSENT:
        return [FieldDifference(route, f"is missing; its job gives {show(wanted)}")]
    if wanted is ABSENT:
        return [FieldDifference(route, "its job gives no such field")]
    if type(there) is dict and type(wanted) is dict:
        keys = [*there, *(key for key in wanted if key not in there)]
        return [
            each
            for key in keys
            for each in differences(there.get(key, ABSENT), wanted.get(key, ABSENT), (*route, key), allows)
        ]
    if type(there) is list and type(wanted) is list:
        return _of_lists(there, wanted, route, allows)
    return [FieldDifference(route, f"{show(there)}, where its job gives {show(wanted)}")]


def _of_lists(there: list[Any], wanted: list[Any], route: Route, allows: Allows | None) -> list[FieldDifference]:
    ours, theirs = _names(wanted), _names(there)
    if ours is not None and theirs is not None and len(ours) != len(theirs):
        unknown = [
            FieldDifference((*route, index), f"its job gives no {show(name)}")
            for index, name in enumerate(theirs)
            if name not in ours
        ]
        return unknown + [FieldDifference(route, f"{show(name)} is missing") for name in ours if name not in theirs]
    if ours is not None and theirs is not None and ours != theirs and set(ours) == set(theirs):
        # the order of variables and of init containers matters
        return [FieldDifference(route, "its items are in another order")]
    if len(there) != len(wanted):
        return [FieldDifference(route, f"{len(there)} items, where its job gives {len(wanted)}")]
    return [
        each
        for index, (one, other) in enumerate(zip(there, wanted, strict=True))
        for each in differences(one, other, (*route, index), allows)
    ]


def _names(values: Sequence[Any]) -> list[str] | None:
    """The names of a list's items; None where an item has none, or two have the same."""
    names = [value.get("name") if type(value) is dict else None for value in values]
    if any(type(name) is not str for name in names) or len(set(names)) != len(names):
        return None
    return [str(name) for name in names]


# versions of the renderer whose output is known here
RENDERERS: Final = frozenset({names.RENDERER_VERSION, names.FORMER})

# The places of a field: `object` (metadata), `set` (a JobSet's spec), `child` (one of its replicatedJobs), `job` (a
# Job's spec) and `pod` (its template); then the path within, with [] for a list's index.
Place = tuple[str, str]

_CONTAINERS: Final = ("containers", "initContainers")
_OF_PROBE: Final[Mapping[str, tuple[Any, ...]]] = {
    "timeoutSeconds": (1,),
    "periodSeconds": (10,),
    "successThreshold": (1,),
    "failureThreshold": (3,),
    "httpGet.path": ("/",),
    "httpGet.scheme": ("HTTP",),
    "grpc.service": ("",),
}
# of a container: ours, and those of `kubernetes.patch`
_OF_CONTAINER: Final[Mapping[str, tuple[Any, ...]]] = {
    "terminationMessagePath": ("/dev/termination-log",),
    "terminationMessagePolicy": ("File",),
    "imagePullPolicy": ("IfNotPresent",),  # images of a patch are pinned
    "resources": ({},),
    "ports[].protocol": ("TCP",),
    "env[].valueFrom.fieldRef.apiVersion": ("v1",),
    "env[].valueFrom.resourceFieldRef.divisor": ("0",),
    **{
        f"{probe}Probe.{path}": values
        for probe in ("readiness", "liveness", "startup")
        for path, values in _OF_PROBE.items()
    },
    **{
        f"lifecycle.{hook}.httpGet.{name}": (value,)
        for hook in ("postStart", "preStop")
        for name, value in (("path", "/"), ("scheme", "HTTP"))
    },
}
_OF_VOLUME: Final[Mapping[str, tuple[Any, ...]]] = {
    **{f"{kind}.defaultMode": (0o644,) for kind in ("configMap", "secret", "projected", "downwardAPI")},
    "projected.sources[].serviceAccountToken.expirationSeconds": (3600,),
    "projected.sources[].downwardAPI.items[].fieldRef.apiVersion": ("v1",),
    "projected.sources[].downwardAPI.items[].resourceFieldRef.divisor": ("0",),
    "downwardAPI.items[].fieldRef.apiVersion": ("v1",),
    "downwardAPI.items[].resourceFieldRef.divisor": ("0",),
    "hostPath.type": ("",),
    "image.pullPolicy": ("IfNotPresent",),
    "ephemeral.volumeClaimTemplate.metadata": ({"creationTimestamp": None}, {}),
    "ephemeral.volumeClaimTemplate.metadata.creationTimestamp": (None,),
    "ephemeral.volumeClaimTemplate.spec.volumeMode": ("Filesystem",),
    "ephemeral.volumeClaimTemplate.spec.resources": ({},),
}
# what a server writes where we write nothing
DEFAULTS: Final[Mapping[Place, tuple[Any, ...]]] = {
    ("set", "suspend"): (False, True),  # Kueue's, and an administrator's who holds a run back
    ("set", "successPolicy"): ({"operator": "All"}, {"operator": "All", "targetReplicatedJobs": []}),
    ("set", "startupPolicy"): ({"startupPolicyOrder": "AnyOrder"},),
    ("child", "groupName"): ("default",),
    ("child", "template.metadata.creationTimestamp"): (None,),
    ("job", "suspend"): (False, True),
    ("job", "completions"): (1,),
    ("job", "parallelism"): (1,),
    ("job", "completionMode"): ("NonIndexed",),
    ("job", "manualSelector"): (False,),
    ("pod", "metadata.creationTimestamp"): (None,),
    ("pod", "spec.dnsPolicy"): ("ClusterFirst",),
    ("pod", "spec.schedulerName"): ("default-scheduler",),
    **{("pod", f"spec.{part}[].{path}"): values for part in _CONTAINERS for path, values in _OF_CONTAINER.items()},
    **{("pod", f"spec.volumes[].{path}"): values for path, values in _OF_VOLUME.items()},
}
# the part of an object's metadata that a server keeps
SERVED: Final = frozenset(
    {
        *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
        *("ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds", "namespace"),
    }
)
# Labels and annotations with these domains make controllers act on an object: others may be added by anybody
ACTING: Final = ("slipway.dev", "kueue.x-k8s.io", "jobset.sigs.k8s.io")
# what Kueue's admission adds to the pods of a queued object: its own marks, and those of a ProvisioningRequest
ADMISSION: Final = (
    *("kueue.x-k8s.io/", "provreq.kueue.x-k8s.io/", "autoscaling.x-k8s.io/"),
    *("cluster-autoscaler.kubernetes.io/consume-provisioning-request",),
    *("cluster-autoscaler.kubernetes.io/provisioning-class-name",),
)
# Bounds and counters, which change when something ends but not what it computes: another version of the renderer may
# write them differently. Everything else is compared, whatever version an object names
TOLERATED: Final = frozenset(
    {
        ("set", "failurePolicy.maxRestarts"),
        ("job", "backoffLimit"),
        ("job", "backoffLimitPerIndex"),
        ("pod", "spec.activeDeadlineSeconds"),
        ("pod", "spec.terminationGracePeriodSeconds"),
        ("pod", "spec.topologySpreadConstraints"),
        ("pod", "spec.containers[].terminationMessagePolicy"),
        ("pod", "metadata.annotations.cluster-autoscaler.kubernetes.io/safe-to-evict"),
        ("pod", "metadata.annotations.karpenter.sh/do-not-disrupt"),
    }
)
_QUANTITIES: Final = (
    *(f"spec.{kind}[].resources.{part}." for kind in _CONTAINERS for part in ("requests", "limits")),
    "spec.volumes[].emptyDir.sizeLimit",
    "spec.volumes[].ephemeral.volumeClaimTemplate.spec.resources.",
)
_INSTANCE: Final = f"metadata.labels.{names.APP_INSTANCE}"
_UID: Final = (names.CONTROLLER_UID, "controller-uid")
_NAME: Final = ("batch.kubernetes.io/job-name", "job-name")


def place(kind: str, route: Route) -> Place:
    """Where a route of an object leads.

    >>> place("Job", ("spec", "template", "spec", "containers", 0, "image"))
    ('pod', 'spec.containers[].image')
    """
    if route[:1] != ("spec",):
        return "object", _dotted(route)
    if kind != "JobSet":
        return _of_job(route[1:])
    if route[1:2] != ("replicatedJobs",) or len(route) < 4:
        return "set", _dotted(route[1:])
    if route[3:5] != ("template", "spec"):
        return "child", _dotted(route[3:])
    return _of_job(route[5:])


def _of_job(route: Route) -> Place:
    return ("pod", _dotted(route[1:])) if route[:1] == ("template",) else ("job", _dotted(route))


def _dotted(route: Route) -> str:
    text = ""
    for key in route:
        text += "[]" if isinstance(key, int) else f".{key}" if text else key
    return text


def tolerated(kind: str, route: Route) -> bool:
    """Whether another version of the renderer may write this field differently."""
    return any(place(kind, route[:length]) in TOLERATED for length in range(1, len(route) + 1))


class Additions:
    """What a server adds to one object. `there`: the object as it was read; `wanted`: as it was sent."""

    def __init__(self, there: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        self.kind = str(wanted.get("kind"))
        self.uid = mapping(there, "metadata").get("uid")
        self.name = mapping(wanted, "metadata").get("name")
        self.wanted = wanted
        label = mapping(there, "metadata", "labels").get(names.QUEUE)
        # a cluster may put all objects into its default queue
        self.queued = names.QUEUE in mapping(wanted, "metadata", "labels") or label == "default"

    def __call__(self, route: Route, there: Any, wanted: Any) -> bool:
        """Whether the server may have made this difference."""
        if not route:
            return False
        scope, path = place(self.kind, route)
        if path == _INSTANCE:  # Argo CD's own mark, where it is told to track by labels
            return type(there) is str
        if there is ABSENT:
            return bool(wanted == "")  # servers leave empty texts out
        if (scope, path) == ("job", "parallelism") and wanted is not ABSENT:
            return self._in_part(there, wanted)
        if wanted is not ABSENT:
            return scope == "pod" and (self._same_quantity(path, there, wanted) or self._admitted(path, there, wanted))
        if any(type(there) is type(value) and there == value for value in DEFAULTS.get((scope, path), ())):
            return True
        match scope:
            case "object":
                return self._of_object(route, there)
            case "set":
                return path == "managedBy" and self._managed(there)
            case "job":
                return self._of_job(route, path, there)
            case "pod":
                return self._of_pod(route, path, there) or self._admitted(path, there, wanted)
        return False

    def _of_object(self, route: Route, there: Any) -> bool:
        if route[0] == "status":
            return True
        if route == ("metadata", "labels", names.QUEUE):
            return bool(there == "default")
        if len(route) == 3 and route[1] in ("labels", "annotations"):
            domain = str(route[2]).partition("/")[0]
            acting = any(domain == ours or domain.endswith(f".{ours}") for ours in ACTING)
            return not acting or (self.queued and str(route[2]).startswith(ADMISSION))
        return len(route) == 2 and route[1] in SERVED

    def _managed(self, there: Any) -> bool:
        return self.queued and bool(there == names.MULTIKUEUE)

    def _in_part(self, there: Any, wanted: Any) -> bool:
        """Whether Kueue has admitted an array in part: fewer at once, not fewer in all."""
        least = mapping(self.wanted, "metadata", "annotations").get(names.MIN_PARALLELISM)
        return self.queued and least is not None and type(there) is int and int(least) <= there < wanted

    def _of_job(self, route: Route, path: str, there: Any) -> bool:
        if path == "managedBy":
            return self._managed(there)
        if path == "selector":
            return bool(self.uid) and bool(there == {"matchLabels": {names.CONTROLLER_UID: self.uid}})
        if path == "backoffLimit":  # without a bound, where each index has its own
            return "backoffLimitPerIndex" in _at(self.wanted, route[:-1]) and bool(there == 2**31 - 1)
        return False

    def _of_pod(self, route: Route, path: str, there: Any) -> bool:
        key, beside = route[-1], _at(self.wanted, route[:-1])
        if path.startswith("metadata.labels.") and self.kind == "Job":
            return (key in _UID and there == self.uid) or (key in _NAME and there == self.name)
        if path == "spec.serviceAccount":  # the old name of serviceAccountName
            return "serviceAccountName" in beside and bool(there == beside["serviceAccountName"])
        if path == "spec.containers[].ports[].hostPort":  # servers before 1.32, on the node's network
            network = _at(self.wanted, route[: route.index("containers")]).get("hostNetwork")
            return network is True and bool(there == beside.get("containerPort"))
        return False

    def _admitted(self, path: str, there: Any, wanted: Any) -> bool:
        """What Kueue's admission adds: it never changes or removes what was there."""
        if not self.queued:
            return False
        if path == "spec.nodeSelector":
            return type(there) is dict and (wanted is ABSENT or there.items() >= wanted.items())
        if path == "spec.tolerations":
            return type(there) is list and (wanted is ABSENT or there[: len(wanted)] == wanted)
        if path == "spec.schedulingGates" and wanted is ABSENT:
            return type(there) is list and all(str(each.get("name")).startswith("kueue.x-k8s.io/") for each in there)
        head, dot, key = path.removeprefix("metadata.").partition(".")
        return wanted is ABSENT and head in ("labels", "annotations") and bool(dot) and key.startswith(ADMISSION)

    def _same_quantity(self, path: str, there: Any, wanted: Any) -> bool:
        """Servers write quantities in their own form: 1024Mi as 1Gi."""
        if not path.startswith(_QUANTITIES) or not (is_quantity(there) and is_quantity(wanted)):
            return False
        return nanos(there) == nanos(wanted)


def _at(value: Any, route: Route) -> dict[str, Any]:
    """The mapping at a route; empty where there is none."""
    for key in route:
        if isinstance(key, int):
            value = value[key] if type(value) is list and key < len(value) else None
        else:
            value = value.get(key) if type(value) is dict else None
    return value if type(value) is dict else {}
