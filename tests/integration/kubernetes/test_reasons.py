"""What objects mean, from shapes that a real cluster gave (1.34), without one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.objects import JOB, JOB_SET, POD, WORKLOAD
from launcher.backends.kubernetes.watch.endings import Judgement, moment
from launcher.backends.kubernetes.watch.queues import in_order
from launcher.backends.kubernetes.watch.reasons import index_outcome, judge
from launcher.backends.kubernetes.watch.snapshot import Snapshot
from launcher.reasons import Reason

STARTED = "2026-11-18T14:26:40Z"
NOW = moment(STARTED) or 0.0


def job(*conditions: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    told = [{"type": kind, "status": "True", "reason": why, "message": text} for kind, why, text in conditions]
    metadata = {"name": "run-0123456789ab", "namespace": "ml", "uid": "u", **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": more.pop("spec", {}), "status": {"conditions": told, **more}}


def pod(phase: str = "Pending", name: str = "run-x", **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "creationTimestamp": STARTED, **status.pop("metadata", {})}
    spec = status.pop(
        "spec", {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {"memory": "256Mi"}}}]}
    )
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, **status}}


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"name": "main", "image": "x@sha256:1", "state": state}])


def ended(code: int, reason: str = "Error", message: str = "", **status: Any) -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return pod("Failed", containerStatuses=[{"name": "main", "state": state}], **status)


def condition(kind: str, reason: str, message: str = "", status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def event(about: str, reason: str, message: str, at: str = STARTED) -> dict[str, Any]:
    return {
        "type": "Warning",
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
        "involvedObject": {"kind": "Job", "name": about},
    }


RUNNING = pod("Running", containerStatuses=[{"name": "main", "state": {"running": {"startedAt": STARTED}}}])
UNSCHEDULABLE = (
    "0/5 nodes are available: 2 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector. "
    "no new claims to deallocate, preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
)
FORBIDDEN = (
    'Error creating: pods "run-x" is forbidden: violates PodSecurity "restricted:latest": '
    "privileged (container main must not set securityContext.privileged=true)"
)

WAITING: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]], str, str, bool]] = {
    "unschedulable": (
        [pod(conditions=[condition("PodScheduled", "Unschedulable", UNSCHEDULABLE, "False")])],
        [],
        "unschedulable",
        "no node has enough nvidia.com/gpu",
        False,
    ),
    "nowhere": (
        [pod(conditions=[condition("PodScheduled", "Unschedulable", "0/1 nodes are available: 1 x.", "False")])],
        [],
        "unschedulable",
        "no node takes it",
        False,
    ),
    "pull": ([waiting("ErrImagePull", "failed to pull: not found")], [], "image_pull", "failed to pull", False),
    "back-off": ([waiting("ImagePullBackOff", "Back-off pulling")], [], "image_pull", "Back-off", False),
    "never": ([waiting("ErrImageNeverPull")], [], "image_pull", "x@sha256:1", True),
    "name": ([waiting("InvalidImageName", "couldn't parse")], [], "image_pull", "couldn't parse", True),
    "secret": (
        [waiting("CreateContainerConfigError", 'secret "tokens" not found')],
        [],
        "config_error",
        "tokens",
        True,
    ),
    "pod security": ([], [event("run-0123456789ab", "FailedCreate", FORBIDDEN)], "config_error", "PodSecurity", True),
    "quota": (
        [],
        [event("run-0123456789ab", "FailedCreate", 'pods "x" is forbidden: exceeded quota: few, requested: pods=1')],
        "quota",
        "exceeded quota: few",
        False,
    ),
    "volume": (
        [pod(containerStatuses=[{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}])],
        [event("run-x", "FailedMount", 'MountVolume.SetUp failed for volume "jobs": configmap "x" not found')],
        "config_error",
        'configmap "x"',
        True,
    ),
    "network": (
        [pod()],
        [event("run-x", "FailedCreatePodSandBox", "failed to set up sandbox container")],
        "infrastructure",
        "sandbox",
        False,
    ),
}


@pytest.mark.parametrize("case", WAITING)
def test_why_it_waits(case: str) -> None:
    pods, events, reason, words, hopeless = WAITING[case]
    seen = judge(job(), pods, events, now=NOW)
    assert (seen.active, seen.phase, seen.reason, seen.hopeless) == (True, "pending", reason, hopeless)
    assert words in seen.evidence


FAILED = job(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
POLICY = "Container main for pod ml/run-x failed with exit code 78 matching FailJob rule at index 0"
ENDED: dict[str, tuple[dict[str, Any], list[dict[str, Any]], str, str]] = {
    "memory": (FAILED, [ended(137, "OOMKilled")], "out_of_memory", "256Mi"),
    "deadline of the job": (
        job(("Failed", "DeadlineExceeded", "Job was active longer than specified deadline")),
        [],
        "deadline",
        "longer",
    ),
    "deadline of the pod": (
        FAILED,
        [pod("Failed", reason="DeadlineExceeded", message="Pod was active")],
        "deadline",
        "x",
    ),
    "evicted": (FAILED, [pod("Failed", reason="Evicted", message="low on resource: memory")], "evicted", "memory"),
    "no GPU was free after all": (
        FAILED,
        [pod("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource")],
        "capacity",
        "nvidia.com/gpu",
    ),
    "the node's own pods first": (FAILED, [pod("Failed", reason="Preempting", message="for x")], "preempted", "for x"),
    "drained": (
        FAILED,
        [ended(143, conditions=[condition("DisruptionTarget", "EvictionByEvictionAPI", "evicting")])],
        "evicted",
        "EvictionByEvictionAPI",
    ),
    "preempted": (
        FAILED,
        [ended(143, conditions=[condition("DisruptionTarget", "PreemptionByScheduler", "preempting")])],
        "preempted",
        "PreemptionByScheduler",
    ),
    "node lost": (
        FAILED,
        [ended(137, conditions=[condition("DisruptionTarget", "DeletionByTaintManager", "deleting")])],
        "lost",
        "Taint",
    ),
    "never again": (
        job(("Failed", "PodFailurePolicy", POLICY)),
        [ended(78, message="no such input")],
        "config_error",
        "no such",
    ),
    "never again, pods gone": (job(("Failed", "PodFailurePolicy", POLICY)), [], "config_error", "exit code 78"),
    "no python": (FAILED, [ended(128, "StartError", 'exec: "python": not found')], "config_error", "python"),
    "user": (FAILED, [ended(1, message="ValueError: x")], "user_error", "ValueError"),
    "no pods": (FAILED, [], "infrastructure", "backoff limit"),
}


@pytest.mark.parametrize("case", ENDED)
def test_why_it_ended(case: str) -> None:
    owner, pods, reason, words = ENDED[case]
    seen = judge(owner, pods, now=NOW)
    assert (seen.active, seen.phase, seen.reason) == (False, "failed", reason)
    assert words in seen.evidence


def test_memory_counts_where_a_disruption_is_told_too() -> None:
    worst = ended(137, "OOMKilled", conditions=[condition("DisruptionTarget", "TerminationByKubelet")])
    assert judge(FAILED, [worst], now=NOW).reason == Reason.OUT_OF_MEMORY


def test_the_memory_that_is_told_is_our_containers() -> None:
    """A patch may put a container before it."""
    worst = ended(137, "OOMKilled")
    beside = {"name": "proxy", "resources": {"limits": {"memory": "64Mi"}}}
    worst["spec"] = {**worst["spec"], "containers": [beside, *worst["spec"]["containers"]]}
    assert "at its limit of 256Mi" in judge(FAILED, [worst], now=NOW).evidence


def test_the_newest_try_tells() -> None:
    old = ended(137, "OOMKilled", metadata={"creationTimestamp": "2026-11-18T10:00:00Z"})
    assert judge(FAILED, [old, ended(1)], now=NOW).reason == Reason.USER_ERROR


def test_what_was_refused_before_the_last_pod_was_made_is_over() -> None:
    """Between two tries of a Job whose first pod had to wait for quota."""
    text = 'pods "x" is forbidden: exceeded quota: few'
    before = event("run-0123456789ab", "FailedCreate", text, at="2026-11-18T14:20:00Z")
    after = event("run-0123456789ab", "FailedCreate", text, at="2026-11-18T14:30:00Z")
    assert judge(job(), [ended(143)], [before], now=NOW).reason != Reason.QUOTA
    assert judge(job(), [ended(143)], [before, after], now=NOW).reason == Reason.QUOTA


def test_what_was_refused_to_a_job_of_the_same_name_before_it_is_over() -> None:
    """Deleted after Pod Security had refused its pods, and submitted again. The first's events stay for an hour."""
    made = job(metadata={"creationTimestamp": STARTED})
    before = event("run-0123456789ab", "FailedCreate", FORBIDDEN, at="2026-11-18T14:26:39Z")
    after = event("run-0123456789ab", "FailedCreate", FORBIDDEN, at=STARTED)
    assert judge(made, [], [before], now=NOW) == Judgement(True, "pending")
    assert judge(made, [], [before, after], now=NOW).reason == Reason.CONFIG_ERROR


def test_a_workload_of_a_job_of_the_same_name_before_it_says_nothing() -> None:
    run = "run-0123456789ab"
    notes = {names.RUNS: json.dumps({run: "h"}), names.FINGERPRINT: "h"}
    sight = Snapshot("c")
    labelled = {"annotations": notes, "labels": {names.QUEUE: "team-a"}, "uid": "new"}
    sight.put(JOB, job(metadata=labelled, spec={"suspend": True}))
    for uid, message in (("old", "of the Job before"), ("new", "of this one")):
        owner = {"kind": "Job", "name": run, "uid": uid, "controller": True}
        about = {"name": f"job-{uid}", "namespace": "ml", "ownerReferences": [owner]}
        short = condition("QuotaReserved", "Pending", message, "False")
        sight.put(WORKLOAD, {"metadata": about, "spec": {}, "status": {"conditions": [short]}})
    seen = sight.observe(run, NOW)
    assert seen is not None
    assert seen.evidence == "queue team-a: of this one"


def test_a_run_of_two_objects_is_the_others_when_one_of_them_goes() -> None:
    """A pipeline that somebody applied beside a run's own Job."""
    run, other = "run-0123456789ab", "all-0123456789ab"
    alone = {names.RUNS: json.dumps({run: "h"}), names.FINGERPRINT: "h"}
    both = {names.RUNS: json.dumps({run: "h", "more-0123456789ab": "i"}), names.FINGERPRINT: "f"}
    sight = Snapshot("c")
    sight.put(JOB_SET, job(metadata={"name": other, "uid": "s", "annotations": both}))
    sight.put(JOB, job(metadata={"annotations": alone}))
    assert (seen := sight.observe(run, NOW)) is not None
    assert seen.handle.name == run
    sight.drop(JOB, "ml", run)
    assert (seen := sight.observe(run, NOW)) is not None
    assert seen.handle.name == other
    sight.drop(JOB_SET, "ml", other)
    assert sight.observe(run, NOW) is None


def test_running_and_done() -> None:
    assert judge(job(), [RUNNING], now=NOW) == Judgement(True, "running")
    assert judge(job(), [RUNNING, pod(name="other")], now=NOW).phase == "starting"
    assert judge(job(("Complete", "", "")), [RUNNING], now=NOW) == Judgement(False, "succeeded")
    assert judge(job(), [], now=NOW) == Judgement(True, "pending")
    # between two tries the last one's end is told
    between = judge(job(), [ended(75, message="store away")], now=NOW)
    assert (between.phase, between.reason) == ("pending", Reason.INFRASTRUCTURE)


def test_a_lost_node_is_said_with_the_way_out() -> None:
    gone = {"deletionTimestamp": "2026-11-18T14:26:00Z"}
    taint = [condition("DisruptionTarget", "DeletionByTaintManager")]
    for pods in ([pod("Running", metadata=gone)], [pod("Running", metadata=gone, conditions=taint)]):
        seen = judge(job(), pods, now=NOW)
        assert (seen.active, seen.reason) == (True, Reason.LOST)
        assert "kubectl taint node n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in seen.evidence
    just = {"deletionTimestamp": "2026-11-18T14:26:35Z"}
    assert judge(job(), [pod("Running", metadata=just)], now=NOW).reason == ""


def queued(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"status": {"conditions": list(conditions)}}


def test_a_queue_is_said_with_the_place_in_it() -> None:
    owner = job(metadata={"labels": {names.QUEUE: "team-a"}}, spec={"suspend": True})
    full = queued(condition("QuotaReserved", "Pending", "couldn't assign flavors: insufficient unused quota", "False"))
    seen = judge(owner, workload=full, now=NOW, position=2)
    assert (seen.phase, seen.reason) == ("queued", Reason.QUOTA)
    assert seen.evidence.startswith("queue team-a, place 3 in it: couldn't assign flavors")
    nowhere = queued(condition("QuotaReserved", "Inadmissible", "LocalQueue team-a doesn't exist", "False"))
    assert judge(owner, workload=nowhere, now=NOW).hopeless
    out = queued(condition("Evicted", "Preempted", "Preempted to accommodate a workload"))
    assert judge(owner, workload=out, now=NOW).reason == Reason.PREEMPTED
    assert judge({**owner, "spec": {}}, [RUNNING], workload=full, now=NOW).phase == "running"


def test_who_suspends_a_run_by_hand_is_not_a_preemption() -> None:
    taken = pod(phase="Failed", conditions=[condition("DisruptionTarget", "PreemptionByScheduler", "taken away")])
    owner = job(spec={"suspend": True})
    for pods in ([], [taken]):
        seen = judge(owner, pods, now=NOW)
        assert (seen.active, seen.phase, seen.reason, seen.hopeless) == (True, "queued", "", True)
        assert "somebody has suspended it (`spec.suspend`" in seen.evidence


def test_a_check_that_is_open_is_said_and_is_no_lack_of_quota() -> None:
    """Shapes of Kueue 0.14: a ProvisioningRequest that an autoscaler has not fulfilled, or has given up."""
    owner = job(metadata={"labels": {names.QUEUE: "team-a"}}, spec={"suspend": True})
    reserved = queued(condition("QuotaReserved", "QuotaReserved", "Quota reserved in ClusterQueue main"))
    waits = {"name": "nodes", "state": "Pending", "message": "no A100 in this zone; ETA 10 min"}
    ready = {"name": "license", "state": "Ready", "message": "given"}
    reserved["status"]["admissionChecks"] = [ready, waits]
    seen = judge(owner, workload=reserved, now=NOW)
    assert (seen.active, seen.phase, seen.reason, seen.hopeless) == (True, "queued", Reason.CAPACITY, False)
    assert seen.evidence == (
        "queue team-a: it has its quota, and waits: admission check nodes is Pending (no A100 in this zone; ETA 10 min)"
    )
    # every check has said yes: Kueue is about to let it in
    reserved["status"]["admissionChecks"] = [ready]
    assert judge(owner, workload=reserved, now=NOW).reason == Reason.QUOTA
    rejected = "The workload is deactivated due to Admission check(s): nodes, were rejected"
    aside = queued(condition("Evicted", "DeactivatedDueToAdmissionCheck", rejected)) | {
        "metadata": {"name": "job-x", "namespace": "ml"},
        "spec": {"active": False},
    }
    seen = judge(owner, workload=aside, now=NOW)
    assert (seen.active, seen.phase, seen.reason, seen.hopeless) == (True, "queued", Reason.CAPACITY, True)
    command = """kubectl patch workload job-x -n ml --type=merge -p '{"spec":{"active":true}}'"""
    assert seen.evidence == f"queue team-a: Kueue has put it aside: {rejected}. It goes on after: {command}"
    # the check's own words are in an event alone, and another Workload's are not taken
    text = "Deactivating workload because AdmissionCheck for nodes was Rejected: {}"
    events = [
        {**event(name, "AdmissionCheckRejected", text.format(words)), "type": "Warning"}
        for name, words in (("job-x", "no A100 in this zone"), ("job-y", "no H100"))
    ]
    seen = judge(owner, events=events, workload=aside, now=NOW)
    assert seen.evidence.startswith(f"queue team-a: Kueue has put it aside: {rejected}: no A100 in this zone. It goes")
    stopped = queued(condition("Evicted", "Deactivated", "The workload is deactivated")) | {"spec": {"active": False}}
    assert judge(owner, workload=stopped, now=NOW).reason == Reason.QUOTA


def test_what_is_asked_again_is_no_lack_of_quota() -> None:
    """Kueue 0.14 takes the quota back between two ProvisioningRequests."""
    owner = job(metadata={"labels": {names.QUEUE: "team-a"}}, spec={"suspend": True})
    out = queued(
        condition("QuotaReserved", "Pending", "At least one admission check is false", "False"),
        condition("Evicted", "AdmissionCheck", "At least one admission check is false"),
    )
    words = "Reset to Pending after eviction. Previously: Retry"
    out["status"]["admissionChecks"] = [{"name": "nodes", "state": "Pending", "message": words}]
    seen = judge(owner, workload=out, now=NOW)
    assert (seen.phase, seen.reason, seen.hopeless) == ("queued", Reason.CAPACITY, False)
    assert seen.evidence.endswith(f"asks again after a check that said no: admission check nodes is Pending ({words})")


@pytest.mark.parametrize("spec", [{"suspend": True}, {"managedBy": "kueue.x-k8s.io/multikueue"}])
def test_what_kueue_gave_to_another_cluster_is_said_to_be_there(spec: dict[str, Any]) -> None:
    """MultiKueue of Kueue 0.14: a Job stays suspended here, a JobSet is another controller's."""
    owner = job(metadata={"labels": {names.QUEUE: "team-a"}}, spec=spec)
    given = queued(condition("QuotaReserved", "QuotaReserved", "Quota reserved"))
    waits = {"name": "clusters", "state": "Pending", "message": ""}
    given["status"]["admissionChecks"] = [waits]
    assert judge(owner, workload=given, now=NOW).phase in ("queued", "pending")
    given["status"] |= {"clusterName": "west"}
    seen = judge(owner, workload=given, now=NOW)
    assert (seen.active, seen.phase, seen.reason) == (True, "starting", "")
    assert (
        seen.evidence
        == "queue team-a: Kueue has given it to cluster west (MultiKueue); its pods are there, not in this one"
    )


def waiting_in_queue(name: str, priority: int, at: str, *conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": f"2026-11-18T14:00:{at}Z"}
    return {"metadata": metadata, "spec": {"priority": priority, **spec}, "status": {"conditions": list(conditions)}}


def test_the_order_of_a_queue_is_kueues() -> None:
    """Kueue 0.14: by priority, then by creation; what was sent back for its own sake counts from then on."""
    late = condition("Evicted", "PodsReadyTimeout") | {"lastTransitionTime": "2026-11-18T14:01:00Z"}
    taken = condition("Evicted", "Preempted") | {"lastTransitionTime": "2026-11-18T14:01:00Z"}
    found = [
        waiting_in_queue("low", -1, "01"),
        waiting_in_queue("sent-back", 0, "02", late),
        waiting_in_queue("second", 0, "04"),
        waiting_in_queue("first", 0, "03", taken, condition("QuotaReserved", "Pending", status="False")),
        waiting_in_queue("high", 5, "09"),
        waiting_in_queue("at-work", 9, "00", condition("QuotaReserved", "Admitted")),
        waiting_in_queue("over", 9, "00", condition("Finished", "Succeeded")),
        waiting_in_queue("held", 9, "00", active=False),
    ]
    order = [one["metadata"]["name"] for one in in_order(found)]
    assert order == ["high", "first", "second", "sent-back", "low"]


def job_set(*done: str, **conditions: str) -> dict[str, Any]:
    stages = [
        {
            "name": name,
            "replicas": 1,
            "template": {"spec": {"template": {"metadata": {"labels": {names.RUN: f"{name}-0123456789ab"}}}}},
        }
        for name in ("first", "second")
    ]
    runs = {f"{name}-0123456789ab": "h" for name in ("first", "second")}
    return {
        "metadata": {
            "name": "pipe-0123456789ab",
            "namespace": "ml",
            "uid": "u",
            "labels": {names.PIPELINE: "pipe-0123456789ab", names.APP_MANAGED: names.APP},
            "annotations": {names.RUNS: json.dumps(runs), names.FINGERPRINT: "f"},
        },
        "spec": {"replicatedJobs": stages},
        "status": {
            "replicatedJobsStatus": [{"name": name, "succeeded": int(name in done)} for name in ("first", "second")],
            "conditions": [condition(kind, why) for kind, why in conditions.items()],
        },
    }


def test_a_stage_has_ended_when_its_own_jobs_have() -> None:
    first, second = "first-0123456789ab", "second-0123456789ab"
    assert judge(job_set("first"), run=first, now=NOW) == Judgement(False, "succeeded")
    assert judge(job_set("first"), run=second, now=NOW).active
    failed = job_set("first", Failed="FailedJobs")
    assert judge(failed, run=first, now=NOW) == Judgement(False, "succeeded")
    assert judge(failed, run=second, now=NOW).phase == "failed"
    assert not judge(job_set("first", "second", Completed="AllJobsCompleted"), run=second, now=NOW).active


def test_an_index_of_an_array_ends_by_itself() -> None:
    owner = job(completedIndexes="0,2-4", failedIndexes="6")
    ends = {number: index_outcome(owner, number) for number in range(8)}
    assert {number for number, end in ends.items() if end and end.phase == "succeeded"} == {0, 2, 3, 4}
    assert {number for number, end in ends.items() if end and end.phase == "failed"} == {6}
    told = index_outcome(owner, 6, [ended(137, "OOMKilled")])
    assert told is not None
    assert (told.reason, "256Mi" in told.evidence) == (Reason.OUT_OF_MEMORY, True)


# what comes over a wire may be anything: it is read, never trusted

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
PIECES = st.sampled_from(
    [RUNNING, ended(1), ended(78), ended(137, "OOMKilled"), *(each for case in WAITING.values() for each in case[0])]
)
OWNERS = st.sampled_from(
    [job(), FAILED, job(("Complete", "", "")), job_set(), job_set("first"), *(e[0] for e in ENDED.values())]
)
EVENTS = st.sampled_from([each for case in WAITING.values() for each in case[1]])


@given(OWNERS, st.lists(PIECES, max_size=4), st.lists(EVENTS, max_size=3), st.floats(0, 4e9))
def test_a_verdict_is_whole(owner: Any, pods: list[Any], events: list[Any], now: float) -> None:
    seen = judge(owner, pods, events, now=now)
    assert seen.phase
    assert not seen.reason or Reason(seen.reason)
    assert bool(seen.reason) >= bool(seen.evidence)
    assert len(seen.evidence) <= 500
    ended_by_condition = any(
        each["status"] == "True" and each["type"] in ("Complete", "Completed", "Failed")
        for each in owner["status"]["conditions"]
    )
    assert seen.active is not ended_by_condition
    # whether something is active does not depend on the order in which a server lists pods
    assert judge(owner, pods[::-1], events, now=now)[:2] == seen[:2]


@given(st.lists(st.tuples(st.sampled_from(["job", "set", "pod"]), st.integers(0, 3), st.booleans()), max_size=20))
def test_a_sight_forgets_what_is_gone(steps: list[tuple[str, int, bool]]) -> None:
    """However objects come and go, what is seen is what a fresh look at the rest would see."""
    sight, there = Snapshot("c"), {}
    for what, number, present in steps:
        kind = {"job": JOB, "set": JOB_SET, "pod": POD}[what]
        value = _object(what, number)
        key = (what, number)
        if present:
            sight.put(kind, value)
            there[key] = (kind, value)
        else:
            sight.drop(kind, "ml", value["metadata"]["name"])
            there.pop(key, None)
    fresh = Snapshot("c")
    for kind, value in there.values():
        fresh.put(kind, value)
    for what, number, _ in steps:
        run = f"{what if what != 'pod' else 'job'}{number}-0123456789ab"
        assert sight.observe(run, NOW) == fresh.observe(run, NOW)
    assert sight.names(POD) == fresh.names(POD)


def _object(what: str, number: int) -> dict[str, Any]:
    run = f"{what if what != 'pod' else 'job'}{number}-0123456789ab"
    metadata: dict[str, Any] = {"name": run, "namespace": "ml", "uid": run}
    if what == "pod":
        owner = {"kind": "Job", "name": run, "uid": run, "controller": True}
        metadata = {"name": f"{run}-x", "namespace": "ml", "labels": {names.RUN: run}, "creationTimestamp": STARTED}
        metadata["ownerReferences"] = [owner]
        return {"metadata": metadata, "status": RUNNING["status"]}
    metadata["annotations"] = {names.RUNS: json.dumps({run: "h"}), names.FINGERPRINT: "h"}
    return {"metadata": metadata, "spec": {}, "status": {}}
