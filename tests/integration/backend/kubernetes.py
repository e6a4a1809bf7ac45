"""The contract on a real cluster: the shim of the other harnesses in real pods, which share a folder with the test.

The folder is a volume of the node (a hostPath PersistentVolume: the node is this machine) that is also the store. The
launcher is a service account with a token and the rights of docs/howto/kubernetes.md in one namespace, so that `mine`
sees this test's runs alone.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from launcher.backends.base import Backend, backend
from launcher.backends.kubernetes.api import Api
from launcher.backends.kubernetes.backend import close_all
from launcher.spec.model import Image, Limits, ResolvedJob, Resources
from launcher.store import open_store
from tests.integration.backend.harness import SHIM, Harness
from tests.support.cluster import images
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.linking import Image as Archive
from tests.support.jobs import job

SHARED = "/shared"
EVERYTHING = ["get", "list", "watch", "create", "delete"]
RULES = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": EVERYTHING},
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": EVERYTHING},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/log", "namespaces"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "watch"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create", "patch", "delete"]},
]


def submitter(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """A kubeconfig of a service account that may do in its namespace what the launcher needs, and nothing else."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "launcher", "namespace": namespace}}
    api = "rbac.authorization.k8s.io"
    metadata = {"name": "launcher", "namespace": namespace}
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": RULES}
    binding = {
        "apiVersion": f"{api}/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": api, "kind": "Role", "name": "launcher"},
        "subjects": [{"kind": "ServiceAccount", "name": "launcher", "namespace": namespace}],
    }
    cluster.apply([account, role, binding])
    token = cluster.kubectl("create", "token", "launcher", "-n", namespace).strip()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": cluster.server, "certificate-authority": str(cluster.control.pki.ca)}}
        ],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        "current-context": "x",
    }
    path = folder / f"{namespace}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


class KubernetesHarness:
    def __init__(self, cluster: Cluster, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.umask = os.umask(0)  # the pods' user writes beside what the test's does
        # not below the test's own folder, which other users may not enter
        self.path = Path(tempfile.mkdtemp(prefix="slipway-shared-"))
        self.path.chmod(0o777)
        self.namespace = cluster.namespace()
        self._share()
        monkeypatch.setenv("KUBECONFIG", str(submitter(cluster, self.namespace, path)))
        self.image = cluster._own("test.local/shim:1", lambda: _image(path))
        self.store = open_store((self.path / "store").as_uri())
        self.sends: dict[str, bytes] = {}
        self._listen(monkeypatch)
        self.options = {"namespace": self.namespace}
        self.backend = self.again()

    def _share(self) -> None:
        name, size = f"shared-{self.namespace}", {"storage": "1Gi"}
        modes = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {"capacity": size, "hostPath": {"path": str(self.path)}, **modes},
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "shared", "namespace": self.namespace},
            "spec": {"resources": {"requests": size}, "volumeName": name, **modes},
        }
        self.cluster.apply([volume, claim])

    def _listen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keeps what goes over the wire: a cluster gives back what it understood, not the bytes it was given."""
        send = Api._send
        sends = self.sends

        def listening(
            api: Api, method: str, url: str, headers: Any, body: bytes | None, *rest: Any, **more: Any
        ) -> Any:
            response = send(api, method, url, headers, body, *rest, **more)
            if method == "POST" and "/jobs" in url and "dryRun" not in url and response.status < 300 and body:
                sends[json.loads(response.data)["metadata"]["name"]] = _canonical(json.loads(body))
            return response

        monkeypatch.setattr(Api, "_send", listening)

    def again(self) -> Backend:
        return backend("kubernetes", self.options)

    def job(self, name: str, **changes: Any) -> ResolvedJob:
        options = {**self.options, "caches": [{"name": "shared", "path": SHARED}]}
        made = job(
            name,
            store=f"file://{SHARED}/store",
            backend="kubernetes",
            options=options,
            limits=Limits(deadline=600, grace=1.0),
            **changes,
        )
        reference, _, digest = self.image.partition("@")
        image = Image(reference=reference, digest=digest)
        small = Resources(cpus=0.1)  # the node has two
        roles = {role: replace(each, image=image, resources=small) for role, each in made.roles.items()}
        return replace(made, roles=roles)

    def starts(self, run: str) -> int:
        path = self.path / f"starts-{run}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def sent(self, run: str) -> bytes | None:
        found = self.cluster.kubectl("get", "job", run, "-n", self.namespace, "-o", "name", check=False)
        return self.sends.get(run) if found.strip() else None

    def wire(self, document: str) -> bytes:
        """The same object; its comments and its order go no further than the file."""
        return _canonical(yaml.safe_load(document))

    def let_go(self, run: str | None = None) -> None:
        (self.path / f"go-{run or 'all'}").touch()

    def close(self) -> None:
        os.umask(self.umask)
        close_all()
        self.cluster.kubectl("delete", "namespace", self.namespace, "--wait=false")
        self.cluster.kubectl("delete", "persistentvolume", f"shared-{self.namespace}", "--wait=false")
        shutil.rmtree(self.path, ignore_errors=True)


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False).encode()


def _image(path: Path) -> Archive:
    shim = path / "shim"
    shim.write_text(SHIM.format(folder=SHARED, store=f"{SHARED}/store"))
    shim.chmod(0o755)
    layers = [images.python_layer(), images.layer("shim", {"usr/local/bin/python": shim})]
    return images.image(layers, ["sh"], {"PATH": images.PATH}, "1000:1000")


@contextmanager
def opened(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    cluster: Cluster = request.getfixturevalue("cluster")
    if any("jobset" in mark.args for mark in request.node.iter_markers("cluster")):
        cluster.jobset()
    made = KubernetesHarness(cluster, path, monkeypatch)
    try:
        yield made
    finally:
        made.close()
