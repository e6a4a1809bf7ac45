"""`launcher queues` on Kueue's own queues: what it shows is what Kueue and kubectl say, and stopping stops."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from launcher.backends.kubernetes.backend import close_all
from launcher.backends.kubernetes.watch import queues as watched
from launcher.cli import main
from launcher.cli.printing.documents import Queue
from launcher.spec.hashing import run_id
from launcher.spec.model import ResolvedJob, Resources
from tests.integration.kubernetes.conftest import Place
from tests.integration.kubernetes.submitter import small
from tests.support.cluster.programs import SET

pytestmark = [pytest.mark.cluster("jobset", "kueue"), pytest.mark.timeout(600)]

# the tests' cluster converts nothing between versions, so the newest set gets what it stores
API, COHORT = ("kueue.x-k8s.io/v1beta2", "cohortName") if SET == "newest" else ("kueue.x-k8s.io/v1beta1", "cohort")
GIB = 1 << 30
Capture = pytest.CaptureFixture[str]
Listed = Callable[..., list[Queue]]


@pytest.fixture
def place(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Two queues on a ClusterQueue with two flavours, one of which has room for one job of a core."""
    place.cluster.jobset()
    place.cluster.kueue()
    name = place.namespace
    quotas = {"small": ("1", "4Gi"), "large": ("500m", "2Gi")}
    flavors = [
        {
            "name": f"{name}-{flavor}",
            "resources": [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}],
        }
        for flavor, (cpu, memory) in quotas.items()
    ]
    groups = [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, COHORT: f"{name}-cohort", "resourceGroups": groups}
    kinds: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        *(("ResourceFlavor", {"name": f"{name}-{flavor}"}, {}) for flavor in quotas),
        ("ClusterQueue", {"name": name}, spec),
        ("LocalQueue", {"name": "team-a", "namespace": name}, {"clusterQueue": name}),
        ("LocalQueue", {"name": "team-b", "namespace": name}, {"clusterQueue": f"{name}-nowhere"}),
    ]
    place.cluster.apply([{"apiVersion": API, "kind": kind, "metadata": at, "spec": its} for kind, at, its in kinds])
    settings = {"store": str(tmp_path / "store"), "local": {"state": str(tmp_path / "state")}}
    (tmp_path / "slipway.yaml").write_text(yaml.safe_dump({**settings, "kubernetes": {"namespace": name}}))
    monkeypatch.chdir(tmp_path)
    return place


@pytest.fixture
def listed(place: Place, capsys: Capture) -> Listed:
    """Kueue's queues as `launcher queues ... -o json` prints them."""

    def call(*words: str, code: int = 0) -> list[Queue]:
        capsys.readouterr()
        assert main(["queues", *words, "-o", "json"]) == code, capsys.readouterr()
        printed = msgspec.convert(json.loads(capsys.readouterr().out), list[Queue])
        return [queue for queue in printed if queue.backend == "kubernetes"]

    return call


def submitted(place: Place, name: str, cpus: float = 1.0, **changes: Any) -> str:
    job = small(name, place.namespace, options={"queue": "team-a"}, **changes)
    need = Resources(cpus=cpus, memory=GIB)
    job = replace(job, roles={key: replace(role, resources=need) for key, role in job.roles.items()})
    return _submit(place, job)


def _submit(place: Place, job: ResolvedJob) -> str:
    place.backend.submit(place.backend.render([job]), [job])
    return run_id(job)


def until(listed: Listed, what: str, true: Callable[[list[Queue]], bool]) -> list[Queue]:
    deadline = time.monotonic() + 120
    while not true(queues := listed()):
        assert time.monotonic() < deadline, f"{what}: {queues}"
        time.sleep(0.3)
    return queues


def waits_in_order(place: Place, listed: Listed) -> tuple[str, list[str]]:
    """A job that holds the quota, and three that wait."""
    first = submitted(place, "first")
    until(listed, "the first to be let in", lambda queues: queues[0].running == 1)
    waiting = []
    for name in ("second", "third", "fourth"):
        waiting.append(submitted(place, name))
        time.sleep(1.1)  # Kueue's order is that of the objects' creation, in whole seconds
    until(listed, "three to wait", lambda queues: [len(queue.runs) for queue in queues] == [3, 0])
    return first, waiting


def test_length_places_and_quota_are_kueues(place: Place, listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, waiting = waits_in_order(place, listed)
    team_a, team_b = listed()
    assert (team_a.queue, team_a.namespace, team_a.cluster_queue) == ("team-a", place.namespace, place.namespace)
    assert (team_a.state, team_a.waiting, team_a.running) == ("open", 3, 1)
    assert team_a.cohort == f"{place.namespace}-cohort"
    assert [(each.run, each.position) for each in team_a.runs] == [(run, k) for k, run in enumerate(waiting, 1)]
    # kubectl's own word for what is used
    cluster_queue = place.cluster.get("clusterqueue", place.namespace)
    said = {
        (flavor["name"], resource["name"]): resource["total"]
        for flavor in cluster_queue["status"]["flavorsReservation"]
        for resource in flavor["resources"]
    }
    assert said[f"{place.namespace}-small", "cpu"] == "1"
    assert {
        (each.flavor.removeprefix(place.namespace), each.resource): (each.quota, each.used, each.free)
        for each in team_a.quotas
    } == {
        ("-small", "cpu"): (1.0, 1.0, 0.0),
        ("-small", "memory"): (4.0 * GIB, 1.0 * GIB, 3.0 * GIB),
        ("-large", "cpu"): (0.5, 0.0, 0.5),
        ("-large", "memory"): (2.0 * GIB, 0.0, 2.0 * GIB),
    }
    # a queue without its ClusterQueue
    assert (team_b.queue, team_b.state, team_b.quotas) == ("team-b", "inactive", [])
    assert team_b.detail == f"there is no ClusterQueue `{place.namespace}-nowhere`"
    # where Kueue serves no order it is worked out
    monkeypatch.setattr(watched, "VISIBILITY", "/apis/visibility.kueue.x-k8s.io/v0")
    assert listed()[0].runs == team_a.runs


def test_a_stopped_queue_lets_nothing_in_until_it_is_resumed(place: Place, listed: Listed, capsys: Capture) -> None:
    assert main(["queues", "team-a", "--stop"]) == 2  # no terminal, no --yes
    assert "nothing was changed" in capsys.readouterr().err
    assert place.get("localqueue", "team-a")["spec"].get("stopPolicy", "None") == "None"
    (stopped,) = listed("team-a", "--stop", "--yes")
    assert (stopped.state, stopped.detail) == ("held", "stopPolicy Hold of its LocalQueue")
    run = submitted(place, "held")
    until(listed, "it to wait", lambda queues: queues[0].waiting == 1)
    assert place.get("job", run)["spec"]["suspend"] is True
    (resumed,) = listed("team-a", "--resume", "--yes")
    assert resumed.state in ("open", "inactive")  # Kueue may not have seen it yet
    until(listed, "it to be let in", lambda queues: (queues[0].running, queues[0].state) == (1, "open"))
    # a drained ClusterQueue gives up what runs, and all its queues say so
    (drained,) = listed(place.namespace, "--cluster-queue", "--stop", "--drain", "--yes")
    assert (drained.queue, drained.state) == ("team-a", "draining")
    assert drained.detail == "stopPolicy HoldAndDrain of its ClusterQueue"
    until(listed, "it to be taken out", lambda queues: queues[0].running == 0)
    place.cluster.wait_for("its suspension", lambda: place.get("job", run)["spec"]["suspend"] is True, 60)
    assert place.cluster.get("clusterqueue", place.namespace)["spec"]["stopPolicy"] == "HoldAndDrain"
    listed(place.namespace, "--cluster-queue", "--resume", "--yes")
    until(listed, "it to be let in again", lambda queues: (queues[0].running, queues[0].state) == (1, "open"))


def test_an_array_starts_in_part_where_there_is_no_room_for_all(place: Place) -> None:
    """Kueue's partial admission: quota for two of three runs."""
    options = {"queue": "team-a", "array": True, "min_parallelism": 1}
    need = Resources(cpus=0.4, memory=GIB)
    jobs = []
    for seed in range(3):
        job = small("seeds", place.namespace, config={"seed": seed}, options=options)
        jobs.append(replace(job, roles={key: replace(role, resources=need) for key, role in job.roles.items()}))
    first = dict(place.backend.submit(place.backend.render(jobs), jobs))
    (name,) = {handle.name for handle in first.values()}
    place.cluster.wait_for("its admission", lambda: place.get("job", name)["spec"]["suspend"] is False, 120)
    spec = place.get("job", name)["spec"]
    assert (spec["completions"], spec["parallelism"]) == (3, 2)
    # what Kueue lowered is not taken for a change
    assert set(place.backend.find(list(first))) == set(first)
    assert dict(place.backend.submit(place.backend.render(jobs), jobs)) == first


@pytest.fixture
def submitter(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Somebody with the rights of the shipped role `slipway-submitter`, who is nobody's administrator."""
    documents = yaml.safe_load_all((Path(__file__).parents[3] / "k8s" / "base" / "roles.yaml").read_text())
    roles = [each for each in documents if each["metadata"]["name"] == "slipway-submitter"]
    place.cluster.apply([each for each in roles if each["kind"] == "Role"], place.namespace)
    place.cluster.apply([each for each in roles if each["kind"] == "RoleBinding"], place.namespace)
    config = yaml.safe_load(place.cluster.kubeconfig.read_text())
    for each in config["users"]:
        each["user"].update({"as": "somebody", "as-groups": ["slipway:submitters"]})
    path = tmp_path / "submitter.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    close_all()
    monkeypatch.setenv("KUBECONFIG", str(path))
    yield "somebody"
    close_all()


def test_the_component_for_kueue_lets_a_submitter_see_the_quota(place: Place, listed: Listed, submitter: str) -> None:
    folder = Path(__file__).parents[3] / "k8s/components/kueue"
    found = list(yaml.safe_load_all((folder / "roles.yaml").read_text()))
    (role,) = [each for each in found if each["kind"] == "ClusterRole"]
    (binding,) = [each for each in found if each["metadata"]["name"] == "slipway-submitter"]
    name = f"{place.namespace}-viewer"  # of the whole cluster, which other tests use, too
    role["rules"][0]["resourceNames"] = [place.namespace]
    for each in (role, binding):
        each["metadata"]["name"] = name
    binding["roleRef"]["name"] = name
    place.cluster.apply([role, binding])
    try:
        assert [quota.flavor for quota in listed()[0].quotas] == [
            *[f"{place.namespace}-small"] * 2,
            *[f"{place.namespace}-large"] * 2,
        ]
    finally:
        place.cluster.kubectl("delete", f"clusterrole/{name}", f"clusterrolebinding/{name}")


def test_a_right_that_is_missing_is_named_and_the_rest_is_shown(
    place: Place, listed: Listed, submitter: str, capsys: Capture
) -> None:
    run = submitted(place, "large", cpus=4.0)
    queues = until(listed, "it to wait", lambda queues: bool(queues[0].runs))
    assert ([each.run for each in queues[0].runs], queues[0].quotas) == ([run], [])
    main(["queues"])
    captured = capsys.readouterr()
    assert run in captured.out
    assert f"the quota of ClusterQueue {place.namespace} is not known" in captured.err
    assert "lacks the right to `get` clusterqueues.kueue.x-k8s.io in the whole cluster" in captured.err
    assert main(["queues", "team-a", "--stop", "--yes"]) == 2
    assert f"lacks the right to `patch` localqueues.kueue.x-k8s.io in namespace {place.namespace}" in (
        capsys.readouterr().err
    )
    assert main(["queues", "team-c", "--stop", "--yes"]) == 3
    assert "there is no queue `team-c` here; there is: team-a, team-b" in capsys.readouterr().err
    print(queues, file=sys.stderr)
