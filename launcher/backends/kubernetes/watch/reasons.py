"""Why a run on a cluster waits, runs or has ended. A pure function of its objects; it returns the evidence too.

The input are objects as the API server returns them (decoded JSON): the Job or JobSet, the run's pods, events about
them, and Kueue's Workload. What a pod's runtime wrote into the store is more exact and has precedence. This module
covers what no process of the run can report: why it does not start, and why its pods are gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.watch.endings import (
    Judgement,
    Object,
    Why,
    at,
    cut,
    disruption,
    event_time,
    moment,
    newest,
    why_pod_ended,
)
from launcher.backends.kubernetes.watch.queues import given_away, held_back
from launcher.reasons import EXIT_NEVER, RULES, Reason

TOO_LONG: Final = 30.0  # seconds after its deletion was due, after which a pod is reported as hanging
# declares that a node will not come back: its pods then fail and are deleted within a minute. Deleting the node does
# the same
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"

# reasons of a waiting container
_IMAGE: Final = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_CONFIG: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
# waiting helps none of these
_HOPELESS: Final = frozenset({"ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError"})


def judge(
    owner: Object,
    pods: Sequence[Object] = (),
    events: Sequence[Object] = (),
    workload: Object | None = None,
    *,
    run: str = "",
    now: float = 0.0,
    position: int | None = None,
) -> Judgement:
    """The state of a run in a cluster.

    owner     the Job or JobSet; when it carries several runs, `run` selects one
    pods      of this run
    events    about the owner, its Jobs, its pods and its Workload
    workload  Kueue's, where the owner is queued; `position`: its place in the queue, from 0
    now       seconds since the epoch
    """
    ended = outcome(owner, run)
    if ended is not None:
        succeeded, condition = ended
        if succeeded:
            return Judgement(False, "succeeded")
        ending = (None if pods else _upstream(owner, run, condition)) or _why_ended(condition, pods)
        return Judgement(False, "failed", ending.reason, ending.evidence)
    hanging = _lost(pods, now)
    if at(owner, "metadata", "deletionTimestamp"):
        return Judgement(True, "stopping", *(hanging[:2] if hanging else ("", "")))
    if hanging:
        return Judgement(True, "stopping", *hanging)
    alive = [pod for pod in pods if at(pod, "status", "phase") in ("Pending", "Running", None)]
    waiting = [why for pod in alive if (why := _why_waiting(pod, events)) is not None]
    if waiting:
        return Judgement(True, "pending", *_worst(waiting))
    if queued := given_away(owner, workload) or held_back(owner, workload, position, events):
        return queued
    if not alive:
        refused = _refused(owner, events, max(_made(each) for each in (owner, *pods)))
        if refused is not None and not any(at(pod, "status", "phase") == "Succeeded" for pod in pods):
            return Judgement(True, "pending", *refused)
        before = _last_end(pods)
        return Judgement(True, "pending", *(before[:2] if before else ("", "")))
    phase = "running" if all(_running(pod) for pod in alive) else "starting"
    return Judgement(True, phase)


def outcome(owner: Object, run: str = "") -> tuple[bool, Object] | None:
    """(succeeded, the condition that says so) once it has ended. In a JobSet with several runs, a run has ended when
    its Jobs have all succeeded, or when the whole set has ended."""
    for condition in at(owner, "status", "conditions") or ():
        if condition.get("status") == "True":
            if condition.get("type") in ("Complete", "Completed"):
                return True, condition
            if condition.get("type") == "Failed":
                stages = _stages(owner, run)
                return (True, {}) if stages and _all_done(owner, stages) else (False, condition)
    stages = _stages(owner, run)
    if stages and _all_done(owner, stages):
        return True, {}
    return None


def index_outcome(owner: Object, index: int, pods: Sequence[Object] = ()) -> Judgement | None:
    """How one index of an Indexed Job has ended, by its own pods where they still exist; None while it has not
    ended."""
    if _within(at(owner, "status", "completedIndexes") or "", index):
        return Judgement(False, "succeeded")
    if _within(at(owner, "status", "failedIndexes") or "", index):
        failure = f"index {index} failed finally"
        last = _last_end(pods)
        if last is None:
            return Judgement(False, "failed", Reason.INFRASTRUCTURE, failure)
        return Judgement(False, "failed", last.reason, cut(f"{last.evidence}; {failure}"))
    return None


def _within(ranges: str, index: int) -> bool:
    """Whether ranges such as `1,3-5,7` contain a number."""
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        if int(first) <= index <= int(last or first):
            return True
    return False


def _stages(owner: Object, run: str) -> dict[str, int]:
    """The replicated Jobs of a run in a JobSet with several runs: name -> number of Jobs."""
    if names.PIPELINE not in (at(owner, "metadata", "labels") or {}):
        return {}
    stages = {}
    for each in at(owner, "spec", "replicatedJobs") or ():
        labels = at(each, "template", "spec", "template", "metadata", "labels") or {}
        if labels.get(names.RUN) == run:
            stages[each.get("name", "")] = int(each.get("replicas", 1))
    return stages


def _all_done(owner: Object, stages: Mapping[str, int]) -> bool:
    statuses = at(owner, "status", "replicatedJobsStatus") or ()
    done = {each.get("name", ""): int(each.get("succeeded") or 0) for each in statuses}
    return all(done.get(name, 0) >= replicas for name, replicas in stages.items())


def _upstream(owner: Object, run: str, condition: Object) -> Why | None:
    """For a run in a pipeline: the earlier stage for which it waited and which failed."""
    own_stages = _stages(owner, run)
    stages = {each.get("name"): each for each in at(owner, "spec", "replicatedJobs") or ()}
    statuses = at(owner, "status", "replicatedJobsStatus") or ()
    failed = {each.get("name") for each in statuses if each.get("failed")}
    rest, visited = list(own_stages), set(own_stages)
    while rest:
        needed = {each.get("name", "") for each in at(stages.get(rest.pop()), "dependsOn") or ()} - visited
        for name in sorted(needed & failed):
            labels = at(stages.get(name), "template", "spec", "template", "metadata", "labels") or {}
            message = condition.get("message") or ""
            return Why(Reason.UPSTREAM_FAILED, cut(f"{labels.get(names.RUN, name)} ended without success: {message}"))
        visited |= needed
        rest += needed
    return None


# runs that do not start


def _why_waiting(pod: Object, events: Sequence[Object]) -> Why | None:
    """Why a pod has not started; None where it has, or where nothing is wrong."""
    name = at(pod, "metadata", "name") or "?"
    if at(pod, "metadata", "deletionTimestamp"):
        return None
    for condition in at(pod, "status", "conditions") or ():
        if condition.get("type") != "PodScheduled" or condition.get("status") != "False":
            continue
        if condition.get("reason") == "Unschedulable":
            return Why(Reason.UNSCHEDULABLE, _unschedulable(name, condition.get("message") or ""))
    statuses = [*(at(pod, "status", "initContainerStatuses") or ()), *(at(pod, "status", "containerStatuses") or ())]
    for status in statuses:
        waiting = at(status, "state", "waiting") or {}
        reason = waiting.get("reason") or ""
        evidence = cut(f"pod {name}: {reason}: {waiting.get('message') or status.get('image') or ''}")
        if reason in _IMAGE:
            return Why(Reason.IMAGE_PULL, evidence, reason in _HOPELESS)
        if reason in _CONFIG:
            return Why(Reason.CONFIG_ERROR, evidence, reason in _HOPELESS)
    if at(pod, "status", "phase") == "Pending" and not any(at(each, "state", "running") for each in statuses):
        return _why_no_container(name, events)
    return None


def _why_no_container(pod: str, events: Sequence[Object]) -> Why | None:
    """Why a pod has a node and no container: only events report errors of volumes and networks."""
    for event in newest(events):
        if event.get("type") != "Warning" or at(event, "involvedObject", "name") != pod:
            continue
        message = event.get("message") or ""
        evidence = cut(f"pod {pod}: {event.get('reason')}: {message}")
        if event.get("reason") in ("FailedMount", "FailedAttachVolume"):
            missing = "not found" in message or "references non-existent" in message
            return Why(Reason.CONFIG_ERROR if missing else Reason.INFRASTRUCTURE, evidence, missing)
        if event.get("reason") == "FailedCreatePodSandBox":
            return Why(Reason.INFRASTRUCTURE, evidence)
    return None


def _unschedulable(pod: str, message: str) -> str:
    """The scheduler's message, with the missing resources first. Example: `0/3 nodes are available: 3 Insufficient
    cpu.`"""
    short = sorted(set(re.findall(r"Insufficient ([\w./-]+\w)", message)))
    summary = f"no node has enough {', '.join(short)}" if short else "no node takes it"
    return cut(f"pod {pod}: {summary}: {message}")


def _refused(owner: Object, events: Sequence[Object], since: float) -> Why | None:
    """Why there are no pods: a controller's FailedCreate, which no condition of the owner shows. `since`: when the last
    pod was created, or the owner; earlier events do not count. The owner's name may have been another's before."""
    for event in newest(events):
        if event.get("reason") not in ("FailedCreate", "JobCreationFailed", "FailedToCreateJob"):
            continue
        if event_time(event) < since:
            return None
        message = event.get("message") or ""
        evidence = cut(f"{at(event, 'involvedObject', 'kind')} {at(event, 'involvedObject', 'name')}: {message}")
        if "exceeded quota" in message or "must specify" in message:
            return Why(Reason.QUOTA, evidence)
        if "violates PodSecurity" in message:
            return Why(Reason.CONFIG_ERROR, evidence, True)
        refused = any(word in message for word in ("forbidden", "denied", "is invalid", "not found"))
        return Why(Reason.CONFIG_ERROR if refused else Reason.INFRASTRUCTURE, evidence)
    return None


# runs that hang


def _lost(pods: Sequence[Object], now: float) -> Why | None:
    """A pod on a lost node stays Terminating, and its Job starts no other while it exists."""
    for pod in pods:
        due = moment(at(pod, "metadata", "deletionTimestamp"))
        if due is None or at(pod, "status", "phase") in ("Succeeded", "Failed"):
            continue
        disrupted = disruption(pod)
        gone = disrupted is not None and disrupted.get("reason") == "DeletionByTaintManager"
        if now - due > TOO_LONG or (gone and now > due):
            name, node = at(pod, "metadata", "name"), at(pod, "spec", "nodeName") or "none"
            # deleting the pod by force does not help: its Job waits until it has failed, and then nothing records that
            return Why(
                Reason.LOST,
                f"pod {name} hangs in Terminating: its node {node} does not answer, and no other starts while it is "
                f"there. When the node is gone for good: kubectl taint node {node} {OUT_OF_SERVICE}",
            )
    return None


# runs that have ended


def _why_ended(condition: Object, pods: Sequence[Object]) -> Why:
    """Why the Job or JobSet failed: by its last pods, and where they tell nothing, by its own condition."""
    reason, message = condition.get("reason") or "", condition.get("message") or ""
    summary = cut(": ".join(part for part in (reason, message) if part))
    if reason == "DeadlineExceeded":
        return Why(Reason.DEADLINE, summary)
    last = _last_end(pods)
    if last is not None:
        return Why(last.reason, cut(f"{last.evidence}; {summary}") if summary else last.evidence)
    if reason == "PodFailurePolicy" and f"exit code {EXIT_NEVER}" in message:
        return Why(Reason.CONFIG_ERROR, summary)
    return Why(Reason.INFRASTRUCTURE, summary)


def _last_end(pods: Iterable[Object]) -> Why | None:
    """Why the newest pod that failed ended."""
    ends = [(_made(pod), pod) for pod in pods]
    for _, pod in sorted(ends, key=lambda end: end[0], reverse=True):
        why = why_pod_ended(pod)
        if why is not None:
            return why
    return None


# helpers


def _running(pod: Object) -> bool:
    statuses = at(pod, "status", "containerStatuses") or ()
    return bool(statuses) and all(at(each, "state", "running") for each in statuses)


def _worst(whys: Sequence[Why]) -> Why:
    """One reason for several pods: hopeless ones first, then the highest severity."""
    return max(whys, key=lambda why: (why.hopeless, RULES[why.reason].severity))


def _made(value: Object) -> float:
    return moment(at(value, "metadata", "creationTimestamp")) or 0.0
