"""Uploads code overlays: each once, under its digest, with a note of its commit and user; says which files
of one changed since the last run."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from launcher.decoding import decode
from launcher.deleting.guard import wait_for_deletions
from launcher.errors import BadInput, NotFound
from launcher.spec.code.environment import LocalEnvironment, describe_changes, is_local, stored_environment
from launcher.spec.code.overlay import Overlay, Packed
from launcher.spec.hashing import run_hash, run_id
from launcher.spec.images.catalogue import how_to_keep, with_images_of
from launcher.spec.model import Code, ResolvedJob
from launcher.spec.resolve.group import Group
from launcher.store import layout
from launcher.store.base import Store
from launcher.store.transfer import file_pieces
from launcher.userdata.submits import newest

LISTED: Final = 20_000  # files of an overlay that its note lists, at most
RENEWED: Final = 86400.0  # seconds after which a push uploads an overlay again; far below the grace of `launcher gc`


class BlobNote(msgspec.Struct, frozen=True):
    """objects/notes/<digest>.json: where an overlay came from; not part of any hash. `files`: size and sha256 of each
    file (of a link 0 and its target); empty for more than LISTED, and in the notes of launchers before 29 November
    2026."""

    user: str
    time: float
    commit: str = ""
    dirty: bool = False
    files: Mapping[str, tuple[int, str]] = msgspec.field(default_factory=dict)


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
        import tempfile

        with tempfile.TemporaryDirectory(prefix="slipway-code-") as scratch:
            packed = Path(scratch) / "code.tar"
            if overlay.pack(packed) != digest.removeprefix("sha256:"):
                raise BadInput(f"{overlay.folder} changed while it was submitted; submit again")
            store.create(layout.blob_note(digest), msgspec.json.encode(_note(overlay)))
            bare, size = digest.removeprefix("sha256:"), packed.stat().st_size
            store.send(layout.blob(digest), lambda: file_pieces(packed), size, bare)  # noqa: B023
    return done


def _note(overlay: Packed) -> BlobNote:
    folder = overlay.folder
    commit = _git(folder, "rev-parse", "HEAD")
    dirty = bool(commit and _git(folder, "status", "--porcelain"))
    files = overlay.contents() if isinstance(overlay, Overlay) else {}
    return BlobNote(_user(), time.time(), commit, dirty, files if len(files) <= LISTED else {})


def changed_files(store: Store, before: str, now: Overlay) -> list[str]:
    """How the files of an overlay differ from those of the one with the digest `before`: `changed a.py`, `new b.py`,
    `gone c.py`; empty if that is not known."""
    stored = store.read(layout.blob_note(before))
    try:
        old = decode(stored[0], BlobNote).files if stored is not None else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        old = {}
    if not old:
        return []
    new = now.contents()
    # modes and the links' kind are in the tar, not in the note: then nothing is named
    words = {name: "gone" for name in old if name not in new} | {name: "new" for name in new if name not in old}
    words |= {name: "changed" for name in new if name in old and tuple(old[name]) != new[name]}
    return [f"{word} {name}" for name, word in sorted(words.items())]


def _git(folder: Path, *arguments: str) -> str:
    import subprocess  # only a new overlay has a note

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


# A new run that differs from the newest of its name by its code, its image or this machine's packages alone may be a
# mistake.

_NAMED: Final = 5  # files in a line, at most


def only_software_differs(
    store: Store,
    group: Group,
    new: Iterable[ResolvedJob],
    overlays: Mapping[str, Packed],
    environment: LocalEnvironment | None = None,
) -> Iterator[str]:
    """A line for each such run. `environment`: this machine's, where the jobs run in it. Costs one request for each
    overlay of before that differs, usually one."""
    known: dict[tuple[str, str], list[str]] = {}
    for job in new:
        run = run_id(job)
        before = newest(store.url, group.names.get(run, job.name))
        if before is None:
            continue
        same, kept = with_images_of(before, job, group.images)
        if run_hash(_bare(same)) != run_hash(_bare(job)):
            continue
        parts = [f"the image of {', '.join(sorted(kept))}"] if kept else []
        if before.code is not None and job.code is not None and before.code != job.code:
            digests = before.code.digest, job.code.digest
            overlay = overlays.get(job.code.digest)
            if digests not in known:
                known[digests] = changed_files(store, digests[0], overlay) if isinstance(overlay, Overlay) else []
            parts.append(f"the files of `code`{_listed(known[digests])}")
        was = {role.image.environment for role in before.roles.values()}
        if environment is not None and was != {role.image.environment for role in job.roles.values()}:
            old = next((found for digest in was if (found := stored_environment(digest)) is not None), None)
            parts.append(f"packages{describe_changes(old and old.parts, environment.parts)}")
        if parts:
            yield (
                f"{run} is a new run: nothing differs from {run_id(before)} but {' and '.join(parts)}; "
                f"`launcher results {run_id(before)}` shows the earlier one{f'; {how_to_keep(kept)}' if kept else ''}"
            )


def _bare(job: ResolvedJob) -> ResolvedJob:
    """The job as if its code and its environment were the same."""
    roles = {}
    for name, role in job.roles.items():
        same = "" if is_local(role.image.environment) else role.image.environment
        image = msgspec.structs.replace(role.image, environment=same)
        roles[name] = msgspec.structs.replace(role, image=image)
    return msgspec.structs.replace(job, code=Code("") if job.code is not None else None, roles=roles)


def _listed(items: list[str]) -> str:
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return f" ({', '.join(items[:_NAMED])}{more})" if items else ""
