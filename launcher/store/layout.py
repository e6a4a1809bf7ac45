"""The names of all objects in a store (docs/explanation/architecture.md, The store). No other module knows them.
Keys are relative to the store's URL."""

from __future__ import annotations

from typing import NamedTuple


def blob(digest: str) -> str:
    """The key of a content-addressed blob; `digest` is bare hex or sha256:hex."""
    return f"objects/sha256/{digest.removeprefix('sha256:')}"


def blob_note(digest: str) -> str:
    """The key of the note about a blob: commit, dirty, user."""
    return f"objects/notes/{digest.removeprefix('sha256:')}.json"


def group(group_id: str) -> str:
    return f"groups/{group_id}.json"


def works(work: str) -> str:
    return f"works/{work}/"


def work_run(work: str, run: str) -> str:
    return f"works/{work}/{run}.json"


MARKER = ".slipway-store"  # in the root of a store: its id; shows that something of Slipway was written there
RUNS = "runs/"
# beginnings of the keys that sort before and after every run (launcher.store.proof); no folders, so no runs
PROOF_BEFORE, PROOF_AFTER = "runs/!", "runs/~"
GROUPS = "groups/"
# names at the top of a store, by which a folder is recognised as one; the check of create-only puts leaves `checks`
ROOMS = frozenset(("runs", "objects", "groups", "works", "deleting", "checks", "leases", "reapers", "verdicts"))
BLOBS = "objects/sha256/"
NOTES = "objects/notes/"
WORKS = "works/"
CHECKS = "checks/"  # objects of the check of create-only puts, which deletes them unless it is interrupted
DELETING = "deleting/"  # lists of objects that a gc or rm of the launcher is about to delete
LOG = ".log"
METRICS = ".jsonl"
MANIFEST = ".manifest.json"


VERDICTS = "verdicts/"  # what people say of rollouts; beside the runs, so that nothing of a run changes
LEASES = "leases/"  # one launcher of an account launches machines at a time


def lease(account: str) -> str:
    """The prefix of an account's lease: its generations."""
    return f"{LEASES}{account}/"


def lease_held(account: str, generation: int) -> str:
    return f"{lease(account)}{generation:012d}/held.json"


def lease_released(account: str, generation: int) -> str:
    return f"{lease(account)}{generation:012d}/released.json"


def reaper(backend: str, account: str) -> str:
    """The mark of a reaper that renews what runs need: always the same body, its time says when one last looked."""
    return f"reapers/{backend}-{account}.json"


def unused(backend: str, place: str) -> str:
    """The prefix of the marks of what a reaper has found unused in a place of a provider; their times count."""
    return f"reapers/{backend}-unused/{place}/"


def verdict(run: str, name: str) -> str:
    return f"{VERDICTS}{run}/{name}.json"


def verdict_of(key: str) -> tuple[str, str] | None:
    """(run, name) of a verdict's key; None for any other object."""
    room, run, last = (*key.split("/"), "", "")[:3]
    name = last.removesuffix(".json")
    return (run, name) if f"{room}/" == VERDICTS and run and name and key == verdict(run, name) else None


def is_proof(key: str) -> bool:
    return key.startswith((PROOF_BEFORE, PROOF_AFTER)) and "/" not in key.removeprefix(RUNS)


def deleting(nonce: str) -> str:
    return f"{DELETING}{nonce}.json"


def span(name: str, suffix: str) -> tuple[int, int | None] | None:
    """(first byte, end) of a piece of a log or of metrics, from the last part of its key; None for any other object.
    Keys of older runtimes have no end."""
    stem = name.removesuffix(suffix)
    first, dash, end = stem.partition("-")
    if stem == name or not first.isdecimal() or (dash and not end.isdecimal()):
        return None
    return int(first), int(end) if dash else None


def span_name(first: int, end: int | None) -> str:
    """The last part of a piece's key, without its suffix."""
    return f"{first:020d}" if end is None else f"{first:020d}-{end:020d}"


def live_file(version: int, name: str) -> str:
    """The key of a version of a live output's file, after the output's folder name (`manifest.StoredFile.at`)."""
    return f".live/{version:08d}/{name}"


def live_manifests(folder: str) -> str:
    """The prefix of a live output's manifests; `folder` is the output's prefix and ends with `/`."""
    return f"{folder[:-1]}.live/manifest/"


def live_manifest(folder: str, version: int) -> str:
    return f"{live_manifests(folder)}{version:08d}.json"


def live_version(key: str) -> int | None:
    """The version of a manifest, from its key below `live_manifests`."""
    stem = key.rpartition("/")[2].removesuffix(".json")
    return int(stem) if stem.isdecimal() else None


def again_file(number: int, name: str) -> str:
    """As `live_file`, for a final file that changed during its upload: its own key may hold other bytes."""
    return f".again/{number:08d}/{name}"


class RunKeys(NamedTuple):
    """The keys of one run."""

    run: str

    @property
    def prefix(self) -> str:
        return f"runs/{self.run}/"

    @property
    def job(self) -> str:
        return self.prefix + "job.json"

    @property
    def cancel(self) -> str:
        return self.prefix + "cancel.json"

    @property
    def result(self) -> str:
        return self.prefix + "result.json"

    @property
    def deleted(self) -> str:
        """The key of the record that a run's outputs were deleted; job.json and result.json stay beside it."""
        return self.prefix + "deleted.json"

    @property
    def tombstone(self) -> tuple[str, ...]:
        """The records of a deleted run that are never deleted."""
        return self.job, self.result, self.deleted

    @property
    def attempts(self) -> str:
        return self.prefix + "attempts/"

    @property
    def events(self) -> str:
        return self.prefix + "events/"

    def event(self, attempt: int, writer: str, seq: int) -> str:
        return f"{self.events}{attempt}-{writer}-{seq:08d}.json"

    @property
    def notices(self) -> str:
        """The prefix of the records of what people were told about the run."""
        return self.prefix + "notices/"

    def attempt(self, number: int) -> AttemptKeys:
        return AttemptKeys(self.run, number)


class NoticeKeys(NamedTuple):
    """The keys of one try to tell people about a run by a channel."""

    run: str
    event: str
    channel: str
    number: int

    @property
    def prefix(self) -> str:
        return f"{RunKeys(self.run).notices}{self.event}/{self.channel}/{self.number}/"

    @property
    def begun(self) -> str:
        return self.prefix + "begun.json"

    @property
    def ended(self) -> str:
        return self.prefix + "ended.json"


class AttemptKeys(NamedTuple):
    """The keys of one attempt; a member is `<role>-<rank>`."""

    run: str
    number: int

    @property
    def prefix(self) -> str:
        return f"runs/{self.run}/attempts/{self.number}/"

    def claim(self, member: str) -> str:
        return f"{self.prefix}claim/{member}.json"

    @property
    def formed(self) -> str:
        return self.prefix + "formed.json"

    def endpoint(self, member: str) -> str:
        return f"{self.prefix}endpoints/{member}.json"

    def beat(self, member: str) -> str:
        return f"{self.prefix}beat/{member}.json"

    @property
    def broken(self) -> str:
        return self.prefix + "broken.json"

    def exit(self, member: str) -> str:
        return f"{self.prefix}exit/{member}.json"

    def logs(self, member: str) -> str:
        return f"{self.prefix}logs/{member}/"

    def log_piece(self, member: str, first: int, end: int | None = None) -> str:
        """The key of the bytes [first, end) of a log; without `end`, the key as older runtimes wrote it."""
        return f"{self.logs(member)}{span_name(first, end)}{LOG}"

    def metrics(self, member: str) -> str:
        return f"{self.prefix}metrics/{member}/"

    def metrics_piece(self, member: str, first: int, end: int | None = None) -> str:
        return f"{self.metrics(member)}{span_name(first, end)}{METRICS}"

    def output(self, name: str) -> str:
        return f"{self.prefix}outputs/{name}/"

    def output_manifest(self, name: str) -> str:
        return f"{self.prefix}outputs/{name}{MANIFEST}"

    def live_manifest(self, name: str, version: int) -> str:
        """The manifest of one version of a live output; versions count from 1."""
        return live_manifest(self.output(name), version)

    @property
    def checkpoints(self) -> str:
        return self.prefix + "checkpoints/"

    def checkpoint_files(self, step: int, member: str) -> str:
        """The prefix of a member's files. They lie under files/<member>/, so no user's file can replace a manifest."""
        return f"{self.checkpoints}{step}/files/{member}/"

    def checkpoint_manifest(self, step: int, member: str) -> str:
        return f"{self.checkpoints}{step}/manifest/{member}.json"

    def checkpoint_complete(self, step: int) -> str:
        return f"{self.checkpoints}{step}/complete.json"
