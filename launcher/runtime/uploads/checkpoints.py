"""Uploads checkpoints while the command runs. First the files go, then this rank's manifest. When every rank of the
leading role has written its manifest, the leader writes complete.json. Then `keep` decides which old ones are
deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import msgspec

from launcher.decoding import decode
from launcher.protocol.records import Complete, Exit
from launcher.reasons import Reason
from launcher.runtime.context import MemberContext
from launcher.runtime.folders import remove
from launcher.runtime.uploads import stored_checkpoints
from launcher.runtime.uploads.checkpoint_watcher import LocalCheckpoint, Watcher, best_step, snapshot
from launcher.runtime.uploads.stored_checkpoints import Stored
from launcher.spec.model import Output
from launcher.store.paths import LeftOutFiles
from launcher.store.upload import Upload

Insist = Callable[[Callable[[], None]], None]


class Checkpoints:
    """One output of kind `checkpoints`, of one rank of the leading role. Not thread-safe.

    `on_complete` is called with the step of each checkpoint that this rank has made complete.
    """

    def __init__(
        self,
        context: MemberContext,
        name: str,
        output: Output,
        on_complete: Callable[[int], None],
        taken: dict[int, str] | None = None,
    ) -> None:
        """`taken`, shared by all outputs of a rank: step -> the output that has it. The keys of a step exist only
        once, so two outputs cannot both have it."""
        tuning = context.address.tuning
        self._context, self._name = context, name
        self._keep = output.keep
        self._on_complete = on_complete
        self._watcher = Watcher(context.folders.outputs / name, output.match, output.done, tuning.quiet, time.monotonic)
        self._taken = {} if taken is None else taken  # steps that need nothing more from this rank
        self._snapshots: dict[int, LocalCheckpoint] = {}
        self._uploads: dict[int, Upload] = {}  # unfinished uploads; the next try continues them
        self._pending: dict[int, Complete] = {}  # only in the leader: steps that wait for other ranks' manifests
        self._markers: dict[int, bytes] = {}  # bodies of complete.json of which a put was tried
        self._seen: set[tuple[int, str]] = set()  # (step, member) whose manifest is in the store
        self._absent: set[tuple[int, str]] = set()  # (step, member) whose manifest will never come
        self._kept: list[Stored] | None = None  # complete checkpoints of all attempts
        self._best: int | None = None
        self._doomed: list[Stored] = []
        self._looked = time.monotonic()  # when this rank, if it is not the leader, last listed the leader's steps
        self._leaders: dict[int, float] = {}  # step -> when the leader's manifest was first seen
        self._said: set[str] = set()
        self.left = LeftOutFiles()  # files of all checkpoints that no store can hold

    def poll(self, *, ended: bool = False) -> None:
        """One round of uploads. Raises Unreachable; the next round continues from there."""
        for step, checkpoint in sorted(self._snapshots.items()):
            self._upload(step, checkpoint)
        for checkpoint in self._chosen(self._watcher.complete(self._taken.keys(), ended=ended)):
            if checkpoint.step in self._taken or checkpoint.step in self._snapshots:
                self._ignore(f"checkpoint `{checkpoint.path.name}` is not uploaded: another has step {checkpoint.step}")
            elif snapshot(checkpoint, self._context.folders.snapshots / str(checkpoint.step)):
                self._snapshots[checkpoint.step] = checkpoint
                self.left.add(checkpoint.left.below(f"{self._name}/{checkpoint.path.name}"), checkpoint.left.count)
                for line in checkpoint.left.lines(f"checkpoint {checkpoint.step}"):
                    self._context.say(line)
                self._upload(checkpoint.step, checkpoint)
            else:
                remove(self._context.folders.snapshots / str(checkpoint.step))
        if self._context.leader:
            self._complete()
        else:
            self._declare_absent()
        for step in self._watcher.present() & self._taken.keys():
            if self._taken[step] != self._name:
                self._ignore(f"output {self._name}: step {step} is not uploaded: {self._taken[step]} has that step")
        for name in self._watcher.outside:
            self._ignore(f"checkpoint `{name}` is a link that leaves the output's folder: it is not uploaded")
        for name in self._watcher.ignored:
            self._ignore(f"checkpoint `{name}` has no step in its name: it is not uploaded")

    def _ignore(self, why: str) -> None:
        if why not in self._said:
            self._context.say(why)
        self._said.add(why)

    def finish(self, *, clean: bool, succeeded: bool, insist: Insist, waiting: Callable[[], bool]) -> None:
        """The last rounds. `clean`: the command was not killed, so its files are complete. While `waiting()` is true,
        the leader waits for the other ranks' manifests, and a rank that was stopped checks whether the leader waits for
        its own."""
        insist(lambda: self.poll(ended=clean))
        pause = self._context.address.tuning.poll
        if self._context.leader:
            while self._pending and waiting():
                time.sleep(pause)
                insist(self._complete)
            insist(self._sweep)
            if self._pending:
                steps = ", ".join(map(str, sorted(self._pending)))
                self._context.say(f"checkpoint {steps} stays incomplete: another rank's part is missing")
        elif not succeeded:
            leader = self._context.keys.exit(self._context.leading[0])
            while clean and waiting() and not self._context.store.head(leader):
                insist(lambda: self._declare_absent(at_once=True))
                time.sleep(pause)

    def _chosen(self, checkpoints: list[LocalCheckpoint]) -> list[LocalCheckpoint]:
        """The checkpoints to upload. In a run of one rank those that `keep` would delete at once are left out."""
        if self._keep and len(self._context.leading) == 1:
            self._taken |= {checkpoint.step: self._name for checkpoint in checkpoints[: -self._keep]}
            checkpoints = checkpoints[-self._keep :]
        return checkpoints

    def _upload(self, step: int, checkpoint: LocalCheckpoint) -> None:
        folder = self._context.folders.snapshots / str(step)
        self._send(step, folder, checkpoint.left)
        if self._context.leader:
            self._best = best_step(folder) or self._best
            self._pending[step] = Complete(
                step=step,
                name=checkpoint.path.name,
                members=self._context.leading,
                single=checkpoint.single,
                best=self._best,
                nonce=uuid4().hex,
            )
            self._seen.add((step, self._context.member))
        self._taken[step] = self._name
        del self._snapshots[step]
        remove(folder)

    def _send(self, step: int, folder: Path, left: LeftOutFiles | None = None) -> None:
        """Uploads this rank's files of a step, then its manifest."""
        keys, member = self._context.keys, self._context.member
        files = keys.checkpoint_files(step, member)
        upload = self._uploads.setdefault(step, Upload(self._context.store, files, folder, left=left))
        upload.final(keys.checkpoint_manifest(step, member))
        del self._uploads[step]

    def _complete(self) -> None:
        store, keys = self._context.store, self._context.keys
        for step, record in sorted(self._pending.items()):
            missing = [member for member in record.members if (step, member) not in self._seen]
            for member in missing:
                # the exit is read first: a rank that succeeded wrote all its manifests before its exit
                over = self._succeeded(member)
                if store.head(keys.checkpoint_manifest(step, member)):
                    self._seen.add((step, member))
                elif over:
                    self._absent.add((step, member))
            if all((step, member) in self._seen | self._absent for member in record.members):
                members = tuple(member for member in record.members if (step, member) in self._seen)
                whole = msgspec.structs.replace(record, members=members, time=time.time())
                body = self._markers.setdefault(step, msgspec.json.encode(whole))
                store.create(keys.checkpoint_complete(step), body)
                del self._pending[step], self._markers[step]
                self._context.say(f"checkpoint {step} is in the store")
                self._on_complete(step)
                self._retire(Stored(step, self._context.attempt, self._context.address.run))
        self._delete_doomed()

    def _delete_doomed(self) -> None:
        while self._doomed:
            stored_checkpoints.delete(self._context.store, self._doomed[-1])
            self._doomed.pop()

    def _sweep(self) -> None:
        """Deletes what an earlier attempt should have deleted before it died, if this attempt made no checkpoint."""
        if self._kept is None and self._context.attempt > 1:
            self._retire()
        self._delete_doomed()

    def _succeeded(self, member: str) -> bool:
        record = self._context.store.read(self._context.keys.exit(member))
        return record is not None and decode(record[0], Exit).reason is Reason.SUCCEEDED

    def _retire(self, *new: Stored) -> None:
        """Chooses what to delete: all checkpoints except the newest `keep` and the best one, and incomplete ones of
        earlier attempts, which can no longer become complete."""
        if not self._keep:
            return
        if self._kept is None:
            store, run = self._context.store, self._context.address.run
            earlier = [old for old in stored_checkpoints.begun(store, run) if old.attempt < self._context.attempt]
            whole = dict(stored_checkpoints.complete(store, run))
            self._doomed += [old for old in earlier if old not in whole]
            self._kept = [old for old in earlier if old in whole]
            if self._best is None and whole:
                self._best = whole[max(whole)].best
        kept = sorted([*self._kept, *new], reverse=True)
        self._kept = [old for index, old in enumerate(kept) if index < self._keep or old.step == self._best]
        self._doomed += [old for old in kept if old not in self._kept]

    def _declare_absent(self, *, at_once: bool = False) -> None:
        """Writes an empty manifest for each step of which this rank has no files: many trainers save on one node only,
        and the leader waits for every rank's manifest. Such steps are listed rarely, and an empty manifest is written
        only long after the leader's was seen."""
        silent = self._context.address.tuning.silent
        now = time.monotonic()
        if now - self._looked < silent / 2 and not at_once:
            return
        self._looked = now
        keys, store = self._context.keys, self._context.store
        mine = self._taken.keys() | self._snapshots.keys() | self._watcher.present()
        for step in {int(name) for name in store.folders(keys.checkpoints)} - mine:
            if not store.head(keys.checkpoint_manifest(step, self._context.leading[0])):
                continue
            if at_once or now - self._leaders.setdefault(step, now) >= silent:
                nothing = self._context.folders.snapshots / "nothing"
                nothing.mkdir(parents=True, exist_ok=True)
                self._send(step, nothing)
                self._taken[step] = self._name
