"""What one pod is told, given and allowed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.backends.kubernetes.check.forms import VALUE
from launcher.backends.kubernetes.render.accelerators import INSTANCE, PLATFORMS, known, selection
from launcher.backends.kubernetes.render.manifests import objects, warnings
from launcher.backends.kubernetes.render.pod import cores, quantity
from launcher.spec.model import Image, Input, Limits, ResolvedJob
from tests.unit.kubernetes.support import DIGEST, container, job, needs, only, pods, refused, role


def pod(one: ResolvedJob) -> dict[str, Any]:
    (found,) = pods(only([one]).main)
    return found


def test_memory_disk_and_gpus_are_bounded_and_cpu_is_only_asked_for() -> None:
    one = job(roles={"main": needs(cpus=1.5, memory=3 << 30, gpus=2, disk=10**12, shm=1 << 29)})
    found = container(pod(one))["resources"]
    bounded = {"memory": "3Gi", "ephemeral-storage": "1T", "nvidia.com/gpu": "2"}
    assert found == {"requests": {"cpu": "1500m", **bounded}, "limits": bounded}


def test_a_device_is_asked_for_by_every_rank_and_takes_no_privilege() -> None:
    one = job(roles={"main": needs(cpus=1)}, options={"devices": {"devices.kubevirt.io/kvm": 1}})
    found = container(pod(one))
    assert [found["resources"][part]["devices.kubevirt.io/kvm"] for part in ("requests", "limits")] == ["1", "1"]
    assert found["securityContext"]["allowPrivilegeEscalation"] is False


def test_volumes_are_as_big_as_was_asked_for() -> None:
    found = pod(job(roles={"main": needs(disk=5 << 30, shm=1 << 29)}))["spec"]
    assert {mount["mountPath"]: mount["name"] for mount in container({"spec": found})["volumeMounts"]} == {
        "/work": "work",
        "/tmp": "tmp",
        "/dev/shm": "shm",
    }
    assert {volume["name"]: volume["emptyDir"] for volume in found["volumes"]} == {
        "work": {"sizeLimit": "5Gi"},
        "tmp": {},
        "shm": {"medium": "Memory", "sizeLimit": "512Mi"},
    }


def test_without_shm_the_engines_own_stays() -> None:
    assert "/dev/shm" not in {mount["mountPath"] for mount in container(pod(job()))["volumeMounts"]}


@given(st.integers(1, 1 << 50))
def test_a_quantity_is_exactly_its_bytes(size: int) -> None:
    units = {
        "Ki": 1 << 10,
        "Mi": 1 << 20,
        "Gi": 1 << 30,
        "Ti": 1 << 40,
        "k": 10**3,
        "M": 10**6,
        "G": 10**9,
        "T": 10**12,
    }
    text = quantity(size)
    number = text.rstrip("KMGTik")
    assert int(number) * units.get(text[len(number) :], 1) == size


@pytest.mark.parametrize(
    ("cpus", "text"), [(1.0, "1"), (0.5, "500m"), (96.0, "96"), (0.0001, "1m"), (0.1 + 0.2, "300m")]
)
def test_cores(cpus: float, text: str) -> None:
    assert cores(cpus) == text


def test_an_image_is_named_by_its_digest_alone() -> None:
    made = job(image=Image("registry.example.com:5000/team/image:1.2", DIGEST))
    assert container(pod(made))["image"] == f"registry.example.com:5000/team/image@{DIGEST}"


def test_deadline_and_grace_leave_the_runtime_its_time() -> None:
    spec = pod(job(limits=Limits(deadline=600.5, grace=45.2)))["spec"]
    assert spec["terminationGracePeriodSeconds"] == 101  # twice 45.2, and ten
    assert spec["activeDeadlineSeconds"] > 600 + 900 + 101  # what runs, what is waited for, what is flushed
    assert "activeDeadlineSeconds" not in only([job()]).main["spec"]


def test_a_token_is_there_only_for_a_named_account() -> None:
    assert pod(job())["spec"]["automountServiceAccountToken"] is False
    named = pod(job(options={"service_account": "trainer"}))
    assert named["spec"]["serviceAccountName"] == "trainer"
    assert named["spec"]["automountServiceAccountToken"] is False
    assert "azure.workload.identity/use" not in named["metadata"]["labels"]
    azure = pod(job(options={"service_account": "trainer", "platform": "aks"}))
    assert azure["metadata"]["labels"]["azure.workload.identity/use"] == "true"


def test_secrets_come_by_reference() -> None:
    one = job(secrets={"HF_TOKEN": "hugging.face/token"}, options={"store_secret": "store"})
    found = container(pod(one))
    reference = {"secretKeyRef": {"name": "hugging.face", "key": "token"}}
    assert {"name": "HF_TOKEN", "valueFrom": reference} in found["env"]
    assert found["envFrom"] == [{"secretRef": {"name": "store"}}]


@pytest.mark.parametrize("place", ["local", "hf", "Hf/token", "hf/", "/token", "hf/to ken", "vault://hf/token"])
def test_a_secret_that_lives_nowhere_in_a_cluster_is_refused_with_a_way_out(place: str) -> None:
    said = refused(job(secrets={"HF_TOKEN": place}))
    assert "`HF_TOKEN`" in said
    assert "kubernetes: {secrets: {HF_TOKEN: my-secret/HF_TOKEN}}" in said


def test_a_secret_may_have_a_name_that_is_ours() -> None:
    found = [variable["name"] for variable in container(pod(job(secrets={"HOME": "a/b"})))["env"]]
    assert found.count("HOME") == 1


def test_the_block_reaches_the_pod() -> None:
    options = {
        "namespace": "ml",
        "queue": "team-a",
        "queue_priority": "urgent",
        "priority_class": "high",
        "runtime_class": "nvidia",
        "image_pull_secrets": ["one", "two"],
        "node_selector": {"disk": "fast"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "caches": [{"name": "hf", "path": "/cache", "read_only": True}, {"name": "hf", "path": "/other"}],
        "ttl": 90.5,
    }
    made = only([job(options=options, labels={"team": "x"})]).main
    spec = made["spec"]["template"]["spec"]
    assert made["metadata"]["namespace"] == "ml"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "urgent"
    assert made["metadata"]["labels"]["slipway.dev/label-team"] == "x"
    assert made["spec"]["ttlSecondsAfterFinished"] == 91
    assert "suspend" not in made["spec"]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("high", "nvidia")
    assert spec["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert spec["nodeSelector"] == {"disk": "fast"}
    assert spec["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert {"name": "cache-0", "persistentVolumeClaim": {"claimName": "hf", "readOnly": True}} in spec["volumes"]
    assert {"name": "cache-1", "mountPath": "/other"} in container({"spec": spec})["volumeMounts"]


def test_host_network_is_given_and_warned_of() -> None:
    one = job(options={"host_network": True})
    spec = pod(one)["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "restricted" in "".join(warnings([one]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"options": {"caches": [{"name": "a", "path": "/work/"}]}}, "/work/"),
        ({"options": {"caches": [{"name": "a", "path": "/x"}, {"name": "b", "path": "/x"}]}}, "/x"),
        ({"options": {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}}, "no `value`"),
        ({"options": {"tolerations": [{"value": "b"}]}}, "`operator: Exists`"),
        ({"options": {"tolerations": [{"key": "a", "tolerationSeconds": 5}]}}, "NoExecute"),
        ({"labels": {"k" * 58: "v"}}, "at most 57"),
        ({"options": {"queue_priority": "high"}}, "is in no queue"),
        ({"store": "file:///home/me/store"}, "s3://"),
    ],
)
def test_what_no_cluster_takes_is_refused(changes: dict[str, Any], said: str) -> None:
    assert said in refused(job(**changes))


def test_a_store_on_a_mounted_volume_is_fine() -> None:
    mounted = {"caches": [{"name": "store", "path": "/store"}]}
    assert objects([job(store="file:///store/runs", options=mounted)])


def test_what_is_seldom_meant_is_warned_of() -> None:
    assert warnings([job()]) == ()
    assert "no resources.memory" in "".join(warnings([job(roles={"main": needs(memory=None)})]))
    assert "counts as memory" in "".join(warnings([job(roles={"main": needs(memory=1 << 30, shm=1 << 30)})]))
    assert "inputs.x" in "".join(warnings([job(inputs={"x": Input(url="file:///data")})]))


def test_ports_are_told_as_far_as_they_are_known() -> None:
    ports = {"http": 8000, "same": 8000, "any": 0, "odd--name": 81}
    assert container(pod(job(ports=ports)))["ports"] == [{"name": "http", "containerPort": 8000}]


# accelerators


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_gpu_of_the_table_selects_by_legal_labels(platform: str) -> None:
    assert {"H100", "A100", "A100-80GB", "T4"} <= set(known(platform))
    for gpu in known(platform):
        labels, terms = selection(gpu, {"platform": platform})
        assert bool(labels) != bool(terms)
        values = [*labels.values()]
        for term in terms:
            (expression,) = term["matchExpressions"]
            assert expression["operator"] == "In"
            assert len(set(expression["values"])) == len(expression["values"])
            values += expression["values"]
        assert all(VALUE.pattern.fullmatch(value) for value in values)


def test_any_gpu_needs_no_label_and_the_nodes_taint_is_tolerated() -> None:
    spec = pod(job(roles={"main": needs(gpus=1)}))["spec"]
    assert not {"nodeSelector", "affinity"} & set(spec)
    assert spec["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert "tolerations" not in pod(job())["spec"]


def test_one_label_selects_several_are_alternatives() -> None:
    on_gke = {"platform": "gke"}
    spec = pod(job(roles={"main": needs(gpus=1, gpu="L4")}, options=on_gke))["spec"]
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
    spec = pod(job(roles={"main": needs(gpus=8, gpu="H100")}, options={"platform": "eks"}))["spec"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = [term["matchExpressions"][0]["key"] for term in required["nodeSelectorTerms"]]
    assert keys == [INSTANCE, "karpenter.k8s.aws/instance-gpu-name", "eks.amazonaws.com/instance-gpu-name"]


def test_the_table_is_the_users_to_extend() -> None:
    own = {"accelerators": {"MI300": {"example.com/gpu": "mi300"}, "H100": {"pool": "h100"}}, "platform": "gke"}
    for gpu, label in (("MI300", {"example.com/gpu": "mi300"}), ("H100", {"pool": "h100"})):
        assert pod(job(roles={"main": needs(gpus=1, gpu=gpu)}, options=own))["spec"]["nodeSelector"] == label


def test_an_unknown_gpu_is_refused_with_what_there_is_and_how_to_add_one() -> None:
    said = refused(job(roles={"main": needs(gpus=1, gpu="MI300")}, options={"platform": "gke"}))
    assert "`MI300`" in said
    assert "H100" in said
    assert "kubernetes: {accelerators: {MI300: {LABEL: VALUE}}}" in said


def test_a_selector_that_contradicts_the_gpu_is_refused() -> None:
    options = {"platform": "gke", "node_selector": {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"}}
    assert "nvidia-l4" in refused(job(roles={"main": needs(gpus=1, gpu="L4")}, options=options))


def test_ranks_are_spread_softly_by_host_or_strictly_as_told() -> None:
    wish = pod(job(replicas=2))["spec"]["topologySpreadConstraints"]
    must = pod(job(replicas=2, options={"spread": "zone"}))["spec"]["topologySpreadConstraints"]
    assert [(one["topologyKey"], one["whenUnsatisfiable"]) for one in (*wish, *must)] == [
        ("kubernetes.io/hostname", "ScheduleAnyway"),
        ("zone", "DoNotSchedule"),
    ]
    labels = pod(job(replicas=2))["metadata"]["labels"]
    assert wish[0]["labelSelector"]["matchLabels"].items() <= labels.items()
    assert "topologySpreadConstraints" not in pod(job(roles={"main": role()}))["spec"]
