"""Uploads output folders when the command ends. A live output (`sync: live`) is also uploaded while the command runs,
and restored for the next attempt.

The leader's folders are the run's outputs; the manifest is written last. While the command runs, every version of a
live file and of its manifest has its own key, and the heartbeat names the newest version. The final manifest is written
once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from uuid import uuid4

import msgspec

from launcher.errors import BadInput, NotFound, SlipwayError
from launcher.protocol.records import StoredFolder
from launcher.reasons import Reason
from launcher.runtime.beating import BeatState
from launcher.runtime.context import MemberContext
from launcher.runtime.folders import FolderIdentity
from launcher.runtime.settings import AttemptError
from launcher.store.manifest import Manifest, StoredFile, fetch_tree, find_output, key_of
from launcher.store.paths import LeftOutFiles
from launcher.store.transfer import Damaged
from launcher.store.upload import Upload

Insist = Callable[[Callable[[], None]], None]
_BUSY = 4.0  # uploads of live outputs take at most this fraction of the time: one part in four


class LiveVersions:
    """The versions of one live output in the store. Not thread-safe."""

    def __init__(self, context: MemberContext, name: str, state: BeatState) -> None:
        self.upload = Upload(context.store, context.keys.output(name), context.folders.outputs / name)
        self.begun = False
        self._context, self._name, self._state = context, name, state
        self._number = 0  # number of the last version that was begun; every try has its own
        self._there: tuple[object, ...] | None = None  # what the newest complete version holds
        self._manifests: set[str] = set()  # keys of manifests of which a put was tried
        self._replaced: dict[str, tuple[int, float]] = {}  # key -> the version that replaced it, and when

    def sync(self) -> None:
        """Uploads changed files as the next version. Does nothing if no file has changed."""
        self.begun = True
        began, self._number = time.time(), self._number + 1
        files = self.upload.version(self._number)
        places = _places(files, self.upload.empty_folders)
        if places == self._there:
            return
        context, number = self._context, self._number
        key = context.keys.live_manifest(self._name, number)
        self._manifests.add(key)
        left = self.upload.left
        manifest = Manifest(files, began, uuid4().hex, left.listed, left.count, self.upload.empty_folders)
        context.store.create(key, msgspec.json.encode(manifest))
        self._there = places
        self._state.outputs = {**self._state.outputs, self._name: number}
        folder = context.keys.output(self._name)
        used = {key_of(folder, name, file.at) for name, file in files.items()} | {key}
        for old in (self.upload.keys | self._manifests) - used:
            self._replaced.setdefault(old, (number, time.monotonic()))

    def sweep(self, linger: float) -> None:
        """Deletes files that a newer version replaced. It waits until a heartbeat in the store names that version or a
        later one, and then `linger` seconds more for readers of the older version."""
        told, now = self._state.told.get(self._name, 0), time.monotonic()
        self._delete([key for key, (by, since) in self._replaced.items() if by <= told and now - since >= linger])

    def leave(self) -> None:
        """Deletes every version, after the final manifest was written."""
        self._state.outputs = {name: number for name, number in self._state.outputs.items() if name != self._name}
        self._delete([*self.upload.keys, *self._manifests])

    def _delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        # the manifests are deleted first, so that none names a file that is gone
        self._context.store.delete([key for key in keys if key in self._manifests])
        self._context.store.delete([key for key in keys if key not in self._manifests])
        for key in keys:
            self._replaced.pop(key, None)
        self.upload.keys.difference_update(keys)
        self._manifests.difference_update(keys)


def _places(files: Mapping[str, StoredFile], empty: Sequence[str]) -> tuple[object, ...]:
    """What makes one version differ from another."""
    return {name: (file.sha256, file.at, file.executable) for name, file in files.items()}, tuple(empty)


class Outputs:
    """The outputs of kind `files` of the leader. Not thread-safe."""

    def __init__(self, context: MemberContext, state: BeatState) -> None:
        self._context, self._state = context, state
        self._names = [name for name, output in context.job.outputs.items() if output.kind == "files"]
        self._live = {
            name: LiveVersions(context, name, state) for name in self._names if context.job.outputs[name].sync == "live"
        }
        self._final: dict[str, Upload] = {}
        self._due = 0.0
        self.made: Mapping[str, FolderIdentity] = {}  # the folders that the runtime made before the command

    def poll(self) -> None:
        """Uploads changed files of live outputs when it is time. Raises Unreachable; the next round continues."""
        began = time.monotonic()
        if began < self._due:
            return
        for name, live in self._live.items():
            root = self._context.folders.outputs / name
            if root.is_dir() and (live.begun or any(root.iterdir())):
                try:
                    self._read(name, live.sync)
                except AttemptError as fault:  # it is checked again at the end, and may be readable then
                    self._context.say(str(fault))
            live.sweep(self._context.address.tuning.linger)
        took = time.monotonic() - began
        self._due = began + max(self._context.address.tuning.live, _BUSY * took)

    def finish(self, *, succeeded: bool, insist: Insist, elsewhere: Sequence[str] = ()) -> None:
        """Uploads all outputs if the command succeeded, else only live ones. `elsewhere`: folders of checkpoints, which
        need not exist here. Raises AttemptError, after the other outputs were uploaded, for a declared folder that is
        missing or into which nothing was ever put. Raises Unreachable."""
        missing = []
        for name in self._context.job.outputs if succeeded else self._live:
            folders = self._context.folders
            untouched = folders.untouched(name, self.made.get(name))
            if not (folders.outputs / name).is_dir() or (untouched and name in self._names):
                if name not in elsewhere:
                    missing.append(name)
            elif untouched:
                self._context.say(f"output {name}: the command saved no checkpoint")
            elif name in self._names:
                insist(lambda name=name: self._send(name, succeeded))  # type: ignore[misc]
                for line in self._uploads()[name].left.lines(f"output {name}"):
                    self._context.say(line)
        if missing and succeeded:
            noun = "output " if len(missing) == 1 else "outputs "
            where = " ".join(f"$SLIPWAY_OUTPUTS/{name}" for name in missing)
            raise AttemptError(
                Reason.OUTPUT_MISSING, f"{noun}{', '.join(missing)}: the command put nothing into {where}"
            )

    def restore(self, earlier: Sequence[tuple[int, Mapping[str, int], bool]]) -> None:
        """Restores live outputs from the newest earlier attempt that has them. `earlier`, the newest first: number of
        the attempt, the versions that its leader reported, and whether the leader has written its exit."""
        for name in self._live:
            for number, told, ended in earlier:
                if self._restore(name, number, told.get(name, 0), ended):
                    break

    def left(self, into: LeftOutFiles) -> None:
        """Adds the files that were left out of all outputs to `into`."""
        for name, upload in self._uploads().items():
            into.add(upload.left.below(name), upload.left.count)

    def _uploads(self) -> dict[str, Upload]:
        return {name: live.upload for name, live in self._live.items()} | self._final

    def _restore(self, name: str, number: int, told: int, ended: bool) -> bool:
        context = self._context
        folder = context.run_keys.attempt(number).output(name)
        # a leader that was killed may have completed a version that no heartbeat names
        newest = find_output(context.store, folder, told, newer=not ended)
        if newest is None:
            return False
        _, manifest = newest
        context.say(f"output {name}: continuing with the {len(manifest.files)} files of attempt {number}")
        self._fetch(name, number, manifest)
        return True

    def _send(self, name: str, succeeded: bool) -> None:
        live = self._live.get(name)
        if not succeeded:
            if live is not None:
                self._read(name, live.sync)
            return
        keys = self._context.keys
        if name not in self._final:
            root = self._context.folders.outputs / name
            self._final[name] = live.upload if live else Upload(self._context.store, keys.output(name), root)
        self._read(name, lambda: self._tell(name, self._final[name].final(keys.output_manifest(name))))
        if live is not None:
            live.leave()

    def _tell(self, name: str, manifest: Manifest) -> None:
        folder = StoredFolder(len(manifest.files), manifest.size, manifest.digest)
        self._state.folders = {**self._state.folders, name: folder}

    def _read(self, name: str, send: Callable[[], object]) -> None:
        try:
            send()
        except BadInput as error:
            raise AttemptError(Reason.OUTPUT_MISSING, f"output {name}: {error}") from None
        except OSError as error:
            if isinstance(error, SlipwayError):
                raise
            raise AttemptError(Reason.OUTPUT_MISSING, f"output {name}: {error.filename}: {error.strerror}") from None

    def _fetch(self, name: str, number: int, manifest: Manifest) -> None:
        store, keys = self._context.store, self._context.run_keys.attempt(number)
        try:
            fetch_tree(store, keys.output(name), manifest, self._context.folders.outputs / name)
        except (Damaged, NotFound):
            for path, file in manifest.files.items():
                self._fetch_file(keys.output(name), path, file, manifest, name)

    def _fetch_file(self, prefix: str, path: str, file: StoredFile, manifest: Manifest, name: str) -> None:
        """Fetches one file of an attempt that an older runtime left unfinished. Older runtimes wrote a live file again
        under the same key, so the file may be newer than its manifest. Then no hash is known, and the file is accepted
        if two readings agree."""
        store, root = self._context.store, self._context.folders.outputs / name
        try:
            fetch_tree(store, prefix, msgspec.structs.replace(manifest, files={path: file}), root)
        except NotFound:
            return
        except Damaged:
            target = root / path  # older runtimes stored plain names only
            if file.at or store.download(prefix + path, target) != store.download(prefix + path, target):
                raise
            self._context.say(f"output {name}: {path} is newer than its manifest")
