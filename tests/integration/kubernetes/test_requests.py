"""How many requests the state of many runs costs: pages of lists and a watch for each kind, not a request for each run.

Against a server that speaks like an API server; tests/bench/status_kubernetes.py has the figures of a real one.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from launcher.backends.kubernetes.watch import event_cache as board_module
from launcher.errors import Unreachable
from tests.integration.kubernetes.speaker import Answer, Speaker, speaking

PAGE = 500  # objects that the launcher asks for at a time
JOBS = "/apis/batch/v1/namespaces/n/jobs"


def run_of(index: int) -> str:
    return f"queued-{index:012x}"


class Cluster:
    """A namespace with `count` Jobs that wait, in pages. `hold`: called before each page of Jobs."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.ended = threading.Event()
        self.hold: Callable[[], object] = lambda: None

    def answer(self, method: str, path: str, query: dict[str, str]) -> Answer:
        if "watch" in query:
            self.ended.wait(60)
            return 200, b""
        selector = query.get("labelSelector", "")
        if path == JOBS and "array" not in selector and "jobset-name" not in selector:
            self.hold()
            start = int(query.get("continue") or 0)
            rest = start + PAGE if start + PAGE < self.count else ""
            items = [self._job(index) for index in range(start, min(start + PAGE, self.count))]
            return 200, {"metadata": {"resourceVersion": "1", "continue": str(rest)}, "items": items}
        if path.startswith(f"{JOBS}/"):
            index = int(path.rpartition("-")[2], 16)
            return (200, self._job(index)) if index < self.count else (404, {"kind": "Status", "code": 404})
        if "jobset" in path:
            return 404, {"kind": "Status", "code": 404}
        return 200, {"metadata": {"resourceVersion": "1"}, "items": []}

    def _job(self, index: int) -> dict[str, Any]:
        notes = {"slipway.dev/runs": json.dumps({run_of(index): "h"})}
        labels = {"app.kubernetes.io/managed-by": "slipway"}
        metadata = {"name": run_of(index), "namespace": "n", "uid": str(index), "annotations": notes, "labels": labels}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {}, "status": {}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Cluster, Speaker]]:
    fake = Cluster(10_000)
    with speaking(fake.answer) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path)))
        yield fake, server
        fake.ended.set()
        close_all()


def asked(server: Speaker) -> Counter[str]:
    """One run's own path counts as its collection's."""
    return Counter(path.replace("queued-", "NAME queued-").partition(" queued-")[0] for _, path in server.asked)


def test_the_state_of_many_runs_costs_pages_and_a_watch(cluster: tuple[Cluster, Speaker]) -> None:
    """2,000 of the 10,000 runs of a namespace."""
    _, server = cluster
    backend = KubernetesBackend({"namespace": "n"})
    with ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(backend.look_up, map(run_of, range(2000))))
    assert all(observation is not None and observation.active for observation in seen)
    pages = 10_000 // PAGE
    # until a watch replaces them a few runs are asked for one by one, each with its pods and events
    assert len(server.asked) < pages + 60, asked(server)


def test_a_list_that_takes_longer_than_the_bound_is_waited_for(
    cluster: tuple[Cluster, Speaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is on the time without another page. Before, the watch was given up, and each run was asked for."""
    fake, server = cluster
    monkeypatch.setattr(board_module, "SYNC", 3.0)
    fake.hold = lambda: threading.Event().wait(0.25)  # 20 pages: 5 s
    backend = KubernetesBackend({"namespace": "n"})
    with ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(backend.look_up, map(run_of, range(500))))
    assert all(observation is not None for observation in seen)
    assert len(server.asked) < 10_000 // PAGE + 60, asked(server)


def test_a_watch_that_can_not_start_is_tried_once(
    cluster: tuple[Cluster, Speaker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all who ask at the same time, not by one after the other."""
    started: list[int] = []

    def refused(self: board_module.EventCache) -> None:
        started.append(1)
        raise Unreachable("it takes too long to list")

    monkeypatch.setattr(board_module.EventCache, "start", refused)
    backend = KubernetesBackend({"namespace": "n"})
    with ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(backend.look_up, map(run_of, range(48))))
    assert all(observation is not None for observation in seen)
    assert len(started) == 1


def test_runs_without_an_object_cost_a_request_for_each_kind(cluster: tuple[Cluster, Speaker]) -> None:
    """Objects of several runs are listed a few times, not for each run that is looked for."""
    _, server = cluster
    backend = KubernetesBackend({"namespace": "n"})
    with ThreadPoolExecutor(16) as threads:
        seen = list(threads.map(backend.look_up, map(run_of, range(20_000, 20_300))))
    assert seen == [None] * 300
    lists = sum(count for path, count in asked(server).items() if not path.endswith("NAME"))
    assert asked(server)[f"{JOBS}/NAME"] == 300
    assert lists < 10_000 // PAGE + 60, asked(server)
