"""Kueue's queues in a namespace: their state, what waits in them, the quota and the
admission checks behind them; to stop and to resume them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from launcher.backends.base import QueueCheck, QueueListing, QueuePosition, QueueQuota, QueueState
from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import ONLY_METADATA_LIST, ApiRefused
from launcher.backends.kubernetes.check.quantity import NANO, nanos
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import WORKLOAD, Kind, Metadata
from launcher.backends.kubernetes.watch.endings import at
from launcher.backends.kubernetes.watch.queues import order
from launcher.backends.kubernetes.watch.snapshot import NAME
from launcher.errors import BadInput, NotFound

GROUP: Final = "/apis/kueue.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")  # the newest first; what is read and written here is the same in both
OPEN: Final = "None"
HOLD: Final = "Hold"
DRAIN: Final = "HoldAndDrain"
STATES: Final = {OPEN: "open", HOLD: "held", DRAIN: "draining"}
STRENGTH: Final = (OPEN, HOLD, DRAIN)
MERGE: Final = "application/merge-patch+json"
INSTALL: Final = "this cluster has no Kueue, so no queues: pods start as soon as nodes have room"

Object = Mapping[str, Any]


def listing(place: Connection) -> QueueListing:
    """The LocalQueues of the namespace, with the quota of their ClusterQueues. Each part that this login may not read
    is left out, with a line that names the right."""
    kinds = queue_kinds(place)
    if kinds is None:
        return QueueListing((), (INSTALL,))
    local, cluster = kinds
    problems: list[str] = []
    unchecked: list[str] = []
    try:
        listed = [item for page in place.api.pages(local.path(place.namespace)) for item in page.get("items") or ()]
    except ApiRefused as error:
        if error.status != 403:
            raise
        return QueueListing((), (f"the queues are not known: {_missing(error, 'list', local, place.namespace)}",))
    behind: dict[str, Object | None] = {}
    checks: dict[str, tuple[QueueCheck, ...]] = {}
    held: dict[str, dict[str, tuple[QueueCheck, ...]]] | None = None
    states = []
    for queue in sorted(listed, key=lambda item: str(item["metadata"]["name"])):
        name = str((queue.get("spec") or {}).get("clusterQueue") or "")
        if name not in behind:
            behind[name] = _cluster_queue(place, cluster, name, problems)
            checks[name] = checks_of(place, behind[name] or {}, cluster.group, problems)
        if held is None and (checks[name] or behind[name] is None):
            held = pending_checks(place, unchecked)
        open_checks = (held or {}).get(str(queue["metadata"]["name"]), {})
        waiting = _waiting(place, str(queue["metadata"]["name"]), open_checks, problems)
        states.append(_state(place, queue, behind[name], checks[name], *waiting))
    return QueueListing(tuple(states), tuple(dict.fromkeys([*problems, *unchecked])))


def set_policy(place: Connection, name: str, policy: str, *, cluster_queue: bool) -> None:
    """Sets Kueue's `stopPolicy`. Raises NotFound, and BadInput where the login lacks the right."""
    kinds = queue_kinds(place)
    if kinds is None:
        raise NotFound(INSTALL)
    kind = kinds[1] if cluster_queue else kinds[0]
    namespace = "" if cluster_queue else place.namespace
    body = msgspec.json.encode({"spec": {"stopPolicy": policy}})
    try:
        place.api.request("PATCH", kind.path(namespace, name), body=body, content=MERGE)
    except ApiRefused as error:
        if error.status == 404:
            where = f"in namespace {namespace}" if namespace else "in this cluster"
            raise NotFound(f"there is no {kind.name} `{name}` {where}; `launcher queues` lists them") from None
        if error.status == 403:
            raise BadInput(f"{kind.name} {name}: {_missing(error, 'patch', kind, namespace)}") from None
        raise


def queue_kinds(place: Connection) -> tuple[Kind, Kind] | None:
    """LocalQueue and ClusterQueue in the newest version that the cluster serves; None without Kueue."""
    answer = place.api.get(GROUP)
    if answer is None:
        return None
    served = {str(each.get("version")) for each in answer.json().get("versions") or ()}
    version = next((version for version in VERSIONS if version in served), None)
    if version is None:
        return None
    group = f"{GROUP}/{version}"
    return Kind("LocalQueue", group, "localqueues"), Kind("ClusterQueue", group, "clusterqueues")


def _cluster_queue(place: Connection, kind: Kind, name: str, problems: list[str]) -> Object | None:
    """The ClusterQueue; empty where there is none of that name, None where the login may not read it."""
    try:
        answer = place.api.get(kind.path("", name))
    except ApiRefused as error:
        if error.status != 403:
            raise
        problems.append(f"the quota of ClusterQueue {name} is not known: {_missing(error, 'get', kind, '')}")
        return None
    return answer.json() if answer is not None else {}


def _waiting(
    place: Connection, queue: str, held: Mapping[str, tuple[QueueCheck, ...]], problems: list[str]
) -> tuple[int, tuple[QueuePosition, ...]]:
    """How many jobs wait for quota in a queue, and the runs of Slipway that wait in it, in its order. `held`: uid ->
    the checks that it waits for."""
    try:
        places = order(place.api, place.namespace, queue)
        ours = list(_carried(place, queue, places, held))
    except ApiRefused as error:
        if error.status != 403:
            raise
        problems.append(f"the runs in queue {queue} are not known: {error.message}")
        return 0, ()
    return len(places), tuple(sorted(ours, key=lambda each: (each.position or 0, each.run)))


def _carried(
    place: Connection, queue: str, places: Mapping[str, int], held: Mapping[str, tuple[QueueCheck, ...]]
) -> Iterator[QueuePosition]:
    selector = f"{names.SELECTOR},{names.QUEUE}={queue}"
    for kind in place.looking.kinds():
        for page in place.api.pages(kind.path(place.namespace), accept=ONLY_METADATA_LIST, labelSelector=selector):
            for item in page.get("items") or ():
                metadata = msgspec.convert(item.get("metadata") or {}, Metadata, strict=False)
                if metadata.uid not in {*places, *held} or names.JOBSET_NAME in metadata.labels:
                    continue
                position = places[metadata.uid] + 1 if metadata.uid in places else None
                for run in metadata.runs:
                    yield QueuePosition(run, position, held.get(metadata.uid, ()))


def _state(
    place: Connection,
    queue: Object,
    behind: Object | None,
    checks: tuple[QueueCheck, ...],
    waiting: int,
    ours: tuple[QueuePosition, ...],
) -> QueueState:
    spec, status = queue.get("spec") or {}, queue.get("status") or {}
    theirs = (behind or {}).get("spec") or {}
    policy = max((str(each.get("stopPolicy") or OPEN) for each in (spec, theirs)), key=_strength)
    state, detail = STATES.get(policy, "held"), ""
    if behind == {}:
        state, detail = "inactive", f"there is no ClusterQueue `{spec.get('clusterQueue') or ''}`"
    elif policy != OPEN:
        kind = "LocalQueue" if str(spec.get("stopPolicy") or OPEN) == policy else "ClusterQueue"
        detail = f"stopPolicy {policy} of its {kind}"
    else:
        for condition in status.get("conditions") or ():
            if condition.get("type") == "Active" and condition.get("status") == "False":
                state, detail = "inactive", str(condition.get("message") or condition.get("reason") or "")
    return QueueState(
        name=str(queue["metadata"]["name"]),
        backend=NAME,
        place=place.login.context or place.api.host,
        namespace=str(queue["metadata"].get("namespace") or place.namespace),
        cluster_queue=str(spec.get("clusterQueue") or ""),
        cohort=str(theirs.get("cohortName") or theirs.get("cohort") or ""),
        state=state,
        detail=detail,
        # Kueue counts nothing in a queue that is stopped
        waiting=max(int(status.get("pendingWorkloads") or 0), waiting),
        running=int(status.get("reservingWorkloads") or 0),
        ours=ours,
        quotas=tuple(_quotas(behind)) if behind is not None else (),
        checks=checks,
    )


def _strength(policy: str) -> int:
    return STRENGTH.index(policy) if policy in STRENGTH else 1


def _quotas(queue: Object) -> Iterator[QueueQuota]:
    """The quota of a ClusterQueue. What a job has reserved counts as used from its admission on, as Kueue counts it."""
    reserved: dict[tuple[str, str], tuple[float, float]] = {}
    for flavor in (queue.get("status") or {}).get("flavorsReservation") or ():
        for resource in flavor.get("resources") or ():
            key = (str(flavor.get("name")), str(resource.get("name")))
            reserved[key] = _number(resource.get("total")), _number(resource.get("borrowed"))
    for group in (queue.get("spec") or {}).get("resourceGroups") or ():
        for flavor in group.get("flavors") or ():
            for resource in flavor.get("resources") or ():
                key = (str(flavor.get("name")), str(resource.get("name")))
                used, borrowed = reserved.get(key, (0.0, 0.0))
                yield QueueQuota(*key, _number(resource.get("nominalQuota")), used, borrowed)


def _number(quantity: str | int | float | None) -> float:
    return nanos(quantity or 0) / NANO


def _missing(error: ApiRefused, verb: str, kind: Kind, namespace: str) -> str:
    """The right that a refusal is about, as an administrator writes it down."""
    where = f"in namespace {namespace}" if namespace else "in the whole cluster (a ClusterRole)"
    group = kind.group.split("/")[2]
    return f"this login lacks the right to `{verb}` {kind.plural}.{group} {where} ({error.message})"


# Admission checks of Kueue's queues: what a run needs besides its quota, such as nodes that an autoscaler brings.

ACTIVE: Final = "active"
INACTIVE: Final = "inactive"  # Kueue lets nothing in through a queue with such a check


def checks_of(place: Connection, cluster_queue: Object, group: str, problems: list[str]) -> tuple[QueueCheck, ...]:
    """The checks that a ClusterQueue names, with their state. `group`: the path of Kueue's API in the version that is
    read. A check that may not be read has no state."""
    return tuple(
        _read(place, Kind("AdmissionCheck", group, "admissionchecks"), name, problems) for name in named(cluster_queue)
    )


def named(cluster_queue: Object) -> list[str]:
    """In v1beta1 they may be in either field."""
    plain = at(cluster_queue, "spec", "admissionChecks") or ()
    ruled = at(cluster_queue, "spec", "admissionChecksStrategy", "admissionChecks") or ()
    return list(dict.fromkeys([*map(str, plain), *(str(each.get("name")) for each in ruled)]))


def _read(place: Connection, kind: Kind, name: str, problems: list[str]) -> QueueCheck:
    try:
        answer = place.api.get(kind.path("", name))
    except ApiRefused as error:
        if error.status != 403:
            raise
        right = (
            "this login lacks the right to `get` admissionchecks.kueue.x-k8s.io in the whole cluster (a ClusterRole)"
        )
        problems.append(f"the state of admission check {name} is not known: {right} ({error.message})")
        return QueueCheck(name, "")
    if answer is None:
        return QueueCheck(name, INACTIVE, "there is no AdmissionCheck of that name")
    for condition in at(answer.json(), "status", "conditions") or ():
        if condition.get("type") == "Active" and condition.get("status") == "True":
            return QueueCheck(name, ACTIVE)
        if condition.get("type") == "Active":
            return QueueCheck(name, INACTIVE, str(condition.get("message") or condition.get("reason") or ""))
    return QueueCheck(name, INACTIVE, "no controller answers for it")


def pending_checks(place: Connection, problems: list[str]) -> dict[str, dict[str, tuple[QueueCheck, ...]]]:
    """LocalQueue -> uid of a Job or JobSet -> the checks that have not said yes to it. Only of those that have their
    quota, or lost it because a check said no: others have not come to their checks yet."""
    found: dict[str, dict[str, tuple[QueueCheck, ...]]] = {}
    try:
        for page in place.api.pages(WORKLOAD.path(place.namespace)):
            for item in page.get("items") or ():
                if checks := tuple(_open(item)):
                    by_uid = found.setdefault(str(at(item, "spec", "queueName") or ""), {})
                    by_uid |= {str(each.get("uid")): checks for each in at(item, "metadata", "ownerReferences") or ()}
    except ApiRefused as error:
        if error.status != 403:
            raise
        problems.append(f"what runs with a quota still wait for is not known: {error.message}")
    return found


def _open(workload: Object) -> Iterator[QueueCheck]:
    true = {
        each.get("type"): each for each in at(workload, "status", "conditions") or () if each.get("status") == "True"
    }
    refused = str((true.get("Evicted") or {}).get("reason") or "").endswith("AdmissionCheck")
    given_away = bool(at(workload, "status", "clusterName"))  # MultiKueue's check stays open while a Job runs elsewhere
    if "Finished" in true or given_away or not ("QuotaReserved" in true or refused):
        return
    for check in at(workload, "status", "admissionChecks") or ():
        if check.get("state") != "Ready":
            yield QueueCheck(str(check.get("name")), str(check.get("state")), str(check.get("message") or ""))
