"""The administrators' and the users' page on an empty cluster: their commands are typed in order, as they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import yaml

from launcher.store.opening import open_store
from tests.cluster.pages import Reader, section, store_keys
from tests.support.cluster.cluster import Cluster, running
from tests.support.cluster.sandbox import NoCluster
from tests.support.documented import ROOT, blocks
from tests.support.needs import lacking

# nightly: each test starts a cluster of its own, with a DNS server and kube-proxy, which CI does not build
pytestmark = [
    pytest.mark.cluster("core", "jobset", "kueue", "dns", "kwok"),
    pytest.mark.nightly,
    pytest.mark.timeout(1500),
]

ADMIN = ROOT / "docs/howto/kubernetes-admin.md"
USERS = ROOT / "docs/howto/kubernetes.md"
STEPS = (*(f"{number}. " for number in range(1, 11)), "Rights on the bucket")
# what a page shows that is not here; every other command is typed
ELSEWHERE = {
    "needs: the internet",
    "needs: the internet and GPUs",
    "needs: a cloud",
    "needs: a Docker engine and a registry",
    *(
        f"needs: a Docker engine and {cloud}; tests/integration/images/test_clouds.py types it against a local registry"
        for cloud in ("AWS", "Google Cloud", "Azure")
    ),
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
        lacking("cluster", str(error))


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


OLD = ROOT / "tests/cluster/before/reaper_in_slipway.yaml"
WAITING = """
import os, time
print("up", flush=True)
while not os.path.exists("/tmp/go"): time.sleep(0.2)
"""


def objects_of(text: str) -> set[tuple[str, str, str]]:
    return {
        (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in yaml.safe_load_all(text)
    }


def submit(reader: Reader, name: str) -> str:
    """A run in the queue that works until the file /tmp/go is in its pod; gives its id once it works."""
    job = {
        "name": name,
        "image": reader.fill(f"registry.example.com/slipway/slipway-cpu@sha256:{'3c' * 32}"),
        "command": ["python", "-c", WAITING],
        "resources": {"cpus": 0.1, "memory": "256Mi"},
        "limits": {"deadline": "30m", "grace": "5s"},
        "env": {"TEST_JOB": name},
    }
    (reader.folder / "job.yaml").write_text(yaml.safe_dump(job))
    (run,) = re.findall(rf"{name}-[0-9a-f]{{12}}", reader.launcher("submit", "job.yaml", "-o", "json"))[:1]
    reader.cluster.wait_for("its first line", lambda: "up" in reader.launcher("logs", run).split() or None, 120, 2)
    return run


def test_an_upgrade_leaves_a_run_alone_and_uninstalling_leaves_the_store(
    empty: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store_keys(empty).items():
        monkeypatch.setenv(name, value)
    make_bucket(empty)
    store = open_store(f"s3://{BUCKET}/agents")
    reader = reader_of(empty, tmp_path / "reader")
    reader.write(ADMIN)
    block = {"namespace": "slipway", "queue": "slipway", "store_secret": "slipway-store"}
    profile = {"store": f"s3://{BUCKET}/agents", "backend": "kubernetes", "kubernetes": block}
    (reader.folder / "slipway.yaml").write_text(yaml.safe_dump(profile))
    empty.kubectl("label", "node", "fake-000", "nvidia.com/gpu.product=NVIDIA-L4")
    empty.kubectl("taint", "nodes", "fake-000", "nvidia.com/gpu=present:NoSchedule")
    empty.jobset()
    empty.kueue()
    empty.apply(OLD.read_text())
    empty.secret("slipway", "slipway-store", reader.keys)
    empty.wait_for("the queue", lambda: _active(empty) or None, 120)
    run = submit(reader, "before")
    (pod,) = empty.get("pods", namespace="slipway", selector=f"slipway.dev/run={run}")

    for shown in (each for part in section(ADMIN, "Upgrade", "A cluster with the reaper") for each in part):
        reader.type(shown)
    manager = empty.daemons["kueue-manager"]
    manager.kill()
    manager.start()
    built = [empty.kubectl("kustomize", reader.folder / part) for part in ("platform", "platform/reaper")]
    now = objects_of("---\n".join(built))
    gone = objects_of(OLD.read_text()) - now
    assert gone  # the old reaper
    for kind, namespace, name in gone:
        assert empty.get(kind, name, namespace) is None, (kind, name)
    for kind, namespace, name in now:
        assert empty.kubectl("get", kind, name, *(["-n", namespace] if namespace else []), "-o", "name")
    (after,) = empty.get("pods", namespace="slipway", selector=f"slipway.dev/run={run}")
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    assert after["status"]["phase"] == "Running"
    empty.kubectl("exec", "-n", "slipway", pod["metadata"]["name"], "--", "touch", "/tmp/go")
    ended = empty.wait_for("its result", lambda: store.read(f"runs/{run}/result.json"), 120, 1)
    assert ended is not None
    assert (json.loads(ended[0])["outcome"], json.loads(ended[0])["attempt"]) == ("succeeded", 1)

    reader.filled = {**reader.filled, "RUN": submit(reader, "after")}
    for shown in (each for part in section(ADMIN, "Uninstall") for each in part):
        reader.type(shown)
    kinds = empty.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    assert not empty.kubectl("get", ",".join(kinds), "-A", "-l", "app.kubernetes.io/part-of=slipway", "-o", "name")
    names = {one["metadata"]["name"] for one in empty.get("namespaces")}
    assert not {name for name in names if name.startswith("slipway")}
    (node,) = [one for one in empty.get("nodes") if one["metadata"]["name"] == "fake-000"]
    assert not [key for key in node["metadata"]["labels"] if key.startswith("nvidia.com/")]
    assert json.loads(store.get(f"runs/{run}/result.json"))["outcome"] == "succeeded"
    assert json.loads(store.get(f"runs/{reader.filled['RUN']}/result.json"))["outcome"] == "cancelled"
    assert "up" in reader.launcher("logs", run)


def _active(cluster: Cluster) -> bool:
    found = cluster.get("clusterqueue", "slipway") or {}
    conditions = found.get("status", {}).get("conditions", ())
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)


def test_every_command_of_the_page_says_where_it_can_be_typed() -> None:
    marks = {block[0].mark for block in blocks(ADMIN)}
    known = ("needs: a cluster", "needs: kind, docker", *ELSEWHERE)
    assert [mark for mark in marks if mark and not mark.startswith(known)] == []
