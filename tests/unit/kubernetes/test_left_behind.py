"""Jobs in ConfigMaps for a queue behind which Kueue's MultiKueue has other clusters: Kueue copies no ConfigMap there.
No request leaves this process."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from launcher.backends.kubernetes import names
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.creating import Creator
from launcher.backends.kubernetes.preflight import check, left_behind
from launcher.backends.kubernetes.render.manifests import objects
from launcher.errors import BadInput
from launcher.spec.model import ResolvedJob
from tests.support.jobs import OUT, reads
from tests.unit.kubernetes.support import job
from tests.unit.kubernetes.test_given_away import TOLD, snapshot
from tests.unit.kubernetes.test_queueing import GROUP, FakePlace, served

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
READY: dict[str, Any] = {REVIEW: {"status": {"allowed": True}}, "/api/v1/namespaces/ml": {}}
GIVES = {"spec": {"controllerName": "kueue.x-k8s.io/multikueue"}}
ORDERS = {"spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}}


def answers(version: str = "v1beta1", **changes: Any) -> dict[str, Any]:
    """A queue `everywhere` of namespace ml with two checks, the second of which gives jobs away; and a queue `here`."""
    at = f"{GROUP}/{version}"
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "nodes"}, {"name": "clusters"}]}}
    return {
        GROUP: served("v1beta1", version),
        f"{at}/namespaces/ml/localqueues/everywhere": {"spec": {"clusterQueue": "all"}},
        f"{at}/namespaces/ml/localqueues/here": {"spec": {"clusterQueue": "one"}},
        f"{at}/clusterqueues/all": {"spec": checks},
        f"{at}/clusterqueues/one": {"spec": {"admissionChecks": ["nodes"]}},
        f"{at}/admissionchecks/nodes": ORDERS,
        f"{at}/admissionchecks/clusters": GIVES,
        **{f"{at}/{path}": value for path, value in changes.items()},
    }


def seeds(queue: str = "everywhere", **options: Any) -> list[ResolvedJob]:
    where = {"namespace": "ml", "array": True, **({"queue": queue} if queue else {}), **options}
    return [job("seeds", config={"seed": seed}, options=where) for seed in range(2)]


def told(place: FakePlace, group: list[ResolvedJob]) -> list[str]:
    return list(left_behind(place, Creator(place.api), objects(group)))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_an_array_is_refused_with_its_configmap_the_check_and_what_helps(version: str) -> None:
    group = seeds()
    (made,) = objects(group)
    (line,) = told(FakePlace(answers(version)), group)
    held = made.documents[0]["metadata"]["name"]
    assert line == (
        f"Job {made.name}: its jobs are in ConfigMap {held}; queue everywhere gives jobs to other clusters "
        "(MultiKueue, admission check clusters), and Kueue does not copy ConfigMaps there: leave out `kubernetes.array`"
    )


def test_a_job_too_big_for_its_pod_is_refused_too() -> None:
    big = job("big", config={"text": "x" * 200_000}, options={"namespace": "ml", "queue": "everywhere"})
    (line,) = told(FakePlace(answers()), [big])
    assert line.endswith("make the job smaller, or take another queue")


def test_what_travels_and_what_stays_is_sent() -> None:
    place = FakePlace(answers())
    one = job("one", options={"namespace": "ml", "queue": "everywhere"})
    assert told(place, [one, *seeds(queue="")]) == []
    assert place.fake.asked == []  # nothing to ask for
    assert told(place, seeds(queue="here")) == []


def test_a_pipeline_with_an_array_is_told_to_leave_it_out() -> None:
    runs = [replace(each, outputs=OUT) for each in seeds()]
    inputs = {f"i{number}": reads(each) for number, each in enumerate(runs)}
    (line,) = told(
        FakePlace(answers()), [*runs, job("all", inputs=inputs, options={**runs[0].options, "array": False})]
    )
    assert line.startswith("JobSet all-")
    assert line.endswith("leave out `kubernetes.array`")


def test_a_queue_is_asked_for_once() -> None:
    place = FakePlace(answers())
    assert len(told(place, [*seeds(), *seeds(node_selector={"a": "b"})])) == 2
    paths = [path for _, path in place.fake.asked]
    assert len(paths) == len(set(paths))


@pytest.mark.parametrize("unread", ["clusterqueues/all", "admissionchecks/clusters"])
def test_without_the_right_to_look_it_is_sent_with_a_note(unread: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused: dict[str, Any] = {unread: 403}
    assert told(FakePlace(answers(**refused)), seeds()) == []
    assert "note: whether queue everywhere gives jobs to other clusters is not known (" in capsys.readouterr().err


@pytest.mark.parametrize("gone", [GROUP, f"{GROUP}/v1beta1/clusterqueues/all"])
def test_a_cluster_without_kueue_or_a_queue_without_its_clusterqueue_is_another_checks_matter(gone: str) -> None:
    assert told(FakePlace({**answers(), gone: 404}), seeds()) == []


def test_submit_refuses_it_before_anything_is_sent() -> None:
    place = FakePlace({**answers(), **READY})
    with pytest.raises(BadInput, match="Kueue does not copy ConfigMaps there"):
        check(place, Creator(place.api), seeds(), objects(seeds()))
    assert {path for method, path in place.fake.asked if method == "POST"} == {REVIEW}


def test_a_pipeline_is_looked_at_as_it_is_sent_although_one_of_its_stages_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the two would fit into its pod. Both are sent, in one ConfigMap, while only the second is still open."""
    options = {"namespace": "ml", "queue": "everywhere"}
    first = job("first", config={"text": "x" * 60_000}, options=options, outputs=OUT)
    second = job("second", config={"text": "x" * 60_000}, options=options, inputs={"a": reads(first)})
    assert [len(item.documents) for item in objects([second])] == [1]
    place = FakePlace({**answers(), **READY, "/apis/jobset.x-k8s.io/v1alpha2": {}})
    backend = KubernetesBackend({"namespace": "ml"})
    monkeypatch.setattr(KubernetesBackend, "api", property(lambda self: place.api))
    backend.render([first, second])
    with pytest.raises(BadInput, match=r"JobSet second-\w+: its jobs are in ConfigMap second-.*; queue everywhere"):
        backend.check([second])


def test_status_of_one_that_came_by_another_way_names_the_configmap() -> None:
    """A Job that a GitOps tool applied, or that was sent without the right to look."""
    (made,) = objects(seeds())
    held = made.documents[0]["metadata"]["name"]
    seen = snapshot("west", **{**made.main["spec"], "suspend": True}).observe("far-0123456789ab")
    assert seen is not None
    assert seen.evidence == f"{TOLD}. They start only where ConfigMap {held} is there too: Kueue does not copy it"
    projected = {"name": names.JOBS_VOLUME, "projected": {"sources": [{"configMap": {"name": each}} for each in "ab"]}}
    pod = {"template": {"spec": {"template": {"spec": {"volumes": [projected]}}}}}
    seen = snapshot("west", suspend=True, replicatedJobs=[pod]).observe("far-0123456789ab")
    assert seen is not None
    assert "ConfigMap a, b is there too" in str(seen.evidence)
