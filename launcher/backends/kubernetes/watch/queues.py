"""Places in Kueue's queues: from Kueue's visibility API where it is served, otherwise computed by Kueue's own rules.

A cluster serves that API when its administrator has registered it (an APIService; Kueue's releases contain it), and
only to users with the right to `localqueues/pendingworkloads`. The order is not an object, so it cannot be watched.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.objects import WORKLOAD
from launcher.backends.kubernetes.watch.endings import Object, at, moment
from launcher.errors import SlipwayError

VISIBILITY: Final = "/apis/visibility.kueue.x-k8s.io/v1beta1"
ALL: Final = 1_000_000
PATIENCE: Final = 3.0  # seconds: a registered server of Kueue's that does not answer must delay no one


def positions(api: Api, namespace: str, queue: str) -> dict[str, int]:
    """As `order`; empty where the places are unknown."""
    try:
        return order(api, namespace, queue)
    except SlipwayError:
        return {}


def order(api: Api, namespace: str, queue: str) -> dict[str, int]:
    """uid of a Job or JobSet -> its place in a LocalQueue, from 0. Raises ApiRefused where the login may see neither
    the order nor the Workloads, Unreachable."""
    path = f"{VISIBILITY}/namespaces/{namespace}/localqueues/{queue}/pendingworkloads"
    try:  # without a limit Kueue answers with the first 1,000
        answer = api.request("GET", path, query={"limit": str(ALL)}, patience=PATIENCE).json()
        places = [(int(item.get("positionInLocalQueue") or 0), item) for item in answer.get("items") or ()]
    except SlipwayError:  # not served, not allowed, or no answer
        places = list(enumerate(_pending(api, namespace, queue)))
    return {
        str(each.get("uid")): place for place, item in places for each in at(item, "metadata", "ownerReferences") or ()
    }


def _pending(api: Api, namespace: str, queue: str) -> list[Object]:
    pages = list(api.pages(WORKLOAD.path(namespace)))
    return in_order(
        item for page in pages for item in page.get("items") or () if at(item, "spec", "queueName") == queue
    )


def in_order(workloads: Iterable[Object]) -> list[Object]:
    """The waiting workloads in the order of admission: by priority, then by time. (Kueue 0.14: workload.Ordering)"""
    return sorted(
        filter(_waits, workloads), key=lambda workload: (-(at(workload, "spec", "priority") or 0), _since(workload))
    )


def _waits(workload: Object) -> bool:
    if at(workload, "spec", "active") is False:
        return False
    return not {"QuotaReserved", "Finished"} & set(_true(workload))


def _since(workload: Object) -> float:
    """The time from which it counts as waiting; one that was not ready in time, or failed an admission check, goes to
    the end."""
    evicted = _true(workload).get("Evicted") or {}
    if evicted.get("reason") in ("PodsReadyTimeout", "AdmissionCheck"):
        return moment(evicted.get("lastTransitionTime")) or 0.0
    return moment(at(workload, "metadata", "creationTimestamp")) or 0.0


def _true(workload: Object) -> dict[str, Object]:
    conditions = at(workload, "status", "conditions") or ()
    return {str(condition.get("type")): condition for condition in conditions if condition.get("status") == "True"}
