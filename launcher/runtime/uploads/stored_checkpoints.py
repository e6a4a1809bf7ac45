"""Checkpoints in a store: how to find, fetch and delete them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from launcher.decoding import decode
from launcher.errors import NotFound, SlipwayError
from launcher.protocol.facts import facts, newest_checkpoint
from launcher.protocol.read import read_run
from launcher.protocol.records import Complete
from launcher.protocol.view import RunView
from launcher.runtime.folders import remove
from launcher.store import manifest as manifests
from launcher.store.base import Store
from launcher.store.layout import AttemptKeys, RunKeys
from launcher.store.manifest import Manifest
from launcher.store.transfer import Progress

Choose = Callable[[Collection[tuple[int, int]]], tuple[int, int] | None]  # excluded ones -> (attempt, step) to restore


class Stored(NamedTuple):
    """A checkpoint. The newest has the highest step; of equal steps the later attempt's is newer."""

    step: int
    attempt: int
    run: str

    @property
    def keys(self) -> AttemptKeys:
        return RunKeys(self.run).attempt(self.attempt)

    @property
    def prefix(self) -> str:
        return f"{self.keys.checkpoints}{self.step}/"


def begun(store: Store, run: str) -> list[Stored]:
    """Every checkpoint that has any object in the store, complete or not; newest first."""
    checkpoints = []
    for attempt in store.folders(RunKeys(run).attempts):
        if attempt.isdecimal():
            steps = store.folders(RunKeys(run).attempt(int(attempt)).checkpoints)
            checkpoints += [Stored(int(step), int(attempt), run) for step in steps if step.isdecimal()]
    return sorted(checkpoints, reverse=True)


def complete(store: Store, run: str) -> Iterator[tuple[Stored, Complete]]:
    """The complete checkpoints of a run, newest first. Each is read when the iterator reaches it."""
    for stored in begun(store, run):
        record = read_complete(store, stored)
        if record is not None:
            yield stored, record


def read_complete(store: Store, stored: Stored) -> Complete | None:
    key = stored.keys.checkpoint_complete(stored.step)
    body = store.read(key)
    if body is None:
        return None
    try:
        return decode(body[0], Complete)
    except msgspec.DecodeError as error:
        raise SlipwayError(f"{key} is not a valid record: {error}") from None


def select(store: Store, run: str, step: str) -> tuple[Stored, Complete]:
    """The checkpoint of a run that `step` names: `latest`, `best` or a number. Raises NotFound."""
    newest = next(complete(store, run), None)
    if newest is None:
        raise NotFound(f"run {run} has no complete checkpoint")
    if step == "latest":
        return newest
    if step == "best" and newest[1].best is None:
        raise NotFound(f"run {run}: its trainer recorded no best checkpoint; ask for `latest` or a step")
    wanted = newest[1].best if step == "best" else int(step)
    checkpoint = next((pair for pair in complete(store, run) if pair[0].step == wanted), None)
    if checkpoint is None:
        raise NotFound(f"run {run} has no complete checkpoint of step {wanted}")
    return checkpoint


def fetch_tree(store: Store, prefix: str, manifest: Manifest, into: Path, progress: Progress | None = None) -> None:
    """`manifest.fetch_tree` into a folder, whose other files are removed. It always copies: a command that writes into
    its inputs must not change a store on the same disk."""
    if into.is_dir() and not into.is_symlink():
        _clear(into, {manifests.true_name(name, file) for name, file in manifest.files.items()})
    manifests.fetch_tree(store, prefix, manifest, into, progress=progress)


def _clear(folder: Path, wanted: set[str], relative: str = "") -> None:
    """Removes all files except those in `wanted`. Links are removed too, but not what they point to: a command may have
    made them."""
    for path in folder.iterdir():
        name = f"{relative}{path.name}"
        if path.is_dir() and not path.is_symlink():
            _clear(path, wanted, f"{name}/")
        elif path.is_symlink() or name not in wanted:
            remove(path)


def fetch(
    store: Store,
    stored: Stored,
    record: Complete,
    into: Path,
    member: str | None = None,
    progress: Progress | None = None,
) -> Manifest:
    """Fetches and verifies every rank's files into one new folder. If two ranks have a file of the same name, that of
    `member` is taken, or else the leader's. Returns the manifest of the folder. Raises NotFound if the checkpoint is
    deleted meanwhile."""
    into.mkdir(parents=True, exist_ok=True)
    parts = list(_parts(store, stored, record, member))
    for prefix, manifest in parts:
        manifests.fetch_tree(store, prefix, manifest, into, progress=progress)
    return _whole(record, parts)


def whole_manifest(store: Store, stored: Stored, record: Complete) -> Manifest:
    """The manifest that `fetch` returns, made from the ranks' manifests without fetching files. Raises NotFound."""
    return _whole(record, list(_parts(store, stored, record, None)))


def _parts(store: Store, stored: Stored, record: Complete, member: str | None) -> Iterator[tuple[str, Manifest]]:
    """(prefix, manifest) of every rank, without files whose name an earlier rank has already."""
    taken: set[str] = set()
    for name in sorted(record.members, key=lambda name: (name != member, record.members.index(name))):
        manifest = manifests.read_manifest(store, stored.keys.checkpoint_manifest(stored.step, name))
        if manifest is None:
            raise NotFound(f"checkpoint {stored.step} of {stored.run} is gone")
        files = {path: entry for path, entry in manifest.files.items() if path not in taken}
        taken |= set(files)
        yield stored.keys.checkpoint_files(stored.step, name), msgspec.structs.replace(manifest, files=files)


def _whole(record: Complete, parts: Sequence[tuple[str, Manifest]]) -> Manifest:
    files = {path: entry for _, manifest in parts for path, entry in manifest.files.items()}
    empty = sorted({name for _, manifest in parts for name in manifest.empty_folders})
    return Manifest(dict(sorted(files.items())), record.time, record.nonce, empty_folders=tuple(empty))


def newest_of(view: RunView, before: int | None, lost: Collection[tuple[int, int]] = ()) -> tuple[int, int] | None:
    """(attempt, step) of the checkpoint from which attempt `before` continues; with None, from which another run that
    resumes this one does. `lost`: checkpoints that were deleted since the view was read. The exhaustive check explores
    this same choice."""
    if view.job is None:
        return None
    left = tuple(
        replace(attempt, checkpoints=tuple(step for step in attempt.checkpoints if (attempt.number, step) not in lost))
        for attempt in view.attempts
    )
    run = facts(replace(view, attempts=left), view.job)
    return newest_checkpoint(run, len(run.attempts) + 1 if before is None else before)


def resumed(store: Store, run: str | None) -> Iterator[RunView]:
    """The run, the run that it resumes, and so on: one that ended before its first checkpoint has that of the one
    before. Up to one that is gone."""
    while run:
        try:
            view = read_run(store, run, full=False)
        except NotFound:
            return
        yield view
        run = view.job.resume if view.job is not None else None


def restore(store: Store, stored: Stored, folder: Path, member: str) -> Path:
    """Fetches a checkpoint under its own name into `folder`. Returns its path, which $SLIPWAY_RESUME will hold. Raises
    NotFound if it is deleted meanwhile."""
    record = read_complete(store, stored)
    if record is None:
        raise NotFound(f"checkpoint {stored.step} of {stored.run} is gone")
    remove(folder)
    fetch(store, stored, record, folder if record.single else folder / record.name, member)
    return folder / record.name


def delete(store: Store, stored: Stored) -> None:
    """Deletes a checkpoint, its marker first, so that an incomplete one never looks complete."""
    store.delete([stored.keys.checkpoint_complete(stored.step)])
    keys = [meta.key for meta in store.scan(stored.prefix)]
    lists = {key for key in keys if key.startswith(f"{stored.prefix}manifest/")}
    store.delete(lists)
    store.delete(key for key in keys if key not in lists)
