"""etcd, API server, controller manager and scheduler of a cluster, on the cluster's own address."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.support.cluster.pki import Pki
from tests.support.cluster.programs import BIN, SET, program
from tests.support.cluster.sandbox import Daemon, Sandbox, wait_for

PORT = 6443
SERVICES = "10.96.0.0/16"


@dataclass
class ControlPlane:
    """`start()` gives a ready API server; all four programs can be killed and started again."""

    box: Sandbox
    etcd: Daemon = field(init=False)
    apiserver: Daemon = field(init=False)
    controllers: Daemon = field(init=False)
    scheduler: Daemon = field(init=False)

    def __post_init__(self) -> None:
        box = self.box
        self.pki = Pki(box.folder / "pki", f"https://{box.address}:{PORT}", box.address)
        self._opener: urllib.request.OpenerDirector | None = None
        client = "http://127.0.0.1:2379"
        etcd = [program("etcd"), "--data-dir", box.folder / "etcd", "--listen-client-urls", client]
        etcd += ["--advertise-client-urls", client, "--listen-peer-urls", "http://127.0.0.1:0", "--log-level", "warn"]
        self.etcd = box.daemon("etcd", etcd)
        self.apiserver = box.daemon("apiserver", self._apiserver(client), ready=lambda: self.get("/readyz"))
        self.controllers = box.daemon("controllers", self._controllers())
        self.scheduler = box.daemon("scheduler", self._scheduler())

    def _apiserver(self, etcd: str) -> list[str]:
        keys, address = self.pki.folder, self.box.address
        return [
            str(BIN / "kube-apiserver"),
            f"--etcd-servers={etcd}",
            "--bind-address=0.0.0.0",
            f"--advertise-address={address}",
            f"--secure-port={PORT}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--tls-cert-file={keys}/apiserver.crt",
            f"--tls-private-key-file={keys}/apiserver.key",
            f"--client-ca-file={keys}/ca.crt",
            f"--service-account-key-file={keys}/sa.pub",
            f"--service-account-signing-key-file={keys}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",  # the privileged Pod Security level refuses nothing; restricted namespaces do
            f"--kubelet-client-certificate={keys}/admin.crt",
            f"--kubelet-client-key={keys}/admin.key",
            f"--kubelet-certificate-authority={keys}/ca.crt",
            "--kubelet-preferred-address-types=InternalIP",
            # servers behind this one, as Kueue's about its queues: it tells them who asks, and goes to their endpoints
            f"--requestheader-client-ca-file={keys}/front-ca.crt",
            "--requestheader-allowed-names=front",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys}/front.crt",
            f"--proxy-client-key-file={keys}/front.key",
            "--enable-aggregator-routing=true",
            # Debian's etcd 3.4 has no RequestWatchProgress, without which watches that ask for a list would hang
            *(() if SET == "newest" else ("--feature-gates=WatchList=false",)),
            # a lost node's pods are given up in seconds: a cluster's 300 would make every such test five minutes long
            "--default-not-ready-toleration-seconds=15",
            "--default-unreachable-toleration-seconds=15",
        ]

    def _controllers(self) -> list[str]:
        keys, folder = self.pki.folder, self.box.folder
        return [
            str(BIN / "kube-controller-manager"),
            f"--kubeconfig={folder}/controllers.kubeconfig",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={keys}/sa.key",
            f"--root-ca-file={keys}/ca.crt",
            "--bind-address=127.0.0.1",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            "--concurrent-job-syncs=20",
            f"--flex-volume-plugin-dir={folder}/flex",
            f"--cert-dir={folder}/controllers-cert",
            "--node-monitor-period=2s",
            "--node-monitor-grace-period=16s",
        ]

    def _scheduler(self) -> list[str]:
        folder = self.box.folder
        return [
            str(BIN / "kube-scheduler"),
            f"--kubeconfig={folder}/scheduler.kubeconfig",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            "--kube-api-qps=1000",
            "--kube-api-burst=2000",
            f"--cert-dir={folder}/scheduler-cert",
        ]

    def start(self) -> None:
        """From nothing to a default service account: pods can be made."""
        with ThreadPoolExecutor(2) as pool:
            keys = pool.submit(self.pki.make)
            pool.submit(self.etcd.start).result()
            keys.result()
        for name in ("admin", "controllers", "scheduler"):
            self.pki.kubeconfig(name)
        self.apiserver.start(120)
        self.controllers.start()
        self.scheduler.start()
        wait_for("the default service account", lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default"))

    def get(self, path: str) -> bytes:
        """A GET as admin. Raises URLError, RuntimeError."""
        if self._opener is None:
            context = ssl.create_default_context(cafile=str(self.pki.ca))
            context.load_cert_chain(self.pki.cert("admin"), self.pki.key("admin"))
            handlers = [urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({})]
            self._opener = urllib.request.build_opener(*handlers)
        try:
            with self._opener.open(f"{self.pki.server}{path}", timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            with error:
                raise RuntimeError(f"{path}: {error.code} {error.read(500)!r}") from None

    def stop(self) -> None:
        for daemon in (self.scheduler, self.controllers, self.apiserver, self.etcd):
            daemon.kill()
