"""In what two images differ, file by file: for a test that says that they are the same."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

MOST = 40  # lines that are given for one layer


def differences(first: Path, second: Path) -> list[str]:
    """One line for each difference of two docker-archives; empty when configurations and layers are equal.

    A layer's line names the file, and of its header and contents what is not the same.
    """
    with tarfile.open(first) as one, tarfile.open(second) as other:
        manifests = [json.load(_open(tar, "manifest.json"))[0] for tar in (one, other)]
        configs = [
            json.load(_open(tar, manifest["Config"])) for tar, manifest in zip((one, other), manifests, strict=True)
        ]
        lines = list(_values(configs[0], configs[1], "config"))
        layers = [manifest["Layers"] for manifest in manifests]
        if len(layers[0]) != len(layers[1]):
            return [*lines, f"{len(layers[0])} layers, and {len(layers[1])}"]
        for number, (left, right) in enumerate(zip(*layers, strict=True)):
            ids = [config["rootfs"]["diff_ids"][number] for config in configs]
            if ids[0] != ids[1]:
                found = list(_entries(_read(_open(one, left)), _read(_open(other, right))))
                lines += [f"layer {number}: {text}" for text in found[:MOST] or ["the order or the padding"]]
                if len(found) > MOST:
                    lines.append(f"layer {number}: {len(found) - MOST} more")
    return lines


def _open(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    file = tar.extractfile(name)
    assert file is not None, name
    return file


def _values(one: Any, other: Any, where: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _values(one.get(key), other.get(key), f"{where}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _values(left, right, f"{where}[{number}]")
    elif one != other:
        yield f"{where}: {one!r}, and {other!r}"


def _read(layer: IO[bytes]) -> dict[str, dict[str, object]]:
    """Path -> what the tar says of it, with the sha256 of its contents."""
    entries: dict[str, dict[str, object]] = {}
    with tarfile.open(fileobj=layer) as tar:
        for member in tar:
            body = tar.extractfile(member) if member.isreg() else None
            entries[member.name] = {
                "contents": hashlib.file_digest(body, "sha256").hexdigest()[:12] if body else "",
                "size": member.size,
                "kind": member.type,
                "mode": oct(member.mode),
                "owner": (member.uid, member.gid, member.uname, member.gname),
                "time": member.mtime,
                "link": member.linkname,
                "headers": {key: value for key, value in member.pax_headers.items() if key != "mtime"},
            }
    return entries


def _entries(one: Mapping[str, Mapping[str, object]], other: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    for path in sorted({*one, *other}):
        if path not in one or path not in other:
            yield f"{path}: only in the {'first' if path in one else 'second'}"
        elif one[path] != other[path]:
            fields = [key for key in one[path] if one[path][key] != other[path][key]]
            yield f"{path}: " + ", ".join(f"{key} {one[path][key]} and {other[path][key]}" for key in fields)
