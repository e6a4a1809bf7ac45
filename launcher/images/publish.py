"""Pushing images and taking down what the registry calls them; exporting them where there is no registry.

Only a digest that the registry itself gave back after a whole push goes into the catalogue: a push that breaks off
changes nothing, and what has arrived of it is not sent again by the next one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.errors import SlipwayError, Unreachable
from launcher.images.engine import Engine

TRIES: Final = 5
_FINAL: Final = ("denied", "unauthorized", "authentication required", "no basic auth", "invalid reference")


class PushFailed(Unreachable):
    """A registry that refused, or that dropped the connection every time."""


def push(
    engine: Engine,
    local: str,
    registry: str,
    tell: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    tries: int = TRIES,
) -> str:
    """Pushes `name:version` to `registry/name:version`; gives `registry/name@sha256:...`.

    A connection that breaks is tried again, waiting 1, 2, 4, 8 seconds; a refusal is final. Within each try the engine
    itself sends a layer again, five times within 50 s. Raises PushFailed.
    """
    name, _, version = local.rpartition(":")
    repository = f"{registry.rstrip('/')}/{name}"
    engine.tag(local, repository, version)
    for attempt in range(1, tries + 1):
        error, digest = _push_once(engine, repository, version)
        if digest:
            found = engine.digest(f"{repository}:{version}")
            if found != digest:
                raise PushFailed(f"{repository}:{version}: the registry has {found}, the push said {digest}")
            return f"{repository}@{digest}"
        if any(word in error.lower() for word in _FINAL):
            raise PushFailed(f"{repository}: the registry refused: {error}; `docker login {registry.split('/')[0]}`")
        if attempt < tries:
            tell(f"{name}: {error}; trying again")
            pause(2.0 ** (attempt - 1))
    raise PushFailed(f"{repository}: {error} (tried {tries} times)")


def _push_once(engine: Engine, repository: str, version: str) -> tuple[str, str]:
    """(error, digest): one of them is empty."""
    error = "the registry gave no digest"
    try:
        for line in engine.push(repository, version):
            if line.get("error"):
                return str(line["error"]).strip(), ""
            if digest := (line.get("aux") or {}).get("Digest"):
                return "", str(digest)
    except (Unreachable, OSError) as failure:
        error = str(failure)
    except Exception as failure:  # requests' own: a connection that broke in the middle of the stream
        if not type(failure).__module__.startswith(("requests", "urllib3")):
            raise
        error = " ".join(str(failure).split())
    return error, ""


def export(engine: Engine, local: str, target: Path) -> str:
    """Writes an image as an OCI layout folder at `target`; gives the manifest's digest.

    The same image gives the same bytes. The folder appears whole, by rename. Raises SlipwayError when it is there, or
    can not be written.
    """
    if target.exists():
        raise SlipwayError(f"{target} is there already; name another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise SlipwayError(f"{target} can not be written: {error.strerror}") from None
    try:
        layout = work / "layout"
        digest = _layout(_saved(engine, local, work / "archive.tar"), layout, local)
        layout.replace(target)
        return digest
    except OSError as error:
        raise SlipwayError(f"{target} can not be written: {error.strerror or error}; nothing was left there") from None
    finally:
        shutil.rmtree(work)


def _saved(engine: Engine, local: str, archive: Path) -> Path:
    with archive.open("wb") as file:
        for piece in engine.save(local):
            file.write(piece)
    return archive


def _layout(archive: Path, layout: Path, reference: str) -> str:
    """A docker-archive as an OCI layout. Its layers are plain tars and its configuration is one of OCI already."""
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    with tarfile.open(archive) as tar:
        saved = json.load(_member(tar, "manifest.json"))[0]
        kind = "application/vnd.oci.image"
        config = _blob(blobs, _member(tar, saved["Config"]), f"{kind}.config.v1+json")
        layers = [_blob(blobs, _member(tar, name), f"{kind}.layer.v1.tar") for name in saved["Layers"]]
    manifest = {"schemaVersion": 2, "mediaType": f"{kind}.manifest.v1+json", "config": config, "layers": layers}
    body = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    (blobs / digest.removeprefix("sha256:")).write_bytes(body)
    entry = {
        "mediaType": manifest["mediaType"],
        "digest": digest,
        "size": len(body),
        "annotations": {"org.opencontainers.image.ref.name": reference},
    }
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}), encoding="utf-8")
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}', encoding="utf-8")
    return digest


def _member(tar: tarfile.TarFile, name: str) -> Any:
    found = tar.extractfile(name)
    if found is None:
        raise SlipwayError(f"the engine's archive has no {name}")
    return found


def _blob(folder: Path, body: Any, media_type: str) -> Mapping[str, Any]:
    """Copies a stream into the blobs under its own digest."""
    total, size, temporary = hashlib.sha256(), 0, folder / ".new"
    with temporary.open("wb") as file:
        while piece := body.read(1 << 20):
            total.update(piece)
            size += len(piece)
            file.write(piece)
    temporary.replace(folder / total.hexdigest())
    return {"mediaType": media_type, "digest": f"sha256:{total.hexdigest()}", "size": size}
