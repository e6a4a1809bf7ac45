"""Pushes images and records the digests that the registry gives them; exports images where there is no registry.

The catalogue gets only a digest that the registry returned after a complete push. An interrupted push changes nothing,
and the next push does not send its finished layers again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from launcher.errors import BadInput, NotFound, SlipwayError, Unreachable
from launcher.images.engine import Engine
from launcher.spec.images.catalogue import REGISTRY

TRIES: Final = 5
_FINAL: Final = ("denied", "unauthorized", "authentication required", "no basic auth", "invalid reference")
# what registries answer whose tags cannot be moved: ECR, Artifact Registry and Harbor; a locked tag of ACR
_IMMUTABLE: Final = ("immutab", "cannot be overwritten", "operation is disallowed")
# no such repository: ECR and Artifact Registry make none by a push
_ABSENT: Final = ("name unknown", "repository does not exist")


class PushFailed(Unreachable):
    """A registry refused a push or dropped the connection at every try."""


def checked(registry: str) -> str:
    """The place to push to: host and path, as in a reference. Raises BadInput."""
    plain = registry.rstrip("/")
    if not re.fullmatch(REGISTRY, plain):
        raise BadInput(f"registry `{registry}`; allowed: HOST[:PORT][/PATH], the path in lower case")
    return plain


def push(
    engine: Engine,
    local: str,
    registry: str,
    tell: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    tries: int = TRIES,
) -> str:
    """Pushes `name:version` to `registry/name:version`; returns `registry/name@sha256:...`.

    A broken connection is tried again after 1, 2, 4, 8 seconds; a refusal is final. Within each try the engine itself
    sends a layer up to five times within 50 s. Where tags are immutable and this version is there, its digest is
    returned: a version is a hash of what was built. Raises PushFailed.
    """
    name, _, version = local.rpartition(":")
    repository = f"{checked(registry)}/{name}"
    engine.tag(local, repository, version)
    for attempt in range(1, tries + 1):
        error, digest = _push_once(engine, repository, version)
        if digest:
            return f"{repository}@{digest}"
        if any(word in error.lower() for word in _IMMUTABLE) and (there := _digest(engine, f"{repository}:{version}")):
            tell(f"{name}: {version} is in the registry already, which lets no tag be moved; its digest is {there}")
            return f"{repository}@{there}"
        if any(word in error.lower() for word in _ABSENT):
            raise PushFailed(f"{repository}: the registry has no such repository: {error}; create it, then push again")
        if any(word in error.lower() for word in (*_FINAL, *_IMMUTABLE)):
            raise PushFailed(f"{repository}: the registry refused: {error}; `docker login{_host(registry)}`")
        if attempt < tries:
            tell(f"{name}: {error}; trying again")
            pause(2.0 ** (attempt - 1))
    raise PushFailed(f"{repository}: {error} (tried {tries} times)")


def _host(registry: str) -> str:
    """The argument for `docker login`: empty for the default registry, whose references begin with a user's name."""
    host = registry.split("/")[0]
    return f" {host}" if any(sign in host for sign in ".:") or host == "localhost" else ""


def _digest(engine: Engine, reference: str) -> str:
    """The digest that a registry has for a tag; empty if it has none."""
    try:
        return engine.digest(reference)
    except NotFound:
        return ""


def _push_once(engine: Engine, repository: str, version: str) -> tuple[str, str]:
    """(error, digest): one of them is empty. The digest is that of the push, confirmed by the registry.

    Raises PushFailed when the two differ.
    """
    pushed = ""
    try:
        for line in engine.push(repository, version):
            if line.get("error"):
                return str(line["error"]).strip(), ""
            pushed = str((line.get("aux") or {}).get("Digest") or pushed)
        if not pushed:
            return "the registry gave no digest", ""
        confirmed = engine.digest(f"{repository}:{version}")
    except (Unreachable, NotFound) as failure:
        return str(failure), ""
    if confirmed != pushed:
        raise PushFailed(f"{repository}:{version}: the registry has {confirmed}, the push said {pushed}")
    return "", confirmed


def refuse_existing(target: Path) -> None:
    """Raises SlipwayError when the target of an export exists."""
    if target.exists():
        raise SlipwayError(f"{target} is there already; name another folder")


def export(engine: Engine, local: str, target: Path) -> str:
    """Writes an image as an OCI layout folder at `target`; returns the manifest's digest.

    The same image gives the same bytes. The folder appears complete, by rename. Raises SlipwayError when it exists or
    cannot be written.
    """
    refuse_existing(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise SlipwayError(f"{target} cannot be written: {error.strerror}") from None
    try:
        layout = work / "layout"
        digest = _layout(_saved(engine, local, work / "archive.tar"), layout, local)
        layout.replace(target)
        return digest
    except SlipwayError:  # errors of the engine, some of which are OSErrors
        raise
    except (tarfile.TarError, KeyError, IndexError, ValueError) as error:
        raise Unreachable(f"the engine's archive of {local} is not whole: {error}; nothing was left there") from None
    except OSError as error:
        raise SlipwayError(f"{target} cannot be written: {error.strerror or error}; nothing was left there") from None
    finally:
        shutil.rmtree(work)


def _saved(engine: Engine, local: str, archive: Path) -> Path:
    with archive.open("wb") as file:
        for piece in engine.save(local):
            file.write(piece)
    return archive


def _layout(archive: Path, layout: Path, reference: str) -> str:
    """Converts a docker-archive to an OCI layout. Its layers are plain tars, and its configuration is valid for OCI
    already."""
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
    member = tar.extractfile(name)
    if member is None:
        raise SlipwayError(f"the engine's archive has no {name}")
    return member


def _blob(folder: Path, body: Any, media_type: str) -> Mapping[str, Any]:
    """Copies a stream into the folder of blobs under its digest."""
    total, size, temporary = hashlib.sha256(), 0, folder / ".new"
    with temporary.open("wb") as file:
        while piece := body.read(1 << 20):
            total.update(piece)
            size += len(piece)
            file.write(piece)
    temporary.replace(folder / total.hexdigest())
    return {"mediaType": media_type, "digest": f"sha256:{total.hexdigest()}", "size": size}
