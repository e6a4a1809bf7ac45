"""Admission checks of Kueue's queues: what a run needs besides its quota, such as nodes that an autoscaler brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from launcher.backends.base import QueueCheck
from launcher.backends.kubernetes.api import ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.objects import WORKLOAD, Kind
from launcher.backends.kubernetes.watch.endings import at

ACTIVE: Final = "active"
INACTIVE: Final = "inactive"  # Kueue lets nothing in through a queue with such a check

Object = Mapping[str, Any]


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
