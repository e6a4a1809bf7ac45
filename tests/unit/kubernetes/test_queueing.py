"""Kueue's queues as a cluster of another version answers, or one that refuses, or one without Kueue: no request leaves
this process. On a real cluster: tests/integration/kubernetes/test_queues.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from launcher.backends.kubernetes.api import ApiAnswer, ApiRefused
from launcher.backends.kubernetes.connection import Connection
from launcher.backends.kubernetes.queueing import listing, set_policy
from launcher.errors import BadInput, NotFound

GROUP = "/apis/kueue.x-k8s.io"


class FakeApi:
    """Answers from a table; a number is a refusal's status."""

    host = where = "https://cluster"

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []
        self.known: dict[str, tuple[float, bool]] = {}

    def request(self, method: str, path: str, **_: Any) -> ApiAnswer:
        import msgspec

        self.asked.append((method, path))
        answer = self.answers.get(path, 404)
        if isinstance(answer, int):
            raise ApiRefused(answer, "Forbidden", "user u may not", f"{method} {path}")
        return ApiAnswer(200, msgspec.json.encode(answer))

    def get(self, path: str, **_: Any) -> ApiAnswer | None:
        try:
            return self.request("GET", path)
        except ApiRefused as error:
            if error.status == 404:
                return None
            raise

    def pages(self, path: str, **_: Any) -> Iterator[Any]:
        answer = self.get(path)
        if answer is not None:
            yield answer.json()


class FakePlace(Connection):
    def __init__(self, answers: dict[str, Any]) -> None:
        super().__init__({"namespace": "ml"})
        self.fake = FakeApi(answers)

    @property
    def api(self) -> Any:
        return self.fake

    @property
    def login(self) -> Any:
        class Login:
            context = "office"

        return cast("Any", Login)


def served(*versions: str) -> dict[str, Any]:
    return {"kind": "APIGroup", "versions": [{"version": version} for version in versions]}


# the fields of Kueue 0.19's v1beta2 that are read (its CRDs, vendored in launcher/backends/kubernetes/schemas)
LOCAL = {
    "metadata": {"name": "team-a", "namespace": "ml"},
    "spec": {"clusterQueue": "all", "stopPolicy": "None"},
    "status": {"pendingWorkloads": 7, "reservingWorkloads": 2, "admittedWorkloads": 1},
}
CLUSTER: dict[str, Any] = {
    "metadata": {"name": "all"},
    "spec": {
        "cohortName": "team",
        "stopPolicy": "Hold",
        "resourceGroups": [
            {
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]}],
            }
        ],
    },
    "status": {
        "flavorsReservation": [
            {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "10", "borrowed": "2"}]}
        ]
    },
}


@pytest.mark.parametrize(
    ("versions", "asked"), [(("v1beta1", "v1beta2"), "v1beta2"), (("v1beta2",), "v1beta2"), (("v1beta1",), "v1beta1")]
)
def test_the_newest_version_that_is_served_is_read(versions: tuple[str, ...], asked: str) -> None:
    answers = {
        GROUP: served(*versions),
        f"{GROUP}/{asked}/namespaces/ml/localqueues": {"items": [LOCAL]},
        f"{GROUP}/{asked}/clusterqueues/all": CLUSTER,
    }
    (queue,) = listing(FakePlace(answers)).queues
    assert (queue.name, queue.cohort, queue.waiting, queue.running) == ("team-a", "team", 7, 2)
    assert (queue.state, queue.detail) == ("held", "stopPolicy Hold of its ClusterQueue")
    (quota,) = queue.quotas
    assert (quota.flavor, quota.quota, quota.used, quota.borrowed, quota.free) == ("h100", 8, 10, 2, 0)


def test_without_kueue_there_are_no_queues_and_a_line_says_so() -> None:
    place = FakePlace({})
    shown = listing(place)
    assert (shown.queues, len(shown.problems)) == ((), 1)
    assert "no Kueue" in shown.problems[0]
    with pytest.raises(NotFound, match="no Kueue"):
        set_policy(place, "team-a", "Hold", cluster_queue=False)


def test_each_missing_right_is_named_and_the_rest_is_shown() -> None:
    version = f"{GROUP}/v1beta1"
    answers: dict[str, Any] = {GROUP: served("v1beta1"), f"{version}/namespaces/ml/localqueues": 403}
    (problem,) = listing(FakePlace(answers)).problems
    assert "lacks the right to `list` localqueues.kueue.x-k8s.io in namespace ml" in problem
    answers |= {
        f"{version}/namespaces/ml/localqueues": {"items": [LOCAL]},
        f"{version}/clusterqueues/all": 403,
        f"{version}/namespaces/ml/workloads": 403,
    }
    shown = listing(FakePlace(answers))
    assert [(queue.waiting, queue.quotas, queue.ours) for queue in shown.queues] == [(7, (), ())]
    assert "`get` clusterqueues.kueue.x-k8s.io in the whole cluster (a ClusterRole)" in shown.problems[0]
    assert shown.problems[1].startswith("the runs in queue team-a are not known")
    answers[f"{version}/namespaces/ml/localqueues/team-a"] = 403
    with pytest.raises(BadInput, match="`patch` localqueues"):
        set_policy(FakePlace(answers), "team-a", "Hold", cluster_queue=False)
    with pytest.raises(NotFound, match="no ClusterQueue `other` in this cluster"):
        set_policy(FakePlace(answers), "other", "Hold", cluster_queue=True)


# shapes of Kueue 0.14
CHECKED = {**CLUSTER, "spec": {**CLUSTER["spec"], "admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}]}}}
BROKEN = {"type": "Active", "status": "False", "reason": "BadParametersRef", "message": "no config `gpus`"}


def waits(uid: str, *conditions: str, **status: Any) -> dict[str, Any]:
    checks = [{"name": "nodes", "state": "Pending", "message": "ETA 10 min"}, {"name": "license", "state": "Ready"}]
    true = [{"type": kind, "status": "True", "reason": "AdmissionCheck"} for kind in conditions]
    return {
        "metadata": {"name": f"job-{uid}", "ownerReferences": [{"uid": uid}]},
        "spec": {"queueName": "team-a"},
        "status": {"conditions": true, "admissionChecks": checks, **status},
    }


def test_checks_are_told_of_the_queue_and_of_each_run_that_waits_for_one() -> None:
    version = f"{GROUP}/v1beta1"
    runs = {uid: f"{uid}-0123456789ab" for uid in ("has-quota", "refused", "in-line", "elsewhere", "done")}
    jobs = [
        {"metadata": {"name": run, "uid": uid, "annotations": {"slipway.dev/runs": f'{{"{run}": "h"}}'}}}
        for uid, run in runs.items()
    ]
    workloads = [
        waits("has-quota", "QuotaReserved"),
        waits("refused", "Evicted"),
        waits("in-line"),
        waits("elsewhere", "QuotaReserved", clusterName="west"),
        waits("done", "QuotaReserved", "Finished"),
    ]
    answers: dict[str, Any] = {
        GROUP: served("v1beta1"),
        f"{version}/namespaces/ml/localqueues": {"items": [LOCAL]},
        f"{version}/clusterqueues/all": CHECKED,
        f"{version}/admissionchecks/nodes": {"status": {"conditions": [BROKEN]}},
        f"{version}/namespaces/ml/workloads": {"items": workloads},
        "/apis/batch/v1/namespaces/ml/jobs": {"items": jobs},
    }
    (queue,) = listing(FakePlace(answers)).queues
    assert [(each.name, each.state, each.message) for each in queue.checks] == [
        ("nodes", "inactive", "no config `gpus`")
    ]
    told = {each.run: (each.position, [(check.name, check.state) for check in each.checks]) for each in queue.ours}
    assert told[runs["has-quota"]] == (None, [("nodes", "Pending")])
    assert told[runs["refused"]][1] == [("nodes", "Pending")]
    assert told[runs["in-line"]][1] == []
    assert runs["elsewhere"] not in told
    assert runs["done"] not in told
    # without the right to read a check it has no state, and a line names the right
    answers[f"{version}/admissionchecks/nodes"] = 403
    shown = listing(FakePlace(answers))
    assert [(each.name, each.state) for each in shown.queues[0].checks] == [("nodes", "")]
    assert (
        "admission check nodes is not known: this login lacks the right to `get` admissionchecks" in shown.problems[0]
    )
    answers[f"{version}/admissionchecks/nodes"] = 404
    (queue,) = listing(FakePlace(answers)).queues
    assert queue.checks[0].message == "there is no AdmissionCheck of that name"
