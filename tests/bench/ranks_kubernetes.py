"""A run of 1,000 ranks whose job has 90 kB, on a real API server: what its pods take, with the job in a ConfigMap that
all share, as it is rendered, and with the job in each pod's environment, as it was before.

etcd, kube-apiserver, and the controller manager, on this machine's cores. The JobSet itself is created; no JobSet
controller runs, so its child Job is created as that controller would. There is no node, so the pods wait.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.render.manifests import Object, objects
from launcher.spec.model import ResolvedJob
from tests.bench.submit_kubernetes import _namespace, jobs, servers
from tests.support.jobs import changed
from tests.support.waiting import until

RANKS = int(os.environ.get("RANKS", "1000"))
SIZE = 90_000  # of the text in its configuration


def job(url: str, space: str) -> ResolvedJob:
    one = jobs(url, space)[0]
    roles = {name: msgspec.structs.replace(role, replicas=RANKS, leader=True) for name, role in one.roles.items()}
    return changed(one, roles=roles, config={"text": "x" * SIZE})


def create(api: Api, space: str, value: Mapping[str, Any]) -> None:
    plural = {"ConfigMap": "configmaps", "Job": "jobs"}[value["kind"]]
    group = "/api/v1" if value["kind"] == "ConfigMap" else "/apis/batch/v1"
    api.request("POST", f"{group}/namespaces/{space}/{plural}", body=msgspec.json.encode(value))


def child(rendered: Object) -> dict[str, Any]:
    """The Job that JobSet's controller makes of the first replicatedJob."""
    entry = rendered.main["spec"]["replicatedJobs"][0]
    name = f"{rendered.name}-{entry['name']}-0"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": entry["template"]["spec"]}


def measured(rendered: Object, space: str, database: Path) -> tuple[float, int, float, int]:
    """(seconds until all pods are there, bytes of their list, seconds of that list, bytes that etcd's file grew)."""
    api = KubernetesBackend({"namespace": space}).api
    pods = f"/api/v1/namespaces/{space}/pods"
    before = database.stat().st_size
    clock = time.perf_counter()
    for document in rendered.documents[:-1]:
        create(api, space, document)
    create(api, space, child(rendered))

    def all_there() -> bool:
        answer = api.get(f"/apis/batch/v1/namespaces/{space}/jobs/{child(rendered)['metadata']['name']}")
        return answer is not None and answer.json().get("status", {}).get("active", 0) == RANKS

    until(all_there)
    took = time.perf_counter() - clock
    clock = time.perf_counter()
    answer = api.get(pods)
    assert answer is not None
    listing = time.perf_counter() - clock
    assert len(answer.json()["items"]) == RANKS
    return took, len(answer.body), listing, database.stat().st_size - before


def main() -> int:
    rows = []
    with servers() as (control, bucket):
        control.pki.kubeconfig("controllers")
        control.controllers.start()
        os.environ.update(bucket.environment)
        os.environ["KUBECONFIG"] = str(control.box.folder / "admin.kubeconfig")
        database = Path(control.box.folder) / "etcd" / "member" / "snap" / "db"
        for what, repeated in (("by reference, as rendered", False), ("in each pod, as before", True)):
            space = _namespace("repeated" if repeated else "reference")
            (rendered,) = objects([job(bucket.url(), space)], repeated=repeated)
            rows.append((what, *measured(rendered, space, database)))
    head = f"| {RANKS:,} ranks, a job of {SIZE // 1000} kB | s until all pods are there | MB of their list"
    print(f"{head} | s of that list | MB in etcd |")
    print("|---|---:|---:|---:|---:|")
    for what, took, size, listing, grown in rows:
        print(f"| {what} | {took:.1f} | {size / 1e6:.1f} | {listing:.1f} | {grown / 1e6:.0f} |")
    print(f"\nload {os.getloadavg()[0]:.0f}, {os.cpu_count()} cores")
    return 0


if __name__ == "__main__":
    sys.exit(main())
