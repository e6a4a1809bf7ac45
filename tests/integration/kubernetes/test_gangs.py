"""Gangs without Kueue, as a real API server takes them: PodGroups by the coscheduling plugin's own definition. Neither
its scheduler nor JobSet's controller is needed: the pods' templates name the group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from launcher.errors import BadInput, Conflict
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import small

pytestmark = [pytest.mark.cluster("jobset-crds", "coscheduling-crds"), pytest.mark.timeout(600)]
GROUPS = "podgroups.scheduling.x-k8s.io"
SCHEDULER = "scheduler-plugins-scheduler"


@pytest.fixture
def place(place: Place) -> Iterator[Place]:
    place.cluster.crds("jobset")
    yield place
    place.cluster.kubectl("delete", "crd", GROUPS, "--ignore-not-found", timeout=120)


def gang(place: Place, name: str = "gang") -> ResolvedJob:
    job = small(name, place.namespace, options={"gang": SCHEDULER})
    return replace(job, roles={key: replace(role, replicas=3) for key, role in job.roles.items()})


def test_without_the_plugin_it_is_refused_in_one_line(place: Place) -> None:
    with pytest.raises(BadInput, match=r"^PodGroup gang-\w+: cluster .* has no PodGroups; `kubernetes.gang` needs"):
        place.backend.check([gang(place)])


def test_a_gang_is_made_adopted_and_goes_as_a_whole(place: Place) -> None:
    place.cluster.crds("coscheduling")
    job = gang(place)
    run = run_id(job)
    place.backend.check([job])
    handles = dict(place.backend.submit(place.backend.render([job]), [job]))
    group, carrier = place.get(GROUPS, run), place.get("jobset", run)
    assert group["spec"] == {"minMember": 3}
    assert [each["uid"] for each in group["metadata"]["ownerReferences"]] == [carrier["metadata"]["uid"]]
    (child,) = carrier["spec"]["replicatedJobs"]
    pod = child["template"]["spec"]["template"]
    assert pod["spec"]["schedulerName"] == SCHEDULER
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == run
    # the same again, as after a lost answer
    assert dict(place.backend.submit(place.backend.render([job]), [job])) == handles
    # a group that lets ranks start alone is not taken for ours
    patch = ("--type=merge", "-p", '{"spec":{"minMember":1}}')
    place.cluster.kubectl("patch", GROUPS, run, "-n", place.namespace, *patch)
    with pytest.raises(Conflict, match="PodGroup"):
        place.backend.submit(place.backend.render([job]), [job])
    place.backend.cancel(list(handles.values()))
    gone = "the end of the JobSet and of its group"
    place.cluster.wait_for(gone, lambda: place.get("jobset", run) is None and place.get(GROUPS, run) is None, 120)
