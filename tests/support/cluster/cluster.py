"""A Kubernetes cluster of real parts, made from nothing for a test run and gone after it."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from tests.support.cluster import addons, images, linking, programs, s3
from tests.support.cluster.control import ControlPlane
from tests.support.cluster.linking import Image
from tests.support.cluster.node import PAUSE, Node
from tests.support.cluster.programs import BIN
from tests.support.cluster.proxy import ApiProxy
from tests.support.cluster.sandbox import Daemon, Sandbox, wait_for, without_proxies
from tests.support.engine import Engine

T = TypeVar("T")
Objects = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
PATIENCE = 60.0  # seconds for which something is applied again
# what kubectl says where the server, or a webhook behind it, was too slow or changed the object meanwhile
PASSING = re.compile(
    r"Error from server \((Timeout|ServerTimeout|TooManyRequests|ServiceUnavailable)\)|the object has been modified"
    r"|failed calling webhook .*(context deadline exceeded|connection refused|EOF)"
    r"|etcdserver: |TLS handshake timeout|connection reset by peer"
)


class Cluster:
    """
    kubeconfig  an administrator's
    s3          the S3 server: .url(), .bucket(), .endpoint, .environment, .daemon
    nodes       the real ones so far; node(i) gives one, and makes it
    timings     seconds from the start until each part was there
    """

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.folder = box.folder
        self.kubeconfig = box.folder / "admin.kubeconfig"
        self.host = box.host  # this machine as pods see it: a test's own server on it is reached from pods
        self.control = ControlPlane(box)
        self.server = self.control.pki.server
        self.s3 = s3.make(box)
        self.nodes: dict[int, Node] = {}
        self.daemons: dict[str, Daemon] = {}  # of what was asked for beyond the core
        self.timings: dict[str, float] = {}
        self._images: list[Imported] = []
        self._parts: set[str] = set()
        self._references: dict[str, str] = {}

    @property
    def etcd(self) -> Daemon:
        return self.control.etcd

    @property
    def apiserver(self) -> Daemon:
        """After an outage of more than seconds, controllers have backed off: give what follows two minutes."""
        return self.control.apiserver

    @property
    def controllers(self) -> Daemon:
        return self.control.controllers

    @property
    def scheduler(self) -> Daemon:
        return self.control.scheduler

    def start(self) -> None:
        begun = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            control = pool.submit(self.control.start)
            node = pool.submit(self._prepare, 1)
            pool.submit(self.s3.start).result()
            control.result()
            self.timings["control plane"] = time.monotonic() - begun
            self.nodes[1] = node.result()
            self.timings["containerd and pause"] = time.monotonic() - begun
        self.nodes[1].start()
        self.timings["node Ready"] = time.monotonic() - begun

    def _prepare(self, index: int) -> Node:
        node = Node(self.box, self.control, index)
        node.prepare()
        linking.bring(node, images.pause_image(), PAUSE)
        for image in self._images:
            self._bring(node, image)
        return node

    def node(self, index: int = 1) -> Node:
        """The real node n1, n2, ... (4 at most); made when it is asked for, with every image that the others have."""
        if index not in self.nodes:
            node = self._prepare(index)
            node.start()
            self.nodes[index] = node
        return self.nodes[index]

    def kubectl(self, *arguments: str | Path, data: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """What it prints. Raises RuntimeError with what it said."""
        command = [str(BIN / "kubectl"), "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        environment = without_proxies() | {"KUBECACHEDIR": str(self.folder / "kubectl-cache")}
        done = subprocess.run(
            command, input=data, capture_output=True, text=True, check=False, timeout=timeout, env=environment
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(map(str, arguments))}: {done.returncode}\n{done.stderr[-4000:]}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, objects: Objects, namespace: str | None = None, server_side: bool = True) -> str:
        """YAML text, one object or several. Sent again where a loaded machine was too slow; a refusal is a refusal."""
        if not isinstance(objects, str):
            items = [objects] if isinstance(objects, Mapping) else list(objects)
            objects = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        flags = ["--server-side", "--force-conflicts"] if server_side else []
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.kubectl("apply", *_in(namespace), *flags, "-f", "-", data=objects)
            except RuntimeError as error:
                if not PASSING.search(str(error)) or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def get(self, kind: str, name: str | None = None, namespace: str | None = None, selector: str = "") -> Any:
        """One object, or without a name the list of them; None if there is none of that name."""
        arguments = ["get", kind, *([name] if name else []), *_in(namespace), "-o", "json", "--ignore-not-found"]
        text = self.kubectl(*arguments, *(["-l", selector] if selector else []))
        if name:
            return json.loads(text) if text.strip() else None
        return json.loads(text)["items"] if text.strip() else []

    def logs(self, pod: str, namespace: str, *flags: str) -> str:
        return self.kubectl("logs", pod, "-n", namespace, *flags)

    def output(self, pod: str, namespace: str, timeout: float = 120) -> str:
        """All that a pod printed, which ends by itself: waits for its end. What the pod did may be seen elsewhere (in a
        store) before its kubelet knows of its container: it asks the runtime once a second, and until then `kubectl
        logs` answers that the container is waiting to start."""
        self.ended(pod, namespace, timeout)
        return self.logs(pod, namespace)

    def ended(self, pod: str, namespace: str, timeout: float = 60) -> str:
        """Waits for the end of a pod; gives its phase. Raises TimeoutError with what the pod's events say."""

        def phase() -> str | None:
            found = self.get("pod", pod, namespace)
            return found["status"]["phase"] if found["status"].get("phase") in ("Succeeded", "Failed") else None

        try:
            return wait_for(f"the end of pod {pod}", phase, timeout) or ""
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{self.kubectl('describe', 'pod', pod, '-n', namespace)[-2500:]}") from None

    def wait_for(self, what: str, try_it: Callable[[], T], timeout: float = 60, every: float = 0.2) -> T:
        return wait_for(what, try_it, timeout, every)

    def namespace(self, name: str | None = None, enforce: str = "restricted") -> str:
        """Makes a namespace with this Pod Security level, and gives its name; pods can be made in it."""
        name = name or f"test-{uuid4().hex[:8]}"
        labels = {"pod-security.kubernetes.io/enforce": enforce, "pod-security.kubernetes.io/warn": enforce}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        wait_for("its default service account", lambda: self.get("serviceaccount", "default", name), 30)
        return name

    def version(self) -> str:
        """Of Kubernetes, for example 1.34."""
        told = json.loads(self.control.get("/version"))
        return f"{told['major']}.{told['minor']}"

    def settle(self, *namespaces: str) -> None:
        """Waits until none of these namespaces is on its way out: one that is takes nothing new, and takes what was
        applied to it along."""

        def settled() -> bool:
            there = {one["metadata"]["name"]: one["metadata"] for one in self.get("namespaces")}
            return not any("deletionTimestamp" in there.get(name, {}) for name in namespaces)

        wait_for("namespaces to go", settled, 180, every=0.5)

    def secret(self, namespace: str, name: str, values: Mapping[str, str]) -> str:
        """A Secret; `cluster.secret(ns, "store", cluster.s3.environment)` has the S3 server's credentials."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        metadata = {"name": name, "namespace": namespace}
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        return name

    def py(self) -> str:
        """A reference of an image with Python and a shell, for pods that are to start at once."""
        return self._own("test.local/py:1", images.py_image)

    def launcher(self) -> str:
        """The same with the launcher of this clone: `python -m launcher.runtime` runs in it, without torch."""
        return self._own("test.local/launcher:1", images.launcher_image)

    def reaper(self) -> str:
        """The same with a Kubernetes client and Pillow, in the place of slipway-cpu where nothing is trained."""
        return self._own("test.local/slipway-cpu:1", images.reaper_image)

    def monitor(self) -> str:
        """The same with what `launcher monitor` needs."""
        return self._own("test.local/monitor:1", images.monitor_image)

    def _own(self, name: str, make: Callable[[], Image]) -> str:
        if name not in self._references:
            self._references[name] = self._import(Imported(name, name, make()))
        return self._references[name]

    def import_image(self, engine: Engine, tag: str) -> str:
        """An image of the tests' Docker engine, on every node; gives `test.local/NAME@sha256:...` for pods."""
        identity = engine.docker("image", "inspect", "--format", "{{.Id}}", tag).stdout.strip()
        if identity not in self._references:
            domain, _, rest = tag.partition("/")
            qualified = tag if rest and ("." in domain or ":" in domain) else f"docker.io/library/{tag}"
            wanted = f"test.local/{tag.rpartition('/')[2]}"
            linked = linking.find(engine.state / "data", identity, self.folder) if engine.base else None
            save = ("docker", "-H", engine.host, "save", tag)
            self._references[identity] = self._import(Imported(qualified, wanted, linked, save))
        return self._references[identity]

    def _import(self, image: Imported) -> str:
        references = [self._bring(node, image) for node in self.nodes.values()]
        self._images.append(image)  # for nodes to come
        return references[0]

    def _bring(self, node: Node, image: Imported) -> str:
        """One image to one node: linked, or from Docker, or from the first node."""
        first = self.nodes.get(1, node)
        if image.linked is not None:
            linking.bring(node, image.linked, image.name)
        elif node is first:
            node.import_from(list(image.source))
        else:
            node.import_from(first.ctr_command("images", "export", "-", image.name))
        return self._name(node, image)

    def _name(self, node: Node, image: Imported) -> str:
        """The kubelet finds an image by its digest only under a name that has it."""
        reference = f"{image.wanted.rpartition(':')[0]}@{node.digest(image.name)}"
        for name in (image.wanted, reference):
            if name != image.name:
                node.tag(image.name, name)
        return reference

    def dns(self) -> None:
        """CoreDNS and kube-proxy: Services, and pods by their names."""
        self._once("dns", addons.dns)

    def kwok(self, count: int = 20) -> None:
        """At least `count` fake nodes with 8 nvidia.com/gpu each: see addons.kwok."""
        programs.build("kwok")
        addons.kwok(self, count)

    def crds(self, *names: str) -> None:
        """The CRDs of "jobset", "kueue", "argocd" or "flux", without what acts on them: for server-side dry runs."""
        for name in names:
            self._once(f"{name}-crds", addons.crds, name)

    def jobset(self) -> None:
        """JobSet's manager with its webhooks."""
        self._once("jobset", addons.jobset)

    def kueue(self) -> None:
        """Kueue's manager with its webhooks, for Jobs and (asked for before) JobSets."""
        self._once("kueue", addons.kueue)

    def _once(self, part: str, make: Callable[..., None], *arguments: str) -> None:
        if part not in self._parts:
            programs.build(part)
            begun = time.monotonic()
            make(self, *arguments)
            self._parts.add(part)
            self.timings[part] = time.monotonic() - begun

    @contextmanager
    def proxy(self, seed: int = 0) -> Iterator[ApiProxy]:
        """A proxy with faults in front of the API server; launchers use its `.kubeconfig`."""
        with ApiProxy(self, seed) as proxy:
            yield proxy


@dataclass(frozen=True)
class Imported:
    """
    name    the image's in its archive
    wanted  test.local/NAME:TAG, what pods may call it
    linked  where its layers are linked from; None: `source` is a command that prints the archive
    """

    name: str
    wanted: str
    linked: Image | None
    source: tuple[str, ...] = ()


def _in(namespace: str | None) -> list[str]:
    return ["-n", namespace] if namespace else []


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster for as long as the context lasts. Raises NoCluster where there can be none."""
    programs.check()
    programs.install()
    programs.build("core")
    with Sandbox(programs.pause()) as box:
        cluster = Cluster(box)
        cluster.start()
        yield cluster
