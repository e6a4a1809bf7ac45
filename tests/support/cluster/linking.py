"""Images in a node's containerd without copying them: those of the tests' Docker engine, and those of images.py.

`docker save | ctr import` writes an image three times, and slipway-cpu has 2.2 GB. Both keep a layer as a folder for
overlayfs, in the same form and here on the same disk: a layer's files are linked from the one to the other, and become
the snapshot that containerd would have unpacked. What is imported is an archive with the image's own configuration and
with placeholders for layers, which are never read: a layer whose snapshot is there is not unpacked.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.cluster.node import Node


@dataclass(frozen=True)
class Image:
    """
    config  the image's configuration; its hash is what Docker calls the image's ID
    layers  from the lowest: the ID of the chain up to it, and the folder of its files
    """

    config: bytes
    layers: tuple[tuple[str, Path], ...]


def chain_ids(diff_ids: list[str]) -> list[str]:
    """By the OCI image specification: of the lowest its diff ID, of each other sha256("BELOW OWN")."""
    found: list[str] = []
    for diff in diff_ids:
        below = found[-1] if found else None
        text = f"{below} {diff}"
        found.append(diff if below is None else "sha256:" + hashlib.sha256(text.encode()).hexdigest())
    return found


def find(data: Path, identity: str, folder: Path) -> Image | None:
    """An image by its ID in an engine's data; None where it cannot be linked into `folder`."""
    store = data / "image" / "overlay2"
    try:
        config = (store / "imagedb" / "content" / "sha256" / identity.removeprefix("sha256:")).read_bytes()
        layers = []
        for chain in chain_ids(json.loads(config)["rootfs"]["diff_ids"]):
            cache = (store / "layerdb" / "sha256" / chain.removeprefix("sha256:") / "cache-id").read_text().strip()
            layers.append((chain, data / "overlay2" / cache / "diff"))
        known = all(files.is_dir() for _, files in layers)
    except FileNotFoundError:  # another driver, another machine's engine
        return None
    # dockerd mounts its data on itself, and no link leads over a mount: what is below it is meant
    return Image(config, tuple(layers)) if known and mount_of(data.parent) == mount_of(folder) else None


def mount_of(folder: Path) -> Path:
    folder = folder.resolve()
    return next(one for one in (folder, *folder.parents) if one.is_mount())


def bring(node: Node, image: Image, name: str) -> None:
    """Makes it an image of the node, under this name. Raises RuntimeError."""
    known = {line.split()[0] for line in node.ctr("snapshots", "ls").splitlines()[1:]}
    below: list[str] = []
    for chain, files in image.layers:
        if chain not in known:
            key = f"linking-{chain[7:19]}"
            node.ctr("snapshots", "prepare", key, *below)
            try:
                mount = node.ctr("snapshots", "mounts", "/nowhere", key)
                upper = re.search(r"upperdir=([^,\s]+)", mount) or re.search(r"(/\S+/fs)(?=\s)", mount)
                if upper is None:
                    raise RuntimeError(f"no folder for a layer in: {mount}")
                _link(node, files.resolve(), Path(upper[1]).resolve())
                node.ctr("snapshots", "commit", chain, key)
            except BaseException:  # half a layer would stand in the way of every later try
                with suppress(RuntimeError):
                    node.ctr("snapshots", "rm", key)
                raise
        below = [chain]
    archive = node.folder / f"linked-{os.getpid()}.tar"
    archive.write_bytes(_archive(image, name))
    node.import_from(["cat", str(archive)])
    archive.unlink()


def _link(node: Node, source: Path, target: Path) -> None:
    """Hard links of every file: nobody writes to a layer, for overlayfs copies what a container changes."""
    top = mount_of(node.folder)
    if not source.is_relative_to(top) or source.stat().st_dev != target.stat().st_dev:
        node.box.run("cp", "-a", f"{source}/.", target, timeout=300)
        return
    # mounts of its own, which go with it: to unmount may fail, while others in the cluster look at every mount
    script = "mkdir -p /run/link; mount --bind $1 /run/link; cp -al /run/link/$2/. /run/link/$3"
    below = [str(one.relative_to(top)) for one in (source, target)]
    node.box.run("unshare", "-m", "sh", "-euc", script, "link", top, *below, timeout=300)


def _archive(image: Image, name: str) -> bytes:
    """As `docker save` makes one; a layer is a tar that holds only the layer's name."""
    entries = {f"{hashlib.sha256(image.config).hexdigest()}.json": image.config}
    config, layers = next(iter(entries)), []
    for chain, _ in image.layers:
        layers.append(f"{chain[7:]}.tar")
        entries[layers[-1]] = _tar({"placeholder": chain.encode()})
    manifest = [{"Config": config, "RepoTags": [name], "Layers": layers}]
    return _tar(entries | {"manifest.json": json.dumps(manifest).encode()})


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()
