"""What a real API server, JobSet and Kueue make of our objects is accepted; everything else that differs is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.kubernetes.api import ApiRefused
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.check.carried import inspect, inspect_there
from launcher.backends.kubernetes.objects import SENT
from launcher.backends.kubernetes.render.manifests import objects
from launcher.errors import Conflict
from launcher.spec.hashing import run_id
from launcher.spec.model import Output, ResolvedJob, Resources
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import small
from tests.support.jobs import reads
from tests.support.tampering import EXTRA_ENV, tamperings

pytestmark = [pytest.mark.cluster("jobset", "kueue"), pytest.mark.timeout(600)]

SHAPES = ("job", "large", "array", "ranks", "pipeline", "patched")
SIDECAR = {
    "name": "beside",
    "image": "test.local/none@sha256:" + "0" * 64,
    "command": ["true"],
    "restartPolicy": "Always",
    "ports": [{"containerPort": 3128}],
    "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    "startupProbe": {"httpGet": {"port": 3128}},
    "resources": {"requests": {"memory": "1024Mi"}},
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "volumeMounts": [{"name": "settings", "mountPath": "/settings"}],
}
TOKEN = {"serviceAccountToken": {"path": "token"}}
NAMESPACE = {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}
PATCH = {
    "metadata": {"labels": {"example.com/egress": "proxy"}},
    "spec": {
        "schedulerName": "other",
        "initContainers": [SIDECAR],
        "volumes": [{"name": "settings", "projected": {"sources": [TOKEN, NAMESPACE]}}],
    },
}
VOLUMES = [
    {"path": "/data", "claim": "data", "sub_path": "x"},
    {"path": "/gs", "bucket": "gs://bucket"},
    {"path": "/az", "bucket": "az://container", "secret": "account"},
]
QUEUE = "compared"


@pytest.fixture
def place(place: Place) -> Place:
    place.cluster.jobset()
    place.cluster.kueue()
    return place


def shape(name: str, namespace: str, **options: Any) -> list[ResolvedJob]:
    """Jobs that become one object."""
    match name:
        case "large":
            return [small("large", namespace, config={"text": "x" * 100_000}, options=options)]
        case "array":
            return [small("seeds", namespace, config={"n": n}, options={"array": True, **options}) for n in range(3)]
        case "ranks":
            one = small("ranks", namespace, options=options)
            return [replace(one, roles={key: replace(role, replicas=2) for key, role in one.roles.items()})]
        case "patched":
            return [small("patched", namespace, options={"patch": PATCH, "volumes": VOLUMES, **options})]
        case "pipeline":
            train = small("train", namespace, outputs={"out": Output()}, options=options)
            return [train, small("score", namespace, inputs={"x": reads(train)}, options=options)]
    account = {"service_account": "trainer", "store_secret": "store", **options}
    job = small("job", namespace, options=account, secrets={"TOKEN": "tokens/hf"})
    need = Resources(cpus=1.5, memory=1536 << 20, disk=1 << 30, shm=1 << 24)
    return [
        replace(job, roles={key: replace(role, resources=need, ports={"web": 80}) for key, role in job.roles.items()})
    ]


def completed(place: Place, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The object as the server would store it; None where it refuses it."""
    kind = SENT[document["kind"]]
    body = json.dumps({**document, "metadata": {**document["metadata"], "namespace": place.namespace}}).encode()
    try:
        answer = place.backend.api.request("POST", kind.path(place.namespace), body=body, query={"dryRun": "All"})
    except ApiRefused as error:
        if error.status not in (400, 403, 422):
            raise
        return None
    return dict(answer.json())


def bare(value: Any, uid: str) -> Any:
    """Without what each create makes anew."""
    if isinstance(value, dict):
        own = ("uid", "creationTimestamp", "managedFields", "resourceVersion")
        return {key: bare(item, uid) for key, item in value.items() if key not in own}
    if isinstance(value, list):
        return [bare(item, uid) for item in value]
    return "UID" if value == uid else value


def served(place: Place, documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    there = [completed(place, document) for document in documents]
    return None if None in there else [each for each in there if each is not None]


def errors(there: Sequence[Mapping[str, Any]]) -> list[str]:
    maps = {each["metadata"]["name"]: each for each in there[:-1]}
    return [f"{fault.route}: {fault.message}" for fault in inspect(there[-1], maps, served=True).errors]


@pytest.mark.parametrize("name", SHAPES)
def test_each_change_of_a_field_is_refused_after_the_server_has_completed_the_object(place: Place, name: str) -> None:
    """The server itself is the reference: an object is ours if it stores the same for it as for what we render."""
    (rendered,) = objects(shape(name, place.namespace))
    untouched = served(place, rendered.documents)
    assert untouched is not None
    assert errors(untouched) == []
    reference = [bare(each, each["metadata"]["uid"]) for each in untouched]
    wrong: list[str] = []
    counts = {"refused by the server": 0, "the same to the server": 0, "refused here": 0}

    def judge(change: Any) -> None:
        there = served(place, change.documents)
        if there is None:
            counts["refused by the server"] += 1
            return
        same = [bare(each, each["metadata"]["uid"]) for each in there] == reference
        counts["the same to the server" if same else "refused here"] += 1
        mark = change.route[-1] == "app.kubernetes.io/instance" and change.change.startswith("change")  # Argo CD's own
        if (errors(there) == []) is not (same or mark):
            wrong.append(f"{change.change}: {errors(there) or 'accepted'}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(judge, tamperings(rendered.documents)))
    print(name, counts)
    assert wrong == []
    assert counts["refused here"] > 50


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_an_untouched_object_is_adopted_before_and_after_kueue_admits_it(place: Place, name: str, queued: bool) -> None:
    jobs = shape(name, place.namespace, **({"queue": QUEUE} if queued else {}))
    if queued:
        queue(place)
    first = dict(place.backend.submit(place.backend.render(jobs), jobs))
    again = KubernetesBackend({"namespace": place.namespace})
    assert again.submit(again.render(jobs), jobs) == first
    (handle,) = {each.name: each for each in first.values()}.values()
    kind = handle.place["kind"].lower()
    if queued:
        place.cluster.wait_for(
            "Kueue's admission", lambda: place.get(kind, handle.name)["spec"]["suspend"] is False, 90
        )
        assert "slipway.test/flavor" in json.dumps(place.get(kind, handle.name))  # what Kueue adds is there
    assert set(again.find([run_id(job) for job in jobs])) == set(first)
    for run in first:  # controllers are no tools that make an object again
        seen = again.look_up(run)
        assert seen is not None
        assert not seen.applied
    assert again.submit(again.render(jobs), jobs) == first


def queue(place: Place) -> None:
    """A queue whose flavor brings labels and taints of nodes, as spot nodes have them."""
    api = "kueue.x-k8s.io/v1beta1"
    taint = {"key": "slipway.test/spot", "operator": "Exists", "effect": "NoSchedule"}
    flavor = {"nodeLabels": {"slipway.test/flavor": "spot"}, "tolerations": [taint]}
    quotas = [{"name": name, "nominalQuota": "1Ti"} for name in ("cpu", "memory", "ephemeral-storage")]
    group = {"coveredResources": [q["name"] for q in quotas], "flavors": [{"name": "spot", "resources": quotas}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    local = {"name": QUEUE, "namespace": place.namespace}
    place.cluster.apply(
        [
            {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": flavor},
            {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": place.namespace}, "spec": spec},
            {"apiVersion": api, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": place.namespace}},
        ]
    )


@pytest.mark.parametrize("renderer", ["0.1.0", "0.0.9"])
@pytest.mark.parametrize("way", ["create", "find"])
def test_a_submit_does_not_adopt_a_job_that_was_tampered_with(place: Place, way: str, renderer: str) -> None:
    jobs = shape("job", place.namespace)
    (rendered,) = objects(jobs)
    value = json.loads(json.dumps(rendered.documents[-1]))
    value["metadata"]["annotations"]["slipway.dev/renderer"] = renderer
    value["spec"]["template"]["spec"]["containers"][0]["env"].append(EXTRA_ENV)
    place.cluster.apply(value, place.namespace)
    adopt = {
        "create": lambda: place.backend.submit(place.backend.render(jobs), jobs),
        "find": lambda: place.backend.find([run_id(jobs[0])]),
    }
    with pytest.raises(Conflict, match=r"does not run what its job says: .*its job gives no `SCORE`.*kubectl delete"):
        adopt[way]()
    there = place.get("job", rendered.name)
    assert inspect_there(place.backend.api, there).jobs == {}


def test_a_job_whose_config_map_was_replaced_is_not_adopted(place: Place) -> None:
    jobs = shape("large", place.namespace)
    place.backend.submit(place.backend.render(jobs), jobs)
    (rendered,) = objects(jobs)
    name = rendered.documents[0]["metadata"]["name"]
    place.cluster.kubectl("delete", "configmap", name, "-n", place.namespace)
    with pytest.raises(Conflict, match="the file does not hold this job"):
        place.backend.find([run_id(jobs[0])])
    value = json.loads(json.dumps(rendered.documents[0]))
    (key,) = value["data"]
    value["data"][key] = value["data"][key].replace("xxx", "yyy", 1)
    place.cluster.apply(value, place.namespace)
    with pytest.raises(Conflict, match="was edited"):
        place.backend.find([run_id(jobs[0])])
