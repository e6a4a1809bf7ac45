"""What `-o json` prints: one structure for each verb. `launcher.cli.json_page` writes docs/reference/json.md from them,
and tests check that the verbs print them.

Times are seconds since the epoch, durations seconds, sizes bytes, shares in [0, 1]; null where a value is not known.
Fields may be added; none changes its meaning or goes. Not imported by any verb.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all documents."""


class Attempt(Document, frozen=True):
    attempt: int
    reason: str | None
    member: str | None
    code: int | None
    message: str
    started: float | None
    ended: float | None
    checkpoint: int | None
    outputs: list[str]


class Member(Document, frozen=True):
    member: str
    host: str
    phase: str
    step: float | None
    reason: str | None
    seen: float | None
    silent: bool
    usage: dict[str, float]


class Run(Document, frozen=True):
    """A run. `lost_bytes`: of logs and metrics, lost on full disks; `left_out`: things in its outputs that no store can
    keep; `resumed`: the run whose checkpoint it goes on from although other packages, or another image, made it. The
    last four fields only where exactly one run is asked for."""

    run: str
    name: str
    group: str | None
    state: str
    attempt: int
    attempts: int
    phase: str | None
    step: float | None
    total: float | None
    progress: float | None
    eta_s: float | None
    checkpoint: int | None
    reason: str | None
    detail: str | None
    message: str | None
    stale: bool
    lost_bytes: int
    left_out: int
    resumed: str | None
    created: float | None
    ended: float | None
    running_s: float
    backend: str
    labels: dict[str, str]
    attempt_list: list[Attempt] | None = None
    members: list[Member] | None = None
    path: str | None = None
    deleted: str | None = None


class Paid(Document, frozen=True):
    """A run that costs money now; a disk, or a machine that no run has, where `run` is null. `since`: when billing
    began; `hourly`: null where the price is not known; `cost`: so far; `deadline_left_s`: running time that is
    left; `why`: its state, or why somebody must end it."""

    run: str | None
    backend: str
    what: str
    since: float | None
    hourly: float | None
    currency: str | None
    cost: float | None
    deadline_left_s: float | None
    why: str
    labels: dict[str, str]


class Watched(Run, frozen=True, tag_field="event", tag="state"):
    """A line at each change of a run's state, phase, attempt or place, and from time to time with its steps."""


class Submitted(Document, frozen=True):
    run: str
    name: str
    state: str
    reason: str


class Followed(Submitted, frozen=True, tag_field="event", tag="submitted"):
    """A line for each run that was submitted; lines of Watched follow."""


class GroupRun(Document, frozen=True):
    run: str
    name: str
    state: str | None


class Group(Document, frozen=True):
    """`jobs`: job -> how many runs; `states`: state -> how many runs."""

    group: str
    created: float
    jobs: dict[str, int]
    states: dict[str, int]
    runs: list[GroupRun]


class Rank(Document, frozen=True):
    member: str
    host: str
    phase: str
    seen: float | None
    cpus: float | None
    memory: float | None
    gpu: float | None
    gpu_memory: float | None


class Used(Document, frozen=True):
    """What a run uses, summed over its ranks (`gpu`: the mean), and what it asked for."""

    run: str
    name: str
    state: str
    attempt: int
    step: float | None
    total: float | None
    eta_s: float | None
    stale: bool
    cpus: float | None
    cpus_asked: float
    memory: float | None
    memory_asked: int | None
    gpu: float | None
    gpus_asked: int
    gpu_memory: float | None
    ranks: list[Rank]


class LogLine(Document, frozen=True):
    """A line of a rank's log without its line end; invalid UTF-8 is replaced. `missing`: how many bytes before it are
    not in the store."""

    run: str
    name: str
    member: str
    line: str
    missing: int = 0


class Cancelled(Document, frozen=True):
    run: str
    state: str


class Moved(Document, frozen=True):
    """`state`: moved | completed (a move that was begun) | there (its backend had it already)."""

    run: str
    backend: str
    state: str


class Reaped(Document, frozen=True):
    run: str
    did: str
    detail: str


class Notification(Document, frozen=True):
    """`did`: sent, unsent (it is tried again), given up; with --dry-run: would be sent. `detail`: what was told, or why
    it was not."""

    run: str
    event: str
    channel: str
    did: str
    detail: str


class Gone(Document, frozen=True):
    what: str
    name: str
    objects: int | None
    bytes: int | None
    state: str
    why: str


class Gathered(Document, frozen=True):
    run: str
    attempt: int | None
    outcome: str | None
    files: int
    bytes: int
    sent_files: int
    sent_bytes: int
    notes: list[str]
    error: str | None


class Metric(Document, frozen=True):
    benchmark: str | None
    version: str | None
    split: str | None
    agent: str | None
    metric: str | None
    value: float | None
    ci_low: float | None
    ci_high: float | None
    n: int | None
    infra_failures: int | None
    seeds: list[int] | None
    run: str
    name: str
    state: str
    reason: str | None
    problem: str | None
    attempt: int | None
    work: str
    environment: str | None
    git_commit: str | None
    git_dirty: bool | None
    data: dict[str, str]
    backend: str
    gpu_hours: float | None
    minutes: float | None
    cost: float | None
    currency: str | None
    variant: dict[str, Any]
    adopted: str | None
    resumed: str | None
    clusters: int | None
    cost_per_solved: float | None


class RunCosts(Document, frozen=True):
    """What a run cost so far, all attempts together; if it is `final`, in the end. `billed_s`: as billed, in the
    provider's steps; `cost`: null where `missing` names what has no known price; `bound`: it is this at most,
    because nobody knows since when a machine was billed; `origin`: where prices come from; `hourly_low`, `hourly_high`:
    of the cheapest and the dearest machines that its job allows; `worst`: at most."""

    run: str
    name: str
    state: str
    backend: str
    labels: dict[str, str]
    attempts: int
    billed_s: float
    cost: float | None
    bound: bool
    currency: str | None
    origin: str | None
    missing: list[str]
    hourly_low: float | None
    hourly_high: float | None
    worst: float | None
    final: bool


class SummedCosts(Document, frozen=True):
    """Runs with the same `key`, in one currency. `unknown`: how many of the runs have no known price; they are not in
    `cost`."""

    by: str
    key: str
    runs: int
    billed_s: float
    cost: float
    currency: str | None
    unknown: int


class StoredCosts(Document, frozen=True):
    """What a run has in the store; `run` is null for what runs share, and for a provider's `disk`. `monthly`: null
    without a price of `storage`, or of the provider's `disk`. `used`: whether a machine has the disk."""

    run: str | None
    bytes: int
    objects: int
    monthly: float | None
    currency: str | None
    disk: str | None
    used: bool | None


class JobCosts(Document, frozen=True):
    """What a job would cost. `worst`: at most, by its deadline or its budget; null where nothing bounds it. `expected`:
    by the mean time of its `earlier` runs that succeeded."""

    run: str
    name: str
    hourly_low: float | None
    hourly_high: float | None
    currency: str | None
    origin: str | None
    missing: list[str]
    deadline_s: float | None
    budget: float | None
    worst: float | None
    expected: float | None
    earlier: int


class Interval(Document, frozen=True):
    value: float
    low: float
    high: float


class Task(Document, frozen=True):
    benchmark: str
    task_id: str
    seed: str


class PerSolved(Document, frozen=True):
    """Answers, seconds and USD; null where no task was solved, or it is not known."""

    steps: float | None
    seconds: float | None
    cost: float | None


class Compared(Document, frozen=True):
    """B compared with A on one benchmark; `difference` is B - A. The values are over `tasks`, those that both have:
    what the infrastructure broke, or could not run there, is not solved there. Difference and `p` are over the `pairs`
    scored on both sides. `per_solved_a` and `per_solved_b`: what all scored episodes of these tasks took, for each task
    that was solved."""

    a: str
    b: str
    benchmark: str
    version: str
    metric: str
    tasks: int
    pairs: int
    clusters: int
    value_a: Interval | None
    value_b: Interval | None
    difference: Interval | None
    p: float | None
    test: str
    gained: int
    lost: int
    only_a: list[Task]
    only_b: list[Task]
    infra_a: list[Task]
    infra_b: list[Task]
    not_run_a: list[Task]
    not_run_b: list[Task]
    unscored: list[Task]
    per_solved_a: PerSolved
    per_solved_b: PerSolved
    other_task: list[Task]
    notes: list[str]
    group: str
    left_out: int


class Field(Document, frozen=True):
    """`missing`: the sides without this field, `a` or `b`."""

    field: str
    a: Any
    b: Any
    missing: list[str]


class Diff(Document, frozen=True):
    a: str
    b: str
    same_work: bool
    differences: list[Field]


class File(Document, frozen=True):
    """A file that was written."""

    file: str


class Overlay(Document, frozen=True):
    overlay: str
    state: str


class Problem(Document, frozen=True):
    file: str
    line: int
    col: int
    field: str
    what: str
    allowed: str


class Validated(Document, frozen=True):
    """`passed_over`: files that hold no manifest. `unknown_kinds`: a line for each object that was not checked.
    `policies`: the house policies that were applied."""

    files: int
    objects: int
    kubernetes_version: str
    problems: list[Problem]
    passed_over: list[str]
    unknown_kinds: list[str]
    policies: list[str]


class Linted(Document, frozen=True):
    """`level`: error, warning or note."""

    file: str
    line: int
    level: str
    what: str
    todo: str


class Checked(Document, frozen=True):
    check: str
    state: str
    detail: str
    fix: str | None


class Secret(Document, frozen=True):
    name: str
    where: str


class Image(Document, frozen=True):
    name: str
    version: str
    catalogue: str
    reference: str | None
    base: str
    description: str


class Vulnerability(Document, frozen=True):
    image: str
    severity: str
    id: str
    package: str
    version: str
    fixed: str | None


class ImageFinding(Document, frozen=True):
    """`fault`: the definition must be corrected; otherwise the catalogue is stale."""

    image: str
    fault: bool
    text: str


class Verified(Document, frozen=True):
    reference: str
    right: bool
    text: str


class Part(Document, frozen=True):
    part: str
    state: str
    detail: str


class Queued(Document, frozen=True):
    run: str
    phase: str
    reason: str
    evidence: str


class Quota(Document, frozen=True):
    """A resource of a queue: cores, bytes, or a number. `flavor`: Kueue's ResourceFlavor, empty on this machine.
    `used` includes what is `borrowed` from other queues of the cohort; `free` is what is left of the queue's own."""

    flavor: str
    resource: str
    quota: float
    used: float
    borrowed: float
    free: float


class Check(Document, frozen=True):
    """What a queue asks besides its quota (Kueue's admission checks). `state`: of the queue's own, active or inactive,
    null where this login may not read it; of a run, Kueue's word: Pending, Retry, Rejected. `message`: why."""

    check: str
    state: str | None
    message: str


class Position(Document, frozen=True):
    """A run of Slipway that waits. `position` counts from 1, other jobs in the queue included; null where it is
    unknown, or where the run has its quota and waits for its `checks`."""

    run: str
    position: int | None
    checks: list[Check]


class Queue(Document, frozen=True):
    """A queue. `state`: open, held (it lets nothing in), draining (it also takes out what runs) or inactive (it cannot
    be used); `detail`: why. `waiting` and `running`: jobs of anybody in this queue. `quotas`: of its ClusterQueue,
    which other queues may share. `checks`: what it asks of each job besides quota."""

    queue: str
    backend: str
    place: str
    namespace: str | None
    cluster_queue: str | None
    cohort: str | None
    state: str
    detail: str
    waiting: int
    running: int
    runs: list[Position]
    quotas: list[Quota]
    checks: list[Check]


class Slots(Document, frozen=True):
    cpus: float
    memory: int
    gpus: list[str]


class Local(Document, frozen=True):
    """`supervisor`: its process id; `version`: Slipway's, "" of one that does not tell; `stopped`: it stands still."""

    state: str
    supervisor: int | None
    version: str | None
    stopped: bool
    slots: Slots
    queue: list[Queued]
