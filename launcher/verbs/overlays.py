"""Uploads code overlays: each once, under its digest, with a note of its commit and user."""

from __future__ import annotations

import getpass
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from launcher.deleting.guard import wait_for_deletions
from launcher.errors import BadInput, NotFound
from launcher.spec.code import Packed
from launcher.spec.model import ResolvedJob
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.transfer import file_pieces

RENEWED: Final = 86400.0  # seconds after which a push uploads an overlay again; far below the grace of `launcher gc`


@dataclass(frozen=True)
class BlobNote:
    """objects/notes/<digest>.json: where an overlay came from; not part of any hash."""

    user: str
    time: float
    commit: str = ""
    dirty: bool = False


def push_overlays(store: Store, jobs: Sequence[ResolvedJob], overlays: Mapping[str, Packed]) -> dict[str, bool]:
    """Uploads the overlays of jobs that have no job.json yet, so nothing in the store refers to them. An overlay that
    is there already is uploaded again to renew its time; one that `launcher gc` is deleting is uploaded again after the
    deletion."""
    done = upload_overlays(store, jobs, overlays, renewed=RENEWED)
    wait_for_deletions(store, (), [digest.removeprefix("sha256:") for digest in done])
    upload_overlays(store, jobs, overlays)
    return done


def upload_overlays(
    store: Store, jobs: Iterable[ResolvedJob], overlays: Mapping[str, Packed], *, renewed: float | None = None
) -> dict[str, bool]:
    """Uploads the code overlays of jobs, each once; returns digest -> whether it was missing. `overlays` maps digests
    to overlays. One that is older than `renewed` seconds is uploaded again. Raises NotFound, and BadInput when the
    folder changed meanwhile."""
    done: dict[str, bool] = {}
    for digest in sorted({digest for job in jobs for digest in job.blobs()}):
        stored = store.head(layout.blob(digest))
        done[digest] = stored is None
        if stored is not None and (renewed is None or store.now() - stored.modified < renewed):
            continue
        overlay = overlays.get(digest.removeprefix("sha256:")) or overlays.get(digest)
        if overlay is None:
            raise NotFound(f"the code overlay {digest[:19]} is neither in {store.url} nor on this machine")
        with tempfile.TemporaryDirectory(prefix="slipway-code-") as scratch:
            packed = Path(scratch) / "code.tar"
            if overlay.pack(packed) != digest.removeprefix("sha256:"):
                raise BadInput(f"{overlay.folder} changed while it was submitted; submit again")
            store.create(layout.blob_note(digest), msgspec.json.encode(_note(overlay.folder)))
            bare, size = digest.removeprefix("sha256:"), packed.stat().st_size
            store.send(layout.blob(digest), lambda: file_pieces(packed), size, bare)  # noqa: B023
    return done


def _note(folder: Path) -> BlobNote:
    commit = _git(folder, "rev-parse", "HEAD")
    return BlobNote(_user(), time.time(), commit, bool(commit and _git(folder, "status", "--porcelain")))


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
