"""The health checks for Argo CD, run by the interpreter that Argo CD uses, with the libraries that it opens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.integration.k8s_tree import interpreter
from tests.integration.k8s_tree.interpreter import JOB, JOBSET, WORKLOAD, script

pytestmark = pytest.mark.timeout(2000)  # the first test waits for the interpreter to be built

QUEUE = {"labels": {"kueue.x-k8s.io/queue-name": "team-a"}}
RUN = {"labels": {"slipway.dev/run": "sft-0123456789ab"}}

Health = Callable[..., list[dict[str, str]]]


@pytest.fixture(scope="session")
def health(tmp_path_factory: pytest.TempPathFactory) -> Health:
    """(kind, objects) -> what the check says of each."""
    program, folder = interpreter.program(), tmp_path_factory.mktemp("lua")
    return lambda kind, *found: interpreter.health(program, folder, kind, *found)


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


RESUMED = condition("Suspended", "False", "JobResumed", "Job resumed")
SUSPENDED = condition("Suspended", "True", "JobSuspended", "Job suspended")
DONE = condition("Complete", reason="CompletionsReached", message="Reached expected number of succeeded pods")
FAILED = condition("Failed", reason="PodFailurePolicy", message="Container main failed with exit code 78")

# name -> (object, status, words of the message)
JOBS: dict[str, tuple[dict[str, Any], str, str]] = {
    "never seen by a controller": ({"metadata": {"name": "a"}, "spec": {}}, "Progressing", "not started"),
    "no pod": ({"spec": {}, "status": {"startTime": "2026-11-21T21:00:00Z"}}, "Progressing", "see its events"),
    "running": ({"spec": {}, "status": {"active": 2, "ready": 1}}, "Progressing", "2 active, 1 ready"),
    "tried again": ({"spec": {}, "status": {"active": 1, "failed": 1}}, "Progressing", "1 failed"),
    "succeeded": ({"spec": {}, "status": {"succeeded": 1, "conditions": [DONE]}}, "Healthy", "Reached"),
    "failed": ({"spec": {}, "status": {"failed": 1, "conditions": [FAILED]}}, "Degraded", "exit code 78"),
    "ended for good": (
        {"metadata": RUN, "spec": {}, "status": {"failed": 1, "conditions": [FAILED]}},
        "Degraded",
        "cancelled, a duplicate of a run elsewhere, or failed for good: `launcher status sft-0123456789ab` says which. "
        "PodFailurePolicy: Container main failed with exit code 78",
    ),
    "a run that never ended by itself": (
        {"metadata": RUN, "spec": {}, "status": {"conditions": [condition("Failed", reason="DeadlineExceeded")]}},
        "Degraded",
        "DeadlineExceeded: ",
    ),
    "failing": (
        {"spec": {}, "status": {"active": 1, "conditions": [condition("FailureTarget", reason="DeadlineExceeded")]}},
        "Progressing",
        "DeadlineExceeded",
    ),
    "waits in Kueue": (
        {"metadata": QUEUE, "spec": {"suspend": True}, "status": {"conditions": [SUSPENDED]}},
        "Progressing",
        "queue team-a",
    ),
    "suspended by hand": (
        {"metadata": {"labels": {}}, "spec": {"suspend": True}, "status": {"conditions": [SUSPENDED]}},
        "Suspended",
        "by hand",
    ),
    "resumed by Kueue": (
        {"metadata": QUEUE, "spec": {"suspend": False}, "status": {"active": 1, "ready": 1, "conditions": [RESUMED]}},
        "Progressing",
        "1 active",
    ),
    "resumed, then succeeded": (
        {"metadata": QUEUE, "spec": {"suspend": False}, "status": {"conditions": [RESUMED, DONE]}},
        "Healthy",
        "Reached",
    ),
    "failing, then failed": (
        {"spec": {}, "status": {"conditions": [condition("FailureTarget", reason="DeadlineExceeded"), FAILED]}},
        "Degraded",
        "exit code 78",
    ),
    "resumed, then failed": (
        {"metadata": QUEUE, "spec": {"suspend": False}, "status": {"conditions": [RESUMED, FAILED]}},
        "Degraded",
        "PodFailurePolicy",
    ),
    "preempted by Kueue": (
        {"metadata": QUEUE, "spec": {"suspend": True}, "status": {"failed": 1, "conditions": [SUSPENDED]}},
        "Progressing",
        "queue team-a",
    ),
}
STAGES = [{"name": "data", "succeeded": 1}, {"name": "train", "active": 1, "ready": 1}, {"name": "eval"}]
JOBSETS: dict[str, tuple[dict[str, Any], str, str]] = {
    "never seen": ({"spec": {}}, "Progressing", "not started"),
    "running": (
        {"spec": {}, "status": {"replicatedJobsStatus": STAGES, "restarts": 2}},
        "Progressing",
        "data done, train running, eval waiting; restarts: 2",
    ),
    "waits in Kueue": ({"metadata": QUEUE, "spec": {"suspend": True}}, "Progressing", "queue team-a"),
    "resumed by Kueue": (
        {"metadata": QUEUE, "spec": {}, "status": {"conditions": [RESUMED], "replicatedJobsStatus": STAGES}},
        "Progressing",
        "train running",
    ),
    "suspended by hand": ({"metadata": {}, "spec": {"suspend": True}}, "Suspended", "by hand"),
    "completed": (
        {"spec": {}, "status": {"conditions": [condition("Completed", message="jobset completed")]}},
        "Healthy",
        "",
    ),
    "failed": (
        {"spec": {}, "status": {"conditions": [RESUMED, condition("Failed", reason="FailedJobs", message="gone")]}},
        "Degraded",
        "FailedJobs: gone",
    ),
    "a pipeline that failed": (
        {
            "metadata": {"labels": {"slipway.dev/pipeline": "login-0123456789ab"}},
            "spec": {},
            "status": {"conditions": [condition("Failed", reason="FailedJobs", message="gone")]},
        },
        "Degraded",
        "cancelled, a duplicate of a run elsewhere, or failed: `launcher status login-0123456789ab` says which. "
        "FailedJobs: gone",
    ),
}
RESERVED = condition("QuotaReserved", reason="QuotaReserved")
ADMITTED = condition("Admitted", reason="Admitted")
WORKLOADS: dict[str, tuple[dict[str, Any], str, str]] = {
    "new": ({"spec": {}}, "Progressing", "waits for quota"),
    "pending": (
        {
            "spec": {},
            "status": {
                "conditions": [condition("QuotaReserved", "False", "Pending", "insufficient quota for nvidia.com/gpu")]
            },
        },
        "Progressing",
        "insufficient quota",
    ),
    "admitted": ({"spec": {}, "status": {"conditions": [RESERVED, ADMITTED]}}, "Progressing", "admitted"),
    "evicted": (
        {
            "spec": {},
            "status": {
                "conditions": [
                    condition("Admitted", "False"),
                    condition("Evicted", reason="Preempted", message="Preempted to accommodate a workload"),
                ]
            },
        },
        "Progressing",
        "Preempted to accommodate",
    ),
    "evicted, then admitted again": (
        {"spec": {}, "status": {"conditions": [condition("Evicted"), RESERVED, ADMITTED]}},
        "Progressing",
        "admitted",
    ),
    "finished well": (
        {
            "spec": {},
            "status": {"conditions": [ADMITTED, condition("Finished", reason="Succeeded", message="Job finished")]},
        },
        "Healthy",
        "Job finished",
    ),
    "finished with an error": (
        {
            "spec": {},
            "status": {"conditions": [ADMITTED, condition("Finished", reason="Failed", message="exit code 78")]},
        },
        "Degraded",
        "exit code 78",
    ),
    "switched off": ({"spec": {"active": False}, "status": {"conditions": []}}, "Suspended", "switched off"),
}
CASES = [
    pytest.param(kind, *case, id=f"{kind}: {name}")
    for kind, table in ((JOB, JOBS), (JOBSET, JOBSETS), (WORKLOAD, WORKLOADS))
    for name, case in table.items()
]


@pytest.mark.parametrize(("kind", "found", "status", "words"), CASES)
def test_health(health: Health, kind: str, found: dict[str, Any], status: str, words: str) -> None:
    (said,) = health(kind, found)
    assert said["status"] == status
    assert words in said["message"]


statuses = st.sampled_from(["True", "False", "Unknown"])
ENDS = ("Complete", "Completed", "Failed", "Finished")
OTHERS = ("FailureTarget", "SuccessCriteriaMet", "Suspended", "Admitted", "Evicted", "QuotaReserved", "New")
kinds = st.sampled_from([*ENDS, *OTHERS])
conditions = st.lists(
    st.fixed_dictionaries({"type": kinds, "status": statuses}, optional={"reason": st.text(), "message": st.text()}),
    unique_by=lambda one: one["type"],
)
counts = st.integers(0, 5)
jobs = st.fixed_dictionaries(
    {"spec": st.fixed_dictionaries({}, optional={"suspend": st.booleans(), "active": st.booleans()})},
    optional={
        "metadata": st.sampled_from([{}, {"labels": {}}, QUEUE]),
        "status": st.fixed_dictionaries(
            {},
            optional={
                "conditions": conditions,
                **dict.fromkeys(("active", "ready", "succeeded", "failed", "restarts"), counts),
                "startTime": st.just("2026-11-21T21:00:00Z"),
                "replicatedJobsStatus": st.just(STAGES),
            },
        ),
    },
)


@pytest.mark.parametrize("kind", [JOB, JOBSET, WORKLOAD])
# many objects for each start of the program; making a list smaller would start it hundreds of times
@settings(
    max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(found=st.lists(jobs, min_size=10, max_size=60))
def test_any_object_gets_a_health_and_only_an_end_is_an_end(
    health: Health, kind: str, found: list[dict[str, Any]]
) -> None:
    """No script breaks on what is missing; nothing is Healthy or Degraded that has not ended."""
    ends = {JOB: {"Complete", "Failed"}, JOBSET: {"Completed", "Failed"}, WORKLOAD: {"Finished"}}[kind]
    for one, said in zip(found, health(kind, *found), strict=True):
        true = {each["type"] for each in one.get("status", {}).get("conditions", ()) if each["status"] == "True"}
        assert said["status"] in ("Healthy", "Degraded", "Progressing", "Suspended")
        assert (said["status"] in ("Healthy", "Degraded")) == bool(true & ends)
        assert said["message"] is not None


def test_the_scripts_use_no_library_that_argo_cd_closes() -> None:
    for kind in (JOB, JOBSET, WORKLOAD):
        code = "\n".join(line.partition("--")[0] for line in script(kind).splitlines())
        assert not [name for name in ("string.", "math.", "io.", "require") if name in code]
