"""The programs of a cluster: Debian's from apt-get, Kubernetes' own built by tools/build-cluster.sh when asked for."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.cluster.sandbox import CGROUPS, NoCluster

ROOT = Path(__file__).resolve().parents[3]
SET = os.environ.get("SLIPWAY_CLUSTER_SET", "")  # of pins: tools/cluster, or tools/cluster/oldest, tools/cluster/newest
TOOLS = ROOT / ".tools"
BIN = TOOLS / SET / "bin"
STATE = TOOLS / SET / "cluster"
CNI = Path("/usr/lib/cni")

# what each part of a cluster needs, by the names of tools/build-cluster.sh
CORE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
# Debian's are too old for the newest Kubernetes
OWN = ("etcd", "containerd", "containerd-shim-runc-v2", "ctr") if SET == "newest" else ()
PARTS = {
    "core": CORE + OWN,
    "dns": ("coredns", "kube-proxy"),
    "kwok": ("kwok",),
    "jobset-crds": ("jobset-manifests",),
    "kueue-crds": ("kueue-manifests",),
    "argocd": ("argocd", "argocd-manifests"),
    "flux": ("source-controller", "kustomize-controller", "flux-manifests"),
    "provisioning-crds": ("provisioning-manifests",),
    "coscheduling-crds": ("coscheduling-manifests",),
    "argocd-crds": ("argocd-manifests",),
    "flux-crds": ("flux-manifests",),
    "kind": ("kind", "kind-manifests", "kubeadm", "kind-etcd", "local-path-provisioner", "coredns", "kube-proxy"),
    "releases": ("jobset-manager", "jobset-release", "kueue-manager", "kueue-release"),
    "jobset": ("jobset-manager", "jobset-manifests"),
    "kueue": ("kueue-manager", "kueue-manifests", "provisioning-manifests"),
}
# a program that tells whether a Debian package is there
DEBIAN = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "gcc": "gcc",
}


def check() -> None:
    """Raises NoCluster, with the reason, where none can run."""
    if os.geteuid() != 0:
        raise NoCluster("only root can make namespaces and cgroups")
    if not any((CGROUPS / name).exists() for name in ("memory", "cgroup.controllers")):
        raise NoCluster("no cgroups are mounted on /sys/fs/cgroup")


def install() -> None:
    """Debian's programs, where they are missing. Raises NoCluster."""
    missing = sorted({package for program, package in DEBIAN.items() if not shutil.which(program)})
    if not (CNI / "bridge").exists():
        missing.append("containernetworking-plugins")
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise NoCluster(f"install {', '.join(missing)}: there is no apt-get here to do it with")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    STATE.mkdir(parents=True, exist_ok=True)
    with (STATE / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _apt_get(environment, missing)


def _apt_get(environment: dict[str, str], missing: list[str]) -> None:
    for command in (["apt-get", "update", "-q"], ["apt-get", "install", "-qy", "--no-install-recommends", *missing]):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            last = (done.stderr or done.stdout).strip().split("\n")[-1]
            raise NoCluster(f"{' '.join(command)}: {last[:300]}")


def build(*parts: str) -> None:
    """Makes sure that the programs of these parts are built. Raises NoCluster where that takes Go and there is none."""
    names = dict.fromkeys(name for part in parts for name in PARTS[part])
    done = subprocess.run(
        [ROOT / "tools" / "build-cluster.sh", *names], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode == 3:
        raise NoCluster("Kubernetes' programs are not built, and there is no Go here to build them with")
    if done.returncode:
        raise RuntimeError(f"tools/build-cluster.sh {' '.join(names)}: {done.returncode}\n{done.stdout[-4000:]}")


def built(part: str) -> bool:
    """Whether the programs of a part are there already, of whatever pin."""
    return all((BIN / name).exists() for name in PARTS[part] if not name.endswith(("-manifests", "-release")))


def build_s3() -> Path:
    done = subprocess.run(["sh", ROOT / "tools" / "build.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"tools/build.sh: {done.returncode}\n{done.stdout}{done.stderr}"[-4000:])
    program_file = TOOLS / "bin" / "versitygw"  # the same for every set
    if not program_file.exists():
        raise NoCluster("versitygw is not built, and there is no Go here to build it with")
    return program_file


def program(name: str) -> str:
    """A program that either this project builds, for some versions of Kubernetes, or Debian has."""
    return str(BIN / name) if name in OWN else name


def pause() -> Path:
    """init.c, compiled: the pods' pause, and process 1 of a cluster."""
    source, made = Path(__file__).with_name("init.c"), STATE / "pause"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        STATE.mkdir(parents=True, exist_ok=True)
        fresh = STATE / f"pause.{os.getpid()}"
        command = ["gcc", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", str(fresh), str(source)]
        subprocess.run(command, check=True)
        fresh.rename(made)
    return made
