"""Two clusters behind one queue: Kueue's MultiKueue in the first gives jobs to the second, whose own Kueue admits them.

Clusters have no route to each other's API servers, so a relay on this machine's address in the first one's network
passes the connection on; TLS ends where it always does, at the second one's API server.
"""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.cluster.autoscaler import QUEUES
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.control import PORT

WEST = "west"  # the second cluster, as the first calls it


@contextmanager
def dispatching(office: Cluster, west: Cluster, namespace: str, queue: str) -> Iterator[None]:
    """A queue in the office's namespace, which exists already, whose jobs run in the other cluster. Both have Kueue."""
    check = f"{namespace}-clusters"
    west.namespace(namespace)
    _queue(west, namespace, queue)
    with _relay(office.box.host, west.box.address) as port:
        config = _kubeconfig(west, f"https://{office.box.host}:{port}")
        office.secret("kueue-system", check, {"kubeconfig": config})
        source = {"kubeConfig": {"location": check, "locationType": "Secret"}}
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": check}
        asks = {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters}
        named: list[tuple[str, str, dict[str, Any]]] = [
            ("MultiKueueCluster", WEST, source),
            ("MultiKueueConfig", check, {"clusters": [WEST]}),
            ("AdmissionCheck", check, asks),
        ]
        office.apply([_object(*each) for each in named])
        office.kubectl("wait", "--for=condition=Active", f"multikueuecluster/{WEST}", "--timeout=90s", timeout=120)
        _queue(office, namespace, queue, check)
        yield
        office.kubectl("delete", "localqueue", queue, "-n", namespace)
        for kind, name in (("clusterqueue", namespace), ("admissioncheck", check), ("multikueueconfig", check)):
            office.kubectl("delete", kind, name, "--wait=false")
        office.kubectl("delete", "multikueuecluster", WEST, "--wait=false")


def _queue(cluster: Cluster, namespace: str, queue: str, check: str = "") -> None:
    quotas = [{"name": "cpu", "nominalQuota": "4"}, {"name": "memory", "nominalQuota": "8Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "any", "resources": quotas}]}
    room: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [group]}
    if check:
        room["admissionChecksStrategy"] = {"admissionChecks": [{"name": check}]}
    local = _object("LocalQueue", queue, {"clusterQueue": namespace})
    local["metadata"]["namespace"] = namespace
    cluster.apply([_object("ResourceFlavor", "any", {}), _object("ClusterQueue", namespace, room), local])
    cluster.kubectl("wait", "--for=condition=Active", f"clusterqueue/{namespace}", "--timeout=90s", timeout=120)


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": QUEUES, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _kubeconfig(cluster: Cluster, server: str) -> str:
    """An administrator's, with everything in it: its reader is in another cluster."""
    pki = cluster.control.pki

    def held(file: Any) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    behind = {"server": server, "tls-server-name": pki.address, "certificate-authority-data": held(pki.ca)}
    user = {"client-certificate-data": held(pki.cert("admin")), "client-key-data": held(pki.key("admin"))}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": WEST, "cluster": behind}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": WEST, "context": {"cluster": WEST, "user": "admin"}}],
            "current-context": WEST,
        }
    )


@contextmanager
def _relay(host: str, target: str) -> Iterator[int]:
    """Passes what comes to a port of this address on to the API server at another; gives the port."""
    listener = socket.create_server((host, 0), backlog=64)
    open_ones: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                near = listener.accept()[0]
                open_ones.append(near)
                try:
                    far = socket.create_connection((target, PORT), 10)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                open_ones.append(far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for each in open_ones:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
