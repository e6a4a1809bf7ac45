"""A namespace of a real cluster, and a launcher that talks to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from launcher.backends.kubernetes.backend import KubernetesBackend, close_all
from tests.support.cluster.cluster import Cluster


@dataclass
class Place:
    cluster: Cluster
    namespace: str
    backend: KubernetesBackend

    def get(self, kind: str, name: str) -> Any:
        return self.cluster.get(kind, name, self.namespace)


@pytest.fixture
def place(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    namespace = cluster.namespace()
    yield Place(cluster, namespace, KubernetesBackend({"namespace": namespace}))
    close_all()
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
