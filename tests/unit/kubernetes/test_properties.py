"""What is true of any jobs: what is rendered is legal, restricted, readable, and starts exactly what was asked for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.render.manifests import Object, objects, render
from launcher.backends.kubernetes.render.pod import escape, unescape
from launcher.runtime.settings import MemberAddress
from launcher.spec.hashing import decode_job, run_hash, run_id
from launcher.spec.model import ResolvedJob
from tests.unit.kubernetes.strategies import TEXTS, groups, jobs
from tests.unit.kubernetes.support import container, environment, job, only, parsed, pods, reading

ANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def unique(group: list[ResolvedJob]) -> list[ResolvedJob]:
    return list({run_id(one): one for one in group}.values())


@ANY
@given(groups())
def test_what_is_written_reads_as_what_is_sent(group: list[ResolvedJob]) -> None:
    texts = render(group).documents
    assert {one.file: list(one.documents) for one in objects(group)} == {n: parsed(text) for n, text in texts.items()}


@ANY
@given(groups())
def test_a_cluster_takes_it(group: list[ResolvedJob]) -> None:
    """Fields, names, label values, quantities, sizes, Pod Security: by the schemas and the rules of the API server."""
    for one in objects(group):
        for document in one.documents:
            assert validate.findings(document) == []


@ANY
@given(groups())
def test_every_container_is_restricted(group: list[ResolvedJob]) -> None:
    for one in objects(group):
        for pod in pods(one.main):
            around, own = pod["spec"]["securityContext"], container(pod)["securityContext"]
            assert around["runAsNonRoot"] is True
            assert around["runAsUser"] == 1000
            assert around["seccompProfile"] == {"type": "RuntimeDefault"}
            assert own["allowPrivilegeEscalation"] is False
            assert own["capabilities"] == {"drop": ["ALL"]}
            assert own["readOnlyRootFilesystem"] is True
            assert "privileged" not in own
            assert {"/work", "/tmp"} <= {mount["mountPath"] for mount in container(pod)["volumeMounts"]}
            kinds = {next(key for key in volume if key != "name") for volume in pod["spec"]["volumes"]}
            # csi: a bucket as a folder, which Pod Security `restricted` allows
            assert kinds <= {"emptyDir", "configMap", "csi", "projected", "persistentVolumeClaim"}


def started(one: Object, folder: Path) -> Iterator[tuple[MemberAddress, ResolvedJob]]:
    """What the runtime finds in each pod of an object."""
    data: dict[str, dict[str, str]] = {
        document["metadata"]["name"]: document["data"] for document in one.documents[:-1]
    }
    for number, pod in enumerate(pods(one.main)):
        spec = one.main["spec"]
        owner = spec if one.main["kind"] == "Job" else spec["replicatedJobs"][number]["template"]["spec"]
        for index in range(owner.get("completions", 1)):
            labels = {
                names.CONTROLLER_UID: "uid-of-job",
                names.JOBSET_UID: "uid-of-set",
                names.RESTART: "3",
                names.COMPLETION_INDEX: str(index),
            }
            found = environment(pod, labels, podIP="10.0.0.7", name="the-pod")
            if "SLIPWAY_JOB_FILE" in found:
                key = found["SLIPWAY_JOB_FILE"].removeprefix(f"{names.JOBS}/")
                (text,) = [data[name][key] for name in mounted(pod) if key in data[name]]
                path = folder / "job.json"
                path.write_text(text, encoding="utf-8")
                found["SLIPWAY_JOB_FILE"] = str(path)
            address = MemberAddress.read(found)
            assert address.job is not None
            yield address, decode_job(address.job)


def mounted(pod: Mapping[str, Any]) -> list[str]:
    """The ConfigMaps that a pod sees."""
    found = []
    for volume in pod["spec"]["volumes"]:
        sources = volume.get("projected", {}).get("sources", [volume])
        found += [source["configMap"]["name"] for source in sources if "configMap" in source]
    return found


@ANY
@given(groups())
def test_each_rank_of_each_run_is_started_once_with_its_own_job(
    tmp_path_factory: Any, group: list[ResolvedJob]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    seen: Counter[tuple[str, str]] = Counter()
    for one in objects(group):
        for address, found in started(one, folder):
            assert run_id(found) == address.run
            assert run_hash(found) == one.runs[address.run]
            assert address.store == found.store
            assert address.placement.container == "the-pod"
            if one.main["kind"] == "Job":
                assert (address.placement.kind, address.placement.where) == ("job", "uid-of-job")
                assert address.placement.host == "10.0.0.7"
            else:
                assert (address.placement.kind, address.placement.where) == ("set", "uid-of-set")
                assert address.placement.generation == 3
            seen[address.run, address.member] += 1
    assert seen == Counter((run_id(one), member) for one in unique(group) for member in one.members())


@ANY
@given(groups())
def test_every_run_has_its_file(group: list[ResolvedJob]) -> None:
    rendered = render(group)
    assert set(rendered.objects) == {run_id(one) for one in group}
    assert set(rendered.objects.values()) == set(rendered.documents)
    for one in objects(group):
        annotations = one.main["metadata"]["annotations"]
        assert json.loads(annotations[names.RUNS]) == dict(one.runs)
        assert annotations[names.FINGERPRINT] == one.fingerprint
        assert one.name.endswith(one.fingerprint[:12])


@ANY
@given(jobs(), jobs())
def test_the_fingerprint_changes_when_the_run_does(one: ResolvedJob, other: ResolvedJob) -> None:
    same = run_hash(one) == run_hash(other)
    assert (only([one]).fingerprint == only([other]).fingerprint) == same
    assert (only([one]).name == only([other]).name) == same
    assert only([one]).fingerprint == run_hash(one)


def test_what_is_for_people_only_changes_no_object() -> None:
    plain = job(inputs=reading("a" * 64))
    told = msgspec.structs.replace(
        plain,
        variant={"lr": 1},
        inputs={"in0": msgspec.structs.replace(plain.inputs["in0"], job="pretrain")},
    )
    assert (only([plain]).name, only([plain]).fingerprint) == (only([told]).name, only([told]).fingerprint)


@ANY
@given(TEXTS)
def test_a_value_reaches_the_container_as_it_is(text: str) -> None:
    pod = {"metadata": {"labels": {}}, "spec": {"containers": [{"env": [{"name": "X", "value": escape(text)}]}]}}
    assert environment(pod, {})["X"] == text
    assert unescape(escape(text)) == text


@ANY
@given(jobs())
def test_no_secret_has_a_value_here(one: ResolvedJob) -> None:
    for made in objects([one]):
        for pod in pods(made.main):
            for variable in container(pod)["env"]:
                assert (variable["name"] in one.secrets) == ("secretKeyRef" in variable.get("valueFrom", {}))
