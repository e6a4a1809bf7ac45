"""Reads a finished run's outputs. Every file is checked against the sha256 in the manifest
(docs/explanation/architecture.md, The store)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from launcher.decoding import decode
from launcher.errors import NotFound, SlipwayError
from launcher.store.base import Store
from launcher.store.layout import AttemptKeys, RunKeys
from launcher.store.manifest import Manifest, find_output, key_of

RESULTS = "results"  # the output whose files the launcher can read
STEPWISE = "agentnetbench"  # its task ids are TRAJECTORY/STEP
T = TypeVar("T")


class DamagedResults(SlipwayError):
    """A file whose bytes differ from the manifest, or whose content is malformed."""


class Metric(msgspec.Struct, frozen=True):
    """One line of summary.json."""

    benchmark: str
    metric: str
    value: float | None = None
    version: str | int | float = ""
    split: str = ""
    ci_low: float | None = None
    ci_high: float | None = None
    n: int | None = None
    infra_failures: int = 0
    seeds: list[int] | int | None = None
    agent: str = ""
    clusters: int | None = None  # behind an interval by cluster; None: the observations are independent


class TaskResult(msgspec.Struct, frozen=True):
    """One line of tasks.jsonl: the outcome of one task with one seed, by one version of the scoring rules.

    cluster  results of the same cluster (the steps of a trajectory) are not independent; None: of no other's cluster
    rules    what else defines the score; two results are only compared where it is the same
    trial    which repetition of the task it is, from 0
    programs, difficulty  of the task, where the environment tells
    steps, duration_ms, metrics  of the episode: its answers, its time, its means and sums such as `cost`
    identity all that can change the task's start, answer or verdict, by name: digests of code, versions of programs,
             the image; two results are only compared where it is the same. Empty: the judge is not known
    """

    benchmark: str
    task_id: str
    seed: int | str | None = None
    score: float | None = None
    success: bool | None = None
    outcome: str = "scored"  # scored | infra | not run
    agent: str = ""
    version: str | int | float = ""
    cluster: str | None = None
    rules: dict[str, Any] = {}
    trial: int = 0
    programs: tuple[str, ...] = ()
    difficulty: str = ""
    steps: int = 0
    duration_ms: float = 0.0
    metrics: dict[str, float] = {}
    identity: dict[str, str] = {}

    @property
    def unit(self) -> str:
        """The name of the cluster: results with another name are independent of this one."""
        if self.cluster is not None:
            return f"cluster {self.cluster}"
        if self.benchmark == STEPWISE and "/" in self.task_id:  # records of before they named their cluster
            return f"cluster {self.task_id.rpartition('/')[0]}"
        return f"task {self.task_id} {self.key[2]}"

    @property
    def edition(self) -> str:
        """The version, and the revision of the task set where the rules name one: other tasks make another table."""
        options = self.rules.get("options")
        revision = options.get("revision") if isinstance(options, dict) else None
        return f"{self.version} ({revision})".strip() if isinstance(revision, str) else str(self.version)

    @property
    def key(self) -> tuple[str, str, str]:
        seed = "" if self.seed is None else str(self.seed)
        return self.benchmark, self.task_id, f"{seed}.{self.trial}" if self.trial else seed

    def value(self, metric: str) -> float | None:
        """The task's value of a metric; None if it has none."""
        if self.outcome != "scored":
            return None
        if metric == "success":
            return None if self.success is None else float(self.success)
        return self.score


class FailureNote(msgspec.Struct, frozen=True):
    """Why an episode failed, as the evaluation says: the class, the rule in words, and what fitted it."""

    kind: str = ""
    rule: str = ""
    why: str = ""


class DetailedResult(TaskResult, frozen=True):
    """A line of tasks.jsonl with what a report shows besides. `episode`: the folder of the kept episode."""

    error: str | None = None
    episode: str | None = None
    failure: FailureNote | None = None


class StoredOutput:
    """The files of one output of one attempt. Each file is verified when it is read."""

    def __init__(self, store: Store, keys: AttemptKeys, name: str, manifest: Manifest) -> None:
        self.store = store
        self.prefix = keys.output(name)
        self.manifest = manifest
        self.metrics: list[Metric] | None = None  # the lines of summary.json, once `read_metrics` has read them

    @property
    def files(self) -> Iterable[str]:
        return self.manifest.files

    def read(self, path: str) -> bytes:
        """The bytes of one file. Raises NotFound for a file that the manifest does not list, DamagedResults for wrong
        bytes."""
        entry = self.manifest.files.get(path)
        if entry is None:
            raise NotFound(f"{self.prefix}{path} is not in the manifest")
        body = self.store.get(key_of(self.prefix, path, entry.at))
        if len(body) != entry.size or hashlib.sha256(body).hexdigest() != entry.sha256:
            raise DamagedResults(f"{self.prefix}{path} is damaged: its sha256 is not the manifest's")
        return body


def open_output(store: Store, run: str, attempt: int, name: str = RESULTS) -> StoredOutput | None:
    """A complete output, or the newest complete version of a live output; None without a manifest."""
    keys = RunKeys(run).attempt(attempt)
    output = find_output(store, keys.output(name))
    return StoredOutput(store, keys, name, output[1]) if output is not None else None


def read_metrics(output: StoredOutput) -> list[Metric]:
    """The lines of summary.json; empty if the output has no such file."""
    if "summary.json" not in output.files:
        return []
    try:
        if output.metrics is None:
            output.metrics = decode(output.read("summary.json"), list[Metric])
        return output.metrics
    except msgspec.MsgspecError as error:
        raise DamagedResults(f"{output.prefix}summary.json: {error}") from None


R = TypeVar("R", bound=TaskResult)


def read_tasks(output: StoredOutput) -> list[TaskResult]:
    """The lines of tasks.jsonl, see `read_tasks_of`."""
    return read_tasks_of(output, "tasks.jsonl", TaskResult)


def read_tasks_of(output: StoredOutput, path: str, kind: type[R]) -> list[R]:
    """The lines of a file of tasks. Raises NotFound without the file, DamagedResults for a task that is listed twice.

    Records of before they named their version get it from summary.json. Where that has several of a benchmark, the last
    one gave the scores.
    """
    tasks = decode_lines(output.read(path), kind, output.prefix + path)
    seen: set[tuple[str, ...]] = set()
    for task in tasks:
        key = (*task.key, str(task.version), task.agent)
        if key in seen:
            raise DamagedResults(f"{output.prefix}{path} has {' / '.join(filter(None, key))} twice")
        seen.add(key)
    if all(task.version != "" for task in tasks):
        return tasks
    versions = {metric.benchmark: metric.version for metric in read_metrics(output)}
    return [
        task if task.version != "" else msgspec.structs.replace(task, version=versions.get(task.benchmark, ""))
        for task in tasks
    ]


def decode_lines(body: bytes, kind: type[T], where: str) -> list[T]:
    """Decodes JSON lines; empty lines are allowed. Raises DamagedResults that names the malformed line."""
    decoded = []
    for number, line in enumerate(body.splitlines(), 1):
        if not line.strip():
            continue
        try:
            decoded.append(decode(line, kind))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise DamagedResults(f"{where}:{number}: {error}") from None
    return decoded
