"""What k8s/gitops ships for Argo CD and Flux, against a real API server and Kueue's own controller.

No controller of Argo CD or Flux runs here. They apply as kubectl does, on the server's side and in the name of a field
manager; what they leave out of that is settings of the shipped files.
"""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.jobs.several import Desk
from tests.integration.k8s_tree.building import objects, of_kind
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import BIN

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
QUEUE = "spot"
OWN = {"key": "team", "operator": "Equal", "value": "agents", "effect": "NoSchedule"}
OF_THE_FLAVOUR = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
Keys = tuple[str, ...]


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A user of a cluster that has JobSet and Kueue."""
    cluster.jobset()
    cluster.kueue()
    for name, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    return Desk(cluster, tmp_path / "desk")


def applied(cluster: Cluster, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Server-side apply, as both tools do it."""
    command = [str(BIN / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "apply", "--server-side"]
    command += ["--force-conflicts", "--field-manager=argocd-controller", "-o", "json", *flags, "-f", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=240)


@pytest.mark.cluster("argocd-crds", "flux-crds")
def test_the_tools_own_definitions_take_what_is_shipped(cluster: Cluster) -> None:
    """With their CRDs' schemas, enums and CEL rules, and no field that they do not know."""
    cluster.crds("argocd", "flux")
    for space in ("argocd", "flux-system", "slipway"):
        if cluster.get("namespace", space) is None:
            cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}})
    shipped = [*objects("gitops/argocd"), *objects("gitops/flux")]
    assert {one["kind"] for one in shipped} >= {"Application", "AppProject", "GitRepository", "Kustomization"}
    for one in shipped:
        done = applied(cluster, json.dumps(one), "--dry-run=server", "--validate=strict")
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr
    (application,) = of_kind("gitops/argocd", "Application")
    application["spec"]["syncPolicy"]["retry"]["refreshed"] = True
    done = applied(cluster, json.dumps(application), "--dry-run=server", "--validate=strict")
    assert ".spec.syncPolicy.retry.refreshed: field not declared in schema" in done.stderr


def ignored(kind: str) -> list[Keys]:
    """The fields of a kind that the shipped Application ignores; `[]` stands for each item of a list."""
    (application,) = of_kind("gitops/argocd", "Application")
    (rule,) = [one for one in application["spec"]["ignoreDifferences"] if one["kind"] == kind]
    pointers = [tuple(pointer.strip("/").split("/")) for pointer in rule.get("jsonPointers", ())]
    paths = [path.strip(".").replace("[]", ".[]").split(".") for path in rule.get("jqPathExpressions", ())]
    return [*pointers, *map(tuple, paths)]


def keep(sent: Any, living: Any, keys: Keys) -> None:
    """Gives a field of the object that is sent the value that it has in the cluster, as RespectIgnoreDifferences
    does."""
    first, *rest = keys
    if first == "[]":
        for item, other in zip(sent, living, strict=True):
            keep(item, other, tuple(rest))
    elif rest:
        keep(sent.setdefault(first, {}), living.get(first, {}), tuple(rest))
    elif first in living:
        sent[first] = copy.deepcopy(living[first])
    else:
        sent.pop(first, None)


def tolerations(value: Any) -> Iterator[list[dict[str, Any]]]:
    """Of each pod template in an object."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value.get("tolerations", [])
        for item in value.values():
            yield from tolerations(item)
    elif isinstance(value, list):
        for item in value:
            yield from tolerations(item)


def spot_queue(desk: Desk) -> None:
    """A queue whose flavour gives each admitted job a toleration and a node selector."""
    api = "kueue.x-k8s.io/v1beta1"
    quotas = [{"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "4Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": quotas}]}
    place = {"name": QUEUE, "namespace": desk.namespace}
    flavour = {"nodeLabels": {"kubernetes.io/os": "linux"}, "tolerations": [OF_THE_FLAVOUR]}
    queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    desk.cluster.apply(
        [
            {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "spot"}, "spec": flavour},
            {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": desk.namespace}, "spec": queue},
            {"apiVersion": api, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": desk.namespace}},
        ]
    )


def rendered(desk: Desk, *jobs: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The file that `render -o` writes for a job, and its object."""
    folder = desk.path / f"jobs-{jobs[0]['name']}"
    desk.launcher("render", desk.write(*jobs), "--to", folder)
    (file,) = folder.iterdir()
    (value,) = yaml.safe_load_all(file.read_text())
    return file, value


def refused(done: subprocess.CompletedProcess[str], words: Sequence[str]) -> bool:
    return done.returncode != 0 and any(word in done.stderr for word in words)


@pytest.mark.cluster("jobset", "kueue")
@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_an_admitted_job_is_refused_when_it_is_sent_again_and_taken_with_what_is_ignored(
    cluster: Cluster, desk: Desk, kind: str
) -> None:
    """The reason for `RespectIgnoreDifferences` and `ssa: IfNotPresent`: lists of tolerations have one owner, and an
    admitted Job's template cannot be changed."""
    spot_queue(desk)
    block = {"queue": QUEUE, "tolerations": [OWN]}
    job = desk.until_told("one", kubernetes=block) if kind == "Job" else desk.ranks("pair", 400, kubernetes=block)
    file, value = rendered(desk, job)
    assert (value["kind"], "suspend" in value["spec"]) == (kind, False)
    name = value["metadata"]["name"]
    first = applied(cluster, file.read_text())
    assert first.returncode == 0, first.stderr

    def admitted() -> dict[str, Any] | None:
        there: dict[str, Any] = cluster.get(kind, name, desk.namespace)
        return there if there["spec"].get("suspend") is False else None

    living = desk.until("its admission", admitted, name)
    given = [OWN, OF_THE_FLAVOUR]
    assert list(tolerations(living)) == [given] * len(list(tolerations(value)))

    again = applied(cluster, file.read_text(), "--dry-run=server")
    assert refused(again, ["field is immutable", "Invalid", "denied the request"]), again.stdout + again.stderr

    kept = copy.deepcopy(value)
    for keys in ignored(kind):
        keep(kept, living, keys)
    done = applied(cluster, json.dumps(kept), "--dry-run=server")
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    assert after["spec"]["suspend"] is False
    assert after["metadata"]["uid"] == living["metadata"]["uid"]
    assert after["metadata"]["generation"] == living["metadata"]["generation"]  # nothing of it changes
    cluster.kubectl("delete", kind.lower(), name, "-n", desk.namespace, "--wait=false")
