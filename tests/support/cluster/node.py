"""A real node: containerd with runc, a bridge for its pods, and a kubelet."""

from __future__ import annotations

import calendar
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.support.cluster.control import ControlPlane
from tests.support.cluster.programs import BIN, CNI, program
from tests.support.cluster.sandbox import CGROUPS, Ended, Sandbox, cgroup_folders, run, wait_for

PAUSE = "test.local/pause:1"
CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "{folder}/run"
disabled_plugins = ["io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  netns_mounts_under_state_dir = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{folder}/cni"
"""


class Node:
    """`prepare()` brings containerd up, so that images can be imported; `start()` makes the node Ready.

    `kill()` is a machine that is lost at once: kubelet, containerd and every container. `start()` brings it back.
    """

    def __init__(self, box: Sandbox, control: ControlPlane, index: int) -> None:
        self.box, self.control, self.index = box, control, index
        self.name = f"n{index}"
        self.address = box.node_address(index)
        self.folder = box.folder / self.name
        self.socket = self.folder / "containerd.sock"
        self.cgroup = box.cgroup(index)
        config = self.folder / "config.toml"
        path = f"PATH={BIN}:{os.environ['PATH']}"  # containerd finds its shim there
        containerd = ["env", path, program("containerd"), "-c", config]
        self.containerd = box.daemon(f"containerd-{self.name}", containerd, ready=self._containerd)
        kubelet = [BIN / "kubelet", f"--kubeconfig={box.folder}/kubelet-{self.name}.kubeconfig"]
        kubelet += [f"--config={self.folder}/kubelet.json", f"--hostname-override={self.name}"]
        kubelet += [f"--node-ip={self.address}", f"--root-dir={self.folder}/lib", f"--cert-dir={self.folder}/cert"]
        kubelet += [f"--node-labels=topology.kubernetes.io/zone=z{index},slipway.test/real=true"]
        self.kubelet = box.daemon(f"kubelet-{self.name}", list(map(str, kubelet)))

    def prepare(self) -> None:
        self.folder.mkdir()
        (self.folder / "cni").mkdir()
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": f"cni{self.index}",
                    "isGateway": True,
                    "hairpinMode": True,  # a pod reaches itself by its Service
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(self.folder / "ipam"),
                        "ranges": [[{"subnet": self.box.node_pods(self.index)}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (self.folder / "cni" / "pods.conflist").write_text(json.dumps(network))
        toml = CONTAINERD.format(folder=self.folder, socket=self.socket, pause=PAUSE, cni=CNI)
        (self.folder / "config.toml").write_text(toml)
        hierarchies = [CGROUPS]
        if not (CGROUPS / "cgroup.controllers").exists():
            hierarchies = [one for one in CGROUPS.iterdir() if one.is_dir() and one.name != "unified"]
        for hierarchy in hierarchies:
            (hierarchy / self.cgroup).mkdir(exist_ok=True)
        self.box.add_address(self.address)
        self.containerd.start()

    def start(self, timeout: float = 60) -> None:
        """Needs the API server. Gives back when the node is Ready."""
        if not self.containerd.alive:
            self.containerd.start()
        pki, name = self.control.pki, f"kubelet-{self.name}"
        if not pki.cert(name).exists():
            subject = f"/O=system:nodes/CN=system:node:{self.name}"
            pki.certificate(name, subject, f"IP:{self.address}", f"DNS:{self.name}")
            pki.kubeconfig(name)
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet(), indent=1))
        since = time.time()
        self.kubelet.start()
        wait_for(f"node {self.name} to be Ready", lambda: self._ready(since), timeout)

    def _kubelet(self) -> dict[str, object]:
        pki, name = self.control.pki, f"kubelet-{self.name}"
        resolver = self.folder / "resolv.conf"
        resolver.write_text("nameserver 127.0.0.1\n")  # nobody listens: a look-up fails at once, not after a timeout
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": 10250,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.cert(name)),
            "tlsPrivateKeyFile": str(pki.key(name)),
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "failSwapOn": False,
            "failCgroupV1": False,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(self.folder / "pod-logs"),
            "volumePluginDir": str(self.folder / "volume-plugins"),
            "imageGCHighThresholdPercent": 100,  # nobody could pull an image again
            "imageGCLowThresholdPercent": 99,
            "evictionHard": dict.fromkeys(("nodefs.available", "nodefs.inodesFree", "imagefs.available"), "1%")
            | {"memory.available": "100Mi"},
            "nodeStatusUpdateFrequency": "5s",
            "nodeLeaseDurationSeconds": 8,
            "maxPods": 60,
            "resolvConf": str(resolver),
            "clusterDNS": [self.box.address],  # answers where cluster.dns() was called, and refuses at once elsewhere
            "clusterDomain": "cluster.local",
        }

    def _containerd(self) -> bool:
        return bool(self.ctr("version"))

    def _ready(self, since: float) -> bool:
        if not self.kubelet.alive:
            raise Ended(f"the kubelet of {self.name} ended:\n{self.kubelet.tail()}")
        status = json.loads(self.control.get(f"/api/v1/nodes/{self.name}"))["status"]
        ready = [one for one in status["conditions"] if one["type"] == "Ready"]
        if not ready or ready[0]["status"] != "True":
            return False
        beat = time.strptime(ready[0]["lastHeartbeatTime"], "%Y-%m-%dT%H:%M:%SZ")
        return calendar.timegm(beat) >= int(since)  # and not what it said before it was killed

    def ctr_command(self, *arguments: str) -> list[str]:
        return [program("ctr"), "-a", str(self.socket), "-n", "k8s.io", *arguments]

    def ctr(self, *arguments: str, timeout: float = 300) -> str:
        return run(*self.ctr_command(*arguments), timeout=timeout)

    def import_from(self, source: list[str]) -> None:
        """The archive that a command prints (of Docker's or OCI's kind), under the names in it. Raises RuntimeError."""
        into = self.ctr_command("images", "import", "-")
        with subprocess.Popen(source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as producer:
            done = subprocess.run(into, stdin=producer.stdout, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode or producer.returncode:
            raise RuntimeError(f"{' '.join(source)} | {' '.join(into)}: {producer.returncode}\n{done.stderr[-2000:]}")

    def digest(self, name: str) -> str:
        """`sha256:...` of an image that is here. Raises KeyError."""
        for line in self.ctr("images", "ls", f"name=={name}").splitlines()[1:]:
            fields = line.split()
            if fields[0] == name:
                return next(one for one in fields if one.startswith("sha256:"))
        raise KeyError(f"node {self.name} has no image {name}")

    def tag(self, name: str, other: str) -> None:
        self.ctr("images", "tag", "--force", name, other)

    def gpus(self, count: int) -> None:
        """Lets the node say that it has `count` nvidia.com/gpu; nothing is given to pods."""
        changes = [
            {"op": "add", "path": f"/status/{where}/nvidia.com~1gpu", "value": str(count)}
            for where in ("capacity", "allocatable")
        ]
        kubectl = [BIN / "kubectl", "--kubeconfig", self.box.folder / "admin.kubeconfig"]
        run(*kubectl, "patch", "node", self.name, "--subresource=status", "--type=json", "-p", json.dumps(changes))

    def kill(self) -> None:
        """Everything of the node dies at once; the API server hears nothing of it."""
        self.kubelet.kill()
        self.containerd.kill()
        self._kill_all(self._shims)
        self._kill_all(self._contained)

    def _kill_all(self, find: Callable[[], list[int]]) -> None:
        deadline = time.monotonic() + 20
        while pids := find():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if time.monotonic() > deadline:
                raise RuntimeError(f"processes of node {self.name} that do not end: {pids}")
            time.sleep(0.02)

    def _shims(self) -> list[int]:
        found = []
        for one in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (one / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "containerd-shim" in words[0] and str(self.socket) in words:
                    found.append(int(one.name))
        return found

    def _contained(self) -> list[int]:
        found: set[int] = set()
        for top in cgroup_folders(self.box.number):
            if top.name == self.cgroup:
                for file in top.rglob("cgroup.procs"):
                    with suppress(OSError):
                        found.update(int(pid) for pid in file.read_text().split())
        return sorted(found - {0})

    def stop(self) -> None:
        """An orderly end of kubelet and containerd; containers die with the sandbox."""
        self.kubelet.stop()
        self.containerd.stop()
