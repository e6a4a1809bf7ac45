"""The administrators' and the users' page on an empty cluster: their commands are typed in order, as they stand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from launcher.store.opening import open_store
from tests.cluster.pages import Reader, section, store_keys
from tests.support.cluster.cluster import Cluster, running
from tests.support.cluster.fixtures import without
from tests.support.cluster.sandbox import NoCluster
from tests.support.documented import ROOT, blocks

pytestmark = [pytest.mark.cluster("core", "jobset", "kueue", "dns", "kwok"), pytest.mark.timeout(1500)]

ADMIN = ROOT / "docs/howto/kubernetes-admin.md"
USERS = ROOT / "docs/howto/kubernetes.md"
STEPS = tuple(f"{number}. " for number in range(1, 11))
# what a page shows that is not here; every other command is typed
ELSEWHERE = {
    "needs: the internet",
    "needs: the internet and GPUs",
    "needs: a cloud",
    "needs: a Docker engine and a registry",
    "needs: a network plugin and a way to the internet",
}
BUCKET = "team-bucket"


@pytest.fixture
def empty() -> Iterator[Cluster]:
    """A cluster of its own, with names for Services and one more node, and nothing else."""
    try:
        with running() as cluster:
            cluster.dns()
            cluster.kwok(1)
            yield cluster
    except NoCluster as error:
        without(error)


def reader_of(cluster: Cluster, folder: Path) -> Reader:
    name, _, digest = cluster.reaper().partition("@")
    folder.mkdir()
    return Reader(
        cluster,
        folder,
        {
            "NODE": "fake-000",
            "newName: registry.example.com/agents/slipway-cpu": f"newName: {name}",
            f"digest: sha256:{'1' * 64}": f"digest: {digest}",
            f"registry.example.com/slipway/slipway-cpu@sha256:{'3c' * 32}": f"{name}@{digest}",
        },
    )


def make_bucket(cluster: Cluster) -> None:
    keys = {"aws_access_key_id": cluster.s3.key, "aws_secret_access_key": cluster.s3.secret}
    client = boto3.client("s3", **keys, endpoint_url=cluster.s3.endpoint, region_name=cluster.s3.region)
    client.create_bucket(Bucket=BUCKET)
    client.close()


def administrate(reader: Reader) -> None:
    """The steps of the administrators' page; JobSet and Kueue come from the tests' own programs."""
    names = reader.write(ADMIN)
    assert names == ["platform/kustomization.yaml", "platform/reaper/kustomization.yaml"]
    reader.cluster.jobset()
    reader.cluster.kueue()
    left_out = set()
    for block in section(ADMIN, *STEPS):
        mark = block[0].mark
        if not mark.startswith("needs: a cluster"):
            left_out.add(mark)  # without a mark: tests/integration/documents/test_run.py types it
            continue
        for shown in block:
            said = reader.type(shown, code=1 if "the answer is no" in mark else 0)
            if "auth can-i" in shown.line:
                assert said.split()[0] == ("no" if "the answer is no" in mark else "yes"), shown.line
    assert left_out == ELSEWHERE | {""}


def test_the_two_pages_lead_from_an_empty_cluster_to_a_result(
    empty: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store_keys(empty).items():
        monkeypatch.setenv(name, value)
    make_bucket(empty)
    reader = reader_of(empty, tmp_path / "reader")
    administrate(reader)

    # the reaper ran in its pod, by its own account: it reached the API server and the store
    (look,) = empty.get("pods", namespace="slipway-system", selector="job-name=first-look")
    assert look["spec"]["serviceAccountName"] == "slipway-reaper"
    assert look["status"]["phase"] == "Succeeded"

    reader.impersonate("ada", "agents-team")
    (profile,) = [text for text in USERS.read_text().split("```yaml\n")[1:] if text.startswith("store:")]
    (reader.folder / "slipway.yaml").write_text(reader.fill(profile.partition("```")[0]))
    (first,) = section(USERS, "The first job")
    said = [reader.type(shown) for shown in first]
    assert len(said) == 5
    (job,) = empty.get("jobs", namespace="slipway")
    run = job["metadata"]["name"]
    assert json.loads(open_store(f"s3://{BUCKET}/agents").get(f"runs/{run}/result.json"))["outcome"] == "succeeded"
    assert list((reader.folder / "runs").rglob("*.png"))
    (workload,) = empty.get("workloads.kueue.x-k8s.io", namespace="slipway")
    assert workload["status"]["admission"]["clusterQueue"] == "slipway"


def test_every_command_of_the_page_says_where_it_can_be_typed() -> None:
    marks = {block[0].mark for block in blocks(ADMIN)}
    known = ("needs: a cluster", "needs: kind, docker", *ELSEWHERE)
    assert [mark for mark in marks if mark and not mark.startswith(known)] == []
