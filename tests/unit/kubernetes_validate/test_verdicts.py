"""`validate` against the verdicts of a real API server on whole manifests (verdicts.py says where they come from)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from launcher.backends.kubernetes.check import policies, validate
from launcher.cli import main
from launcher.cli.verbs.validate import POLICIES
from tests.unit.kubernetes_validate.support import cases, line, spoiled
from tests.unit.kubernetes_validate.verdicts import ASKED, less, manifests, ours, verdicts

# sound manifests that were refused before, by a word in their key
ONCE_REFUSED = (
    "apps/v1/StatefulSet web",
    "batch/v1/Job pi: spec.podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}",
    "batch/v1/Job pi: spec.template.spec.serviceAccountName: ''",
    "batch/v1/Job pi: spec.completionMode: Indexed",
)
EXTERNAL = """\
apiVersion: external-secrets.io/v1
kind: ExternalSecret
metadata: {name: store}
spec: {refreshInterval: 1h}
"""
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


@pytest.mark.parametrize("version", ASKED)
def test_nothing_that_a_server_takes_is_refused_without_naming_a_house_policy(version: str) -> None:
    known = verdicts(version)
    assert len(known) >= 200
    refused = {}
    for manifest in manifests():
        if known[manifest.key] == "takes" and ours(manifest.value, version) != "takes":
            refused[manifest.key] = [line(item) for item in validate.findings(manifest.value, version)]
    assert refused == {}


@pytest.mark.parametrize(("version", "name"), [("1.33", "oldest"), ("1.34", "server")])
def test_the_same_of_the_single_changes(version: str, name: str) -> None:
    """A JobSet's server is its webhook, which is asked in tests/cluster/test_validation.py."""
    refused = {}
    for case in cases():
        value = spoiled(case)
        findings = validate.findings(value, version, validate.NO_POLICY)
        # the test posts to the kind's own address, where the kind may be missing; kubectl could not send it
        if findings and case.get(name, case.get("server")) in ("takes", "warns") and "kind" in value:
            refused[str(case)] = [line(item) for item in findings]
    assert refused == {}


def test_every_manifest_has_a_verdict_and_every_verdict_a_manifest() -> None:
    assert sorted(manifest.key for manifest in manifests()) == sorted(verdicts())


@pytest.mark.parametrize("version", ASKED)
def test_where_validate_says_less_is_known(version: str) -> None:
    """Each such manifest is named, with what the server says to it."""
    known = verdicts(version)
    unsaid = [one.key for one in manifests() if known[one.key] != "takes" and ours(one.value, version) == "takes"]
    assert sorted(unsaid) == sorted(less(version))


def test_bad_manifests_are_found() -> None:
    """It may say less than the server, but of what we render and ship it must say most."""
    known = verdicts()
    said: Counter[str] = Counter()
    for manifest in manifests():
        if known[manifest.key] == "refuses" and manifest.kind in ("batch/v1/Job", "v1/ConfigMap", "v1/Service"):
            said[ours(manifest.value)] += 1
    assert said["refuses"] > 9 * said["takes"]


@pytest.mark.parametrize("key", ONCE_REFUSED)
def test_sound_manifests_that_were_refused(key: str) -> None:
    value = {manifest.key: manifest.value for manifest in manifests()}[key]
    assert verdicts()[key] == "takes"
    assert [line(item) for item in validate.findings(value, policy=validate.NO_POLICY)] == []


def test_an_unknown_kind_is_passed_over_with_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{CONFIG}---\n{EXTERNAL}")
    assert main(["validate", str(file)]) == 0
    said = capsys.readouterr()
    assert said.err == (
        f"passed over: {file}:5: ExternalSecret `store` of `external-secrets.io/v1`: there is no schema of it here\n"
    )
    assert said.out.splitlines() == [
        "1 file, 1 object: no errors",
        "checked: the schemas of Kubernetes 1.34 and of the operators listed in the documentation, our rules for "
        "ConfigMap, the house policies digests, pod-security (restricted), fixed-names, no-effect, never-starts, "
        "server-side-apply, queues, repeated",
        "not checked: what was passed over (1); admission webhooks, quotas, permissions, and whether the objects exist "
        "that these name (`kubectl apply --dry-run=server` asks your cluster)",
    ]


def test_a_kind_that_kubernetes_does_not_have_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: batch/v1\nkind: Jobb\nmetadata: {name: a}\n")
    assert main(["validate", str(file)]) == 2
    assert f"{file}:2:7: kind: `Jobb` of `batch/v1` is not known here (did you mean `Job`?)" in capsys.readouterr().err


@pytest.mark.parametrize("policy", policies.ALL)
def test_each_house_policy_is_named_and_switched_off_by_its_name(policy: str) -> None:
    broken = [spoiled(case) for case in cases()]
    named = [value for value in broken if any(item.policy == policy for item in validate.findings(value))]
    if policy == policies.REPEATED:  # of a file, not of an object
        text = f"{CONFIG}---\n{CONFIG}"
        (problem,) = validate.problems({"x.yaml": text})
        assert problem.endswith("(house policy repeated); allowed: each object once")
        assert validate.problems({"x.yaml": text}, policy=validate.CheckPolicy(without=frozenset({policy}))) == []
        return
    if policy == policies.QUEUES:
        job = spoiled(
            {"of": "JOB", "set": {"metadata.labels": {"kueue.x-k8s.io/queue-name": "a"}, "spec.suspend": True}}
        )
        named = [job]
    assert named
    for value in named:
        off = validate.findings(value, policy=validate.CheckPolicy(without=frozenset({policy})))
        left = [item for item in validate.findings(value) if item.policy != policy]
        assert off == left


def test_the_verb_knows_every_house_policy() -> None:
    assert (*policies.ALL, "all") == POLICIES


def test_the_verb_switches_policies_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: b}]}\n")
    assert main(["validate", str(file)]) == 2
    said = capsys.readouterr().err
    assert "(house policy digests)" in said
    assert "(house policy pod-security)" in said
    assert main(["validate", str(file), "--without", "digests", "--without", "pod-security"]) == 0
    assert main(["validate", str(file), "--without", "all"]) == 0
    assert "no house policy" in capsys.readouterr().out
    with pytest.raises(SystemExit) as refused:
        main(["validate", str(file), "--without", "digest"])
    assert refused.value.code == 2
