"""The offline validation against a real API server: what the server refuses, it has refused before; and for every rule
it is known what the server would have said (`server` in tests/unit/kubernetes_validate/rules.yaml)."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.access.login import login
from launcher.backends.kubernetes.api import Api, ApiRefused
from launcher.backends.kubernetes.check import validate
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import SET
from tests.unit.kubernetes_validate import update
from tests.unit.kubernetes_validate.support import BASES, GOLDEN, JOB, JOB_SET, cases, changed, spoiled
from tests.unit.kubernetes_validate.test_changes import CONFIG, REFUSED, TAKEN
from tests.unit.kubernetes_validate.test_strict import WRONG, _kind, _nodes, _schema

pytestmark = pytest.mark.cluster("jobset-crds", "kueue-crds")
NAMESPACE = "ml"
PATHS = {
    "Job": "/apis/batch/v1/namespaces/ml/jobs",
    "Pod": "/api/v1/namespaces/ml/pods",
    "CronJob": "/apis/batch/v1/namespaces/ml/cronjobs",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets",
    "Deployment": "/apis/apps/v1/namespaces/ml/deployments",
    "ConfigMap": "/api/v1/namespaces/ml/configmaps",
    "Secret": "/api/v1/namespaces/ml/secrets",
    "Service": "/api/v1/namespaces/ml/services",
    "PersistentVolumeClaim": "/api/v1/namespaces/ml/persistentvolumeclaims",
    "LimitRange": "/api/v1/namespaces/ml/limitranges",
    "ResourceQuota": "/api/v1/namespaces/ml/resourcequotas",
    "Namespace": "/api/v1/namespaces",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/ml/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/ml/rolebindings",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/ml/networkpolicies",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/ml/poddisruptionbudgets",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/ml/horizontalpodautoscalers",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ClusterQueue": "/apis/kueue.x-k8s.io/v1beta1/clusterqueues",
}
ELSEWHERE = ("APPLICATION",)  # Argo CD is not there
# values that the server compares with what lies elsewhere: the address, other objects
OUTSIDE = (("metadata", "namespace"), ("spec", "serviceAccountName"), ("spec", "priorityClassName"))
# what the newest versions (SLIPWAY_CLUSTER_SET) say to a sound object
NEWEST_WARNS = {"QUEUE": ("warns", "This version is deprecated. Use v1beta2 instead.")} if SET == "newest" else {}
WEBHOOKS = ("JOB_SET", "QUEUE")  # whose managers have more to say than the API server


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[Api]:
    cluster.crds("jobset", "kueue")
    cluster.settle(NAMESPACE)  # other tests make and delete it as well
    if cluster.get("namespace", NAMESPACE) is None:
        cluster.namespace(NAMESPACE)
    before = os.environ.get("KUBECONFIG")
    os.environ["KUBECONFIG"] = str(cluster.kubeconfig)
    try:
        made = Api(login())
    finally:
        if before is None:
            del os.environ["KUBECONFIG"]
        else:
            os.environ["KUBECONFIG"] = before
    yield made
    made.close()


def verdict(api: Api, kind: str, value: Any) -> tuple[str, str]:
    """What the server says to an object that it does not keep: refuses, warns or takes; and its words."""
    query = {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        answer = api.request("POST", PATHS[kind], body=json.dumps(value).encode(), query=query)
    except ApiRefused as error:
        return "refuses", str(error)
    return ("warns" if answer.warnings else "takes"), "; ".join(answer.warnings)


@pytest.mark.parametrize("name", [name for name in BASES if name not in ELSEWHERE])
def test_sound_objects_are_taken(api: Api, name: str) -> None:
    value = {**BASES[name], "metadata": {**BASES[name]["metadata"]}}
    if name == "NAMESPACE":
        value["metadata"]["name"] = "another"
    assert verdict(api, value["kind"], value) == NEWEST_WARNS.get(name, ("takes", ""))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.parent.name)
def test_what_is_rendered_is_taken_without_a_warning(api: Api, path: Path) -> None:
    for value in yaml.safe_load_all(path.read_text(encoding="utf-8")):
        value["metadata"]["namespace"] = NAMESPACE
        assert verdict(api, value["kind"], value) == ("takes", "")


def test_what_the_server_says_to_every_rule(api: Api) -> None:
    compare(api, [case for case in cases() if case["of"] not in ELSEWHERE and not managed(case)])


@pytest.mark.nightly
@pytest.mark.cluster("jobset", "kueue")
def test_what_the_webhooks_say_to_every_rule(api: Api, cluster: Cluster) -> None:
    cluster.jobset()
    cluster.kueue()
    compare(api, [case for case in cases() if managed(case)])


def managed(case: dict[str, Any]) -> bool:
    return case["of"] in WEBHOOKS or names.QUEUE in key(case)


def compare(api: Api, some: Sequence[dict[str, Any]]) -> None:
    """What the server says to cases against what is known of it. Update, and read the differences: SLIPWAY_UPDATE=1."""
    said = {}
    for case in some:
        value = spoiled(case)
        if case["of"] == "NAMESPACE" and value["metadata"]["name"] == NAMESPACE:
            value["metadata"]["name"] = "another"
        said[key(case)] = verdict(api, BASES[case["of"]]["kind"], value)
    if os.environ.get("SLIPWAY_UPDATE") == "1":
        update.write([_updated(case, said) for case in cases()])
    else:
        expected = {key(case): case.get(SET) or case["server"] for case in some}
        assert expected == {name: found[0] for name, found in said.items()}, said


def _updated(case: dict[str, Any], said: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The case with the server's answer; that of another version under the name of its set, where it differs."""
    if key(case) not in said:
        return case
    answer = said[key(case)][0]
    if not SET:
        return {**case, "server": answer}
    kept = {name: value for name, value in case.items() if name != SET}
    return kept if answer == case["server"] else {**kept, SET: answer}


def key(case: dict[str, Any]) -> str:
    return json.dumps([case["of"], case.get("set") or case["drop"]])


def test_what_the_server_refuses_was_refused_before(api: Api) -> None:
    """Random changes of sound objects. The other direction does not hold: more is asked for than the server asks."""
    seed = int(os.environ.get("SLIPWAY_SEED", "1"))
    chance = random.Random(seed)
    refused, missed = 0, []
    for _ in range(300):
        name = chance.choice([name for name in BASES if name not in ("APPLICATION", "NAMESPACE")])
        value = copy.deepcopy(BASES[name])
        nodes = [one for one in _nodes(value, _schema(value)) if one[0] and one[0][0] not in ("kind", "apiVersion")]
        nodes = [one for one in nodes if one[0] not in OUTSIDE]
        route, schema, there = chance.choice(nodes)
        parent = value
        for key in route[:-1]:
            parent = parent[key]
        change = chance.choice(("drop", "wrong", "other", "unknown"))
        if change == "drop":
            del parent[route[-1]]
        elif change == "wrong" and _kind(schema) in WRONG:
            parent[route[-1]] = chance.choice(WRONG[_kind(schema)])
        elif change == "unknown" and isinstance(there, dict):
            there["unheardOf"] = 1
        elif isinstance(there, str):
            parent[route[-1]] = chance.choice(
                ["", there + "-", there.upper(), "-" + there, there * 20, there + " x", "1"]
            )
        elif isinstance(there, int):
            parent[route[-1]] = chance.choice([-1, 0, 1 << 20, 1 << 31, 1 << 40])
        elif isinstance(there, list):
            parent[route[-1]] = chance.choice([[], there * 2])
        answer, words = verdict(api, BASES[name]["kind"], value)
        if answer == "refuses":
            refused += 1
            if not validate.findings(value):
                missed.append(f"seed {seed}: {name} {route}: {words}")
    assert missed == []
    assert refused > 100


def taken(api: Api, method: str, path: str, body: Any = None, **query: str) -> dict[str, Any] | None:
    """The answer; None when the server refuses, for there is one already (409) or it is invalid (422)."""
    try:
        sent = None if body is None else json.dumps(body).encode()
        found: dict[str, Any] = api.request(method, path, body=sent, query=query).json()
    except ApiRefused as error:
        if error.status not in (409, 422):
            raise
        return None
    return found


def test_what_the_server_lets_nobody_change(api: Api, cluster: Cluster) -> None:
    """An object is made, then changed by a dry run: `changes` says before what the server says. In a namespace of its
    own: what is made here is refused elsewhere, for it is there already."""
    space = cluster.namespace()
    known = [(base, path, value, True) for base, path, value, _ in REFUSED]
    known += [(base, path, value, False) for base, path, value in TAKEN]
    said = {}
    for base, path, value, refused in known:
        if base is JOB_SET:
            continue  # its webhook's matter
        made = changed(base, "spec.template.spec.nodeSelector", {"there": "is-none"}) if base is JOB else base
        path_of = PATHS[base["kind"]].replace(f"/{NAMESPACE}/", f"/{space}/")
        where = f"{path_of}/{base['metadata']['name']}"
        if "namespace" in base["metadata"]:
            made = changed(made, "metadata.namespace", space)
        there = taken(api, "POST", path_of, made) or taken(api, "GET", where)
        assert there is not None
        there["metadata"].pop("resourceVersion")  # its controller may have written meanwhile
        answer = taken(api, "PUT", where, changed(there, path, value), dryRun="All") is None
        if (
            path_of == PATHS[base["kind"]] or base is CONFIG
        ):  # of the whole cluster; or of the same name as another here
            api.request("DELETE", where)
        said[f"{base['kind']} {path}"] = (answer, refused)
    assert {name: pair for name, pair in said.items() if pair[0] != pair[1]} == {}
