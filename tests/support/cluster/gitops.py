"""The controllers of Argo CD and Flux as programs beside a test's API server, set up by what k8s/gitops ships."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import yaml

from tests.support.cluster.programs import BIN, ROOT, STATE

if TYPE_CHECKING:
    from tests.support.cluster.cluster import Cluster

SHIPPED = ROOT / "k8s" / "gitops"
URL = "https://git.example.com/team/jobs.git"
CACHE, REPO, METRICS = 16379, 18081, (18082, 18084)


class GitOpsTool(Protocol):
    """What the tests want of either tool. `name`: its key in TOOLS."""

    name: ClassVar[str]

    def follow(self, url: str, namespace: str) -> None:
        """Applies the folder `jobs` of a repository to a namespace, as the shipped files say."""

    def poke(self) -> None:
        """Makes it look at Git now, and not after its interval."""

    def applied(self) -> str:
        """The commit that was applied last, as a whole; empty before the first."""

    def attempted(self) -> str:
        """The commit that it tried to apply last; empty before the first."""

    def told(self) -> str:
        """For the message of a test that gives up."""

    def stop(self) -> None:
        """It follows no longer, and its programs end. What it applied stays."""


def _shipped(file: str, url: str, namespace: str) -> list[dict[str, Any]]:
    """The objects of a shipped file for a test's repository and namespace."""
    text = (SHIPPED / file).read_text().replace(URL, url).replace("namespace: slipway", f"namespace: {namespace}")
    return list(yaml.safe_load_all(text.replace("targetNamespace: slipway", f"targetNamespace: {namespace}")))


class ArgoCD:
    """The application controller and the repository server."""

    name = "argocd"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = Path(tempfile.mkdtemp(prefix="argocd-", dir=cluster.folder))
        parts = self.folder / "bin"
        parts.mkdir()
        for name in ("application-controller", "repo-server", "git-ask-pass", "cache"):
            (parts / f"argocd-{name}").symlink_to(BIN / "argocd")
        script = parts / "git-verify-wrapper.sh"  # for each commit, signed or not
        script.write_bytes((STATE / "argocd" / script.name).read_bytes())
        script.chmod(0o755)
        for name in ("gpg", "tls", "ssh", "tmp", "home"):
            (self.folder / name).mkdir()
        cluster.settle("argocd")
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argocd"}})
        cluster.crds("argocd")
        cluster.kubectl("apply", "--server-side", "-n", "argocd", "-f", STATE / "argocd" / "config")
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-k", SHIPPED / "argocd" / "health")
        self._start("cache", f"127.0.0.1:{CACHE}")
        self._start(
            "repo-server",
            *("--port", REPO, "--address", "127.0.0.1", "--metrics-port", METRICS[1], "--metrics-address", "127.0.0.1"),
            *("--redis", f"127.0.0.1:{CACHE}", "--disable-tls", "--client-ca-path", ""),
        )
        self._start(
            "application-controller",
            *("--kubeconfig", cluster.kubeconfig, "-n", "argocd", "--repo-server", f"127.0.0.1:{REPO}"),
            *("--repo-server-plaintext", "--redis", f"127.0.0.1:{CACHE}", "--metrics-port", METRICS[0]),
            *("--app-resync", 10, "--app-resync-jitter", 0, "--self-heal-backoff-timeout-seconds", 2),
            "--persist-resource-health",
        )

    def _start(self, part: str, *flags: object) -> None:
        settings = {
            "PATH": f"{self.folder / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "KUBECONFIG": str(self.cluster.kubeconfig),
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "ARGOCD_GPG_ENABLED": "false",
            "ARGOCD_GNUPGHOME": str(self.folder / "gpg"),
            "ARGOCD_TLS_DATA_PATH": str(self.folder / "tls"),
            "ARGOCD_SSH_DATA_PATH": str(self.folder / "ssh"),
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": str(self.folder / "home"),
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        command = ["env", *words, self.folder / "bin" / f"argocd-{part}", *flags]
        daemon = self.cluster.box.daemon(f"argocd-{part}", command)
        self.cluster.daemons[daemon.name] = daemon
        daemon.launch()

    def stop(self) -> None:
        self.cluster.kubectl("-n", "argocd", "delete", "application/slipway-jobs", "--ignore-not-found")
        for part in ("application-controller", "repo-server", "cache"):
            self.cluster.daemons.pop(f"argocd-{part}").stop()
        self.cluster.kubectl("delete", "namespace", "argocd", "--wait=false")

    def follow(self, url: str, namespace: str) -> None:
        self.cluster.apply(_shipped("argocd/application.yaml", url, namespace))

    def _application(self) -> dict[str, Any]:
        there: dict[str, Any] = self.cluster.get("application", "slipway-jobs", "argocd") or {}
        return there

    def poke(self) -> None:
        note = "argocd.argoproj.io/refresh=normal"
        self.cluster.kubectl("-n", "argocd", "annotate", "application/slipway-jobs", note, "--overwrite")

    def applied(self) -> str:
        """A commit that changes nothing needs no operation, and what a removed file left stays out of sync."""
        status = self._application().get("status", {})
        for one in status.get("resources", ()):
            if one.get("status") != "Synced" and not one.get("requiresPruning"):
                return ""
        return str(status.get("sync", {}).get("revision", ""))

    def attempted(self) -> str:
        operation = self._application().get("status", {}).get("operationState", {})
        return str(operation.get("syncResult", {}).get("revision", ""))

    def health(self, name: str) -> tuple[str, str]:
        """(status, message) of an object of the folder."""
        for one in self._application().get("status", {}).get("resources", ()):
            if one["name"] == name and one["kind"] != "ConfigMap":
                said = one.get("health", {})
                return said.get("status", ""), said.get("message", "")
        return "", ""

    def prune(self) -> None:
        """As `argocd app sync slipway-jobs --prune` does: the same operation, with the Application's own options."""
        options = self._application()["spec"]["syncPolicy"]["syncOptions"]
        operation = {"initiatedBy": {"username": "test"}, "sync": {"prune": True, "syncOptions": options}}
        patch = json.dumps({"operation": operation})
        self.cluster.kubectl("-n", "argocd", "patch", "application/slipway-jobs", "--type=merge", "-p", patch)

    def told(self) -> str:
        logs = [self.cluster.daemons[f"argocd-{part}"].tail() for part in ("application-controller", "repo-server")]
        return "\n".join([json.dumps(self._application().get("status", {}))[:4000], *logs])


class Flux:
    """The source controller and the kustomize controller."""

    name = "flux"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        folder = tempfile.mkdtemp(prefix="flux-", dir=cluster.folder)
        cluster.settle("flux-system")
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "flux-system"}})
        cluster.crds("flux")
        store = "127.0.0.1:18190"
        self._start(
            "source-controller", 18191, "--storage-path", folder, "--storage-addr", store, "--storage-adv-addr", store
        )
        self._start("kustomize-controller", 18193)

    def _start(self, name: str, port: int, *flags: object) -> None:
        settings = [f"KUBECONFIG={self.cluster.kubeconfig}", "RUNTIME_NAMESPACE=flux-system"]
        ports = ["--metrics-addr", f"127.0.0.1:{port}", "--health-addr", f"127.0.0.1:{port + 1000}"]
        daemon = self.cluster.box.daemon(name, ["env", *settings, BIN / name, *ports, *flags])
        self.cluster.daemons[name] = daemon
        daemon.launch()

    def stop(self) -> None:
        for kind in ("kustomization", "gitrepository"):  # their finalizers want the controllers
            self.cluster.kubectl("-n", "flux-system", "delete", f"{kind}/slipway-jobs", "--ignore-not-found")
        for name in ("kustomize-controller", "source-controller"):
            self.cluster.daemons.pop(name).stop()
        self.cluster.kubectl("delete", "namespace", "flux-system", "--wait=false")

    def follow(self, url: str, namespace: str) -> None:
        objects = [*_shipped("flux/rbac.yaml", url, namespace), *_shipped("flux/sync.yaml", url, namespace)]
        # Kueue and JobSet are programs here, not the Deployments that `slipway-platform` waits for
        wanted = [one for one in objects if one["metadata"]["name"] != "slipway-platform"]
        for one in wanted:
            if one["kind"] == "Kustomization":
                del one["spec"]["dependsOn"]
        self.cluster.apply(wanted)

    def poke(self) -> None:
        note = f"reconcile.fluxcd.io/requestedAt={time.time_ns()}"
        for kind in ("gitrepository", "kustomization"):
            self.cluster.kubectl("-n", "flux-system", "annotate", f"{kind}/slipway-jobs", note, "--overwrite")

    def _kustomization(self) -> dict[str, Any]:
        there: dict[str, Any] = self.cluster.get("kustomization", "slipway-jobs", "flux-system") or {}
        return there

    def applied(self) -> str:
        return str(self._kustomization().get("status", {}).get("lastAppliedRevision", "")).rpartition(":")[2]

    def attempted(self) -> str:
        return str(self._kustomization().get("status", {}).get("lastAttemptedRevision", "")).rpartition(":")[2]

    def ready(self) -> tuple[str, str, str]:
        """(status, reason, message) of its condition Ready, all the health that it tells; empty while it has none."""
        for one in self._kustomization().get("status", {}).get("conditions", ()):
            if one["type"] == "Ready":
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def health_failed(self) -> bool:
        """Whether it has given up waiting for a commit's objects. Its condition tells this until the next sync, which a
        poke that came meanwhile begins at once."""
        history = self._kustomization().get("status", {}).get("history", ())
        return any(one["lastReconciledStatus"] == "HealthCheckFailed" for one in history)

    def wait_for_jobs(self, timeout: str | None) -> None:
        """Sets `wait` and its timeout, against the advice of the shipped file; None: as shipped."""
        spec = {"wait": timeout is not None, "timeout": timeout or "2m"}
        patch = json.dumps({"spec": spec})
        self.cluster.kubectl("-n", "flux-system", "patch", "kustomization/slipway-jobs", "--type=merge", "-p", patch)

    def told(self) -> str:
        said = self.cluster.kubectl(
            "-n", "flux-system", "get", "gitrepository,kustomization", "-o", "yaml", check=False
        )
        logs = [self.cluster.daemons[name].tail() for name in ("source-controller", "kustomize-controller")]
        return "\n".join([said[-4000:], *logs])


TOOLS: Final[Mapping[str, Callable[[Cluster], GitOpsTool]]] = {tool.name: tool for tool in (ArgoCD, Flux)}
