"""The image of kind's node without a registry: Debian by debootstrap, kind's own files, and the programs of
`make kind-tools`, put together as kind's images/base/Dockerfile and `kind build node-image` do.

Other than in kind's own image: containerd, runc and the CNI plugins are Debian's; no crictl, so that `kind load` sends
an image every time; pods get their network from a file in the node instead of from kindnetd, so nothing enforces a
NetworkPolicy.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.cluster.programs import BIN, STATE, pause
from tests.support.cluster.sandbox import wait_for
from tests.support.engine import NoEngine, debian_mirror
from tests.support.kind import archive, runtime
from tests.support.kind.engine import KindEngine

FILES = STATE / "kind" / "files"
STORAGE = STATE / "kind" / "const_storage.go"
PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl", "coredns"),
    *("kind", "kubeadm", "kind-etcd", "local-path-provisioner"),
)
PACKAGES = (
    *("systemd", "conntrack", "iptables", "nftables", "iproute2", "ethtool", "util-linux", "mount", "kmod"),
    *("libseccomp2", "pigz", "bash", "ca-certificates", "curl", "jq", "procps", "socat"),
    *("runc", "containerd", "containernetworking-plugins", "busybox-static"),
)
CNI = ("host-local", "loopback", "ptp", "portmap")
NETWORK = {
    "cniVersion": "0.4.0",
    "name": "kind",
    "plugins": [
        {
            "type": "ptp",
            "ipMasq": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.0.0/24"}]],  # of kind's first node
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}
# kind creates what is in the file, and needs something in it
NO_DAEMON = """apiVersion: v1
kind: ConfigMap
metadata: {name: cni, namespace: kube-system}
data: {where: /etc/cni/net.d}
"""
# as kind's Dockerfile: services that a container has no use for
SETTINGS = """
find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/*
rm -f /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/sockets.target.wants/*udev*
rm -f /lib/systemd/system/sockets.target.wants/*initctl* /lib/systemd/system/basic.target.wants/*
echo ReadKMsg=no >> /etc/systemd/journald.conf
[ -e /sbin/init ] || ln -s /lib/systemd/systemd /sbin/init
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
for name in containerd ctr containerd-shim-runc-v2; do ln -s /usr/bin/$name /usr/local/bin/$name; done
ctr oci spec | jq '.hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
  > /etc/containerd/cri-base.json
rm -rf /var/cache/apt/* /var/lib/apt/lists/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /var/log/*
"""
IMPORTING = """version = 2
root = "/var/lib/containerd"
state = "/tmp/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "/tmp/containerd.sock"
"""


def recipe() -> str:
    """Everything that decides what is in the image; its hash is the image's tag."""
    parts = [Path(__file__).read_text(), Path(archive.__file__).read_text(), *PACKAGES]
    parts += [(STATE / f"{name}.pin").read_text() for name in (*PROGRAMS, "kind-manifests")]
    parts += sorted(runtime.missing(Path("/proc/self/status").read_text()))
    return "\0".join(parts)


def node_image(engine: KindEngine) -> str:
    """The image's tag in the engine; made where the engine has it not yet (two minutes). Raises NoEngine."""
    tag = f"slipway-test.local/kind-node:{hashlib.sha256(recipe().encode()).hexdigest()[:12]}"
    if engine.docker("image", "inspect", tag, check=False).returncode == 0:
        return tag
    root = engine.state / "node"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "-a", debian(engine.state), root], check=True)
    own_files(root)
    images = archives(root, engine.state / "archives")
    preload(root, images)
    changes = ["--change=ENV container=docker", '--change=ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]']
    with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
        command = ["docker", "import", *changes, "-", f"{tag}-raw"]
        subprocess.run(command, stdin=tar.stdout, env=engine.environment, check=True, capture_output=True)
    # `docker import` knows no STOPSIGNAL
    text = f"FROM {tag}-raw\nSTOPSIGNAL SIGRTMIN+3\n"
    command = ["docker", "build", "-q", "-t", tag, "-"]
    subprocess.run(command, input=text.encode(), env=engine.environment, check=True, capture_output=True)
    shutil.rmtree(root)
    shutil.rmtree(engine.state / "archives")
    return tag


def debian(state: Path) -> Path:
    """A Debian with the node's packages, kept for the next time."""
    kept = state / f"debian-{hashlib.sha256(' '.join(PACKAGES).encode()).hexdigest()[:8]}"
    if kept.exists():
        return kept
    fresh = kept.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    mirror = debian_mirror()
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(fresh)]
    done = subprocess.run([*command, *([mirror] if mirror else [])], capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoEngine(f"debootstrap: {done.stdout.strip().splitlines()[-1][:300]}")
    fresh.rename(kept)
    return kept


def own_files(root: Path) -> None:
    """kind's files, Kubernetes' programs, the manifests that kind applies, and the settings of its Dockerfile."""
    for folder in ("usr/local/bin", "kind/bin"):
        copy(FILES / folder, root / folder, 0o755)
    for folder in ("etc/containerd", "etc/default", "etc/sysctl.d", "etc/systemd/system"):
        copy(FILES / folder, root / folder, 0o644)
    copy(FILES / "etc/systemd/system/kubelet.service.d", root / "etc/systemd/system/kubelet.service.d", 0o644)
    for name in ("kubeadm", "kubelet", "kubectl"):
        shutil.copy2(BIN / name, root / "usr/bin" / name)
    for folder in ("etc/kubernetes/manifests", "kind/manifests", "etc/cni/net.d", "opt/cni/bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for name in CNI:
        shutil.copy2(root / "usr/lib/cni" / name, root / "opt/cni/bin" / name)
    (root / "etc/cni/net.d/10-kind.conflist").write_text(json.dumps(NETWORK, indent=1))
    (root / "kind/version").write_text(kubernetes_version())
    (root / "kind/manifests/default-cni.yaml").write_text(NO_DAEMON)
    (root / "kind/manifests/default-storage.yaml").write_text(storage())
    settings = root / "etc/containerd/config.toml"
    text = re.sub(r'sandbox_image = ".*"', f'sandbox_image = "{wanted()["pause"]}"', settings.read_text())
    if "CAP_SYS_RESOURCE" in runtime.missing(Path("/proc/self/status").read_text()):
        text = text.replace("restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
    settings.write_text(text)
    done = subprocess.run(["chroot", str(root), "bash", "-euc", SETTINGS], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the node's settings: {done.stdout}{done.stderr}")


def copy(source: Path, target: Path, mode: int) -> None:
    """The files of a folder, without what is below it."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file():
            shutil.copyfile(file, target / file.name)
            (target / file.name).chmod(mode)


def kubernetes_version() -> str:
    return subprocess.run([BIN / "kubelet", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def wanted() -> dict[str, str]:
    """The images that kubeadm starts: last part of the name -> reference."""
    command = [str(BIN / "kubeadm"), "config", "images", "list", "--kubernetes-version", kubernetes_version()]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {reference.rpartition("/")[2].partition(":")[0]: reference for reference in listed}


def storage() -> str:
    """The manifest of kind's storage class, out of the Go source that holds it."""
    text = STORAGE.read_text()
    constants = dict(re.findall(r'const (\w+) = "([^"]*)"', text))
    body = text.partition("const defaultStorageManifest = `")[2]
    body = re.sub(r"` \+ (\w+) \+ `", lambda match: constants[match[1]], body)
    return body[: body.rindex("`")]


def archives(root: Path, folder: Path) -> list[Path]:
    """The images that the node needs at its start, as archives."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    names = wanted()
    images: dict[str, tuple[dict[str, Path | archive.Link | bytes], tuple[str, ...]]] = {
        names[name]: ({f"usr/local/bin/{name}": BIN / name}, ())
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    }
    images[names["etcd"]] = ({"usr/local/bin/etcd": BIN / "kind-etcd"}, ())
    images[names["coredns"]] = ({"coredns": BIN / "coredns"}, ("/coredns",))
    images[names["pause"]] = ({"pause": pause()}, ("/pause",))
    images[names["kube-proxy"]] = ({"usr/local/bin/kube-proxy": BIN / "kube-proxy", **firewall(root)}, ())
    provisioner, helper = (
        re.search(rf'const {name} = "([^"]*)"', STORAGE.read_text())
        for name in ("storageProvisionerImage", "storageHelperImage")
    )
    assert provisioner, STORAGE
    assert helper, STORAGE
    images[provisioner[1]] = ({"usr/local/bin/local-path-provisioner": BIN / "local-path-provisioner"}, ())
    shell = {f"bin/{name}": archive.Link("busybox") for name in ("sh", "mkdir", "rm", "sleep", "chmod")}
    images[helper[1]] = ({"bin/busybox": root / "bin/busybox", **shell}, ())
    written = []
    for number, (tag, (files, entrypoint)) in enumerate(images.items()):
        written.append(folder / f"{number}.tar")
        archive.write(written[-1], tag, files, entrypoint=entrypoint)
    return written


def firewall(root: Path) -> dict[str, Path | archive.Link | bytes]:
    """What kube-proxy calls: iptables by nftables, conntrack and nft, with their libraries and those of iptables'
    extensions: without libm it has no `statistic`, and no Service works."""
    programs = [f"usr/sbin/{name}" for name in ("xtables-nft-multi", "xtables-legacy-multi", "conntrack", "nft")]
    extensions = "usr/lib/x86_64-linux-gnu/xtables"
    names = [*programs, *(str(file.relative_to(root)) for file in (root / extensions).glob("*.so"))]
    files: dict[str, Path | archive.Link | bytes] = {name: root / name for name in programs}
    files |= {library: (root / library).resolve() for library in libraries(root, names)}
    files |= {extensions: root / extensions, "etc/nsswitch.conf": b"hosts: files dns\n", "run/.keep": b""}
    files |= {f"etc/{name}": root / "etc" / name for name in ("passwd", "group", "protocols", "services")}
    for name in ("iptables", "ip6tables"):
        for kind in ("", "-save", "-restore"):
            files[f"usr/sbin/{name}{kind}"] = archive.Link("xtables-nft-multi")
    return {
        **files,
        "lib": archive.Link("usr/lib"),
        "lib64": archive.Link("usr/lib64"),
        "sbin": archive.Link("usr/sbin"),
    }


def libraries(root: Path, names: Iterable[str]) -> set[str]:
    """The libraries that programs of another root load, below usr of that root."""
    command = ["chroot", str(root), "ldd", *(f"/{name}" for name in names)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    loaded = re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)
    return {f"usr/{name.strip('/').removeprefix('usr/')}" for name in loaded}


def preload(root: Path, images: Iterable[Path]) -> None:
    """Puts images into the node's containerd, pinned and not unpacked, as `kind build node-image` does."""
    (root / "tmp/importing.toml").write_text(IMPORTING)
    with containerd(root) as ctr:
        for file in images:
            shutil.copyfile(file, root / "tmp" / file.name)
            ctr("images", "import", "--all-platforms", "--no-unpack", "--digests", f"/tmp/{file.name}")
            (root / "tmp" / file.name).unlink()
        for name in ctr("images", "ls", "-q").split():
            ctr("images", "label", name, "io.cri-containerd.pinned=pinned")
    for left in (root / "tmp").iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def containerd(root: Path) -> Iterator[Callable[..., str]]:
    """The node's containerd in its root; gives a function that calls ctr."""

    def ctr(*words: str) -> str:
        command = ["chroot", str(root), "ctr", "-a", "/tmp/containerd.sock", "-n", "k8s.io", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    subprocess.run(["mount", "-t", "proc", "proc", root / "proc"], check=True)
    command = ["chroot", str(root), "containerd", "-c", "/tmp/importing.toml"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for("the node's containerd", lambda: (root / "tmp/containerd.sock").exists())
        yield ctr
    finally:
        process.terminate()
        process.wait(60)
        subprocess.run(["umount", root / "proc"], check=True)
