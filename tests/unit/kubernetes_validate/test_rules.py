"""Every rule by a wrong example, with the whole message (rules.yaml; update: the command in its first line)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from launcher.backends.kubernetes import schemas
from tests.support.cases import every_case
from tests.unit.kubernetes_validate.support import BASES, JOB, JOB_SET, cases, changed, said, spoiled

CASES = cases()
POD = "spec.template.spec"


@every_case("case", CASES, ids=lambda case: f"{case['of']}-{case.get('drop') or next(iter(case['set']))}")
def test_what_is_said(case: dict[str, Any]) -> None:
    assert case["says"]
    assert said(spoiled(case)) == case["says"]


@pytest.mark.parametrize("version", schemas.VERSIONS)
@every_case("name", BASES)
def test_of_sound_objects_nothing_is_said(name: str, version: str) -> None:
    assert said(BASES[name], version) == []


def test_every_kind_of_object_is_spoiled() -> None:
    assert {case["of"] for case in CASES} == set(BASES)


def test_annotations_have_a_limit_together() -> None:
    fits = changed(JOB, "metadata.annotations", {"x": "y" * 262_143})
    assert said(fits) == []
    over = changed(JOB, "metadata.annotations", {"x": "y" * 131_072, "z": "y" * 131_071})
    assert said(over) == ["metadata.annotations: 262,145 bytes of annotations; allowed: at most 262,144"]


def test_values_have_a_limit_together() -> None:
    value = changed(BASES["CONFIG_MAP"], "data", {"a": "x" * (1 << 19), "b": "ä" * (1 << 18)})
    assert said(value) == ["data: 1,048,582 bytes; allowed: at most 1,048,576"]


def test_etcd_has_a_limit() -> None:
    arguments = ["x" * 1000] * 1600
    over = changed(JOB, f"{POD}.containers.0.args", arguments)
    size = len(json.dumps(over, separators=(",", ":")))
    assert said(over) == [f"{size:,} bytes; allowed: at most 1,572,864 in etcd"]


def test_a_failure_policy_has_twenty_rules() -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert said(changed(JOB, "spec.podFailurePolicy.rules", [rule] * 20)) == []
    assert said(changed(JOB, "spec.podFailurePolicy.rules", [rule] * 21)) == [
        "spec.podFailurePolicy.rules: 21 rules; allowed: at most 20"
    ]


def test_kueue_needs_requests_and_sets_suspend_itself() -> None:
    queued = changed(JOB, "metadata.labels", {"kueue.x-k8s.io/queue-name": "team-a"})
    assert said(queued) == []
    assert said(changed(queued, "spec.suspend", True)) == [
        "spec.suspend: is Kueue's to set (house policy queues); allowed: leave it out"
    ]
    assert said(changed(queued, f"{POD}.containers.0.resources.requests.cpu", ...)) == [
        "spec.template.spec.containers[0]: asks for no cpu, and Kueue counts requests (house policy queues); "
        "allowed: resources.requests.cpu"
    ]


def test_a_service_may_begin_with_a_digit_since_1_36() -> None:
    service = changed(BASES["SERVICE"], "metadata.name", "1serve")
    assert [bool(said(service, version)) for version in ("1.35", "1.36", "1.37")] == [True, False, False]
    assert said(changed(service, "metadata.name", "1_serve"), "1.37")


def test_fields_of_a_later_version_are_unknown_to_an_earlier_one() -> None:
    value = changed(JOB, f"{POD}.hostnameOverride", "x")  # alpha since 1.34
    assert said(value, "1.34") == []
    assert [one.partition(";")[0] for one in said(value, "1.33")] == [
        "spec.template.spec.hostnameOverride: unknown field (did you mean `hostname`?)"
    ]


def test_hosts_in_probes_are_refused_since_1_34() -> None:
    value = changed(JOB, f"{POD}.containers.0.readinessProbe.httpGet.host", "10.0.0.1")
    assert said(value, "1.33") == []
    assert len(said(value, "1.34")) == len(said(value, "1.35")) == 1


@pytest.mark.parametrize(
    ("level", "count"),
    [("privileged", 0), ("baseline", 2), ("restricted", 4)],
    ids=["privileged", "baseline", "restricted"],
)
def test_levels_of_pod_security(level: str, count: int) -> None:
    value = changed(JOB, f"{POD}.hostNetwork", True)
    value = changed(value, f"{POD}.containers.0.securityContext.privileged", True)
    # a privileged container has all privileges, and a server refuses one that says otherwise
    value = changed(value, f"{POD}.containers.0.securityContext.allowPrivilegeEscalation", ...)
    value = changed(value, f"{POD}.containers.0.securityContext.runAsUser", 0)
    assert len(said(value, level=level)) == count


def test_tags_can_be_allowed() -> None:
    value = changed(JOB, f"{POD}.containers.0.image", "registry.example.com/x:1")
    assert len(said(value)) == 1
    assert said(value, without=frozenset({"digests"})) == []


def test_indexed_is_a_job_sets_default() -> None:
    """Completions may be missing where the mode is, because JobSet fills in the mode alone."""
    path = "spec.replicatedJobs.0.template.spec"
    value = changed(changed(JOB_SET, f"{path}.completionMode", ...), "metadata.name", "t" * 42)
    assert said(value) == []
    longer = changed(value, "metadata.name", "t" * 47)
    assert said(longer) == [
        f"spec.replicatedJobs[0].name: its last pod would be called {'t' * 47}-server-0-1-abcde, 64 characters; "
        "allowed: at most 63"
    ]
