"""k8s/ as kustomize builds it: every folder builds, and what comes out is what a cluster takes and what we promise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes import schemas
from launcher.backends.kubernetes.check import validate
from launcher.backends.kubernetes.names import RUN
from launcher.cluster import plan
from launcher.cluster.additions import ADDITIONS
from tests.integration.k8s_tree.building import (
    COMPONENTS,
    FOLDERS,
    OVERLAYS,
    ROOT,
    TREE,
    kubectl,
    name,
    objects,
    of_kind,
    pods,
    text,
)
from tests.support.cases import every_case
from tests.support.needs import need

# names that an overlay replaces by an image with its digest; the tree can not know it
NAMED = {"slipway-cpu", "vllm-serve", "oauth2-proxy", "generic-device-plugin", plan.STORE_IMAGE}
# kinds whose schemas are not among ours: Prometheus' operator's are looked at by hand
UNCHECKED = ("monitoring.coreos.com/v1",)
RULES = yaml.safe_load((TREE / "components/monitoring/rules.yaml").read_text())


def test_there_is_what_the_issue_names() -> None:
    assert {"kueue", "jobset", "gpu", "kvm", "store", "monitor", "monitoring"} <= set(COMPONENTS)
    assert {"kind", "gke", "eks", "aks", "plain", "on-prem"} <= set(OVERLAYS)


@pytest.mark.parametrize("version", schemas.VERSIONS)
@every_case("folder", FOLDERS)
def test_a_cluster_takes_it(folder: str, version: str) -> None:
    """Strict schemas of every minor version, and the rules beyond them; Pod Security where the namespace says it."""
    checked = [one for one in objects(folder) if one["apiVersion"] not in UNCHECKED]
    tags = validate.CheckPolicy(without=frozenset({"digests"}))
    found = validate.problems({f"{folder}.yaml": yaml.safe_dump_all(checked, sort_keys=False)}, version, tags)
    assert not found


def test_everything_but_prometheus_has_a_schema() -> None:
    left = {one["apiVersion"] for folder in FOLDERS for one in objects(folder)} & set(UNCHECKED)
    assert left == set(UNCHECKED)


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_is_in_an_overlay(component: str) -> None:
    used = [
        path
        for path in (TREE / "overlays").glob("*/kustomization.yaml")
        if f"components/{component}\n" in path.read_text()
    ]
    assert used


@every_case("folder", FOLDERS)
def test_no_object_stands_twice(folder: str) -> None:
    names = [name(one) for one in objects(folder)]
    assert len(names) == len(set(names))


@every_case("folder", FOLDERS)
def test_what_is_named_is_there(folder: str) -> None:
    """Volumes, accounts, roles, ConfigMaps, claims: nothing points to what no folder brings."""
    base = {name(one) for one in (*objects(folder), *objects("base"), *objects("reaper"))}
    missing = []
    for one in objects(folder):
        namespace = one["metadata"].get("namespace", "")
        if one["kind"] == "RoleBinding":
            missing.append(f"{one['roleRef']['kind']}/{namespace}/{one['roleRef']['name']}")
            missing += [
                f"ServiceAccount/{each['namespace']}/{each['name']}"
                for each in one["subjects"]
                if each["kind"] == "ServiceAccount"
            ]
        template = pods(one)
        if template is None:
            continue
        spec = template["spec"]
        missing.append(f"ServiceAccount/{namespace}/{spec.get('serviceAccountName', 'default')}")
        for volume in spec.get("volumes", ()):
            if "configMap" in volume:
                missing.append(f"ConfigMap/{namespace}/{volume['configMap']['name']}")
            if "persistentVolumeClaim" in volume:
                missing.append(f"PersistentVolumeClaim/{namespace}/{volume['persistentVolumeClaim']['claimName']}")
    assert {one for one in missing if not one.endswith("/default")} - base == set()


@every_case("folder", FOLDERS)
def test_pods_have_no_token_but_the_reaper(folder: str) -> None:
    for one in objects(folder):
        template = pods(one)
        if template is not None:
            assert template["spec"]["automountServiceAccountToken"] is (one["metadata"]["name"] == "slipway-reaper")
        if one["kind"] == "ServiceAccount":
            assert one["automountServiceAccountToken"] is False


@every_case("folder", FOLDERS)
def test_only_the_device_plugin_is_privileged_and_its_namespace_has_nothing_else(folder: str) -> None:
    for one in objects(folder):
        template = pods(one)
        said = json.dumps(template)
        if template is not None and ('"privileged": true' in said or "hostPath" in said):
            assert name(one) == "DaemonSet/slipway-devices/kvm-device-plugin"
        if one["kind"] == "Namespace" and one["metadata"]["name"] != "slipway-devices":
            assert one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    there = {one["kind"] for one in objects(folder) if one["metadata"].get("namespace") == "slipway-devices"}
    assert there <= {"ServiceAccount", "DaemonSet"}


@every_case("folder", FOLDERS)
def test_no_secret_and_no_key_lies_in_the_tree(folder: str) -> None:
    assert not of_kind(folder, "Secret")
    from launcher.spec.values.problems import Problems
    from launcher.spec.values.source import read_text
    from launcher.spec.values.types import (
        Context,
        refuse_tokens,  # the same that refuses them in a job
    )

    found = Problems()
    for document in read_text(text(folder), folder, found):
        refuse_tokens(Context(document, found), document.value)
    assert not [problem for problem in found.found if "token" in problem.what or "key" in problem.what]


@every_case("folder", FOLDERS)
def test_images_are_pinned_or_named_for_an_overlay_to_pin(folder: str) -> None:
    for one in objects(folder):
        template = pods(one)
        for container in (template or {"spec": {"containers": []}})["spec"]["containers"]:
            assert "@sha256:" in container["image"] or container["image"] in NAMED


def test_every_role_is_small() -> None:
    """No wildcard, no secret, no node, no right on roles; of the whole cluster only a look at one ClusterQueue."""
    roles = [one for folder in FOLDERS for one in objects(folder) if one["kind"] in ("Role", "ClusterRole")]
    assert roles
    for one in roles:
        if one["kind"] == "ClusterRole":
            (rule,) = one["rules"]
            assert (rule["resources"], rule["verbs"]) == (["clusterqueues"], ["get"])
            assert rule["resourceNames"] == ["slipway"]
        for rule in one["rules"]:
            assert "*" not in (*rule["verbs"], *rule["resources"], *rule["apiGroups"])
            assert not {"secrets", "nodes", "roles", "rolebindings", "serviceaccounts/token"} & set(rule["resources"])
            assert not {"impersonate", "bind", "escalate", "update", "deletecollection"} & set(rule["verbs"])


@pytest.mark.parametrize("role", ["submitter", "operator", "reader", "reaper"])
def test_the_second_namespace_gives_the_same_rights_to_the_same_people(role: str) -> None:
    """Desktops are looked at (`launcher forward`) and left over like any other run."""

    def subjects(folder: str, namespace: str) -> list[Any]:
        wanted = f"RoleBinding/{namespace}/slipway-{role}"
        (binding,) = [one for one in of_kind(folder, "RoleBinding") if name(one) == wanted]
        assert binding["roleRef"]["name"] == f"slipway-{role}"
        return list(binding["subjects"])

    def rules(folder: str, namespace: str) -> set[tuple[str, ...]]:
        (found,) = [one for one in of_kind(folder, "Role") if name(one) == f"Role/{namespace}/slipway-{role}"]
        return {
            (group, resource, verb)
            for rule in found["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    assert rules("overlays/on-prem", "slipway-vm") == rules("base", "slipway")
    assert subjects("overlays/on-prem", "slipway-vm") == subjects("base", "slipway")


@pytest.mark.parametrize("folder", ["overlays/gke", "overlays/gke/reaper"])
@pytest.mark.parametrize(
    ("address", "protocol", "port", "every_pod"),
    [
        ("169.254.169.254", "UDP", 53, True),  # Cloud DNS for GKE
        ("169.254.169.254", "TCP", 53, True),
        ("169.254.20.10", "UDP", 53, True),  # NodeLocal DNSCache
        ("169.254.169.254", "TCP", 80, False),  # the metadata server: an identity
        ("169.254.169.252", "TCP", 988, False),
    ],
)
def test_what_gke_pods_reach_on_their_node(
    folder: str, address: str, protocol: str, port: int, every_pod: bool
) -> None:
    """Names for all pods; the metadata server only for pods of runs and of the reaper."""
    selectors = [
        policy["spec"]["podSelector"]
        for policy in of_kind(folder, "NetworkPolicy")
        for rule in policy["spec"].get("egress", ())
        for peer in rule["to"]
        if peer.get("ipBlock", {}).get("cidr") == f"{address}/32"
        and {"protocol": protocol, "port": port} in rule["ports"]
    ]
    assert [selector == {} for selector in selectors] == [every_pod]


def test_a_job_finds_in_the_second_namespace_what_it_finds_in_the_first() -> None:
    """Its queue, the way to the store, an account without a token, a request where it names none."""
    kinds = ("LocalQueue", "LimitRange", "ServiceAccount", "NetworkPolicy")
    there = {name(one) for kind in kinds for one in of_kind("overlays/on-prem", kind)}
    first = {one.split("/")[0] + "/" + one.split("/")[2] for one in there if "/slipway/" in one}
    second = {one.split("/")[0] + "/" + one.split("/")[2] for one in there if "/slipway-vm/" in one}
    ours = {"ServiceAccount/slipway-ci"}
    within_runs = {"NetworkPolicy/allow-dns", "NetworkPolicy/allow-https-out"}  # rules of its allow-runs
    assert first - second == ours | within_runs | {"NetworkPolicy/allow-metrics"}


@every_case("folder", FOLDERS)
def test_a_namespace_with_pods_denies_by_default(folder: str) -> None:
    policies = of_kind(folder, "NetworkPolicy")
    # the base's namespace is closed in the base; device plugins talk to the kubelet by a socket and have no policy
    elsewhere = {"slipway"} if folder == "serve" else {"slipway-devices"}
    spaces = {one["metadata"]["namespace"] for one in objects(folder) if pods(one) is not None} - elsewhere
    for space in spaces | {one["metadata"]["namespace"] for one in policies} - elsewhere:
        closed = [
            one
            for one in policies
            if one["metadata"]["namespace"] == space
            and not one["spec"]["podSelector"]
            and set(one["spec"]["policyTypes"]) == {"Ingress", "Egress"}
        ]
        assert closed, space
    for one in policies:
        for rule in one["spec"].get("egress", ()):
            for peer in rule.get("to", ()):
                block = peer.get("ipBlock", {})
                if block.get("cidr") == "0.0.0.0/0":
                    assert "169.254.0.0/16" in block["except"]


def test_policies_and_quotas_know_the_launchers_labels() -> None:
    """The keys that policies select by are those that the renderer writes."""
    keys = set(re.findall(r"key: (slipway\.dev/[\w-]+), operator: Exists", (TREE / "base/network.yaml").read_text()))
    assert keys == {RUN}


def test_priorities_agree_with_the_queues() -> None:
    classes = {one["metadata"]["name"]: one["value"] for one in of_kind("overlays/gke", "PriorityClass")}
    queued = {one["metadata"]["name"]: one["value"] for one in of_kind("overlays/gke", "WorkloadPriorityClass")}
    assert classes == queued
    assert classes["slipway-high"] > classes["slipway-normal"] > classes["slipway-low"]


@pytest.mark.parametrize("overlay", [one for one in OVERLAYS if one != "kind"])
def test_queues_name_flavours_that_are_there_and_cover_what_pods_ask_for(overlay: str) -> None:
    (queue,) = of_kind(f"overlays/{overlay}", "ClusterQueue")
    flavours = {one["metadata"]["name"] for one in of_kind(f"overlays/{overlay}", "ResourceFlavor")}
    groups = queue["spec"]["resourceGroups"]
    used = [flavour["name"] for group in groups for flavour in group["flavors"]]
    assert set(used) == flavours
    assert len(used) == len(set(used))
    covered = {resource for group in groups for resource in group["coveredResources"]}
    assert {"cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "devices.kubevirt.io/kvm"} == covered
    for group in groups:
        for flavour in group["flavors"]:
            assert [one["name"] for one in flavour["resources"]] == group["coveredResources"]


@pytest.mark.parametrize(
    ("overlay", "platform"),
    [("gke", "gke"), ("aks", "aks"), ("plain", "plain"), ("on-prem", "plain"), ("kind-queues", "plain")],
)
def test_flavours_are_nodes_that_the_launcher_asks_for(overlay: str, platform: str) -> None:
    """What a job with `gpu: NAME` selects agrees with its flavour: Kueue would admit it to nodes it can not run on."""
    from launcher.backends.kubernetes.render.accelerators import selection

    names = {"l4": "L4", "a100": "A100-80GB", "h100": "H100"}
    seen = 0
    for flavour in of_kind(f"overlays/{overlay}", "ResourceFlavor"):
        gpu = names.get(flavour["metadata"]["name"])
        if gpu is None:
            continue
        labels, terms = selection(gpu, {"platform": platform})
        wanted = {key: [value] for key, value in labels.items()}
        for term in terms:
            wanted |= {each["key"]: each["values"] for each in term["matchExpressions"]}
        assert len(terms) <= 1  # of alternatives, Kueue takes any flavour
        for key, value in flavour["spec"]["nodeLabels"].items():
            assert value in wanted[key]
        seen += 1
    assert seen >= 2


def test_on_eks_the_profile_says_which_label_is_meant() -> None:
    from launcher.backends.kubernetes.render.accelerators import selection

    labels = {
        flavour["metadata"]["name"].upper(): flavour["spec"]["nodeLabels"]
        for flavour in of_kind("overlays/eks", "ResourceFlavor")
        if flavour.get("spec", {}).get("nodeLabels")
    }
    assert labels
    for gpu, wanted in labels.items():
        assert selection(gpu, {"platform": "eks", "accelerators": {gpu: wanted}}) == (wanted, [])


def test_versions_agree_with_what_launcher_cluster_installs() -> None:
    for project, added in ADDITIONS.items():
        texts = (TREE / "components" / project / "kustomization.yaml").read_text()
        assert added.url(project) in texts
        assert f"{project}-{added.version}" in schemas.CUSTOM


def test_kubeadm_is_of_the_version_of_the_other_programs() -> None:
    """It has a pin of its own, and starts a cluster of those."""
    pins = [(ROOT / "tools/cluster" / pin / "go.mod").read_text() for pin in ("kubeadm", "kubernetes")]
    kubeadm, others = (text.partition("\n")[2] for text in pins)
    assert kubeadm == others


def test_the_store_image_and_program_are_one_version() -> None:
    pinned = re.search(
        r"^require github.com/versity/versitygw v(\S+)", (ROOT / "tools/versitygw/go.mod").read_text(), re.M
    )
    assert pinned is not None
    assert f"slipway.local/versitygw:{pinned.group(1)}" == plan.STORE_IMAGE
    (server,) = [one for one in of_kind("overlays/kind", "Deployment") if one["metadata"]["name"] == "store"]
    assert server["spec"]["template"]["spec"]["containers"][0]["image"] == plan.STORE_IMAGE


def test_kinds_port_is_the_stores() -> None:
    config = yaml.safe_load((TREE / "kind/cluster.yaml").read_text())
    (mapping,) = config["nodes"][0]["extraPortMappings"]
    (service,) = of_kind("overlays/kind", "Service")
    assert mapping["containerPort"] == service["spec"]["ports"][0]["nodePort"]
    assert plan.OUTSIDE.endswith(f":{mapping['hostPort']}")
    assert mapping["listenAddress"] == "127.0.0.1"
    metadata = service["metadata"]
    assert (
        f"http://{metadata['name']}.{metadata['namespace']}.svc.cluster.local:{service['spec']['ports'][0]['port']}"
        == plan.INSIDE
    )


def test_vllm_serve_is_ready_when_it_has_answered() -> None:
    (server,) = of_kind("serve", "Deployment")
    (container,) = server["spec"]["template"]["spec"]["containers"]
    code = (ROOT / "images/vllm-serve/serve.py").read_text()
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/ready", "port": "metrics"}
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert '"/ready"' in code
    assert '"/health"' in code
    assert container["resources"]["requests"]["nvidia.com/gpu"] == container["resources"]["limits"]["nvidia.com/gpu"]
    config = json.loads(of_kind("serve", "ConfigMap")[0]["data"]["serve.json"])
    grace = server["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace >= config["drain"] + 10 + container["lifecycle"]["preStop"]["sleep"]["seconds"]
    (scaler,), (budget,) = of_kind("serve", "HorizontalPodAutoscaler"), of_kind("serve", "PodDisruptionBudget")
    assert budget["spec"]["minAvailable"] < scaler["spec"]["minReplicas"]


def test_vllm_serves_configuration_is_one_that_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib import import_module

    from eval import config as configuration

    for folder in ("images", "images/vllm-serve"):  # what the images' programs share, and this one's
        monkeypatch.syspath_prepend(str(ROOT / folder))
    monkeypatch.delitem(sys.modules, "serve", raising=False)
    config = configuration.load(TREE / "serve/serve.json", import_module("serve").ServeConfig)
    assert config.name == "model"


def test_alerts_ask_for_something_that_can_be() -> None:
    rules = [rule for group in RULES["spec"]["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 4
    for rule in rules:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["expr"].count("{") == rule["expr"].count("}")
        assert re.fullmatch(r"\d+[smh]", rule["for"])
        assert set(rule["annotations"]) == {"summary", "description"}


def test_a_release_can_be_referred_to_by_its_tag(tmp_path: Path) -> None:
    """As the administrators' page says, of a repository anywhere."""
    need("git")
    repository = tmp_path / "slipway"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(repository)], check=True)
    subprocess.run(["git", "tag", "-f", "v0.1.0"], cwd=repository, check=True, capture_output=True)
    page = (ROOT / "docs/howto/kubernetes-admin.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r'`(resources: \["REPOSITORY//k8s/overlays/plain\?ref=v0\.1\.0"\])`', page)
    (tmp_path / "platform").mkdir()
    lines = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{shown}\n"
    (tmp_path / "platform/kustomization.yaml").write_text(lines.replace("REPOSITORY", f"file://{repository}"))
    built = []
    for folder in (tmp_path / "platform", repository / "k8s/overlays/plain"):
        command = [kubectl(), "kustomize", str(folder)]
        built.append(subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout)
    assert built[0] == built[1]
    assert "kind: NetworkPolicy" in built[0]
