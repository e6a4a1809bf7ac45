"""Where pods may run: topology, spot nodes, provisioning, GPUs by claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from launcher.backends.kubernetes.check.validate import problems
from launcher.backends.kubernetes.creating import offline
from launcher.backends.kubernetes.objects import files
from launcher.backends.kubernetes.render.manifests import objects, render
from launcher.errors import BadInput
from launcher.spec.hashing import run_id, work_hash
from launcher.spec.model import ResolvedJob, Resources
from launcher.spec.read.load import load
from tests.unit.kubernetes.support import container, job, needs, only, pods, reading, refused, role
from tests.unit.kubernetes_compare.test_tampering import inspected

RACK = "cloud.example.com/rack"


def pod(made: ResolvedJob) -> dict[str, Any]:
    """The pod template, which is valid and accepted as ours."""
    assert problems(render([made]).documents) == []
    (rendered,) = objects([made])
    assert inspected(list(rendered.documents), served=True) == ([], [])
    return pods(rendered.main)[0]


def ranks(**options: Any) -> ResolvedJob:
    return job(roles={"main": msgspec.structs.replace(needs(), replicas=4)}, options=options)


@pytest.mark.parametrize(
    ("topology", "annotation"),
    [
        ({"within": RACK}, "kueue.x-k8s.io/podset-preferred-topology"),
        ({"within": RACK, "required": False}, "kueue.x-k8s.io/podset-preferred-topology"),
        ({"within": RACK, "required": True}, "kueue.x-k8s.io/podset-required-topology"),
    ],
)
def test_ranks_close_to_each_other_are_asked_of_kueue(topology: dict[str, Any], annotation: str) -> None:
    made = pod(ranks(queue="team", topology=topology))
    asked = {key: value for key, value in made["metadata"]["annotations"].items() if "kueue" in key}
    assert asked == {annotation: RACK}
    assert "topologySpreadConstraints" not in made["spec"]


def test_ranks_are_spread_over_zones_only_when_asked() -> None:
    (default,) = pod(ranks())["spec"]["topologySpreadConstraints"]
    assert (default["topologyKey"], default["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    (asked,) = pod(ranks(spread="topology.kubernetes.io/zone"))["spec"]["topologySpreadConstraints"]
    assert (asked["topologyKey"], asked["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "DoNotSchedule")


def test_a_topology_needs_a_queue_and_no_spread() -> None:
    assert "allowed: with `queue`" in refused(ranks(topology={"within": RACK}))
    assert "one of them" in refused(ranks(queue="team", topology={"within": RACK}, spread=RACK))


@pytest.mark.parametrize(
    ("platform", "labels", "taint"),
    [  # "Use Spot VMs" of GKE's documentation; "Add a spot node pool" of AKS's
        ("gke", {"cloud.google.com/gke-spot": "true"}, ("cloud.google.com/gke-spot", "true")),
        (
            "aks",
            {"kubernetes.azure.com/scalesetpriority": "spot"},
            ("kubernetes.azure.com/scalesetpriority", "spot"),
        ),
    ],
)
def test_spot_is_one_word(platform: str, labels: dict[str, str], taint: tuple[str, str]) -> None:
    spec = pod(job(options={"spot": True, "platform": platform}))["spec"]
    assert spec["nodeSelector"] == labels
    assert {"key": taint[0], "operator": "Equal", "value": taint[1], "effect": "NoSchedule"} in spec["tolerations"]
    assert run_id(job(options={"spot": True, "platform": platform})) != run_id(job(options={"platform": platform}))


def alternatives(spec: dict[str, Any]) -> list[dict[str, list[str]]]:
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [{each["key"]: each["values"] for each in term["matchExpressions"]} for term in terms]


def test_spot_on_eks_is_a_label_of_either_provisioner_with_each_alternative_of_the_gpu() -> None:
    spec = pod(job(options={"spot": True, "platform": "eks"}))["spec"]
    managed, karpenter = {"eks.amazonaws.com/capacityType": ["SPOT"]}, {"karpenter.sh/capacity-type": ["spot"]}
    assert alternatives(spec) == [managed, karpenter]
    gpus = role(resources=Resources(memory=1 << 30, gpus=8, gpu="H100"))
    plain = alternatives(pod(job(roles={"main": gpus}, options={"platform": "eks"}))["spec"])
    both = alternatives(pod(job(roles={"main": gpus}, options={"spot": True, "platform": "eks"}))["spec"])
    assert len(plain) > 1
    assert both == [{**term, **spot} for term in plain for spot in (managed, karpenter)]


def test_spot_is_refused_where_no_name_is_known_or_where_it_contradicts() -> None:
    assert "`platform` one of aks, eks, gke" in refused(job(options={"spot": True}))
    selector = {"cloud.google.com/gke-spot": "false"}
    said = refused(job(options={"spot": True, "platform": "gke", "node_selector": selector}))
    assert "spot nodes have cloud.google.com/gke-spot=true" in said


def test_parameters_of_a_provisioning_request_are_annotations_of_the_object() -> None:
    """sigs.k8s.io/kueue, pkg/controller/constants: what follows the prefix is passed as a parameter."""
    made = job(options={"queue": "flex", "provisioning": {"maxRunDurationSeconds": "3600"}})
    assert pod(made)
    metadata = only([made]).main["metadata"]
    assert metadata["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"] == "3600"
    assert "allowed: with `queue`" in refused(job(options={"provisioning": {"a": "b"}}))


def test_gpus_by_claim_are_not_asked_of_a_device_plugin() -> None:
    gpus = role(resources=Resources(memory=1 << 30, gpus=8))
    made = pod(job(roles={"main": gpus}, options={"gpu_claim": "eight-gpus"}))
    assert made["spec"]["resourceClaims"] == [{"name": "gpus", "resourceClaimTemplateName": "eight-gpus"}]
    resources = container(made)["resources"]
    assert resources["claims"] == [{"name": "gpus"}]
    assert "nvidia.com/gpu" not in {**resources["requests"], **resources["limits"]}
    without = pod(job(options={"gpu_claim": "eight-gpus"}))
    assert "resourceClaims" not in without["spec"]
    assert "claims" not in container(without)["resources"]


class ServedGroups:
    """A cluster that serves some API groups, and was asked for nothing else."""

    def __init__(self, *groups: str) -> None:
        self.groups = groups

    def get(self, path: str) -> object:
        return object() if path.removeprefix("/apis/") in self.groups else None


def test_gpus_by_claim_are_sent_to_an_old_cluster_that_serves_claims() -> None:
    """1.33 has claims behind a switch that is off; where a platform team turned it on, the server keeps them."""
    made = [job(resources=Resources(memory=1 << 30, gpus=8), options={"gpu_claim": "eight-gpus"})]
    (file,) = files(render(made), "default").values()
    document = file.carrier
    without = offline(document, "1.33", ServedGroups())  # type: ignore[arg-type]
    assert any("resourceClaims: is removed by Kubernetes 1.33" in line for line in without)
    assert offline(document, "1.33", ServedGroups("resource.k8s.io")) == []  # type: ignore[arg-type]
    assert offline(document, "1.34", ServedGroups()) == []  # type: ignore[arg-type]


def test_efa_is_what_the_guide_of_eks_asks_for_and_only_for_ranks_with_gpus() -> None:
    """AWS, "Run machine learning training on Amazon EKS with Elastic Fabric Adapter": the worker of a p5.48xlarge."""
    roles = {
        "main": role(resources=Resources(memory=1 << 40, gpus=8), leader=True, replicas=2),
        "desk": needs(),
    }
    made = job(roles=roles, options={"fabric": {"kind": "efa", "interfaces": 32}, "platform": "eks"})
    assert pod(made)
    by_role = {each["metadata"]["labels"]["slipway.dev/role"]: container(each) for each in pods(only([made]).main)}
    for part in ("requests", "limits"):
        asked = by_role["main"]["resources"][part]
        assert (asked["vpc.amazonaws.com/efa"], asked["hugepages-2Mi"]) == ("32", "5120Mi")
        assert "vpc.amazonaws.com/efa" not in by_role["desk"]["resources"][part]
    variables = {each["name"]: each.get("value") for each in by_role["main"]["env"]}
    assert (variables["FI_PROVIDER"], variables["FI_EFA_USE_DEVICE_RDMA"]) == ("efa", "1")
    assert "FI_PROVIDER" not in {each["name"] for each in by_role["desk"]["env"]}


@pytest.mark.parametrize(("resource", "interfaces"), [("rdma/ib", 8), ("rdma/shared_ib", 1)])
def test_infiniband_is_what_microsofts_tests_of_aks_ask_for(resource: str, interfaces: int) -> None:
    """github.com/Azure/aks-rdma-infiniband, tests/scenarios/k8s/values.yaml: `resources` and `ncclEnvVars`."""
    roles = {
        "main": role(resources=Resources(memory=1 << 40, gpus=8), leader=True, replicas=2),
        "desk": needs(),
    }
    fabric = {"kind": "infiniband", "interfaces": interfaces, "resource": resource}
    made = job(roles=roles, options={"fabric": fabric, "platform": "aks"})
    by_role = {each["metadata"]["labels"]["slipway.dev/role"]: container(each) for each in pods(only([made]).main)}
    for part in ("requests", "limits"):
        assert by_role["main"]["resources"][part][resource] == str(interfaces)
        assert resource not in by_role["desk"]["resources"][part]
    variables = {each["name"]: each.get("value") for each in by_role["main"]["env"]}
    assert (variables["NCCL_IB_DISABLE"], variables["NCCL_NET_GDR_LEVEL"]) == ("0", "SYS")
    assert variables["NCCL_NET"] == "IB"  # NCCL's guide: no other network is tried
    assert "NCCL_NET" not in {each["name"] for each in by_role["desk"]["env"]}


GANG = "scheduler-plugins-scheduler"
POD_GROUP = "scheduling.x-k8s.io/pod-group"


def test_a_gang_is_a_pod_group_for_the_ranks_of_all_roles() -> None:
    """scheduler-plugins, "Coscheduling": pods with this label and scheduler wait for the PodGroup's `minMember`."""
    roles = {"main": role(leader=True, replicas=4), "desk": needs()}
    made = job(roles=roles, options={"gang": GANG, "namespace": "team"})
    assert pod(made)
    group, carrier = only([made]).documents
    assert (group["apiVersion"], group["kind"]) == ("scheduling.x-k8s.io/v1alpha1", "PodGroup")
    assert (group["metadata"]["name"], group["metadata"]["namespace"]) == (run_id(made), "team")
    assert group["spec"] == {"minMember": 5}
    assert {each["metadata"]["labels"][POD_GROUP] for each in pods(carrier)} == {run_id(made)}
    assert {each["spec"]["schedulerName"] for each in pods(carrier)} == {GANG}


def test_one_rank_needs_no_gang() -> None:
    """A profile may set it for all jobs."""
    made = job(options={"gang": GANG})
    rendered = pod(made)
    assert len(only([made]).documents) == 1
    assert POD_GROUP not in rendered["metadata"]["labels"]
    assert "schedulerName" not in rendered["spec"]


def test_each_stage_of_a_pipeline_is_a_gang_of_its_own() -> None:
    """They start one after another: one group of all would never be complete."""
    first = job("first", roles={"main": msgspec.structs.replace(needs(), replicas=2)}, options={"gang": GANG})
    second = job("second", inputs=reading(work_hash(first)), roles=ranks().roles, options={"gang": GANG})
    *groups, carrier = only([first, second]).documents
    assert {each["metadata"]["name"]: each["spec"]["minMember"] for each in groups} == {
        run_id(first): 2,
        run_id(second): 4,
    }
    assert {each["metadata"]["labels"][POD_GROUP] for each in pods(carrier)} == {run_id(first), run_id(second)}


def test_a_gang_is_not_for_a_queue() -> None:
    assert "one of `gang`, `queue`" in refused(ranks(gang=GANG, queue="team"))


def test_a_gang_that_was_edited_or_left_out_is_found() -> None:
    """Fewer members than ranks: some would start alone, and hold their GPUs."""
    group, carrier = only([ranks(gang=GANG)]).documents
    for there in ([{**group, "spec": {"minMember": 1}}, carrier], [carrier]):
        errors, _ = inspected(there, served=True)
        assert errors


@pytest.mark.parametrize(
    ("block", "field", "message"),
    [
        ("topology: {required: true}", "topology.within", "is missing"),
        ("topology: {within: a b}", "topology.within", "domain/name"),
        ("topology: rack", "topology", "a mapping of within, required"),
        ("spot: cheap", "spot", "true, false"),
        ("provisioning: {a b: c}", "provisioning.a b", "letters, digits"),
        (f"provisioning: {{a: {'b' * 256}}}", "provisioning.a", "at most 255"),
        ("fabric: {kind: roce, interfaces: 8}", "fabric.kind", "allowed: efa, infiniband"),
        ("fabric: {kind: infiniband, interfaces: 8}", "fabric.resource", "is missing"),
        ("fabric: {kind: infiniband, interfaces: 8, resource: ib}", "fabric.resource", "domain/name"),
        ("fabric: {kind: infiniband, interfaces: 8, resource: nvidia.com/gpu}", "fabric.resource", "domain/name"),
        ("fabric: {kind: efa, interfaces: 8, resource: rdma/ib}", "fabric.resource", "is for infiniband"),
        ("fabric: {kind: efa}", "fabric.interfaces", "is missing"),
        ("gpu_claim: A_B", "gpu_claim", "a-z, 0-9"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_line(block: str, field: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"name: x\ncommand: [x]\nbackend: kubernetes\nkubernetes:\n  {block}\n")
    with pytest.raises(BadInput) as caught:
        load([str(path)], cwd=tmp_path)
    assert str(caught.value).startswith(f"{path}:5:")
    assert f": kubernetes.{field}: " in str(caught.value)
    assert message in str(caught.value)
