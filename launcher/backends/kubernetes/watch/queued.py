"""Runs that Kueue holds back, has put aside, or has given to another cluster. Pure functions of objects, as reasons."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.watch.endings import Judgement, Object, at, cut, newest
from launcher.reasons import Reason


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
