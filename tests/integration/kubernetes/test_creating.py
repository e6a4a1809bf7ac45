"""What a real API server says to a submit, and what becomes of it."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.base import Handle, Rendered
from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.objects import JOB_SET
from launcher.errors import BadInput, Conflict, Unreachable
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.model import Output, ResolvedJob
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import small
from tests.support.cluster.proxy import ApiProxy, Kind
from tests.support.jobs import reads

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def put(backend: KubernetesBackend, *jobs: ResolvedJob) -> dict[str, Handle]:
    return dict(backend.submit(backend.render(jobs), jobs))


def test_what_is_there_is_adopted(place: Place) -> None:
    one = small("one", place.namespace)
    first = put(place.backend, one)
    assert put(KubernetesBackend({"namespace": place.namespace}), one) == first
    handle = first[run_id(one)]
    there = place.get("job", handle.name)
    assert (there["metadata"]["uid"], handle.fingerprint) == (handle.place["uid"], run_hash(one))


def test_another_job_of_that_name_is_a_conflict_and_stays_as_it_is(place: Place) -> None:
    one = small("one", place.namespace)
    rendered = place.backend.render([one])
    (text,) = rendered.documents.values()
    place.cluster.apply(text.replace(run_hash(one), "f" * 64), place.namespace)
    with pytest.raises(Conflict, match="another job"):
        put(place.backend, one)
    there = place.get("job", run_id(one))
    assert there["metadata"]["annotations"]["slipway.dev/fingerprint"] == "f" * 64


def test_one_that_is_being_deleted_is_said_to_be(place: Place) -> None:
    one = small("one", place.namespace)
    put(place.backend, one)
    patch = '{"metadata":{"finalizers":["slipway.test/stays"]}}'
    place.cluster.kubectl("patch", "job", run_id(one), "-n", place.namespace, "--type=merge", "-p", patch)
    place.cluster.kubectl("delete", "job", run_id(one), "-n", place.namespace, "--wait=false")
    with pytest.raises(Conflict, match="is being deleted"):
        put(place.backend, one)
    place.cluster.kubectl(
        "patch", "job", run_id(one), "-n", place.namespace, "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
    )


def test_a_large_job_brings_its_config_map_which_goes_with_it(place: Place) -> None:
    one = small("large", place.namespace, config={"text": "x" * 150_000})
    handle = put(place.backend, one)[run_id(one)]
    put(KubernetesBackend({"namespace": place.namespace}), one)  # adopts both
    maps = [
        each for each in place.cluster.get("configmaps", None, place.namespace) if "slipway" in str(each["metadata"])
    ]
    (owner,) = maps[0]["metadata"]["ownerReferences"]
    assert (len(maps), owner["uid"]) == (1, handle.place["uid"])
    place.backend.cancel([handle])
    name = maps[0]["metadata"]["name"]
    place.cluster.wait_for("the ConfigMap to go", lambda: place.get("configmap", name) is None, 60)


@pytest.mark.cluster("jobset-crds")
def test_a_stage_that_is_at_work_elsewhere_is_not_started_beside_itself(place: Place) -> None:
    place.cluster.crds("jobset")
    train = small("train", place.namespace, outputs={"out": Output()})
    first, second = (small(name, place.namespace, inputs={"x": reads(train)}) for name in ("eval", "eval-again"))
    handles = put(place.backend, train, first)
    assert handles[run_id(train)].name == handles[run_id(first)].name
    both = place.backend.render([train, second])
    # what submit sends of a pipeline whose first run it has found: the file, for the run that is new
    rest = Rendered(both.documents, {run_id(second): both.objects[run_id(second)]})
    with pytest.raises(Conflict, match=f"{run_id(train)} runs in {handles[run_id(train)].name}, and eval-again-"):
        place.backend.submit(rest, [second])
    assert len(place.cluster.get("jobsets.jobset.x-k8s.io", None, place.namespace)) == 1
    again = place.backend.render([train, first])  # the same pipeline is no overlap with itself
    assert put(place.backend, train, first) == handles
    assert place.backend.submit(Rendered(again.documents, {run_id(first): again.objects[run_id(first)]}), [first])


def test_pods_that_would_be_refused_are_refused_now(place: Place) -> None:
    """The API server accepts such a Job with a warning; its pods never start."""
    one = small("net", place.namespace, options={"host_network": True})
    with pytest.raises(BadInput, match="PodSecurity"):
        put(place.backend, one)
    assert place.get("job", run_id(one)) is None


def test_a_full_quota_is_said_and_more_room_is_used(place: Place) -> None:
    quota: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": place.namespace},
        "spec": {"hard": {"count/jobs.batch": "2"}},
    }
    place.cluster.apply(quota)
    place.cluster.wait_for(
        "the quota to count", lambda: "used" in (place.get("resourcequota", "few").get("status") or {}), 60
    )
    jobs = [small("one", place.namespace, config={"k": k}) for k in range(4)]
    with pytest.raises(Unreachable, match=r"exceeded quota.*nothing is submitted twice"):
        put(place.backend, *jobs)
    place.cluster.apply({**quota, "spec": {"hard": {"count/jobs.batch": "8"}}})
    place.cluster.wait_for(
        "more room", lambda: place.get("resourcequota", "few")["status"]["hard"]["count/jobs.batch"] == "8", 60
    )
    # what admits reads the quota by a watch of its own, which may be behind: it refuses once more, and is asked again
    assert len(place.cluster.wait_for("room for all", lambda: put(place.backend, *jobs), 60)) == 4
    assert len(place.cluster.get("jobs", None, place.namespace)) == 4


def test_what_is_missing_is_said_before_anything_is_written(place: Place) -> None:
    place.cluster.secret(place.namespace, "tokens", {"hf": "not-a-real-value"})
    options = {
        "queue": "nobody",
        "queue_priority": "rush",
        "service_account": "robot",
        "priority_class": "gold",
        "store_secret": "bucket",
        "image_pull_secrets": ["registry"],
        "caches": [{"name": "hub", "path": "/hub"}],
        "volumes": [
            {"path": "/data", "claim": "screens"},
            {"path": "/more", "bucket": "az://container", "secret": "account"},
        ],
    }
    secrets = {"HF_TOKEN": "tokens/hf", "OTHER": "tokens/wandb", "THIRD": "nowhere/x"}
    one = small("one", place.namespace, options=options, secrets=secrets)
    with pytest.raises(BadInput) as caught:
        place.backend.check([one])
    told = str(caught.value)
    for what in (
        "queue nobody",
        "queue's priority class rush is not in cluster",
        "service account robot is not in namespace",
        "claim hub is not in namespace",
        "claim screens is not in namespace",
        "secret account is not in namespace",
        "priority class gold is not in cluster",
        "secret bucket is not",
        "secret registry is not",
        "secret tokens in namespace .* has no key wandb; it has hf",
        "secret nowhere is not",
    ):
        assert re.search(what, told), what
    assert "not-a-real-value" not in told
    with pytest.raises(BadInput, match="namespace gone-away is not in cluster"):
        place.backend.check([small("one", "gone-away")])
    assert place.cluster.get("jobs", None, place.namespace) == []


def test_several_ranks_without_jobset_are_refused_in_one_line(place: Place) -> None:
    one = small("ranks", place.namespace)
    roles = {name: replace(role, replicas=2) for name, role in one.roles.items()}
    if place.backend.serves(JOB_SET):  # an earlier test has brought it: what a cluster without it answered stands
        place.backend.api.known[JOB_SET.group] = (time.monotonic(), False)
    with pytest.raises(BadInput, match="has no JobSet"):
        place.backend.check([replace(one, roles=roles)])


def through(proxy: ApiProxy, namespace: str, monkeypatch: pytest.MonkeyPatch) -> KubernetesBackend:
    monkeypatch.setenv("KUBECONFIG", str(proxy.kubeconfig))
    return KubernetesBackend({"namespace": namespace})


@pytest.mark.parametrize(
    "kind", [Kind.DROP_BEFORE, Kind.DROP_AFTER, Kind.ERROR_500, Kind.ERROR_500_AFTER, Kind.TOO_MANY]
)
def test_each_fault_of_a_create_is_repaired(place: Place, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = small("one", place.namespace), small("two", place.namespace)
    with place.cluster.proxy() as proxy:
        backend = through(proxy, place.namespace, monkeypatch)
        put(backend, small("first", place.namespace))
        proxy.plan(kind, method="POST", path="/jobs", times=3)
        handles = put(backend, one, two)
        assert proxy.faults(kind) == 3
        close_all()
    for job in (one, two):
        assert place.get("job", run_id(job))["metadata"]["uid"] == handles[run_id(job)].place["uid"]
    assert len(place.cluster.get("jobs", None, place.namespace)) == 3


def test_too_many_requests_hold_all_threads_back(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [small("one", place.namespace, config={"k": k}) for k in range(60)]
    with place.cluster.proxy() as proxy:
        backend = through(proxy, place.namespace, monkeypatch)
        put(backend, small("first", place.namespace))
        before = len(proxy.seen)
        proxy.plan(Kind.TOO_MANY, method="POST", path="/jobs", times=32)
        assert len(put(backend, *jobs)) == 60
        posts = [kind for request, kind in proxy.seen[before:] if request.method == "POST"]
        # 32 threads were refused once; while they wait, no other request went out to be refused as well
        assert posts.count(Kind.TOO_MANY) == 32
        assert len(posts) <= 60 + 32 + 2
        close_all()


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.cluster.proxy() as proxy:
        text = proxy.kubeconfig.read_text()
    path = tmp_path / "config"
    path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(Unreachable, match=r"^cluster \S+ \(https://\S+\): the connection is refused$"):
        KubernetesBackend({"namespace": "x"}).look_up("one-0123456789ab")
    with pytest.raises(BadInput, match="no context `other`"):
        KubernetesBackend({"context": "other"}).look_up("one-0123456789ab")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(BadInput, match="there is no kubeconfig"):
        KubernetesBackend({}).look_up("one-0123456789ab")


def test_two_submitters_and_one_that_cancels(place: Place) -> None:
    """Whatever the order, there is one object at most, and after the last cancel none."""
    one = small("one", place.namespace)
    backends = [KubernetesBackend({"namespace": place.namespace}) for _ in range(4)]
    handles: list[Handle] = []
    refused: list[str] = []

    def submit(backend: KubernetesBackend) -> None:
        try:
            handles.extend(put(backend, one).values())
        except Conflict as error:
            refused.append(str(error))

    threads = [threading.Thread(target=submit, args=(backend,)) for backend in backends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused == []
    assert len({handle.place["uid"] for handle in handles}) == 1
    place.backend.cancel(handles)
    place.backend.cancel(handles)
    place.cluster.wait_for("it to go", lambda: place.backend.look_up(run_id(one)) is None, 60)
