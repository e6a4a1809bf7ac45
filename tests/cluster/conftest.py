"""Helpers for tests on a real cluster; the fixture `cluster` is everybody's (tests/support/cluster/fixtures.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.jobs.several import Desk
from tests.cluster.laptop import Laptop
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.pods import pod
from tests.support.cpu_image import cpu_image
from tests.support.engine import engine

__all__ = ["cpu_image", "engine"]


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A restricted namespace of the test's own."""
    return cluster.namespace()


@pytest.fixture
def run_pod(cluster: Cluster, namespace: str) -> Callable[..., str]:
    """Runs a pod to its end and gives its log."""

    def run(name: str, *command: str, image: str | None = None, **spec: Any) -> str:
        cluster.apply(pod(name, image or cluster.py(), *command, **spec), namespace)
        return cluster.output(name, namespace)

    return run


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laptop:
    """A user with a namespace and a store of their own."""
    for name, value in cluster.s3.environment.items():
        monkeypatch.setenv(name, value)
    return Laptop(cluster, tmp_path)


@pytest.fixture
def desk(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A user of a cluster that has JobSet and names."""
    cluster.jobset()
    cluster.dns()
    for name, value in {**cluster.s3.environment, "KUBECONFIG": str(cluster.kubeconfig)}.items():
        monkeypatch.setenv(name, value)
    return Desk(cluster, tmp_path / "desk")
