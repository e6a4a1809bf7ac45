"""What a cluster gets when it is asked for: names, fake nodes, JobSet, Kueue; programs beside the API server."""

from __future__ import annotations

import base64
import json
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.support.cluster import control
from tests.support.cluster.programs import BIN, SET, STATE
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.cluster.cluster import Cluster

PODS = "198.19.0.0/16"
GPU_NODE = {"cpu": "96", "memory": "1Ti", "pods": "250", "nvidia.com/gpu": "8", "ephemeral-storage": "1Ti"}
# the kinds that tests use; the other webhooks of Kueue wait for kinds that this API server does not have
WEBHOOKS = {
    "jobset": ("mjobset.kb.io", "vjobset.kb.io", "mpod.kb.io", "vpod.kb.io"),
    "kueue": tuple(
        f"{letter}{kind}.kb.io"
        for letter in "mv"
        for kind in ("job", "jobset", "clusterqueue", "resourceflavor", "workload", "cohort", "localqueue")
    ),
}
PORTS = {"jobset": 9443, "kueue": 9543}
VISIBILITY = 8082  # compiled into Kueue
# runs a program in a root folder of its own, in which everything is as it was, and /visibility is there beside it
ROOTED = """mount -t tmpfs tmpfs {root}
for one in /*; do
    if [ -L $one ]; then cp -P $one {root}/; elif [ -d $one ]; then mkdir {root}$one; mount --rbind $one {root}$one; fi
done
cp -r {certificates} {root}/visibility
exec chroot {root} "$@"
"""


def dns(cluster: Cluster) -> None:
    """CoreDNS on the control plane's address, which every kubelet names to its pods, and kube-proxy for Services."""
    address, admin = cluster.box.address, cluster.kubeconfig
    corefile = cluster.folder / "Corefile"
    corefile.write_text(
        f"cluster.local:53 {{\n bind {address}\n errors\n"
        f" kubernetes cluster.local {{\n  kubeconfig {admin}\n  ttl 1\n }}\n}}\n"
    )
    names = cluster.box.daemon("coredns", [BIN / "coredns", "-conf", corefile], ready=_listens(address, 53))
    flags = [
        "--proxy-mode=iptables",
        f"--cluster-cidr={PODS}",
        "--masquerade-all",
    ]  # else a pod cannot answer its neighbour
    flags += ["--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0s"]
    flags += ["--conntrack-tcp-timeout-close-wait=0s", "--metrics-bind-address=127.0.0.1:10249"]
    proxy = [BIN / "kube-proxy", f"--kubeconfig={admin}", "--hostname-override=n1", *flags]
    services = cluster.box.daemon("kube-proxy", proxy, ready=_listens("127.0.0.1", 10249, cluster))
    for daemon in (names, services):
        cluster.daemons[daemon.name] = daemon
        daemon.launch()
    for daemon in (names, services):
        daemon.wait()


def kwok(cluster: Cluster, count: int) -> None:
    """Fake nodes fake-000 and up: label type=kwok, taint kwok.x-k8s.io/node=fake:NoSchedule, 8 GPUs, 96 cores, 1 TiB.

    A Job's pod on one runs for its annotation slipway.test/runs ("2s"; none: no time) and ends with slipway.test/exit.
    """
    if "kwok" not in cluster.daemons:
        flags = ["--manage-all-nodes=false", "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"]
        # leases are renewed every quarter of this: well within the controller manager's patience
        flags += [f"--node-ip={cluster.box.address}", "--node-lease-duration-seconds=24"]
        stages = Path(__file__).with_name("stages.yaml")
        command = [BIN / "kwok", "--kubeconfig", cluster.kubeconfig, "--config", stages, *flags]
        cluster.daemons["kwok"] = cluster.box.daemon("kwok", command)
        cluster.daemons["kwok"].start()
    nodes = [_fake_node(f"fake-{number:03d}") for number in range(count)]
    cluster.apply(nodes)
    cluster.kubectl("wait", "--for=condition=Ready", "node", "-l", "type=kwok", "--timeout=120s", timeout=150)


def _fake_node(name: str) -> dict[str, Any]:
    labels = {
        "type": "kwok",
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"capacity": GPU_NODE, "allocatable": GPU_NODE},
    }


def crds(cluster: Cluster, name: str) -> None:
    """Server-side apply: the annotation of a client's would be too large."""
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", STATE / name)
    names = [yaml.safe_load(file.read_text())["metadata"]["name"] for file in sorted((STATE / name).glob("*.yaml"))]
    # `kubectl wait` fails at once for an object that has no conditions yet
    until(lambda: all(_established(cluster, crd) for crd in names))


def _established(cluster: Cluster, crd: str) -> bool:
    """kubectl fails where there are no conditions yet, as well."""
    path = "jsonpath={.status.conditions[?(@.type=='Established')].status}"
    return cluster.kubectl("get", f"crd/{crd}", "-o", path, check=False).strip() == "True"


def jobset(cluster: Cluster) -> None:
    cluster.crds("jobset")
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": PORTS["jobset"], "certDir": str(_certificates(cluster, "jobset"))},
        "health": {"healthProbeBindAddress": "127.0.0.1:9444"},
        "metrics": {"bindAddress": "0"},
    }
    _manager(cluster, "jobset", config)


def kueue(cluster: Cluster) -> None:
    # one of its integrations is JobSet; without the autoscalers' kind at its start it orders no nodes
    cluster.crds("jobset", "kueue", "provisioning")
    certificates = _certificates(cluster, "kueue")
    # a path that is compiled in; /etc is the cluster's own
    cluster.box.run("sh", "-ec", f"mkdir -p /etc/kueue/metrics && cp -r {certificates} /etc/kueue/metrics/certs")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    _account(cluster, "kueue-system", "kueue-controller-manager")
    config = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta1",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": PORTS["kueue"], "certDir": str(certificates)},
        "health": {"healthProbeBindAddress": "127.0.0.1:9544"},
        "metrics": {"bindAddress": "0"},
        "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]},
    }
    root = cluster.folder / "kueue-root"
    root.mkdir()
    # its server of queues wants its certificate in /visibility, and believes to be in a pod
    script = ROOTED.format(root=root, certificates=certificates)
    place = [f"KUBERNETES_SERVICE_HOST={cluster.box.address}", f"KUBERNETES_SERVICE_PORT={control.PORT}"]
    _manager(cluster, "kueue", config, ["unshare", "-m", "env", *place, "sh", "-ec", script, "sh"])
    cluster.apply(_visibility(cluster))
    cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{QUEUES}", "--timeout=300s", timeout=330)


QUEUES = "v1beta1.visibility.kueue.x-k8s.io"


def _visibility(cluster: Cluster) -> list[dict[str, Any]]:
    """The API server asks Kueue's manager about places in queues: what config/components/visibility of Kueue has. The
    Service selects no pods, since the manager is none."""
    place = {"name": "visibility-server", "namespace": "kueue-system"}
    version, _, group = QUEUES.partition(".")
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": VISIBILITY}]
    asked = {
        "group": group,
        "version": version,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": place,
    }
    # 1.33 looks for the server there, 1.34 and later in slices alone
    address = {"addresses": [{"ip": cluster.box.address}], "ports": [{"name": "https", "port": VISIBILITY}]}
    kept = {**place, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}
    endpoints = [{"apiVersion": "v1", "kind": "Endpoints", "metadata": kept, "subsets": [address]}]
    return [
        *(endpoints if SET == "oldest" else []),
        {"apiVersion": "v1", "kind": "Service", "metadata": place, "spec": {"ports": ports}},
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**place, "labels": {"kubernetes.io/service-name": place["name"]}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [cluster.box.address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": VISIBILITY, "protocol": "TCP"}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": QUEUES},
            "spec": asked,
        },
    ]


def _account(cluster: Cluster, namespace: str, name: str) -> None:
    """An administrator's service account; its token lies where a pod of it would have it."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    api = "rbac.authorization.k8s.io"
    role = {"apiGroup": api, "kind": "ClusterRole", "name": "cluster-admin"}
    cluster.apply(
        [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
            {
                "apiVersion": f"{api}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": role,
                "subjects": [subject],
            },
        ]
    )
    token = cluster.kubectl("create", "token", name, "-n", namespace, "--duration=24h").strip()
    folder = "/run/secrets/kubernetes.io/serviceaccount"
    cluster.box.run("sh", "-ec", f"mkdir -p {folder}; cat > {folder}/token", data=token.encode())
    cluster.box.run(
        "sh", "-ec", f"cp {cluster.control.pki.ca} {folder}/ca.crt; printf {namespace} > {folder}/namespace"
    )


def _manager(cluster: Cluster, name: str, config: dict[str, Any], within: Sequence[str] = ()) -> None:
    """Starts a manager, and only when its webhooks answer tells the API server of them."""
    file = cluster.folder / f"{name}.json"
    file.write_text(json.dumps(config))
    command = [*within, BIN / f"{name}-manager", f"--config={file}", f"--kubeconfig={cluster.kubeconfig}"]
    daemon = cluster.box.daemon(f"{name}-manager", command, ready=_listens("127.0.0.1", PORTS[name], cluster))
    cluster.daemons[daemon.name] = daemon
    daemon.start()
    cluster.apply(_webhooks(cluster, name))


def _certificates(cluster: Cluster, name: str) -> Path:
    folder, pki = cluster.folder / f"{name}-certs", cluster.control.pki
    folder.mkdir()
    shutil.copy(pki.cert("webhook"), folder / "tls.crt")
    shutil.copy(pki.key("webhook"), folder / "tls.key")
    shutil.copy(pki.ca, folder / "ca.crt")
    return folder


def _webhooks(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """The module's own, called by URL instead of by a Service."""
    bundle = base64.b64encode(cluster.control.pki.ca.read_bytes()).decode()
    found = []
    for document in yaml.safe_load_all((STATE / name / "webhook" / "manifests.yaml").read_text()):
        document["metadata"]["name"] = f"{name}-{document['kind'].removesuffix('WebhookConfiguration').lower()}"
        document["webhooks"] = [hook for hook in document["webhooks"] if hook["name"] in WEBHOOKS[name]]
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{PORTS[name]}{path}", "caBundle": bundle}
            if hook["name"] in ("mpod.kb.io", "vpod.kb.io"):  # as JobSet's kustomization has it: only pods of JobSets
                label = {"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}
                hook["objectSelector"] = {"matchExpressions": [label]}
            elif hook["name"][1:] in ("job.kb.io", "jobset.kb.io") and name == "kueue":
                system = {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "kueue-system"],
                }
                hook["namespaceSelector"] = {"matchExpressions": [system]}
        found.append(document)
    return found


def _listens(address: str, port: int, cluster: Cluster | None = None) -> Callable[[], bool]:
    """Whether somebody does; on the loopback of the cluster's network the kernel's table says so."""

    def looks() -> bool:
        if cluster is not None:
            entry = f"0100007F:{port:04X} 00000000:0000 0A"
            return entry in Path(f"/proc/{cluster.box.pid}/net/tcp").read_text()
        socket.create_connection((address, port), 1).close()
        return True

    return looks
