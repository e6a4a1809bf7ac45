"""Submitting 1,000 jobs to a real API server, exactly once, job.json in a real S3 store included.

Against etcd, kube-apiserver and versitygw alone, all on the same cores as the launcher. Beside it, in the same run and
by turns, what a thread pool over the official client's own calls reaches, which does only a part of that: it creates
the Jobs, and writes nothing else.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher.backends.base import backend
from launcher.backends.kubernetes.render import objects
from launcher.spec.hashing import run_id
from launcher.spec.model import Image, Limits, ResolvedJob
from launcher.store import open_store
from launcher.store.base import Store
from launcher.submit import submit
from tests.support.cluster import images, programs, s3  # noqa: F401
from tests.support.cluster.control import ControlPlane
from tests.support.cluster.sandbox import Sandbox
from tests.support.jobs import changed, group, job

JOBS = int(os.environ.get("JOBS", "1000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
THREADS = 16  # of the official client; 8 were slower
TARGET, RATIO = 200.0, 2.0
DIGEST = "sha256:" + "0" * 64


@contextmanager
def servers() -> Iterator[tuple[ControlPlane, s3.ClusterS3]]:
    programs.check()
    programs.build("core")
    with Sandbox(programs.pause()) as box:
        control = ControlPlane(box)
        control.pki.make()
        control.etcd.start()
        control.pki.kubeconfig("admin")
        control.apiserver.start(120)
        store = s3.make(box)
        store.start()
        yield control, store


def jobs(url: str, mark: str) -> list[ResolvedJob]:
    """Small jobs that differ in their configuration, as a matrix makes them."""
    made = []
    for index in range(JOBS):
        one = job(
            "bench",
            store=url,
            backend="kubernetes",
            options={"namespace": "default"},
            limits=Limits(deadline=3600.0, grace=30.0),
            config={"mark": mark, "index": index, "rates": [1e-5, 3e-5], "model": {"path": "/inputs/model"}},
        )
        roles = {name: changed_role(role) for name, role in one.roles.items()}
        made.append(changed(one, roles=roles))
    return made


def changed_role(role: Any) -> Any:
    from msgspec.structs import replace

    return replace(role, command=("python", "-m", "x"), image=Image(reference="test.local/none", digest=DIGEST))


def ours(made: Sequence[ResolvedJob], store: Store) -> tuple[float, float]:
    """(seconds of the first submit, of the same once more); every run is there exactly once."""
    whole = group(*made)
    clock = time.perf_counter()
    done = submit(whole, store, backend("kubernetes", {"namespace": "default"}))
    first = time.perf_counter() - clock
    assert [one.state for one in done] == ["submitted"] * len(made)
    clock = time.perf_counter()
    done = submit(whole, store, backend("kubernetes", {"namespace": "default"}))
    again = time.perf_counter() - clock
    assert [one.state for one in done] == ["attached"] * len(made)
    found = backend("kubernetes", {"namespace": "default"}).find([run_id(one) for one in made])  # type: ignore[attr-defined]
    assert len(found) == len(made)
    return first, again


def theirs(made: Sequence[ResolvedJob]) -> float:
    """Seconds of the official client for the same Jobs, which it gets as plain data."""
    from kubernetes import client, config

    config.load_kube_config(config_file=os.environ["KUBECONFIG"])
    api = client.BatchV1Api()
    bodies = [one.main for one in objects(made)]
    clock = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(lambda body: api.create_namespaced_job("default", body), bodies))
    return time.perf_counter() - clock


def main() -> int:
    first, again, other = [], [], []
    with servers() as (control, bucket):
        os.environ.update(bucket.environment)
        os.environ["KUBECONFIG"] = str(control.box.folder / "admin.kubeconfig")
        url = bucket.url()
        store = open_store(url)
        for number in range(ROUNDS):
            took = ours(jobs(url, f"ours-{number}-{time.time()}"), store)
            first.append(JOBS / took[0])
            again.append(JOBS / took[1])
            other.append(JOBS / theirs(jobs(url, f"theirs-{number}-{time.time()}")))
    rate, ratio = statistics.median(first), statistics.median(a / b for a, b in zip(first, other, strict=True))
    print(f"| {JOBS:,} jobs to a real API server, {os.cpu_count()} cores, median of {ROUNDS} | jobs/s |")
    print("|---|---:|")
    print(f"| launcher submit: rendered, validated, job.json in S3, created | {rate:.0f} |")
    print(f"| the same command again: everything found there | {statistics.median(again):.0f} |")
    print(f"| official client, {THREADS} threads: created only | {statistics.median(other):.0f} |")
    print(f"\n{ratio:.1f} times the official client; bars: {TARGET:.0f}/s on two quiet cores, {RATIO:.0f} times")
    print(f"rounds: {[round(each) for each in first]} against {[round(each) for each in other]}")
    return 0 if ratio >= RATIO else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.exit(main())
