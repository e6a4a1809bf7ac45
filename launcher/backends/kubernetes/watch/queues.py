"""What Kueue holds back, and the places in its queues: from Kueue's visibility API where it is served, otherwise
computed by Kueue's own rules.

A cluster serves that API when its administrator has registered it (an APIService; Kueue's releases contain it), and
only to users with the right to `localqueues/pendingworkloads`. The order is not an object, so it cannot be watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.objects import WORKLOAD
from launcher.backends.kubernetes.watch.endings import Judgement, Object, at, cut, moment, newest
from launcher.errors import SlipwayError
from launcher.reasons import Reason

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


# Runs that Kueue holds back, has put aside, or has given to another cluster. Pure functions of objects, as reasons.


def given_away(owner: Object, workload: Object | None) -> Judgement | None:
    """A run that Kueue has given to another cluster (MultiKueue): what is here is a copy without pods. A Job may stay
    suspended; with `managedBy` it is not, and has the other's status."""
    if not at(owner, "spec", "suspend") and at(owner, "spec", "managedBy") != names.MULTIKUEUE:
        return None
    cluster = at(workload or {}, "status", "clusterName")
    if not cluster:
        return None
    queue = (at(owner, "metadata", "labels") or {}).get(names.QUEUE)
    told = f"queue {queue}: Kueue has given it to cluster {cluster} (MultiKueue); its pods are there, not in this one"
    if maps := _job_maps(owner):
        told += f". They start only where ConfigMap {', '.join(maps)} is there too: Kueue does not copy it"
    return Judgement(True, "starting", "", cut(told))


def _job_maps(owner: Object) -> list[str]:
    """The ConfigMaps that hold the jobs of a Job or JobSet."""
    templates = [at(each, "template", "spec", "template") for each in at(owner, "spec", "replicatedJobs") or ()]
    found: dict[str, None] = {}
    for template in templates or [at(owner, "spec", "template")]:
        for volume in at(template or {}, "spec", "volumes") or ():
            if volume.get("name") != names.JOBS_VOLUME:
                continue
            for source in (volume, *(at(volume, "projected", "sources") or ())):
                if name := at(source, "configMap", "name"):
                    found[str(name)] = None
    return list(found)


def held_back(
    owner: Object, workload: Object | None, position: int | None, events: Sequence[Object] = ()
) -> Judgement | None:
    """A run that is suspended: by Kueue, whose webhook does it, or without a queue by a person. Our Jobs never set
    `suspend` themselves."""
    queue = (at(owner, "metadata", "labels") or {}).get(names.QUEUE)
    if not at(owner, "spec", "suspend"):
        return None
    if not queue:
        said = "somebody has suspended it (`spec.suspend` of its object is true); it goes on when that is false"
        return Judgement(True, "queued", "", said, True)
    place = f", place {position + 1} in it" if position is not None else ""
    conditions = {each.get("type"): each for each in at(workload or {}, "status", "conditions") or ()}
    evicted = conditions.get("Evicted") or {}
    # Kueue's words: AdmissionCheck, DeactivatedDueToAdmissionCheck
    by_check = str(evicted.get("reason") or "").endswith("AdmissionCheck")
    if at(workload or {}, "spec", "active") is False:
        said = f"queue {queue}: Kueue has put it aside: {_why_aside(workload or {}, evicted, events)}"
        return Judgement(True, "queued", Reason.CAPACITY if by_check else Reason.QUOTA, cut(said), True)
    reserved = conditions.get("QuotaReserved") or {}
    if reserved.get("status") == "True" and (checks := _open_checks(workload)):
        held = cut(f"queue {queue}: it has its quota, and waits: {checks}")
        return Judgement(True, "queued", Reason.CAPACITY, held)
    message = reserved.get("message") or "it waits for its turn"
    evidence = cut(f"queue {queue}{place}: {message}")
    if "doesn't exist" in message or "does not exist" in message:
        return Judgement(True, "queued", Reason.CONFIG_ERROR, evidence, True)
    if evicted.get("status") == "True" and by_check:
        checks = _open_checks(workload) or str(evicted.get("message") or "")
        again = cut(f"queue {queue}{place}: Kueue asks again after a check that said no: {checks}")
        return Judgement(True, "queued", Reason.CAPACITY, again)
    if evicted.get("status") == "True" and evicted.get("reason") in ("Preempted", "InClusterQueue"):
        eviction = cut(f"queue {queue}{place}: {evicted.get('message') or 'preempted'}")
        return Judgement(True, "queued", Reason.PREEMPTED, eviction)
    return Judgement(True, "queued", Reason.QUOTA, evidence)


def _why_aside(workload: Object, evicted: Object, events: Sequence[Object]) -> str:
    """Why a Workload is not active, and the command that makes it active. Kueue keeps a check's own words in an event
    alone."""
    why = str(evicted.get("message") or "somebody has set its Workload's `active` to false")
    name, namespace = at(workload, "metadata", "name"), at(workload, "metadata", "namespace")
    for event in newest(events):
        if event.get("reason") == "AdmissionCheckRejected" and at(event, "involvedObject", "name") == name:
            _, _, words = str(event.get("message") or "").partition(" was Rejected: ")
            why += f": {words}" if words else ""
            break
    patch = """-p '{"spec":{"active":true}}'"""
    return f"{why}. It goes on after: kubectl patch workload {name} -n {namespace} --type=merge {patch}"


def _open_checks(workload: Object | None) -> str:
    """The admission checks of a queue that have not said yes: a ProvisioningRequest for nodes, another cluster. A check
    is no quota: what it waits for is room that does not exist yet."""
    told = []
    for check in at(workload or {}, "status", "admissionChecks") or ():
        if check.get("state") != "Ready":
            message = f" ({check['message']})" if check.get("message") else ""
            told.append(f"admission check {check.get('name')} is {check.get('state')}{message}")
    return "; ".join(told)
