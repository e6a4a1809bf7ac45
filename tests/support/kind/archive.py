"""Images as archives that `docker load` and `ctr images import` read: one layer of files of this machine."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Link:
    """A symbolic link in an image."""

    target: str


def write(
    archive: Path,
    tag: str,
    files: Mapping[str, Path | Link | bytes],
    *,
    entrypoint: Sequence[str] = (),
    user: str = "",
) -> None:
    """Writes the image `tag`. `files`: name in the image -> a file here, a folder here with all below it, a link, or
    bytes. Everything belongs to root. An image has /tmp, open to everyone."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        folders: set[str] = set()
        for name, source in {"tmp": None, **files}.items():
            _parents(tar, name.strip("/"), folders)
            if source is None:
                tar.addfile(_entry("tmp", tarfile.DIRTYPE, 0o1777))
            elif isinstance(source, Link):
                entry = _entry(name.strip("/"), tarfile.SYMTYPE, 0o777)
                entry.linkname = source.target
                tar.addfile(entry)
            elif isinstance(source, bytes):
                entry = _entry(name.strip("/"), tarfile.REGTYPE, 0o644)
                entry.size = len(source)
                tar.addfile(entry, io.BytesIO(source))
            else:
                tar.add(source, name.strip("/"), filter=_roots)
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    settings: dict[str, object] = {"Env": [PATH], "WorkingDir": "/", "User": user, "Entrypoint": list(entrypoint)}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {name: value for name, value in settings.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    text = json.dumps(config).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": [tag], "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as tar:
        for member, content in ((name, text), ("manifest.json", json.dumps(manifest).encode())):
            entry = _entry(member, tarfile.REGTYPE, 0o644)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        tar.add(layer, f"{digest}/layer.tar")
    layer.unlink()


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry


def _roots(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _parents(tar: tarfile.TarFile, name: str, folders: set[str]) -> None:
    for parent in reversed(Path(name).parents):
        folder = str(parent)
        if folder not in (".", *folders):
            folders.add(folder)
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o755))
