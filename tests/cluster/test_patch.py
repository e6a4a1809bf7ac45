"""`kubernetes.patch` on a real control plane and node."""

from __future__ import annotations

import json

import pytest

from tests.cluster.laptop import Laptop
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.programs import BIN
from tests.unit.kubernetes.merges import FILE, PATCHES, asked

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_the_expected_merges_are_those_of_this_kubectl(cluster: Cluster) -> None:
    there = {name: asked(BIN / "kubectl", patch) for name, patch in PATCHES.items()}
    assert there == json.loads(FILE.read_text(encoding="utf-8"))


def test_a_sidecar_starts_before_the_command_and_ends_with_the_run(laptop: Laptop) -> None:
    job = laptop.job("beside", "print('read', open('/shared/word').read())")
    sidecar = {
        "name": "beside",
        "image": job["image"],
        "restartPolicy": "Always",
        "command": ["sh", "-c", "echo first > /shared/word; trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"],
        "startupProbe": {"exec": {"command": ["cat", "/shared/word"]}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
    }
    mount = {"name": "shared", "mountPath": "/shared", "readOnly": True}
    patch = {
        "spec": {
            "initContainers": [sidecar],
            "containers": [{"name": "main", "volumeMounts": [mount]}],
            "volumes": [{"name": "shared", "emptyDir": {}}],
        }
    }
    job["kubernetes"] = {**job.get("kubernetes", {}), "patch": patch}
    (run,) = laptop.submit(job, options=("--follow",))
    assert laptop.result(run).outcome == "succeeded"
    assert "read first" in laptop.launcher("logs", run)
    ended = laptop.ended_pod(run)
    assert ended["status"]["phase"] == "Succeeded"
    assert "nothing to run" in laptop.launcher("submit", "job.yaml")
