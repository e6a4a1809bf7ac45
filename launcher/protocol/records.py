"""The records of a run, one structure per kind of object below its prefix. Times in a record are only displayed;
staleness is judged by the store's own times. Unknown fields are ignored, so an older reader can read what a newer
writer wrote."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from launcher.reasons import Reason
from launcher.store.paths import LeftOut

GPU_IDLE: Final = "gpu_idle"  # in `usage` of a heartbeat: seconds since its GPUs last did something


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the run's records."""


class Placement(Record, frozen=True):
    """Where a rank runs, in enough detail for others to know when it is gone.

    kind        process | container | job | set | machine; nowhere: of a claim that moves the run
    where       equal strings mean the same place: host + queue entry, cluster + Job uid, JobSet uid, instance id
    generation  restart number of a JobSet; a higher number proves that ranks of a lower one are dead
    boot, pid, start   the runtime's process: boot id, pid, start time in clock ticks since boot
    cluster     only for a Job or a JobSet: identifies the cluster (`authorities` of its root certificates)
    """

    kind: str
    where: str
    generation: int = 0
    host: str = ""
    boot: str = ""
    pid: int = 0
    start: int = 0
    container: str = ""
    cluster: tuple[str, ...] = ()

    @property
    def is_process(self) -> bool:
        """A plain process of its machine: it has no image and no network of its own."""
        return self.kind == "process"


class Claim(Record, frozen=True):
    """Opens an attempt, or joins it. With `moved_to`, the claim of the leader by which the run goes to another of its
    backends: nothing computes in that attempt.

    runtime   version of the launcher in the image
    image     the id of its container's image, where the backend knows it
    moved_to  the backend that may start the next attempts; ""
    why       why the run was moved
    """

    placement: Placement
    nonce: str
    time: float
    runtime: str = ""
    image: str = ""
    moved_to: str = ""
    why: str = ""


class Formed(Record, frozen=True):
    members: dict[str, str]  # member -> address
    nonce: str


class Endpoint(Record, frozen=True):
    member: str
    ports: dict[str, str]  # name -> host:port
    time: float
    nonce: str = ""


class Beat(Record, frozen=True):
    """A heartbeat, overwritten every `timing.beat` seconds. Readers judge it by the object's modification time."""

    seq: int
    phase: str  # waiting | fetching | restoring | running | asking | saving | stopping
    step: float | None = None
    total: float | None = None
    message: str = ""
    checkpoint: int | None = None  # step of the newest complete checkpoint
    running: float = 0.0  # seconds the command has run in this attempt
    usage: dict[str, float] = {}
    time: float = 0.0
    events: int = 0  # how many event objects this member has written
    first_step: float | None = None  # the first step of this attempt, or since `total` changed; the ETA starts there
    first_running: float = 0.0  # `running` at that step
    log: int = 0  # bytes of the log in the store
    metrics: int = 0  # bytes of the metrics in the store
    lost: int = 0  # bytes of log and metrics that were lost because a disk was full
    outputs: dict[str, int] = {}  # live output -> its newest complete version
    held: float = 0.0  # seconds since the claim


class Complete(Record, frozen=True):
    """checkpoints/<step>/complete.json: this checkpoint is complete. The files of each member lie under
    files/<member>/; manifest/<member>.json lists them."""

    step: int
    name: str  # of the folder or file, as the command called it
    members: tuple[str, ...]  # the leader first
    single: bool = False  # it is one file, not a folder
    best: int | None = None  # the best step so far, if the trainer reports it
    time: float = 0.0
    nonce: str = ""


class Broken(Record, frozen=True):
    member: str
    by: str
    why: str
    nonce: str


class Exit(Record, frozen=True):
    """How one rank ended. The leader's exit is written last and is the exit of the attempt."""

    member: str
    reason: Reason
    code: int | None = None  # of the command; negative is a signal
    message: str = ""
    started: float = 0.0
    ended: float = 0.0
    running: float = 0.0
    usage: dict[str, float] = {}
    checkpoint: int | None = None  # step of the newest complete checkpoint when the rank ended
    nonce: str = ""
    log: int = 0  # these four as in the last heartbeat
    metrics: int = 0
    lost: int = 0
    outputs: dict[str, int] = {}
    left_out: tuple[
        LeftOut, ...
    ] = ()  # files of outputs and checkpoints that could not be stored, as `<output>/<name>`; the first few
    left_out_count: int = 0  # how many files could not be stored in all
    held: float = 0.0  # seconds from the claim to this exit


class Cancel(Record, frozen=True):
    by: str
    time: float
    nonce: str
    reason: str = ""  # as the user who cancelled gave it


class Adopted(Record, frozen=True):
    """The attempt of another run that did the same work; its outputs are used as this run's own."""

    run: str
    attempt: int


class Resumed(Record, frozen=True):
    """The run whose checkpoint a run went on from although other packages, or another image, had made it. `made_with`:
    the digest of those packages, or the image's id."""

    run: str
    made_with: str


class HeldAttempt(Record, frozen=True):
    start: float  # the store's time of its claim
    seconds: float  # for which it held its machines


class StoredFolder(Record, frozen=True):
    """What the manifest of an output says of all its files."""

    files: int
    bytes: int
    digest: str


class ShownResult(Record, frozen=True):
    """What a status line says of a run that has ended and is in none of the other fields of its result, so that nobody
    has to read its attempts for it. The leader writes it, of its own attempt and the earlier ones.

    claim, exit  of a run of one rank that ended in its first attempt: these records as they are
    folders      output -> what its final manifest says
    """

    attempt: int = 0  # the newest
    attempts: int = 0
    held: tuple[HeldAttempt, ...] = ()
    step: float | None = None
    total: float | None = None
    message: str = ""
    checkpoint: int | None = None
    claim: Claim | None = None
    exit: Exit | None = None
    folders: dict[str, StoredFolder] = {}


class Result(Record, frozen=True):
    """The only final record of a run."""

    outcome: str  # succeeded | failed | cancelled
    attempt: int
    reason: Reason
    message: str
    time: float
    nonce: str
    work: str = ""
    data: dict[str, str] = {}  # input -> digest of the bytes that the attempt read
    running: float = 0.0  # seconds, over all attempts
    held: float = 0.0  # seconds from claim to end, over all attempts
    written_by: str = ""
    lost: int = 0  # bytes of logs and metrics lost because disks were full, summed over the attempt's ranks
    left_out: tuple[LeftOut, ...] = ()  # as in the exits of the attempt
    left_out_count: int = 0
    adopted: Adopted | None = None
    resumed: Resumed | None = None
    shown: ShownResult | None = None  # None: whoever wrote the result had not read that much

    def source(self, run: str) -> tuple[str, int]:
        """(run, attempt) that holds the outputs of `run`; this is the result of `run`."""
        return (self.adopted.run, self.adopted.attempt) if self.adopted is not None else (run, self.attempt)


class Event(Record, frozen=True):
    attempt: int
    writer: str
    seq: int
    kind: str  # handle | evidence | warning | data | applied | ceiling
    message: str = ""
    fields: dict[str, str] = {}
    time: float = 0.0


class PersonVerdict(Record, frozen=True):
    """verdicts/<run>/<microseconds>-<nonce>.json: what a person says of a rollout. It takes nothing from what the
    checker said, and a later one of the same person counts in place of this one.

    place    names the rollout in its run: the folder of its episode, the line of its task, or for a training
             PHASE/STEP/GROUP/ROLLOUT
    success  None: it cannot be told
    blind    the person's page did not show what the checker said
    checker  what the checker had said then
    """

    place: str
    success: bool | None
    reason: str
    by: str
    time: float
    nonce: str
    blind: bool = False
    checker: bool | None = None


class Deleted(Record, frozen=True):
    """deleted.json: everything of the run except job.json and result.json was deleted, or is being deleted. This is
    never undone."""

    by: str
    time: float
    nonce: str
    verb: str = "gc"  # gc | rm


class Deleting(Record, frozen=True):
    """deleting/<nonce>.json: what a process is about to delete; removed when it is done. A submit that needs any of it
    waits. `host`, `boot`, `pid` and `start` identify the process, so that its own machine can tell when it has died."""

    by: str
    time: float
    nonce: str
    runs: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()  # digests, bare hex
    host: str = ""
    boot: str = ""
    pid: int = 0
    start: int = 0


_CERTIFICATE: Final = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")


def authorities(bundle: str) -> tuple[str, ...]:
    """A short digest of each certificate of a PEM bundle, sorted: they identify a cluster by the root certificates of
    its API server. Every namespace holds a copy of them (ConfigMap kube-root-ca.crt), and so do most kubeconfigs; pods
    can read no other name of their cluster. Two clusters share a digest only if they were given
    the same authority. A cluster that is replacing its authority has both."""
    bodies = {"".join(body.split()) for body in _CERTIFICATE.findall(bundle)}
    return tuple(sorted(hashlib.sha256(body.encode()).hexdigest()[:12] for body in bodies))
